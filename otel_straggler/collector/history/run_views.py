"""What a history knows of its runs, as pictures are made of: worlds, and columns of timelines.

The newest summary says most, the newest window has the ranks' times, the changes of verdicts are
whole. Of a run that was kept without a summary there are windows and
verdicts only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np

from otel_straggler.collector.history.codec import WindowSummary
from otel_straggler.collector.history.reader import HistoryReader, RunEntry, WindowEntry
from otel_straggler.collector.views.run_summary import layout_of, read_summary
from otel_straggler.collector.views.runs_json import costliest_group
from otel_straggler.collector.views.timeline import Column, column_of
from otel_straggler.collector.views.world_view import RankTable, WorldView
from otel_straggler.detect.hangs.states import ENDS
from otel_straggler.errors import InputError
from otel_straggler.model.verdict import RunVerdicts, Verdict

MAX_COLUMNS: Final = 240
GOES_ON_S: Final = 60.0
"""A summary is written every ten seconds while a run is followed: one that is younger than this
is of a run that goes on."""
Refuse = Callable[[str, str], None]
"""Told of a summary that cannot be read: its key, and why."""


_Read: TypeAlias = tuple[Any, WorldView | None]
"""A summary as it was stored, and what it says; None and None if there is none."""


class FromHistory:
    """Reads one file. What is damaged is left out, and told to ``refuse``.

    Args:
        reader: of the file.
        wall_s: clock.
        refuse: see :data:`Refuse`; without it nobody is told.
        goes_on_s: a run whose picture is younger is live; 0: none is.
    """

    def __init__(
        self,
        reader: HistoryReader,
        *,
        wall_s: Callable[[], float] = time.time,
        refuse: Refuse = lambda _key, _why: None,
        goes_on_s: float = GOES_ON_S,
    ) -> None:
        self._reader = reader
        self._goes_on_s = goes_on_s
        self._wall_s = wall_s
        self._refuse = refuse

    def runs(self) -> list[RunEntry]:
        """Every run, those seen last first."""
        return self._reader.runs()[::-1]

    def worlds(self, run_id: str) -> list[WorldView]:
        """Every group of a run, at the last moment that the history knows of; empty if it does not
        know the run.

        Raises:
            InputError: the file is damaged.

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

    def view(self, run_id: str, group: str | None = None) -> WorldView | None:
        """One group of a run; the one that lost most if none is named. None if there is none.

        Raises, cost: as :meth:`worlds`.
        """
        return one_of(self.worlds(run_id), group)

    def columns(
        self,
        run_id: str,
        group: str,
        *,
        from_s: float | None = None,
        to_s: float | None = None,
        maximum: int = MAX_COLUMNS,
    ) -> list[Column]:
        """Windows of a world as columns, oldest first; numbered as the history does.

        Where there are more than ``maximum`` between the two times (of the senders' clocks), evenly
        chosen ones: the whole course of a run rather than its end.

        Cost: reads each of them; O(windows * ranks * sections).
        """
        wanted = [
            entry
            for entry in _of_one_kind(self._windows(run_id).get(group, []))
            if _is_between(entry.end_ns / 1e9, from_s, to_s)
        ]
        if len(wanted) > maximum:
            indexes = np.linspace(0, len(wanted) - 1, maximum).round().astype(int)
            wanted = [wanted[index] for index in indexes.tolist()]
        columns: list[Column] = []
        for entry in wanted:
            window = self._window(entry)
            if window is not None:
                column = column_of(RankTable.of_summary(window), entry.id, entry.attempt)
                columns.append(_sharing(column, columns))
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
            table=None if window is None else _table(window, value),
            job=view.job or entry.job,
            world_size=view.world_size or (0 if window is None else window.world_size),
        )

    def _summary(self, run_id: str, group: str) -> _Read:
        where = f"summary {run_id}"
        try:
            value = self._reader.summary(run_id, group)
            return value, None if value is None else read_summary(value, where=where)
        except InputError as error:
            self._refuse(where, str(error))
            return None, None

    def _newest(self, windows: Sequence[WindowEntry]) -> WindowSummary | None:
        for entry in reversed(windows):
            window = self._window(entry)
            if window is not None:
                return window
        return None

    def _window(self, entry: WindowEntry) -> WindowSummary | None:
        """None if it was dropped meanwhile, or is damaged."""
        try:
            return self._reader.window(entry.id)
        except InputError as error:
            self._refuse(f"window {entry.id}", str(error))
            return None

    def _goes_on(self, view: WorldView) -> bool:
        """Whether a collector follows it at this moment, as far as the file tells."""
        if view.finished_at_s is not None or (view.hang and view.hang.state in ENDS):
            return False
        return abs(self._wall_s() - view.now_s) < self._goes_on_s

    def _changes(self, run_id: str, summaries: Mapping[str, _Read]) -> tuple[Verdict, ...]:
        """All changes; the newest of a subject with the numbers that a summary saw later."""
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


def one_of(worlds: Sequence[WorldView], group: str | None) -> WorldView | None:
    """The world of a group; of the one that lost most if none is named. None if there is none."""
    if group is not None:
        return next((view for view in worlds if view.group == group), None)
    return costliest_group(worlds) if worlds else None


def _of_entry(entry: RunEntry, group: str, windows: Sequence[WindowEntry]) -> WorldView:
    """What is known of a run without a summary: times are those of its windows."""
    return WorldView(
        run_id=entry.run_id,
        job=entry.job,
        group=group,
        attempt=windows[-1].attempt if windows else 0,
        now_s=entry.last_seen_ns / 1e9,
        is_live=False,
        began_at_s=windows[0].start_ns / 1e9 if windows else entry.first_seen_ns / 1e9,
        received_at_s=entry.last_seen_ns / 1e9,
        run_verdicts=RunVerdicts(),
    )


def _table(window: WindowSummary, value: Any) -> RankTable:
    """The window, with the layout of its ranks if a summary has it."""
    table = RankTable.of_summary(window)
    if value is None:
        return table
    layout = layout_of(value)
    return replace(table, parallels=[layout.get(rank, ()) for rank in table.ranks.tolist()])


def _all_of(summaries: Mapping[str, _Read], name: str) -> tuple[Any, ...]:
    """What all groups' summaries have of one kind, each once."""
    parts = [getattr(view.run_verdicts, name) for _, view in summaries.values() if view is not None]
    result = dict.fromkeys(each for part in parts for each in part)
    return tuple(sorted(result, key=lambda each: getattr(each, "at_ns", 0)))


def _sharing(column: Column, before: Sequence[Column]) -> Column:
    """With the ranks of the column before it where they are the same: less memory, and they need
    not be compared again."""
    if before and np.array_equal(before[-1].ranks, column.ranks):
        return replace(column, ranks=before[-1].ranks)
    return column


def _of_one_kind(windows: Sequence[WindowEntry]) -> list[WindowEntry]:
    """Those by step if there are any: windows by time overlap them."""
    by_step = [entry for entry in windows if entry.first_step is not None]
    return by_step or list(windows)


def _is_between(at_s: float, from_s: float | None, to_s: float | None) -> bool:
    return (from_s is None or at_s >= from_s) and (to_s is None or at_s <= to_s)
