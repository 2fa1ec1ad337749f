"""Whether C++ and protobuf's own parser say the same of a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from otel_straggler.errors import InputError

UNFAMILIAR = "unfamiliar"


def scanned(decoder: Any, body: bytes) -> Any:
    """Decoded by C++ alone; None if it is no request, "unfamiliar" if C++ does not take it."""
    assert decoder._cases is not None
    try:
        return decoder._scan(body) or UNFAMILIAR
    except DecodeError:
        return None


def has_taken(decoder: Any, body: bytes, expected: Any, same: Callable[[Any, Any], None]) -> bool:
    """Whether C++ took the body. It and the decoder as a whole must say what protobuf says.

    Args:
        expected: what protobuf's classes alone say; None if it is no request.
        same: fails where two decoded requests differ.
    """
    result = scanned(decoder, body)
    if result is None:
        assert expected is None
    elif result != UNFAMILIAR:
        assert expected is not None
        same(result, expected)
    try:
        decoded = decoder.decode(body)
    except InputError:
        assert expected is None
    else:
        assert expected is not None
        same(decoded, expected)
    return result is not None and result != UNFAMILIAR
