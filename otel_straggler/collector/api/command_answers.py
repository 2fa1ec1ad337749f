"""What ranks send with the outcome of a command: flight records and operator tables."""

from __future__ import annotations

from typing import Any, Final

from otel_straggler.errors import InputError
from otel_straggler.model.flight_dumps import text_of
from otel_straggler.model.flight_json import decoded, read_flight_record
from otel_straggler.model.flight_records import FlightRecord
from otel_straggler.model.operator_tables import MAX_REASON, OperatorTable, read_operator_table
from otel_straggler.setting import is_number

COMMAND_REMEDY: Final = "See docs/operate/silent-and-stuck-ranks.md, 'What a stuck rank was doing'."
MAX_PARTS: Final = 4
"""Flight records in one poll, and as many profiles."""
_PARTS: Final = ("flight_records", "profiles")
_MAX_AGE_S: Final = 3_600.0
_MAX_SHOWN: Final = 300


def parts_of(body: bytes) -> dict[str, dict[str, Any]]:
    """Flight records and profiles, each by id of its command.

    Raises:
        InputError: it is neither.
    """
    try:
        content = decoded(body)
    except ValueError as error:
        raise wrong_command("body", str(error)[:200], "JSON with " + " or ".join(_PARTS)) from error
    given = content if isinstance(content, dict) else {}
    parts = {name: given[name] for name in _PARTS if name in given}
    if not parts:
        raise wrong_command("body", str(content)[:100], " or ".join(_PARTS))
    for name, part in parts.items():
        if not isinstance(part, dict) or len(part) > MAX_PARTS:
            raise wrong_command(name, str(part)[:100], f"up to {MAX_PARTS} by id")
    return parts


def read_record(content: Any, rank: int) -> tuple[FlightRecord, float]:
    """A flight record, and its age in seconds.

    Raises:
        InputError: it is none.
    """
    try:
        age_s = content["age_s"]
        if not is_number(age_s) or not 0.0 <= age_s <= _MAX_AGE_S:
            raise ValueError("its age is no number of seconds")
        return read_flight_record(content, rank), float(age_s)
    except (KeyError, TypeError, ValueError) as error:
        raise wrong_command("flight record", str(error)[:200], "what a rank sends") from error


def read_profile(content: Any, rank: int) -> OperatorTable | str:
    """An operator table, or why there is none.

    Raises:
        InputError: it is neither.
    """
    try:
        reason = content.get("reason") if isinstance(content, dict) else None
        if reason is not None:
            return text_of(reason)[:MAX_REASON]
        return read_operator_table(content, rank)
    except (TypeError, ValueError) as error:
        raise wrong_command("profile", str(error)[:200], "what a rank sends") from error


def wrong_command(where: str, value: object, expected: str) -> InputError:
    shown = value[:_MAX_SHOWN] if isinstance(value, str) else value
    return InputError.of(where[:_MAX_SHOWN], shown, expected, COMMAND_REMEDY)
