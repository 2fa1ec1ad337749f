"""The hang judges of all runs: what each learns, how ranks are put before them, what is kept."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from otel_straggler.collector.runs.hangs import heartbeat_table
from otel_straggler.collector.runs.liveness import Liveness, WorldStatus
from otel_straggler.collector.runs.store import RunStore
from otel_straggler.detect.hangs.states import NO_OPEN_SECTION, NOT_ENDED
from otel_straggler.model.observation import NO_STEP, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.model.step_table import StepTable

NOW = 1_790_000_000.0


def source(rank: int = 0, run: str = "run", node: str = "n", **more: Any) -> Source:
    return Source(run_id=run, rank=rank, node=node, world_size=4, session_id=f"s{rank}", **more)


def steps(*names: str, first: int = 0, n: int = 40, run: str = "run", s: float = 20.0) -> StepTable:
    """Steps of one rank in which each section takes so long."""
    shape = (n, 1, len(names))
    return StepTable(
        steps=np.arange(first, first + n),
        sources=(source(run=run),),
        sections=tuple(map(Section, names)),
        seconds=np.full(shape, s),
        runs=np.ones(shape, np.int32),
        run_cv=np.full(shape[1:], np.nan),
        tokens=np.full(shape[:2], np.nan),
        start_ns=np.zeros(shape[:2], np.int64),
        end_ns=np.full(shape[:2], 10**12),
    )


def order_of(store: RunStore) -> list[str]:
    (world,) = store.hangs_state()["worlds"]
    result: list[str] = world["order"]
    return result


def received(*beats: Heartbeat, liveness: Liveness | None = None, at_s: float = NOW) -> WorldStatus:
    liveness = liveness or Liveness()
    for beat in beats:
        liveness.observe_heartbeat(beat, at_s)
    assert liveness.status is not None
    return liveness.status


def beat(who: Source, **values: Any) -> Heartbeat:
    reported = {"step": 100, "open_section": "forward", "progress_at_s": NOW, **values}
    return Heartbeat(source=who, sent_at_s=NOW, **reported)


def test_sections_stand_in_the_order_in_which_they_run() -> None:
    """Of the newest steps; what runs now and then follows behind."""
    store = RunStore()
    store.learn(steps("data", "forward", "eval"))
    assert order_of(store) == ["data", "forward", "eval"]
    store.learn(steps("data", "forward"))
    assert order_of(store) == ["data", "forward", "eval"]
    store.learn(steps("forward", "data"))
    assert order_of(store) == ["forward", "data", "eval"]
    store.learn(steps(*(f"s{i}" for i in range(2_000)), n=1))
    assert order_of(store) == ["forward", "data", "eval"]


def test_ranks_are_put_as_they_last_spoke() -> None:
    """Expected ranks that never did are unknown in everything."""
    two = beat(source(2, node="m"), open_section="", phase="")
    world = received(beat(source(0)), two, beat(source(3), step=None))
    result = heartbeat_table(world, ("data", "forward"), NOW + 7.0)
    assert result is not None
    assert result.ranks.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(result.silent_s, [7.0, math.nan, 7.0, 7.0])
    np.testing.assert_array_equal(result.stalled_s, [7.0, math.nan, 7.0, 7.0])
    np.testing.assert_array_equal(result.began_s, [7.0, math.nan, 7.0, 7.0])
    assert result.step.tolist() == [100, NO_STEP, 100, NO_STEP]
    assert result.section.tolist() == [1, NO_OPEN_SECTION, NO_OPEN_SECTION, 1]
    assert result.is_working.tolist() == [True, False, False, True]
    assert result.node.tolist() == [0, -1, 1, 0]
    assert result.ended.tolist() == [NOT_ENDED] * 4
    assert np.isnan(result.ended_s).all()


def test_what_was_learnt_is_kept_over_a_restart() -> None:
    """Timeouts and order; of other runs nothing is mixed in."""
    before = RunStore()
    for table in (steps("forward", n=1), steps("forward", first=5)):
        before.learn(table)
    before.learn(steps("other", run="else", s=50.0))
    after = RunStore()
    after.restore_hangs(json.loads(json.dumps(before.hangs_state())))
    assert after.hangs_state() == before.hangs_state()
    liveness = after.world("run", "").liveness
    received(*(beat(source(rank), step=0) for rank in range(4)), liveness=liveness)
    later = (  # three steps later all are warm
        Heartbeat(
            source=source(rank),
            sent_at_s=NOW + 1,
            step=9,
            open_section="forward",
            progress_at_s=NOW + 1,
        )
        for rank in range(4)
    )
    status = received(*later, liveness=liveness, at_s=NOW + 1)
    result = after.world("run", "").hangs.evaluate(status, NOW + 2)
    assert result is not None
    assert result.timeout_s.tolist() == pytest.approx([60.0] * 4)


def test_of_too_many_worlds_those_that_learnt_last_are_kept() -> None:
    """A hundred."""
    store = RunStore()
    for number in range(100):
        store.learn(steps("forward", n=1, run=f"run-{number}"))
    store.learn(steps("forward", n=1, run="run-0"))
    store.learn(steps("forward", n=1, run="new"))
    kept = [world["run_id"] for world in store.hangs_state()["worlds"]]
    assert kept == [*(f"run-{number}" for number in range(2, 100)), "run-0", "new"]


def test_a_state_of_another_version_is_refused_whole() -> None:
    """Nothing has changed then."""
    store = RunStore()
    with pytest.raises(ValueError, match="version"):
        store.restore_hangs({**RunStore().hangs_state(), "version": 2})
    assert store.hangs_state()["worlds"] == []


def test_what_a_hang_costs_is_that_of_its_run() -> None:
    """And is forgotten with it."""
    store = RunStore()
    for run in ("run", "else"):
        world = received(*(beat(source(rank, run)) for rank in range(4)))
        assert store.world(run, "").hangs.evaluate(world, NOW + 1.0) is not None
    one = received(beat(source(0)))
    lost = store.world("run", "").hangs.evaluate(one, NOW + 100.0)
    assert lost is not None
    assert lost.state == "lost"
    assert list(store.run("run").hung().values()) == [int((NOW + 100.0) * 1e9)]
    assert store.run("else").hung() == {}
    assert store.world("else", "").hangs.idle_gpu_s == 0.0
    store.evict("run")
    assert store.run("run").hung() == {}
