"""Verdicts where ranks report what they wait in collectives: who is named, and by how much."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.detect.scores.scorer import Scorer
from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.model.observation import COLLECTIVE, HOST
from otel_straggler.model.step_table import GpuSeconds, StepTable
from otel_straggler.model.verdict import Verdict
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.simulate.runs import Fault, Layout, RunPlan, generate
from otel_straggler.simulate.writers import encode_requests_of

from .gpu_worlds import untold, with_holes
from .worlds import LOCAL, active, ever_confirmed, made, newest, run_verdicts, story

FEW = settings(max_examples=8)
SLOW = "backward:1.15@rank2:step60"


def waiting(layout: str, *faults: str, **plan: object) -> tuple[StepTable, ...]:
    """Collectives inside the sections, and reports of what ranks wait in them."""
    return made(layout, *faults, **{"timing": "synchronised", "report_collectives": True, **plan})


def only(judge: VerdictEngine) -> Verdict:
    [verdict] = active(judge).values()
    return verdict


@pytest.mark.parametrize("layout", ["dp4", "dp8", "tp2,pp2,dp8"])
@pytest.mark.parametrize(
    ("section", "dose"), [("backward", 1.15), ("backward", 1.3), ("forward", 1.3)]
)
def test_a_rank_slow_inside_a_section_with_collectives_is_named_with_its_dose(
    layout: str, section: str, dose: float
) -> None:
    """Own time over that of its peers, within a fifth; nobody who waits for it."""
    verdict = only(run_verdicts(waiting(layout, f"{section}:{dose}@rank2:step60")))
    assert (verdict.rank, verdict.section) == (2, section)
    assert (verdict.cause, verdict.evidence) == ("slow_gpu", "collective")
    assert verdict.slowdown - 1.0 == pytest.approx(dose - 1.0, rel=0.2)
    assert verdict.is_localised
    assert "slow GPU or host (collective)" in verdict.sentence


def test_one_of_three_is_named_as_if_its_collectives_had_a_section_of_their_own() -> None:
    """Groups so small need 10 % of the step."""
    fault = "compute:1.2@rank1:step60"
    named = only(run_verdicts(waiting("dp3", fault)))
    marked = only(run_verdicts(made("dp3", fault)))
    assert (named.rank, named.confirmed_step) == (1, marked.confirmed_step)
    assert named.slowdown == pytest.approx(marked.slowdown, rel=1e-3)


def test_without_reports_nobody_is_named_for_what_lies_in_backward() -> None:
    """Ranks that wait for each other there all take as long as the slowest."""
    for layout in ("dp3", "dp8", "tp4,dp8"):
        judge = run_verdicts(waiting(layout, SLOW, report_collectives=False))
        assert not active(judge)


def test_the_rank_that_waited_for_nobody_is_named_and_not_its_tensor_group() -> None:
    """Its mates wait for it in every layer, and their data-parallel peers for them: both are
    waiting, and only one rank works for longer."""
    judge = run_verdicts(waiting("tp4,dp8", "compute:1.25@rank9:step60"))
    verdict = only(judge)
    assert (verdict.rank, verdict.evidence, verdict.is_localised) == (9, "collective", True)
    assert verdict.slowdown == pytest.approx(1.25, rel=0.04)
    assert {v.rank for v in judge.changes} == {9}
    summary = judge.summary()
    assert summary is not None
    assert summary.waits[0].rank == 9
    assert summary.waits[0].caused_s > 5 * summary.waits[1].caused_s


def test_a_rank_that_comes_late_is_found_by_who_waits_least_in_collectives() -> None:
    """Its own sections are as short as those of the others."""
    verdict = only(run_verdicts(waiting("dp8", "late:0.2@rank3:step60")))
    assert (verdict.rank, verdict.cause, verdict.evidence) == (3, "late_arrival", "collective")


def test_slow_data_loading_a_slow_link_and_a_slow_run_say_what_they_rest_on() -> None:
    """All three need that waiting is told from work."""
    data = only(run_verdicts(waiting("dp8", "data:0.3@rank3:step60")))
    assert (data.rank, data.section, data.cause) == (3, "data_loading", "slow_host")
    link = only(run_verdicts(waiting("dp8", "link:8@rank1:step60")))
    run = only(run_verdicts(waiting("dp8", "uniform:1.3:step60")))
    assert (link.cause, run.cause) == ("link", "uniform_slowdown")
    assert {data.evidence, link.evidence, run.evidence} == {"collective"}


def test_who_makes_others_wait_is_counted_by_what_they_wait_in_collectives() -> None:
    """The culprit waits least."""
    summary = run_verdicts(waiting("dp8", SLOW)).summary()
    assert summary is not None
    first = summary.waits[0]
    assert first.rank == 2
    assert first.caused_s > 5 * summary.waits[1].caused_s
    assert first.suffered_s < min(wait.suffered_s for wait in summary.waits[1:])


@pytest.mark.parametrize("timing", ["synchronised", "local", "asynchronous"])
def test_nobody_is_named_in_a_healthy_run(timing: str) -> None:
    """Whatever the sections hold."""
    for layout in ("dp4", "tp2,pp2,dp8"):
        assert run_verdicts(waiting(layout, timing=timing, spikes=0.002)).changes == ()


def test_a_host_that_only_launches_collectives_changes_nothing() -> None:
    """What it waits there is the cost of the calls."""
    for fault in ("compute:1.25@rank2:step60", "late:0.2@rank3:step60", "uniform:1.3:step60"):
        plan = {"timing": "asynchronous"}
        with_reports = run_verdicts(waiting("dp8", fault, **plan))
        without = run_verdicts(waiting("dp8", fault, **plan, report_collectives=False))
        assert story(with_reports) == story(without)
        assert {v.evidence for v in with_reports.changes} <= {"host", "synchronised"}


@pytest.mark.parametrize("who", [2, 6])
@pytest.mark.parametrize("first", [0, 40, 80])
def test_a_rank_that_stops_reporting_makes_nobody_look_slow(who: int, first: int) -> None:
    """Neither itself nor another; the culprit may be missed."""
    for layout in ("dp8", "dp32"):
        judge = run_verdicts(
            untold(table, [who]) if table.steps[0] >= first else table
            for table in waiting(layout, SLOW)
        )
        assert {v.rank for v in judge.changes if v.state == "confirmed"} <= {2}


def test_a_slow_rank_that_is_no_longer_seen_is_not_called_well() -> None:
    """By the host's clock it is as fast as all who wait for it."""
    tables = waiting("dp8", SLOW)
    judge = run_verdicts(untold(t, [2]) if t.steps[0] >= 80 else t for t in tables)
    verdict = newest(judge)["rank/node-0/2"]
    assert (verdict.state, verdict.evidence) == ("confirmed", "collective")


# --- hostile -------------------------------------------------------------------------------------


@FEW
@given(st.integers(0, 2**16), st.floats(0.05, 0.95))
def test_ranks_that_flip_between_reporting_and_not_make_nobody_look_slow(
    seed: int, part: float
) -> None:
    """All at once, or each by itself."""
    for layout in ("dp8", "tp2,dp16"):
        rng = np.random.default_rng(seed)
        n_ranks = len(waiting(layout)[0].sources)
        each = run_verdicts(
            untold(t, np.flatnonzero(rng.random(n_ranks) < part).tolist()) for t in waiting(layout)
        )
        all_at_once = run_verdicts(
            replace(t, gpu=None) if rng.random() < part else t for t in waiting(layout)
        )
        holes = run_verdicts(with_holes(t, part, rng) for t in waiting(layout))
        for judge in (each, all_at_once, holes):
            assert not ever_confirmed(judge)


@FEW
@given(st.integers(0, 2**16))
def test_a_rank_that_reports_absurd_waits_accuses_nobody_else(seed: int) -> None:
    """Nothing, everything, or anything in between: it may be named itself."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(3)

    def absurd(table: StepTable) -> StepTable:
        gpu = table.gpu
        assert gpu is not None
        part = (0.0, 1.0, rng.random(table.seconds[:, 3].shape))[kind]
        waited_s = gpu.nccl_s.copy()
        waited_s[:, 3] = part * table.seconds[:, 3]
        return replace(
            table, gpu=GpuSeconds(gpu.basis, np.maximum(table.seconds - waited_s, 0.0), waited_s)
        )

    judge = run_verdicts(map(absurd, waiting("dp8")))
    assert ever_confirmed(judge) <= {"rank/node-0/3"}


def test_a_section_that_appears_with_waits_of_its_own_changes_nothing() -> None:
    """Known to nobody before; nobody is slow in it."""
    tables = list(waiting("dp8"))
    wider = [_with_barrier(t) if t.steps[0] >= 60 else t for t in tables]
    assert run_verdicts(wider).changes == run_verdicts(tables).changes == ()


def _with_barrier(table: StepTable) -> StepTable:
    """A section in which all ranks wait for the same short time."""
    gpu = table.gpu
    assert gpu is not None
    shape = (*table.seconds.shape[:2], 1)

    def wider(values: np.ndarray, filler: float) -> np.ndarray:
        return np.concatenate([values, np.full(shape, filler, values.dtype)], axis=2)

    (barrier,) = (replace(table.sections[0], name="barrier", kind="other"),)
    return replace(
        table,
        sections=(*table.sections, barrier),
        seconds=wider(table.seconds, 0.002),
        runs=wider(table.runs, 1),
        run_cv=np.concatenate([table.run_cv, np.full((shape[1], 1), np.nan)], axis=1),
        gpu=GpuSeconds(
            wider(gpu.basis, COLLECTIVE), wider(gpu.own_s, 1e-5), wider(gpu.nccl_s, 0.002 - 1e-5)
        ),
    )


def test_spans_sent_to_a_scorer_name_the_rank_that_collectives_hide() -> None:
    """All the way: bytes, columns, windows, verdict; folded into no step twice."""
    plan = RunPlan(
        layout=Layout.parse("dp8"),
        steps=120,
        timing="synchronised",
        report_collectives=True,
        faults=(Fault.parse("backward:1.3@rank5:step60"),),
        **LOCAL,
    )
    run = generate(plan)
    decoder, scorer = SpanDecoder(), Scorer()
    for now_s, body in enumerate(encode_requests_of(run.batches(5))):
        decoded = decoder.decode(body)
        assert decoded.refused_gpu_times == 0
        scorer.observe(decoded.batch, now_s * 10**6)
        scorer.close_due(now_s * 10**6)
    scorer.close_all()
    newest_verdicts = {v.subject_id: v for v in scorer.verdicts(plan.run_id).changes}
    [verdict] = newest_verdicts.values()
    assert (verdict.rank, verdict.state, verdict.section) == (5, "confirmed", "backward")
    assert (verdict.cause, verdict.evidence) == ("slow_gpu", "collective")
    assert verdict.slowdown == pytest.approx(1.3, abs=0.06)


def test_a_table_of_the_generator_says_what_its_rows_say() -> None:
    """Cells without a report are those that did not run."""
    for table in waiting("tp2,dp4", missing_reports=0.1):
        assert table.gpu is not None
        ran = np.isfinite(table.seconds)
        np.testing.assert_array_equal(table.gpu.basis, np.where(ran, COLLECTIVE, HOST))
        whole_s = (table.gpu.own_s + table.gpu.nccl_s)[ran]
        np.testing.assert_allclose(whole_s, table.seconds[ran])
