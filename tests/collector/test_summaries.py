"""Which pictures of runs the history is given, and what comes of them in real life."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from otel_straggler.collector.board import Snapshot
from otel_straggler.collector.liveness import World
from otel_straggler.collector.summaries import Summaries
from otel_straggler.collector.watching import RunSeen
from otel_straggler.publish.history import HistoryReader
from otel_straggler.publish.picture.from_history import FromHistory
from otel_straggler.publish.picture.summary import read_summary
from otel_straggler.score.hangs.detector import HangStatus


def found(state: Any) -> HangStatus:
    nothing = np.empty(0)
    return HangStatus(
        state=state,
        since_s=1.0,
        ranks=nothing.astype(np.int64),
        rank_states=nothing.astype(np.int32),
        rank_since_s=nothing,
        timeout_s=nothing,
    )


def snapshot(**states: str) -> Snapshot:
    """One run for each name, in that state; heard of at 5."""
    return Snapshot(
        seen=tuple(
            RunSeen(
                run_id=name,
                jobs={"": "job"},
                worlds={"": World(attempt=0, touched_at_s=5.0)},
                found={"": found(state)},
            )
            for name, state in states.items()
        )
    )


def names(summaries: Any) -> list[str]:
    return [each.run_id for each in summaries]


def test_only_what_is_new_is_written_and_what_hangs_every_time() -> None:
    """Nothing is heard of a run that is silent, and it is followed all the same."""
    summaries = Summaries(lambda _: (), "observe")
    first = snapshot(well="training", silent="lost", over="finished")
    assert names(summaries.take(first, 10.0)) == ["well", "silent", "over"]
    assert names(summaries.take(first, 20.0)) == ["silent"]
    assert names(summaries.take(snapshot(well="training", over="failed"), 30.0)) == ["over"]


def test_a_run_that_monitoring_gave_up_keeps_what_was_seen_before() -> None:
    """Of its ranks nothing is shown any more, which says less than the older picture."""
    summaries = Summaries(lambda _: (), "observe")
    assert names(summaries.take(snapshot(a="lost"), 10.0)) == ["a"]
    assert names(summaries.take(snapshot(a="forgotten"), 20.0)) == []


def test_a_summary_is_of_the_moment_at_which_it_was_handed_over() -> None:
    """However late it is made."""
    (one,) = Summaries(lambda _: (), "page").take(snapshot(a="training"), 10.0)
    seen = read_summary(one.make(), where="x")
    assert (seen.run_id, seen.job, seen.now_s, seen.mode) == ("a", "job", 10.0, "page")
    assert seen.found is not None
    assert seen.found.state == "training"


def test_a_run_that_ended_is_known_to_the_next_collector(
    start: Callable[..., Any], kit: Any, tmp_path: Path
) -> None:
    """With its end, its ranks and their states; over the page, and from the file alone."""
    path = tmp_path / "history.db"
    first = start(history__path=str(path), scoring__grace_seconds=20.0)
    for rank in range(3):
        source = kit.rank(rank, 3, node=f"node-{rank}")
        assert first.post(kit.spans_of(source, range(8), {"forward": 0.1})).status == 200
        for values in ({"sent_at_s": 1.79e9}, {"finished_at_s": 1.79e9, "outcome": "failed"}):
            assert first.post(kit.beat_of(source, **values), "metrics").status == 200
    kit.eventually(lambda: first.get("/v1/run?run=run").json()["run"]["state"] == "failed")
    first.stop()
    with HistoryReader(path) as reader:
        seen = FromHistory(reader).seen("run")
    assert seen is not None
    assert seen.found is not None
    assert (seen.found.state, seen.outcome, seen.is_live) == ("failed", "failed", False)
    second = start(history__path=str(path))
    picture = second.get("/v1/run?run=run").json()
    assert picture["run"]["state"] == "failed"
    assert picture["run"]["is_live"] is False
    assert picture["ranks"]["nodes"] == ["node-0", "node-1", "node-2"]
    assert [r["run_id"] for r in second.get("/v1/runs").json()["runs"]] == ["run"]
    scalars = second.get("/v1/scalars?run=run").json()["scalars"]
    assert (scalars["ranks_reporting"], scalars["ranks_called_slow"]) == (3, 0)
    assert second.get("/v1/scalars?run=other").status == 404
