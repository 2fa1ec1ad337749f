"""Kinds of values in the configuration of the rank monitor."""

from __future__ import annotations

import logging
import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from otel_straggler.agent.beats import MAX_SECTIONS
from otel_straggler.setting import ANY_TEXT, Kind, choice, is_number, kind

ACTIONS: Final = ("observe", "signal", "terminate")
_NONE: Final = frozenset({"none", "null", ""})
_LEVELS: Final = {"DBG": logging.DEBUG, "WARN": logging.WARNING}
_MAX_NAME: Final = 200


def _is_timeout(value: object) -> bool:
    return value is None or (is_number(value) and value > 0)  # type: ignore[operator]


def _seconds(value: Any) -> float | None:
    return None if value is None else float(value)


def _is_signal(value: object) -> bool:
    try:
        _signal(value)
    except (KeyError, ValueError):
        return False
    return True


def _signal(value: Any) -> signal.Signals:
    if isinstance(value, str):
        return signal.Signals[value.upper()]
    if isinstance(value, bool):
        raise ValueError(value)
    return signal.Signals(value)


def _level(value: object) -> int | None:
    if isinstance(value, str):
        name = value.upper()
        level = _LEVELS.get(name, getattr(logging, name, None))
    else:
        level = value
    is_level = type(level) is int and logging.DEBUG <= level <= logging.CRITICAL
    return level if is_level else None


def _are_sections(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and len(value) <= MAX_SECTIONS
        and all(isinstance(name, str) and 0 < len(name) <= _MAX_NAME for name in value)
        and all(map(str.isprintable, value))
        and all(map(_is_timeout, value.values()))
    )


TIMEOUT: Final = kind(
    accepts=_is_timeout, expected="seconds above 0, or null for never", convert=_seconds
)
SECTIONS: Final = kind(
    accepts=_are_sections,
    expected=f"at most {MAX_SECTIONS} names of sections with seconds above 0, or null for never "
    "(on a command line: name:seconds,name:null)",
    convert=lambda value: {name: _seconds(one) for name, one in value.items()},
)
SIGNAL: Final = kind(
    accepts=_is_signal, expected="a signal, such as SIGTERM or 15", convert=_signal
)
LOG_LEVEL: Final = kind(
    accepts=lambda value: _level(value) is not None,
    expected="DEBUG, INFO, WARNING, ERROR or CRITICAL",
    convert=_level,
)
ACTION: Final = choice(*ACTIONS)
STEP_FILE: Final = kind(
    accepts=lambda value: value is None or (isinstance(value, str) and bool(value)),
    expected="a file or folder, or null for none",
    convert=lambda value: value,
)
FOLDER: Final = replace(ANY_TEXT, expected="a folder")


def read_text(of_kind: Kind | None, text: str) -> object:
    """The value of an argument's text; the text itself where it is none, which is then refused."""
    text = text.strip()
    if of_kind is SECTIONS:
        return _read_sections(text)
    if of_kind is TIMEOUT and text.lower() in _NONE:
        return None
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _read_sections(text: str) -> object:
    pairs = [pair.rpartition(":") for pair in text.split(",") if pair.strip()]
    if any(not colon for _, colon, _ in pairs):
        return text
    return {name.strip(): read_text(TIMEOUT, timeout) for name, _, timeout in pairs}
