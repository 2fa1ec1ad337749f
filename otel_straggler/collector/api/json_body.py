"""The JSON object of a request, whose values are checked one by one."""

from __future__ import annotations

import json
from typing import Any, Final

from otel_straggler.errors import InputError
from otel_straggler.setting import is_number

LONGEST_TEXT: Final = 500


class JsonBody:
    """The JSON object of a request.

    Args:
        body: JSON.
        remedy: ends every error.

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

    def get(self, name: str, default: Any = None) -> Any:
        value = self._values.get(name)
        return default if value is None else value

    def text(self, name: str, default: str | None = None) -> str:
        if default is not None and name not in self:
            return default
        value = self._values.get(name)
        if not isinstance(value, str) or not value.strip() or len(value) > LONGEST_TEXT:
            raise self.wrong(name, value, f"a text of 1 to {LONGEST_TEXT} characters")
        return value.encode("utf-8", "replace").decode()

    def number(self, name: str, minimum: float, maximum: float, expected: str) -> float:
        value = self._values.get(name)
        if not is_number(value) or not minimum <= value <= maximum:  # type: ignore[operator]
            raise self.wrong(name, value, expected)
        return float(value)  # type: ignore[arg-type]

    def wrong(self, where: str, value: object, expected: str) -> InputError:
        return InputError.of(where, value, expected, self._remedy)
