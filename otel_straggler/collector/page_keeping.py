"""What the history is given of pictures: of every world that is followed, the newest."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Final

from otel_straggler.collector.board import AlertsOf, Snapshot
from otel_straggler.collector.page_seen import groups_of, newest_window, seen_of
from otel_straggler.collector.watching import RunSeen
from otel_straggler.model.alert import Mode
from otel_straggler.publish.history import Summary
from otel_straggler.publish.picture import RankTable
from otel_straggler.publish.picture.summary import summary_value
from otel_straggler.score.hangs.run_state import ENDS

_GIVEN_UP: Final = "forgotten"
"""Of such a world nothing is shown; what was seen before stays."""


class KeptPictures:
    """Says what is to be written now. One thread owns it; what it hands over is made by another.

    Args:
        alerts: gives those that fire about a run; from any thread.
        mode: whether alerts may call somebody.
        wall_s: clock.
    """

    def __init__(self, alerts: AlertsOf, mode: Mode, wall_s: Callable[[], float]) -> None:
        self._alerts = alerts
        self._mode = mode
        self._wall_s = wall_s
        self._ended: dict[tuple[str, str], Hashable] = {}

    def newest(self, snapshot: Snapshot) -> list[Summary]:
        """Of every world, but for those that have ended and were written since.

        Cost: microseconds a world; making one, later, O(ranks).
        """
        worlds = [(run, group) for run in snapshot.seen for group in groups_of(run)]
        ended = {
            (run.run_id, group): _end(run, group) for run, group in worlds if _has_ended(run, group)
        }
        wanted = [
            self._summary(snapshot, run, group)
            for run, group in worlds
            if _state(run, group) != _GIVEN_UP
            and ((key := (run.run_id, group)) not in ended or ended[key] != self._ended.get(key))
        ]
        self._ended = ended
        return wanted

    def _summary(self, snapshot: Snapshot, run: RunSeen, group: str) -> Summary:
        make = partial(self._made, snapshot, run, group, self._wall_s())
        return Summary(run_id=run.run_id, job=run.jobs.get(group, ""), group=group, make=make)

    def _made(self, snapshot: Snapshot, run: RunSeen, group: str, now_s: float) -> dict[str, Any]:
        window = newest_window(run, group)
        seen = seen_of(
            run,
            group,
            table=None if window is None else RankTable.of_window(window),
            alerts=tuple(self._alerts(run.run_id)),
            maintenance=snapshot.maintenance,
            mode=self._mode,
            now_s=now_s,
        )
        return summary_value(seen)


def _state(run: RunSeen, group: str) -> str:
    found = run.found.get(group)
    return "" if found is None else found.state


def _has_ended(run: RunSeen, group: str) -> bool:
    world = run.worlds.get(group)
    return _state(run, group) in ENDS or (world is not None and world.finished_at_s is not None)


def _end(run: RunSeen, group: str) -> Hashable:
    """Changes when the picture of a world that has ended does."""
    window = newest_window(run, group)
    return (
        _state(run, group),
        None if window is None else window.end_ns,
        len(run.judged.changes),
        len(run.judged.decisions),
    )
