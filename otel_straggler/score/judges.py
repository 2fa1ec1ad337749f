"""The judges of all runs in memory: one for each run and group."""

from __future__ import annotations

import heapq
import json
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any

from otel_straggler.model.step_table import StepTable, StepTimes
from otel_straggler.model.verdict import RunVerdicts, Verdict
from otel_straggler.score.settings import VerdictSettings
from otel_straggler.score.verdicts.engine import VerdictEngine
from otel_straggler.score.verdicts.log import Notification

_Key = tuple[str, str]
_MOST_TIMES = 1_000
"""Tables whose times wait to be asked for; the oldest go first."""


class Judges:
    """Gives every table to the judge of its run and group, and remembers what is new.

    Args:
        settings: of all judges.
        on_table: who else wants the tables that are judged.
    """

    def __init__(
        self, settings: VerdictSettings, on_table: Callable[[StepTable], None] | None = None
    ) -> None:
        self._settings = settings
        self._on_table = on_table
        self._judges: dict[_Key, VerdictEngine] = {}
        self._groups: dict[str, list[str]] = {}
        self._newest_attempt: dict[_Key, int] = {}
        self._without_rows_since_ns: dict[str, int] = {}
        self._new: deque[Verdict] = deque(maxlen=settings.max_changes)
        self._new_times: deque[StepTimes] = deque(maxlen=_MOST_TIMES)

    def take(self, table: StepTable) -> None:
        """Judge the next steps. Those of an attempt that was replaced already are left out."""
        first = table.sources[0]
        key = first.run_id, first.group
        if first.attempt < self._newest_attempt.get(key, first.attempt):
            return
        self._newest_attempt[key] = first.attempt
        self._new_times.append(StepTimes.of(table))
        if self._on_table is not None:
            self._on_table(table)
        judge = self._judge(key)
        self._note(judge, judge.take(table))

    def finish(self) -> None:
        """The input has ended."""
        for judge in self._judges.values():
            self._note(judge, judge.finish())

    def judged(self, run_id: str) -> RunVerdicts:
        """All changes in memory and the newest summaries; changes of groups by their time."""
        judges = self._of_run(run_id)
        changes = heapq.merge(*(judge.changes for judge in judges), key=lambda v: v.at_ns)
        summaries = (judge.summary() for judge in judges)
        return RunVerdicts(
            changes=tuple(changes), worlds=tuple(world for world in summaries if world is not None)
        )

    def pages(self, run_id: str) -> list[Notification]:
        """When somebody was called because of a run, in order."""
        judges = self._of_run(run_id)
        return list(heapq.merge(*(judge.pages for judge in judges), key=lambda page: page.at_ns))

    def new_changes(self) -> list[Verdict]:
        """The changes since the last call, also those of who has begun to page without a change
        of state; of more than ``max_changes`` the newest."""
        new = list(self._new)
        self._new.clear()
        return new

    def new_step_times(self) -> list[StepTimes]:
        """How long the steps took that were judged since the last call."""
        new = list(self._new_times)
        self._new_times.clear()
        return new

    def forget(self, run_id: str) -> None:
        """Drop a run."""
        for group in self._groups.pop(run_id, ()):
            del self._judges[run_id, group]
            self._newest_attempt.pop((run_id, group), None)
        self._without_rows_since_ns.pop(run_id, None)

    def forget_group(self, run_id: str, group: str) -> None:
        """Drop one world of a run."""
        if self._judges.pop((run_id, group), None) is not None:
            self._groups[run_id].remove(group)
        self._newest_attempt.pop((run_id, group), None)

    def forget_all_but(self, runs: Collection[str], now_ns: int, limit_ns: int) -> None:
        """Drop the runs of an earlier process for which no rows came for so long."""
        for run_id in list(self._groups):
            if run_id in runs:
                self._without_rows_since_ns.pop(run_id, None)
            elif now_ns - self._without_rows_since_ns.setdefault(run_id, now_ns) >= limit_ns:
                self.forget(run_id)

    def state(self) -> dict[str, Any]:
        """By run and group, as JSON text: the state of the judge."""
        return {json.dumps(key): judge.state() for key, judge in self._judges.items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""
        for text, judged in state.items():
            run_id, group = json.loads(text)
            self._judge((run_id, group)).restore(judged)

    def take_all(self, tables: Iterable[StepTable]) -> None:
        """:meth:`take` for many."""
        for table in tables:
            self.take(table)

    def _note(self, judge: VerdictEngine, changes: Iterable[Verdict]) -> None:
        late = judge.new_late_pages()
        self._new.extend(sorted((*changes, *late), key=lambda v: v.at_ns) if late else changes)

    def _judge(self, key: _Key) -> VerdictEngine:
        judge = self._judges.get(key)
        if judge is None:
            judge = self._judges[key] = VerdictEngine(self._settings)
            self._groups.setdefault(key[0], []).append(key[1])
        return judge

    def _of_run(self, run_id: str) -> list[VerdictEngine]:
        return [self._judges[run_id, group] for group in self._groups.get(run_id, ())]
