"""What the history keeps of a run beside windows and verdicts, so that it can be shown later."""

from __future__ import annotations

from typing import Any, Final

from otel_straggler.collector.board import Snapshot
from otel_straggler.collector.board_report import AlertsOf
from otel_straggler.collector.page_seen import groups_of, newest_window, seen_of
from otel_straggler.collector.page_state import Progress, progress_of
from otel_straggler.collector.watching import RunSeen
from otel_straggler.model.alert import Mode
from otel_straggler.publish.history import Summary
from otel_straggler.publish.picture import RankTable
from otel_straggler.publish.picture.summary import summary_value
from otel_straggler.score.hangs.states import HANGS

_GIVEN_UP: Final = "forgotten"


class Summaries:
    """Remembers what was saved of which run. One thread owns it.

    Args:
        alerts: those that fire, by run.
        mode: whether alerts may call somebody.
    """

    def __init__(self, alerts: AlertsOf, mode: Mode) -> None:
        self._alerts = alerts
        self._mode = mode
        self._saved: dict[str, Progress] = {}

    def take(self, snapshot: Snapshot, now_s: float) -> list[Summary]:
        """Of the runs of which there is anything new since it was asked for last, or that hang: one
        that is silent is still followed. What monitoring has given up keeps what was seen before.
        Cost: O(groups); the rest is done on the thread of the history, when they are written."""
        before, self._saved = self._saved, {run.run_id: progress_of(run) for run in snapshot.seen}
        return [
            self._summary(snapshot, run, group, now_s)
            for run in snapshot.seen
            for group in groups_of(run)
            if _state(run, group) != _GIVEN_UP
            if before.get(run.run_id) != self._saved[run.run_id] or _state(run, group) in HANGS
        ]

    def _summary(self, snapshot: Snapshot, run: RunSeen, group: str, now_s: float) -> Summary:
        def make() -> dict[str, Any]:
            seen = seen_of(
                run,
                group,
                table=_table(run, group),
                alerts=tuple(self._alerts(run.run_id)),
                maintenance=snapshot.maintenance,
                mode=self._mode,
                now_s=now_s,
            )
            return summary_value(seen)

        return Summary(run_id=run.run_id, job=run.jobs.get(group, ""), group=group, make=make)


def _state(run: RunSeen, group: str) -> str:
    found = run.found.get(group)
    return "" if found is None else found.state


def _table(run: RunSeen, group: str) -> RankTable | None:
    window = newest_window(run, group)
    return None if window is None else RankTable.of_window(window)
