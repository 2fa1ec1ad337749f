"""Waiting that nobody sees: whoever is slow may look like all others, and nothing denies it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.model.observation import COLLECTIVE, CUPTI, EVENTS, Floats
from otel_straggler.model.step_table import GpuSeconds, StepTable
from otel_straggler.model.verdict import WorldSummary

from .worlds import Sections, active, by_hand, made, newest, run_verdicts, silent, with_sources

QUICK_START: Sections = (
    ("data", "data"), ("forward", "compute"), ("backward", "compute"), ("optimizer", "compute"),
)  # fmt: skip
SHARES = np.array([0.02, 0.3, 0.6, 0.08])
BACKWARD = 2


def free(n_ranks: int, n_steps: int = 120) -> Floats:
    """(T, R, 4) seconds of ranks that never wait for each other."""
    rng = np.random.default_rng(0)
    return SHARES * np.exp(rng.normal(0.0, 0.02, (n_steps, n_ranks, 4)))


def averaged_inside(work_s: Floats) -> Floats:
    """The same where backward ends for all when the last rank has come."""
    seconds = work_s.copy()
    arrived_s = work_s[..., : BACKWARD + 1].sum(axis=2)
    seconds[..., BACKWARD] += arrived_s.max(axis=1, keepdims=True) - arrived_s
    return seconds


def tables(seconds: Floats, sections: Sections = QUICK_START) -> list[StepTable]:
    return [with_sources(table, silent) for table in by_hand(seconds, sections)]


def summary_of(judge: VerdictEngine) -> WorldSummary:
    summary = judge.summary()
    assert summary is not None
    return summary


def reporting(table: StepTable, basis: int) -> StepTable:
    """With a hundredth of each section spent waiting, of events the whole of it."""
    nccl_s = np.full(table.seconds.shape, np.nan) if basis == EVENTS else 0.01 * table.seconds
    own_s = table.seconds - np.nan_to_num(nccl_s)
    bases = np.full(table.seconds.shape, basis, np.uint8)
    return replace(table, gpu=GpuSeconds(bases, own_s, nccl_s))


@pytest.mark.parametrize("n_ranks", [2, 3, 8])
def test_ranks_that_wait_for_each_other_nowhere_are_not_called_alike(n_ranks: int) -> None:
    """No detection limit, and no part of the time that equal work would save."""
    summary = summary_of(run_verdicts(tables(free(n_ranks))))
    assert (summary.waits_unseen, summary.waits_inside) == (True, "")
    assert math.isnan(summary.resolvable_slowdown)
    assert math.isnan(summary.slowdown)
    assert math.isnan(summary.waste)
    assert summary.step_s == pytest.approx(1.0, abs=0.05)


def test_one_rank_alone_waits_for_nobody() -> None:
    """There is nothing to hide."""
    assert not summary_of(run_verdicts(tables(free(1)))).hides_waiting


def test_a_slow_rank_is_still_found_by_what_the_host_sees() -> None:
    """Such as slow data loading in a loop whose waiting nobody marked."""
    seconds = free(8)
    seconds[60:, 3, 0] += 0.3
    judge = run_verdicts(tables(seconds))
    [verdict] = active(judge).values()
    assert (verdict.rank, verdict.section, verdict.evidence) == (3, "data", "host")
    summary = summary_of(judge)
    assert summary.waits_unseen
    assert summary.slowdown == pytest.approx(1.3, abs=0.03)


def test_a_run_whose_waiting_is_hidden_is_not_uniformly_slower() -> None:
    """One rank may be the cause; it says that it cannot tell, and why."""
    seconds = free(8)
    seconds[60:] *= 1.3
    judge = run_verdicts(tables(seconds))
    assert not active(judge)
    [verdict] = newest(judge).values()
    assert (verdict.cause, verdict.state, verdict.pages) == ("unknown", "suspect", False)
    assert "where its ranks wait for each other is not known" in verdict.sentence
    with_wait = np.concatenate([seconds, np.full((*seconds.shape[:2], 1), 0.05)], axis=2)
    marked = run_verdicts(tables(with_wait, (*QUICK_START, ("sync", "wait"))))
    [uniform] = active(marked).values()
    assert uniform.cause == "uniform_slowdown"


@pytest.mark.parametrize("n_ranks", [3, 8])
def test_a_backward_that_evens_ranks_out_hides_who_is_slow_in_it(n_ranks: int) -> None:
    """Its behavior shows the waiting, and not the work: even the last to arrive is long in it."""
    work_s = free(n_ranks)
    work_s[60:, 1, BACKWARD] *= 1.15
    judge = run_verdicts(tables(averaged_inside(work_s)))
    assert not active(judge)
    summary = summary_of(judge)
    assert summary.hides_waiting
    assert summary.waits_inside in ("", "backward")
    assert math.isnan(summary.resolvable_slowdown)


def test_a_short_section_that_behaves_like_waiting_hides_no_work() -> None:
    """An all-reduce whose kind nobody gave: what is slow is seen before it."""
    work_s = free(8)
    arrived_s = work_s.sum(axis=2)
    waited_s = arrived_s.max(axis=1, keepdims=True) - arrived_s + 0.05
    seconds = np.concatenate([work_s, waited_s[..., None]], axis=2)
    summary = summary_of(run_verdicts(tables(seconds, (*QUICK_START, ("reduce", "compute")))))
    assert not summary.hides_waiting
    assert 1.0 < summary.resolvable_slowdown < 1.2


def test_a_section_that_waits_once_in_a_hundred_steps_shows_waiting() -> None:
    """For as long again; after that it is forgotten."""
    seconds = np.concatenate([free(8, 240), np.full((240, 8, 1), np.nan)], axis=2)
    seconds[10, :, -1] = 0.1
    sections = (*QUICK_START, ("barrier", "wait"))
    blocks = tables(seconds, sections)
    assert not summary_of(run_verdicts(blocks[:20])).waits_unseen
    assert summary_of(run_verdicts(blocks)).waits_unseen


@pytest.mark.parametrize(("basis", "is_unseen"), [(CUPTI, 0), (COLLECTIVE, 0), (EVENTS, 1)])
def test_kernels_and_collectives_show_waiting_and_events_do_not(basis: int, is_unseen: int) -> None:
    """Between two events there is waiting, too."""
    judge = run_verdicts(reporting(table, basis) for table in tables(free(8)))
    summary = summary_of(judge)
    assert summary.waits_unseen == bool(is_unseen)
    assert math.isnan(summary.resolvable_slowdown) == bool(is_unseen)
    assert (
        summary.basis == ("cupti", "collective", "events")[(CUPTI, COLLECTIVE, EVENTS).index(basis)]
    )


@pytest.mark.parametrize("device", ["", "GPU-1"])
def test_a_barrier_in_which_the_host_waits_for_its_own_gpu_hides_its_work(device: str) -> None:
    """Half of the step even for the last to arrive; without a GPU that is a slow network."""
    seconds = np.concatenate([free(8), np.full((120, 8, 1), 1.0)], axis=2)
    blocks = []
    for table in tables(seconds, (*QUICK_START, ("barrier", "other"))):
        waited_s = np.zeros_like(table.seconds)
        waited_s[..., -1] = 0.99
        basis = np.full(waited_s.shape, COLLECTIVE, np.uint8)
        timed = replace(table, gpu=GpuSeconds(basis, table.seconds - waited_s, waited_s))
        blocks.append(with_sources(timed, lambda source: replace(source, device=device)))
    summary = summary_of(run_verdicts(blocks))
    assert summary.basis == "collective"
    assert summary.waits_inside == ("barrier" if device else "")
    assert math.isnan(summary.resolvable_slowdown) == bool(device)


@pytest.mark.parametrize("layout", ["dp3", "dp8", "tp4,dp8"])
@pytest.mark.parametrize("timing", ["synchronised", "asynchronous"])
def test_with_waiting_inside_an_all_clear_needs_reports_of_it(layout: str, timing: str) -> None:
    """What asynchronous launches hide is not told by them."""
    hidden = summary_of(run_verdicts(made(layout, timing=timing)))
    assert hidden.hides_waiting
    assert math.isnan(hidden.resolvable_slowdown)
    reported = summary_of(run_verdicts(made(layout, timing=timing, report_collectives=True)))
    assert reported.hides_waiting == (timing == "asynchronous")
    assert math.isfinite(reported.resolvable_slowdown) == (timing == "synchronised")
