"""All of layer 2 in one place: tables of steps go in, changes of verdicts come out."""

from __future__ import annotations

from typing import Any

from otel_straggler.model.step_table import StepTable
from otel_straggler.model.verdict import Verdict, WorldSummary
from otel_straggler.score.verdicts.settings import VerdictSettings


class Judge:
    """Judges one run and group, over all its attempts. Pure: no clock, no I/O.

    Not thread-safe: one thread owns a judge.
    """

    def __init__(self, settings: VerdictSettings | None = None) -> None:
        self._settings = settings or VerdictSettings()
        self._changes: list[Verdict] = []

    def take(self, table: StepTable) -> tuple[Verdict, ...]:
        """Take the next steps in; returns the changes of state that they bring."""
        del table
        return ()

    def finish(self) -> tuple[Verdict, ...]:
        """The input has ended: evaluate what has not been."""
        return ()

    @property
    def changes(self) -> tuple[Verdict, ...]:
        """All changes of state in order; the last of a subject counts."""
        return tuple(self._changes)

    def summary(self) -> WorldSummary | None:
        """Of the newest steps; None before the first."""
        return None

    def state(self) -> dict[str, Any]:
        """All that must survive a restart: JSON's types and NumPy arrays, nested in dicts and
        lists."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state` of an earlier process."""
        del state
