"""Generated runs: the same plan, the same numbers; and they are what their labels say."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.simulate.runs import SimulatedRun

from .generated import QUIET, label_of, make, seconds

EVERYTHING = {
    "sequence_cv": 0.2, "expert_cv": 0.2, "gc_every_steps": 9, "checkpoint_every": 10,
    "eval_every": 15, "warm_up_steps": 5, "diurnal": 0.02, "missing_reports": 0.05,
    "clock_offset_s": 0.01, "report_tokens": True, "stage_factor": 1.3, "restart_at_step": 17,
    "renumbers": True, "ranks_per_node": 4,
}  # fmt: skip
LOCAL = ("data_loading", "forward", "backward", "optimizer")


def columns(run: SimulatedRun, block_steps: int) -> list[np.ndarray]:
    tables = list(run.tables(block_steps))
    names = ("steps", "seconds", "runs", "tokens", "start_ns", "end_ns")
    return [np.concatenate([getattr(table, name) for table in tables]) for name in names]


@given(seed=st.integers(0, 2**32), block_steps=st.integers(1, 40))
def test_numbers_depend_on_the_plan_alone(seed, block_steps):
    """Not on the size of the blocks, nor on what was read before."""
    run = make("tp2,pp2,ep2,dp4", "flap:1.2@rank3:step4", seed=seed, steps=30, **EVERYTHING)
    again = make("tp2,pp2,ep2,dp4", "flap:1.2@rank3:step4", seed=seed, steps=30, **EVERYTHING)
    first = columns(run, 5)
    for other in (columns(again, block_steps), columns(run, block_steps)):
        for one, two in zip(first, other, strict=True):
            assert np.array_equal(one, two, equal_nan=one.dtype == float)


def test_another_seed_is_another_run():
    """Or all seeds of a benchmark would be one."""
    assert not np.array_equal(seconds(make(seed=1)), seconds(make(seed=2)))


@pytest.mark.parametrize("timing", ["local", "synchronised", "asynchronous"])
@pytest.mark.parametrize("layout", ["dp8", "tp2,pp2,dp4", "tp2,cp2,dp4"])
def test_a_step_of_a_rank_is_the_sum_of_its_sections_and_all_meet_once_a_step(layout, timing):
    """Time is neither lost nor counted twice, but for what the plan leaves unmeasured."""
    run = make(layout, "late:0.5@rank3:step20", timing=timing)
    tables = list(run.tables())
    start, end = (np.concatenate([getattr(t, n) for t in tables]) for n in ("start_ns", "end_ns"))
    summed = np.concatenate([np.nansum(t.seconds, axis=2) for t in tables])
    unmeasured = (end - start) / 1e9 - summed
    expected = np.zeros_like(summed)
    expected[20:, 3] = 0.5
    assert np.allclose(unmeasured, expected, atol=1e-8)
    assert np.abs(start[1:] - end[:-1]).max() <= 2
    work = seconds(run, *(n for n in ("optimizer", "gradient_sync")))
    assert (work > 0).all()


@pytest.mark.parametrize(
    "fault",
    [
        "compute:1.3@rank5:step20", "forward:1.5@rank5:step20", "backward:1.2@rank5:step20",
        "data:0.5@rank5:step20", "late:0.5@rank5:step20", "ramp:1.6@rank5:step0",
        "flap:1.3@rank5:step20-50", "transient:1.3@rank5:step40",
    ],
)  # fmt: skip
@pytest.mark.parametrize("layout", ["dp8", "dp16,pp2", "tp2,dp8", "tp2,pp2,cp2,dp4"])
def test_the_culprit_waits_least(layout, fault):
    """Of all who have the same role, and by what the label says it costs them."""
    run = make(layout, fault)
    label = label_of(run)
    waits = [
        n for n in ("pipeline_wait", "gradient_sync") if n == "gradient_sync" or "pp" in layout
    ]
    waited = np.median(
        seconds(run, *waits)[40 if "ramp" in fault else label.onset_step : 50], axis=0
    )
    index = dict(run.sources[5].parallel)
    peers = [
        rank
        for rank, source in enumerate(run.sources)
        if all(index[n] == i for n, i in source.parallel if n != "data")
    ]
    assert len(peers) >= 4
    assert min(peers, key=lambda rank: waited[rank]) == 5


def test_labels_say_what_the_times_show():
    """Slowdown in the sections, and of the whole step."""
    for fault in (
        "compute:1.25@rank2:step30",
        "backward:1.5@rank2:step30",
        "data:0.2@rank2:step30",
    ):
        run, label = make("dp8", fault, **QUIET), label_of(make("dp8", fault, **QUIET))
        sections = [label.section] if label.section else ["forward", "backward", "optimizer"]
        own, step = seconds(run, *sections)[:, 2], seconds(run, *LOCAL)[:, 2]
        assert own[40] / own[10] == pytest.approx(label.slowdown)
        assert step[40] / step[10] == pytest.approx(label.step_slowdown)
        assert (label.onset_step, label.end_step, label.ranks) == (30, None, {2})


@pytest.mark.parametrize(
    ("fault", "scope", "cause", "ranks"),
    [
        ("compute:1.1@rank1,6:step5", "rank", "slow_gpu", {1, 6}),
        ("compute:1.1@host1:step5", "host", "slow_host", {4, 5, 6, 7}),
        ("compute:1.1@rail2:step5", "rank", "slow_gpu", {2, 6, 10, 14}),
        ("compute:1.1@stage1:step5", "role", "stage_imbalance", set(range(8, 16))),
        ("uniform:1.1@all:step5", "run", "uniform_slowdown", set(range(16))),
        ("data:0.1@rank3:step5", "rank", "slow_host", {3}),
        ("data_stall:1@rank3:step5", "rank", "slow_host", {3}),
        ("late:0.1@rank3:step5", "rank", "late_arrival", {3}),
        ("link:3@rank0,2:step5", "role", "link", {0, 2, 4, 6}),
        ("crash@rank3:step5", "rank", "unknown", {3}),
    ],
)
def test_labels_name_scope_cause_and_ranks(fault, scope, cause, ranks):
    """What a verdict has to name to be right."""
    label = label_of(make("tp2,pp2,dp4", fault, ranks_per_node=4))
    assert (label.scope, label.cause, label.ranks) == (scope, cause, ranks)
    assert label.nodes == {f"node-{rank // 4}" for rank in ranks}


@pytest.mark.parametrize(
    ("fault", "first", "end"),
    [
        ("compute:2@rank3:step20", 20, 60),
        ("compute:2@rank3:step20-30", 20, 30),
        ("flap:2@rank3:step10-100", 10, 40),
        ("ramp:2@rank3:step10", 10, 60),
        ("data:1@rank3:step20-30", 20, 30),
        ("late:1@rank3:step20-30", 20, 30),
    ],
)
def test_a_fault_is_there_from_its_onset_to_its_end_and_nowhere_else(fault, first, end):
    """A flapping one goes off after 30 steps; the work of others is not touched."""
    longer = _busy(make("dp8", fault, **QUIET)) - _busy(make("dp8", **QUIET)) > 1e-6
    expected = np.zeros((60, 8), bool)
    expected[first:end, 3] = True
    assert np.array_equal(longer, expected)


def _busy(run: SimulatedRun) -> np.ndarray:
    """(steps, ranks) seconds from the start of a step to its end without waiting."""
    tables = list(run.tables())
    start, end = (np.concatenate([getattr(t, n) for t in tables]) for n in ("start_ns", "end_ns"))
    return (end - start) / 1e9 - seconds(run, "gradient_sync")


def test_a_transient_fault_lasts_10_to_30_steps():
    """As long as its label says."""
    lengths = set()
    for seed in range(20):
        run = make("dp8", "transient:2@rank3:step20", **QUIET, seed=seed)
        label = label_of(run)
        slow = np.flatnonzero(seconds(run, "forward")[:, 3] > 1.0)
        assert (slow[0], slow[-1] + 1) == (20, label.end_step)
        lengths.add(label.end_step - 20)
    assert lengths <= set(range(10, 31))
    assert len(lengths) > 5


def test_a_slow_link_is_seen_by_all_who_share_its_collective_and_by_nobody_else():
    """Whose fault it is cannot be told from times; which group can."""
    run = make("tp2,dp8", "link:5@rank2,4:step0", **QUIET)
    sync = np.median(seconds(run, "gradient_sync"), axis=0)
    inside = sorted(label_of(run).ranks)
    assert inside == [0, 2, 4, 6, 8, 10, 12, 14]
    assert sync[inside].min() > 4 * 0.06
    assert np.ptp(sync[inside]) < 1e-9


def test_a_data_stall_comes_in_one_of_20_steps():
    """Rare enough to hide from a median."""
    times = seconds(make("dp8", "data_stall:1@rank2:step0", **QUIET, steps=400), "data_loading")
    assert (times[:, 2] > 0.9).mean() == pytest.approx(0.05, abs=0.025)
    assert times[:, 3].max() < 0.1


def test_the_last_stage_is_slower_and_the_others_wait_for_it():
    """An imbalance of the model, not of a device."""
    run = make("pp4,dp8", **QUIET, stage_factor=1.5)
    work, wait = seconds(run, "forward", "backward")[5], seconds(run, "pipeline_wait")[5]
    assert np.allclose(work[24:], 1.5 * work[0])
    assert wait[24:].max() < wait[:24].min()
    assert (label_of(run).scope, label_of(run).cause) == ("role", "stage_imbalance")
    assert label_of(run).ranks == set(range(24, 32))


def test_a_pipeline_takes_what_the_closed_form_of_1f1b_says():
    """(M - 1) x slowest stage + sum over stages, of a microbatch."""
    run = make("pp4,dp2", **QUIET, stage_factor=1.5, microbatches=8)
    each = 1.75 / 8
    expected = 7 * 1.5 * each + 4.5 * each
    inside = ("forward", "pipeline_wait", "backward")
    assert np.allclose(seconds(run, *inside), expected)


def test_pauses_come_when_the_plan_says():
    """Checkpoints and evaluations for all at once, collections for each in its own time."""
    run = make("dp32", **QUIET, checkpoint_every=20, eval_every=30, gc_every_steps=10, steps=100)
    assert np.flatnonzero(seconds(run, "checkpoint").all(axis=1)).tolist() == [20, 40, 60, 80]
    assert np.flatnonzero(seconds(run, "eval").all(axis=1)).tolist() == [30, 60, 90]
    assert np.median(seconds(run, "checkpoint")[20]) == pytest.approx(2 * 2.0, rel=0.05)
    pauses = seconds(run, "gc")
    assert ((pauses > 0).sum(axis=0) == 10).all()
    assert 2 < (pauses[:10] > 0).sum(axis=1).mean() < 5
    assert pauses[pauses > 0].min() >= 0.2 - 1e-9
    assert pauses.max() <= 1.0 + 1e-9


def test_first_steps_are_slow_and_not_equally_slow():
    """Compilation; after it the run is as it would have been."""
    cold, warm = (seconds(make(**QUIET, warm_up_steps=n), "forward") for n in (20, 0))
    assert cold[0].min() > 1.5 * warm[0].max()
    assert cold[0].max() > 1.2 * cold[0].min()
    assert np.array_equal(cold[20:], warm[20:])


def test_missing_reports_leave_nothing_of_a_step():
    """No section, no tokens, no time."""
    run = make("dp64", missing_reports=0.1, report_tokens=True)
    table = next(run.tables(60))
    is_gone = np.isnan(table.seconds).all(axis=2)
    assert is_gone.mean() == pytest.approx(0.1, abs=0.02)
    assert not table.runs[is_gone].any()
    assert np.isnan(table.tokens[is_gone]).all()
    assert not table.start_ns[is_gone].any()
    assert (table.runs[~is_gone][:, 1] == 8).all()


def test_clocks_of_nodes_differ_and_those_of_a_node_do_not():
    """As with NTP."""
    table = next(make("dp64", **QUIET, clock_offset_s=0.01).tables())
    start = table.start_ns[0].reshape(8, 8)
    assert np.ptp(start, axis=1).max() == 0
    assert 1e6 < start[:, 0].std() < 1e8


def test_a_restart_goes_on_from_the_checkpoint_and_the_slow_device_stays_slow():
    """New attempt, new sessions, other numbers for the ranks; node and local rank of the fault
    stay."""
    run = make(
        "dp32", "compute:1.5@rank9:step30", **QUIET, ranks_per_node=4, restart_at_step=47,
        checkpoint_every=20, renumbers=True,
    )  # fmt: skip
    tables = list(run.tables())
    steps = [step for table in tables for step in table.steps.tolist()]
    assert steps == [*range(47), *range(41, 60)]
    first, second = tables[0].sources, tables[-1].sources
    assert {s.attempt for s in first} == {0}
    assert {s.attempt for s in second} == {1}
    assert not {s.session_id for s in first} & {s.session_id for s in second}
    assert [s.rank for s in second] == list(range(32))
    assert Counter(s.node for s in second) == Counter(s.node for s in first)
    label = label_of(run)
    (moved,) = label.ranks_by_attempt[1]
    assert moved != 9
    assert (second[moved].node, second[moved].local_rank) == (first[9].node, first[9].local_rank)
    slow = np.flatnonzero(tables[-1].seconds[0, :, 1] > 0.8)
    assert slow.tolist() == [moved]
    assert tables[-1].start_ns.min() > max(int(t.end_ns.max()) for t in tables[:-4])


@pytest.mark.parametrize("timing", ["local", "synchronised", "asynchronous"])
def test_a_rank_that_never_joins_stops_everybody(timing):
    """It loads data and no more; its peers end what comes before the collective."""
    run = make("dp8", "hang_never_joined@rank3:step20", timing=timing)
    tables = list(run.tables())
    assert tables[-1].steps[-1] == 20
    last = [section.name for section in tables[-1].sections]
    ran = ~np.isnan(tables[-1].seconds[-1])
    stuck = {"local": "gradient_sync", "synchronised": "backward", "asynchronous": "optimizer"}
    assert [name for name, is_there in zip(last, ran[3], strict=True) if is_there] == [
        "data_loading"
    ]
    assert (ran.sum(axis=1)[[0, 1, 2, 4, 5, 6, 7]] == last.index(stuck[timing])).all()


def test_a_crash_leaves_no_row_and_a_stuck_collective_all_that_came_before():
    """Of the step in which it happens."""
    crash = list(make("dp8", "crash@rank3:step20").tables())[-1]
    assert np.isnan(crash.seconds[-1, 3]).all()
    joined = list(make("dp8", "hang_joined@rank3:step20").tables())[-1]
    assert ((~np.isnan(joined.seconds[-1])).sum(axis=1) == 3).all()


def test_who_hangs_in_a_pipeline_stops_its_group_first():
    """The tensor group in forward, the pipeline before backward, others in the collective."""
    table = list(make("tp2,pp2,dp4", "hang_never_joined@rank0:step5").tables())[-1]
    ran = (~np.isnan(table.seconds[-1])).sum(axis=1)
    assert ran.tolist() == [1, 1, 4, 4, 4, 4, 4, 4, 2, 2, 4, 4, 4, 4, 4, 4]


def test_after_a_hang_a_new_attempt_goes_on():
    """The launcher's restart."""
    run = make("dp8", "crash@rank3:step20", restart_at_step=30, checkpoint_every=10)
    steps = [step for table in run.tables() for step in table.steps.tolist()]
    assert steps == [*range(21), *range(21, 60)]
    assert label_of(run).end_step == 30
    assert label_of(run).ranks_by_attempt == ({3}, frozenset())


def test_topology_is_told_or_not():
    """Peers come from it; the role stays the user's."""
    reported, silent = make("tp2,dp4").sources, make("tp2,dp4", report_topology=False).sources
    assert reported[3].parallel == (("data", 1), ("tensor", 1))
    assert silent[3].parallel == ()
    assert {s.role for s in (*reported, *silent)} == {"default"}


def test_a_long_run_takes_no_more_memory_than_a_short_one():
    """Steps are made when they are read."""
    peaks = []
    for steps in (20, 400):
        run = make("dp256", steps=steps)
        tracemalloc.start()
        for _ in run.tables():
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 3 * peaks[0]
