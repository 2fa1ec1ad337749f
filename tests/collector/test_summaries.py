"""Which pictures of runs the history is given, and what comes of them in real life."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from otel_straggler.collector.history.reader import HistoryReader
from otel_straggler.collector.history.run_views import FromHistory
from otel_straggler.collector.history.store import Summary
from otel_straggler.collector.history.writer import new_summaries
from otel_straggler.collector.runs.liveness import WorldStatus
from otel_straggler.collector.runs.store import RunStore
from otel_straggler.collector.views.run_summary import read_summary
from otel_straggler.collector.views.run_view import RunView
from otel_straggler.collector.views.snapshot import Snapshot
from otel_straggler.detect.hangs.detector import HangStatus


def result(state: Any) -> HangStatus:
    nothing = np.empty(0)
    return HangStatus(
        state=state,
        since_s=1.0,
        ranks=nothing.astype(np.int64),
        rank_states=nothing.astype(np.int32),
        rank_since_s=nothing,
        timeout_s=nothing,
    )


class Runs:
    """A store of runs, each in the state that it is given, and views of them."""

    def __init__(self) -> None:
        self.store = RunStore()

    def summaries(self, **states: str) -> list[Summary]:
        """Of one run for each name, heard of at 5."""
        return new_summaries(
            self.store.runs, Snapshot(runs={n: self._view(n, s) for n, s in states.items()})
        )

    def _view(self, name: str, state: str) -> RunView:
        self.store.run(name)
        return RunView(
            run_id=name,
            now_s=10.0,
            jobs={"": "job"},
            worlds={"": WorldStatus(attempt=0, touched_at_s=5.0)},
            hangs={"": result(state)},
            mode="page",
        )


def names(summaries: list[Summary]) -> list[str]:
    return [each.run_id for each in summaries]


def test_only_what_is_new_is_written_and_what_hangs_every_time() -> None:
    """Nothing is heard of a run that is silent, and it is followed all the same."""
    runs = Runs()
    first = {"well": "training", "silent": "lost", "over": "finished"}
    assert names(runs.summaries(**first)) == ["well", "silent", "over"]
    assert names(runs.summaries(**first)) == ["silent"]
    assert names(runs.summaries(well="training", over="failed")) == ["over"]


def test_a_run_that_monitoring_gave_up_keeps_what_was_seen_before() -> None:
    """Of its ranks nothing is shown any more, which says less than the older view."""
    runs = Runs()
    assert names(runs.summaries(a="lost")) == ["a"]
    assert names(runs.summaries(a="forgotten")) == []


def test_a_summary_is_of_the_moment_at_which_it_was_handed_over() -> None:
    """However late it is made."""
    (one,) = Runs().summaries(a="training")
    seen = read_summary(one.make(), where="x")
    assert (seen.run_id, seen.job, seen.now_s, seen.mode) == ("a", "job", 10.0, "page")
    assert seen.hang is not None
    assert seen.hang.state == "training"


def test_a_run_that_ended_is_known_to_the_next_collector(
    start: Callable[..., Any], kit: Any, tmp_path: Path
) -> None:
    """With its end, its ranks and their states; over the page, and from the file alone."""
    path = tmp_path / "history.db"
    first = start(history__path=str(path), scoring__grace_s=20.0)
    for rank in range(3):
        source = kit.rank(rank, 3, node=f"node-{rank}")
        assert first.post(kit.spans_of(source, range(8), {"forward": 0.1})).status == 200
        for values in ({"sent_at_s": 1.79e9}, {"finished_at_s": 1.79e9, "outcome": "failed"}):
            assert first.post(kit.beat_of(source, **values), "metrics").status == 200

    def state() -> Any:
        return first.get("/v1/run?run=run").json().get("run", {}).get("state")

    kit.eventually(lambda: state() == "failed")
    first.stop()
    with HistoryReader(path) as reader:
        seen = FromHistory(reader).worlds("run")[0]
    assert seen is not None
    assert seen.hang is not None
    assert (seen.hang.state, seen.outcome, seen.is_live) == ("failed", "failed", False)
    second = start(history__path=str(path))
    run_view = second.get("/v1/run?run=run").json()
    assert run_view["run"]["state"] == "failed"  # from the file, until it is restored
    kit.eventually(lambda: second.get("/v1/run?run=run").json()["run"]["is_live"] is True)
    assert run_view["ranks"]["nodes"] == ["node-0", "node-1", "node-2"]
    assert [r["run_id"] for r in second.get("/v1/runs").json()["runs"]] == ["run"]
    scalars = second.get("/v1/scalars?run=run").json()["scalars"]
    assert (scalars["ranks_reporting"], scalars["ranks_called_slow"]) == (3, 0)
    assert second.get("/v1/scalars?run=other").status == 404
