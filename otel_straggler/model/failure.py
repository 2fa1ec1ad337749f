"""Mistakes of ours in the evaluation of one run, which end neither it nor that of other runs."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, Literal, Protocol, TypeAlias

Stage: TypeAlias = Literal[
    "rows",
    "scores",
    "windows",
    "verdicts",
    "summary",
    "decisions",
    "timeouts",
    "hangs",
    "view",
    "alerts",
    "series",
]
"""What is evaluated of a run, from its rows to what is shown of it."""
_MAX_TEXT: Final = 200
_PACKAGE: Final = "otel_straggler"


class Guard(Protocol):
    """Receives from an evaluation what has failed and what works; without one, errors are raised.

    Of what has failed its state is dropped, so that the next evaluation begins afresh.
    """

    def failed(self, run_id: str, group: str, stage: Stage, error: Exception) -> None: ...

    def succeeded(self, run_id: str, group: str, stage: Stage) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A stage of a run's evaluation that fails, until it succeeds again.

    Attributes:
        group: of the run; empty also if all groups are concerned.
        since_s: when it failed first.
        count: how often it has failed since.
        error: type and message of the newest exception, at most 200 characters; where: the line of
            this package that raised it, ``detect/verdicts/log.py:80 (record)``.
    """

    group: str = ""
    stage: Stage
    since_s: float
    count: int = 1
    error: str
    where: str


def describe_error(error: Exception) -> tuple[str, str]:
    """Texts of a :class:`Failure` on one line each: the error, and where it was raised.

    >>> try:
    ...     [][2]
    ... except IndexError as error:
    ...     describe_error(error)[0]
    'IndexError: list index out of range'
    """
    message = " ".join(str(error).split())
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    text = text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 3]}..."
    where = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        parts = PurePath(frame.f_code.co_filename).parts
        if _PACKAGE in parts:
            at = len(parts) - parts[::-1].index(_PACKAGE)
            where = f"{'/'.join(parts[at:])}:{line} ({frame.f_code.co_name})"
    return text, where[:_MAX_TEXT]
