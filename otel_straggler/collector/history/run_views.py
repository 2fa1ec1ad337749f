"""Views of the runs of a history, and columns of their timelines, from summaries, windows, and
changes of verdicts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np

from otel_straggler.collector.history.codec import WindowSummary
from otel_straggler.collector.history.reader import HistoryReader, RunEntry, WindowEntry
from otel_straggler.collector.views.run_summary import layout_of, read_summary
from otel_straggler.collector.views.timeline import Column, column_of, sharing
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.detect.hangs.states import ENDS
from otel_straggler.errors import InputError
from otel_straggler.model.verdict import RunVerdicts, Verdict

MAX_COLUMNS: Final = 240
_GOES_ON_S: Final = 60.0
"""Live runs have a younger summary: one is written every ten seconds."""
_Read: TypeAlias = tuple[Any, WorldView | None]
"""A stored summary, and its view; None and None without one."""


class FromHistory:
    """Reads one file; damaged parts are skipped.

    Args:
        wall_s: clock.
        goes_on_s: a run with a younger summary is live; 0: none is.
    """

    def __init__(
        self,
        reader: HistoryReader,
        *,
        wall_s: Callable[[], float] = time.time,
        goes_on_s: float = _GOES_ON_S,
    ) -> None:
        self._reader = reader
        self._goes_on_s = goes_on_s
        self._wall_s = wall_s

    def runs(self) -> list[RunEntry]:
        """All runs, last seen first."""
        return self._reader.runs()[::-1]

    def worlds(self, run_id: str) -> list[WorldView]:
        """The last view of every group of a run; empty for an unknown run.

        Cost: reads a window of each group and the changes of verdicts; O(ranks * sections).
        """
        entry = next((run for run in self._reader.runs() if run.run_id == run_id), None)
        if entry is None:
            return []
        windows = self._windows(run_id)
        groups = sorted({*windows, *self._reader.summaries(run_id)}) or [""]
        summaries = {group: self._summary(run_id, group) for group in groups}
        run_verdicts = RunVerdicts(
            changes=self._changes(run_id, summaries),
            worlds=_all_of(summaries, "worlds"),
            decisions=_all_of(summaries, "decisions"),
            silenced=frozenset(_all_of(summaries, "silenced")),
        )
        return [
            replace(
                self._world(entry, group, windows.get(group, []), summaries[group]),
                groups=tuple(groups),
                run_verdicts=run_verdicts,
            )
            for group in groups
        ]

    def columns(
        self,
        run_id: str,
        group: str,
        *,
        from_s: float = -math.inf,
        to_s: float = math.inf,
        maximum: int = MAX_COLUMNS,
    ) -> list[Column]:
        """Windows of a world that ended between two times (of the senders' clocks), oldest first,
        numbered as in the history; of more than ``maximum``, evenly spaced ones.

        Cost: reads each of them; O(windows * ranks * sections).
        """
        wanted = [
            entry
            for entry in _of_one_kind(self._windows(run_id).get(group, []))
            if from_s <= entry.end_ns / 1e9 <= to_s
        ]
        if len(wanted) > maximum:
            indexes = np.linspace(0, len(wanted) - 1, maximum).round().astype(int)
            wanted = [wanted[index] for index in indexes.tolist()]
        columns: list[Column] = []
        for entry in wanted:
            window = self._window(entry)
            if window is not None:
                column = column_of(window, entry.id, entry.attempt)
                columns.append(sharing(column, columns))
        return columns

    # --- parts ------------------------------------------------------------------------------

    def _windows(self, run_id: str) -> dict[str, list[WindowEntry]]:
        result: dict[str, list[WindowEntry]] = {}
        for entry in self._reader.windows(run_id):
            result.setdefault(entry.group, []).append(entry)
        return result

    def _world(
        self, entry: RunEntry, group: str, windows: Sequence[WindowEntry], summary: _Read
    ) -> WorldView:
        value, view = summary
        window = self._newest(windows)
        if view is None:
            view = _of_entry(entry, group, windows)
        return replace(
            view,
            is_live=self._goes_on(view),
            table=window and _with_layout(window, value),
            job=view.job or entry.job,
            world_size=view.world_size or (0 if window is None else window.world_size),
        )

    def _summary(self, run_id: str, group: str) -> _Read:
        where = f"summary {run_id}"
        try:
            value = self._reader.summary(run_id, group)
            return value, None if value is None else read_summary(value, where=where)
        except InputError:
            return None, None

    def _newest(self, windows: Sequence[WindowEntry]) -> WindowSummary | None:
        for entry in reversed(windows):
            window = self._window(entry)
            if window is not None:
                return window
        return None

    def _window(self, entry: WindowEntry) -> WindowSummary | None:
        try:
            return self._reader.window(entry.id)
        except InputError:
            return None

    def _goes_on(self, view: WorldView) -> bool:
        if view.finished_at_s is not None or (view.hang and view.hang.state in ENDS):
            return False
        return abs(self._wall_s() - view.now_s) < self._goes_on_s

    def _changes(self, run_id: str, summaries: Mapping[str, _Read]) -> tuple[Verdict, ...]:
        """All changes; the newest of each subject as in a newer summary."""
        changes = self._reader.changes(run_id)
        newest = {change.subject_id: at for at, change in enumerate(changes)}
        later = [v for _, view in summaries.values() if view for v in view.run_verdicts.changes]
        for verdict in later:
            at = newest.get(verdict.subject_id)
            if at is None or changes[at].at_ns < verdict.at_ns:
                changes.append(verdict)
            elif changes[at].at_ns == verdict.at_ns and changes[at].state == verdict.state:
                changes[at] = verdict
        return tuple(changes)


def _of_entry(entry: RunEntry, group: str, windows: Sequence[WindowEntry]) -> WorldView:
    return WorldView(
        run_id=entry.run_id,
        job=entry.job,
        group=group,
        attempt=windows[-1].attempt if windows else 0,
        now_s=entry.last_seen_ns / 1e9,
        is_live=False,
        began_at_s=windows[0].start_ns / 1e9 if windows else entry.first_seen_ns / 1e9,
        received_at_s=entry.last_seen_ns / 1e9,
    )


def _with_layout(window: WindowSummary, value: Any) -> WindowSummary:
    if value is None:
        return window
    layout = layout_of(value)
    return replace(window, parallels=[layout.get(rank, ()) for rank in window.ranks.tolist()])


def _all_of(summaries: Mapping[str, _Read], name: str) -> tuple[Any, ...]:
    parts = [getattr(view.run_verdicts, name) for _, view in summaries.values() if view is not None]
    result = dict.fromkeys(each for part in parts for each in part)
    return tuple(sorted(result, key=lambda each: getattr(each, "at_ns", 0)))


def _of_one_kind(windows: Sequence[WindowEntry]) -> list[WindowEntry]:
    """Windows by step if there are any, as windows by time overlap them."""
    by_step = [entry for entry in windows if entry.first_step is not None]
    return by_step or list(windows)
