"""The JSON object of a request, whose values are checked one by one."""

from __future__ import annotations

from typing import Any, Final

from otel_straggler.errors import InputError
from otel_straggler.model.names import MAX_NAME, clean_name
from otel_straggler.secret import of_kind, redacted
from otel_straggler.setting import is_number
from otel_straggler.strict_json import parse_json

LONGEST_TEXT: Final = 500
_MAX_SHOWN: Final = 200


class JsonBody:
    """The JSON object of a request.

    Args:
        body: JSON.
        remedy: ends every error.
        where: before the names of values in errors.
        expected: of an error about the whole.

    Attributes:
        values: all of them.

    Raises:
        InputError: it is no object; and by every method, if the value is not what was expected.
    """

    def __init__(
        self,
        body: bytes,
        remedy: str,
        *,
        where: str = "",
        expected: str = "a JSON object",
    ) -> None:
        self._remedy, self._where = remedy, where
        try:
            values, problem = parse_json(body, None), ""
        except ValueError as error:
            values, problem = None, f" ({error})"
        if not isinstance(values, dict):
            raise InputError.of(f"{where}body", of_kind(body) + problem, expected, remedy)
        self.values: dict[str, Any] = values

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        value = self.values.get(name)
        return default if value is None else value

    def text(self, name: str, default: str | None = None, max_chars: int = LONGEST_TEXT) -> str:
        if default is not None and name not in self:
            return default
        value = self.values.get(name)
        if not isinstance(value, str) or not value.strip() or len(value) > max_chars:
            raise self.wrong(name, value, f"a text of 1 to {max_chars} characters")
        return value.encode("utf-8", "replace").decode()

    def name(self, name: str, default: str | None = None) -> str:
        """A text that names something, cleaned as all names from outside."""
        return clean_name(self.text(name, default, MAX_NAME))

    def number(self, name: str, minimum: float, maximum: float, expected: str) -> float:
        value = self.values.get(name)
        if not is_number(value) or not minimum <= value <= maximum:  # type: ignore[operator]
            raise self.wrong(name, value, expected)
        return float(value)  # type: ignore[arg-type]

    def whole(self, name: str, maximum: int) -> int:
        value = self.values.get(name)
        if type(value) is not int or not 0 <= value <= maximum:
            raise self.wrong(name, value, f"a whole number from 0 to {maximum}")
        return value

    def wrong(self, where: str, value: object, expected: str) -> InputError:
        value = redacted({where: value})[where]
        shown = repr(value)
        value = value if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."
        return InputError.of(self._where + where, value, expected, self._remedy)
