"""Settings that a YAML file can give: one row each, from which code, file, flags, errors and docs
come. A dataclass of such rows is a section of the file."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from otel_straggler.errors import ConfigError, describe
from otel_straggler.setting import Kind, Setting, is_number, setting

kind: Final = partial(Kind, remedy="Correct it, or leave it out for the default.")
_Section = TypeVar("_Section")


def option(default: Any, accepted: Kind, meaning: str, flag: str = "") -> Any:
    """A field of a section.

    Args:
        default: value without a file.
        accepted: kind of value.
        meaning: for the reference page and the comments of the example file.
        flag: of the command line, with its metavar.
    """
    return setting(default, accepted, *([flag] if flag else []), meaning=meaning)


# --- kinds ----------------------------------------------------------------------------------------


def integer(minimum: int) -> Kind:
    return kind(
        accepts=lambda value: type(value) is int and value >= minimum,
        expected=f"an integer of at least {minimum}",
    )


def number(minimum: float, maximum: float = math.inf) -> Kind:
    is_open = math.isinf(maximum)
    return kind(
        accepts=lambda value: is_number(value) and minimum <= value <= maximum,
        expected=f"a number of at least {minimum:g}"
        if is_open
        else f"a number of {minimum:g} to {maximum:.12g}",
        convert=float,
    )


def above(minimum: float, maximum: float = math.inf) -> Kind:
    end = "" if math.isinf(maximum) else f" and at most {maximum:g}"
    return kind(
        accepts=lambda value: is_number(value) and minimum < value <= maximum,
        expected=f"a number above {minimum:g}{end}",
        convert=float,
    )


def text(expected: str, accepts: Callable[[str], bool], *, is_secret: bool = False) -> Kind:
    return kind(
        accepts=lambda value: isinstance(value, str) and accepts(value),
        expected=expected,
        is_secret=is_secret,
    )


def choice(*values: str) -> Kind:
    *most, last = (f'"{value}"' for value in values)
    return text(f"{', '.join(most)} or {last}", values.__contains__)


def texts(expected: str, accepts: Callable[[list[str]], bool] = lambda _: True) -> Kind:
    return kind(
        accepts=lambda value: (
            isinstance(value, (list, tuple))
            and all(isinstance(item, str) for item in value)
            and accepts(list(value))
        ),
        expected=expected,
        convert=tuple,
    )


ANY_TEXT: Final = text("text", lambda _: True)
SWITCH: Final = kind(accepts=lambda value: isinstance(value, bool), expected="true or false")


# --- sections -------------------------------------------------------------------------------------


def rows_of(section: type) -> dict[str, Setting]:
    """The settings of a section by key: the field's name, in which ``_s`` is ``_seconds``."""
    rows = {}
    for field in dataclasses.fields(section):
        if "setting" in field.metadata:
            key = f"{field.name}econds" if field.name.endswith("_s") else field.name
            rows[key] = dataclasses.replace(field.metadata["setting"], field=field.name)
    return rows


def sections_of(section: type) -> dict[str, type]:
    """The sections within a section by key."""
    made_by = {field.name: field.default_factory for field in dataclasses.fields(section)}
    return {name: inner for name, inner in made_by.items() if dataclasses.is_dataclass(inner)}  # type: ignore[misc]


def checked(row: Setting, value: object, where: str) -> Any:
    """The value as the code wants it.

    Raises:
        ConfigError: it is not accepted.
    """
    assert row.kind is not None
    if row.kind.accepts(value):
        return row.kind.convert(value)
    raise row.refusal(where, value)


def read_section(section: type[_Section], values: object, where: str, prefix: str = "") -> _Section:
    """A section from what stands in a file; None for the defaults.

    Args:
        where: named in errors.
        prefix: before the names of settings in errors; ``where`` with a dot if empty.

    Raises:
        ConfigError: a key is unknown, or a value is not accepted.
    """
    if values is None:
        return section()
    if not isinstance(values, Mapping):
        raise ConfigError(
            describe(
                where=where,
                value=values,
                expected="a mapping of settings",
                remedy="Indent the settings under it, one 'key: value' a line.",
            )
        )
    prefix = prefix or f"{where}."
    rows, sections = rows_of(section), sections_of(section)
    given: dict[str, Any] = {}
    for key, value in values.items():
        if key in rows:
            given[rows[key].field] = checked(rows[key], value, f"{prefix}{key}")
        elif key in sections:
            given[key] = read_section(sections[key], value, f"{prefix}{key}")
        else:
            raise _unknown(key, where, [*rows, *sections])
    return section(**given)


def _unknown(key: object, where: str, known: list[str]) -> ConfigError:
    close = difflib.get_close_matches(str(key), known, n=3)
    return ConfigError(
        describe(
            where=where,
            value=key,
            expected="one of " + ", ".join(known),
            remedy=f"Did you mean {' or '.join(close)}?"
            if close
            else "Correct the spelling, or remove it.",
        )
    )
