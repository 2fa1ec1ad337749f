"""Which runs are evicted: those that nobody speaks of; one that hangs only after days."""

from __future__ import annotations

import logging

import pytest

from otel_straggler.collector.runs.admission import SHOWN_S, Eviction
from otel_straggler.collector.runs.run import Run
from otel_straggler.collector.runs.store import RunStore
from otel_straggler.collector.settings import ScoringSettings
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat

DAY_S = 86_400.0


class Runs:
    """A store in which a run that is called "hung" hangs."""

    def __init__(self, max_runs: int = 100) -> None:
        limits = ScoringSettings(evict_run_s=3_600.0, max_runs=max_runs)
        self.store = RunStore()
        self._eviction = Eviction(limits, 3 * DAY_S)

    def hear(self, now_s: float, *run_ids: str) -> None:
        for run_id in run_ids:
            liveness = self.store.world(run_id, "").liveness
            liveness.observe_heartbeat(Heartbeat(source=Source(run_id=run_id, rank=0)), now_s)

    def gone(self, now_s: float) -> list[str]:
        return self._eviction.due_runs(self.store.runs.values(), hangs, now_s)


def hangs(run: Run) -> bool:
    return run.run_id.startswith("hung")


def test_a_run_that_nobody_speaks_of_goes_after_its_idle_time() -> None:
    """An hour here."""
    its = Runs()
    its.hear(0.0, "well")
    assert its.gone(3_599.0) == []
    assert its.gone(3_600.0) == ["well"]


def test_a_hung_run_stays_for_days_and_then_is_shown_as_forgotten_for_an_hour(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With one line in the log, not one a second."""
    its = Runs()
    its.hear(0.0, "hung")
    with caplog.at_level(logging.WARNING):
        assert its.gone(3 * DAY_S - 1.0) == []
        assert caplog.messages == []
        for later_s in (0.0, 1.0, SHOWN_S - 1.0):
            assert its.gone(3 * DAY_S + later_s) == []
            assert its.store.runs["hung"].given_up_at_s == 3 * DAY_S
    (line,) = caplog.messages
    assert line.startswith("monitoring gave up on run hung: ")
    assert its.gone(3 * DAY_S + SHOWN_S) == ["hung"]


def test_a_forgotten_run_that_speaks_again_is_remembered() -> None:
    """Its hour does not go on."""
    its = Runs()
    its.hear(0.0, "hung")
    assert its.gone(3 * DAY_S) == []
    its.hear(3 * DAY_S + 10.0, "hung")
    assert its.gone(3 * DAY_S + 11.0) == []
    assert its.gone(3 * DAY_S + SHOWN_S) == []


def test_where_there_are_too_many_runs_those_that_hang_go_last() -> None:
    """But memory stays bounded: of hung ones alone the one heard of first goes."""
    its = Runs(max_runs=2)
    for run_id, now_s in (("hung 1", 1.0), ("well", 90.0), ("hung 2", 2.0), ("new", 99.0)):
        its.hear(now_s, run_id)
    assert set(its.gone(100.0)) == {"well", "new"}
    its = Runs(max_runs=2)
    for now_s in (1.0, 2.0, 3.0):
        its.hear(now_s, f"hung {now_s:.0f}")
    assert its.gone(100.0) == ["hung 1"]


def test_what_is_evicted_is_gone_with_all_that_was_kept_of_it() -> None:
    its = Runs()
    its.hear(0.0, "one", "two")
    its.store.world("one", "eval")
    its.store.evict_world("one", "eval")
    assert list(its.store.runs["one"].worlds) == [""]
    its.store.evict("one")
    assert list(its.store.runs) == ["two"]
