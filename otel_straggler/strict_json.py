"""Small JSON and numbers from a file, a peer or a child, which may be huge, endlessly nested, or of
a million digits: parsed within limits, or one error."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, Final

SMALL_BYTES: Final = 1 << 20
"""Of a settings file, a marker, a request: far more than any of them needs."""
MAX_DEPTH: Final = 64
_MAX_DIGITS: Final = 40
"""Of an integer: nothing of ours counts beyond 64 bits, and Python reads none beyond 4,300."""
_WHOLE: Final = 18
_TOO_DEEP: Final = object()


def whole_number(text: str) -> int | None:
    """The number that 1 to 18 ASCII digits are; None of any other text, such as ``²``.

    >>> whole_number("0120"), whole_number("²"), whole_number("-1"), whole_number("9" * 5_000)
    (120, None, None, None)
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _WHOLE else None


def parse_object(body: bytes | str, max_bytes: int = SMALL_BYTES) -> dict[str, Any]:
    """A JSON object, each key once.

    Raises:
        ValueError: it is none; see :func:`parse_json`.
    """
    values = parse_json(body, max_bytes, unique_keys=True)
    if not isinstance(values, dict):
        raise ValueError(f"a JSON {type(values).__name__}, no object")
    return values


def parse_json(
    body: bytes | str,
    max_bytes: int | None = SMALL_BYTES,
    *,
    max_depth: int = MAX_DEPTH,
    unique_keys: bool = False,
) -> Any:
    """JSON from a file, a peer or a child, as RFC 8259 has it: UTF-8, no NaN, no Infinity.

    Args:
        max_bytes: None where who has read it has a limit.
        max_depth: of lists and objects in each other.
        unique_keys: a key that is there twice is an error, not the last one's.

    Raises:
        ValueError: it is no such JSON, is larger or deeper, or has an integer of more than 40
            digits. Nothing else.
    """
    if max_bytes is not None and len(body) > max_bytes:
        raise ValueError(f"{len(body):,} bytes; expected at most {max_bytes:,}")
    try:
        values = json.loads(
            body.decode() if isinstance(body, bytes) else body,
            parse_constant=_refuse_constant,
            parse_int=_integer,
            parse_float=_finite,
            object_pairs_hook=_unique if unique_keys else None,
        )
    except RecursionError:
        values = _TOO_DEEP
    if values is _TOO_DEEP or _is_deeper(values, max_depth):
        raise ValueError(f"JSON that is nested deeper than {max_depth}")
    return values


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} where a finite number is expected")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text:.20} where a finite number is expected")
    return value


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"an integer of {len(text):,} digits")
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key that is there twice")
    return values


def _is_deeper(value: Any, max_depth: int) -> bool:
    level = [value]
    for _ in range(max_depth):
        inner = (one for each in level for one in _inner(each))
        level = [one for one in inner if isinstance(one, (dict, list))]
        if not level:
            return False
    return True


def _inner(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
