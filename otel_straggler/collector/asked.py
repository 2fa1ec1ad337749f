"""Reads what a person asks for at the metrics address: a JSON object of texts and numbers."""

from __future__ import annotations

import json
from typing import Any, Final

from otel_straggler.errors import InputError, describe

LONGEST_TEXT: Final = 500


class Asked:
    """One body.

    Args:
        body: JSON.
        remedy: ends every sentence about what is wrong with it.

    Raises:
        InputError: it is no object; and by every method, if the value is not what was expected.
    """

    def __init__(self, body: bytes, remedy: str) -> None:
        self._remedy = remedy
        try:
            values = json.loads(body)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise self.wrong("body", body[:100].decode("utf-8", "replace"), "a JSON object")
        self._values: dict[str, Any] = values

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def get(self, name: str) -> Any:
        """Whatever was given; None if nothing was."""
        return self._values.get(name)

    def text(self, name: str) -> str:
        value = self._values.get(name)
        if not isinstance(value, str) or not value.strip() or len(value) > LONGEST_TEXT:
            raise self.wrong(name, value, f"a text of 1 to {LONGEST_TEXT} characters")
        return value.encode("utf-8", "replace").decode()

    def number(self, name: str, least: float, most: float, expected: str) -> float:
        value = self._values.get(name)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not least <= value <= most:  # type: ignore[operator]
            raise self.wrong(name, value, expected)
        return float(value)  # type: ignore[arg-type]

    def wrong(self, where: str, value: object, expected: str) -> InputError:
        return InputError(
            describe(where=where, value=value, expected=expected, remedy=self._remedy)
        )
