"""Since when a subject is slow: the onset of simulated runs, by step and by time."""

from __future__ import annotations

import numpy as np
import pytest

from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.detect.verdicts.onsets import StepBegins, onset_of
from otel_straggler.model.verdict import CALLED_SLOW, Verdict
from otel_straggler.simulate.runs import Fault, Layout, RunPlan, generate

from . import worlds

INSIDE = {"timing": "synchronised", "report_collectives": True}
STEP_S = 0.5
NEAR_STEPS, NEAR_PART = 5, 0.05


def confirmed(layout: str, fault: str, **plan: object) -> tuple[Verdict, float, float]:
    """The first confirmed verdict, the true begin of its onset, and how long the run took, s."""
    reported = {"step_s": STEP_S, "microbatches": 1, **plan}
    parsed = Fault.parse(fault)
    run = generate(
        RunPlan(
            layout=Layout.parse(layout), faults=(parsed,), steps=parsed.onset_step + 160, **reported
        )
    )
    engine, begins_ns, end_ns = VerdictEngine(), {}, 0
    for table in run.tables(5):
        begins_ns.update(zip(table.steps.tolist(), table.start_ns.max(axis=1), strict=True))
        end_ns = int(table.end_ns.max())
        engine.observe(table)
    verdict = next(each for each in engine.changes if each.state in CALLED_SLOW)
    lasted_s = (end_ns - int(begins_ns[0])) / 1e9
    return verdict, int(begins_ns[parsed.onset_step]) / 1e9, lasted_s


@pytest.mark.parametrize("onset", [60, 103, 257])
@pytest.mark.parametrize(
    ("layout", "fault", "plan"),
    [
        ("dp8", "compute:1.10@rank5", {}),
        ("dp8", "backward:1.25@rank5", INSIDE),
        ("tp2,dp8", "compute:1.25@rank5", INSIDE),
        ("pp2,dp8", "compute:1.6@rank5", {}),
        ("dp8", "data:0.1@rank5", {}),
        ("dp8", "late:0.25@rank5", {}),
        ("dp32", "compute:1.3@host1", {}),
        ("dp8", "uniform:1.3", {}),
    ],
)
def test_the_onset_is_within_five_steps_and_five_percent_of_the_time(
    layout: str, fault: str, plan: dict[str, object], onset: int
) -> None:
    """However late it is noticed."""
    verdict, true_s, lasted_s = confirmed(layout, f"{fault}:step{onset}", **plan)
    assert verdict.since_step is not None
    assert abs(verdict.since_step - onset) <= NEAR_STEPS
    assert abs(verdict.since_ns / 1e9 - true_s) <= NEAR_PART * lasted_s


def test_clocks_that_differ_do_not_move_the_onset() -> None:
    """Clocks of nodes differ by a minute: the foremost one counts, wherever the slow rank is."""
    plan = {"ranks_per_node": 2, "clock_offset_s": 60.0}
    for rank in (1, 3, 5, 7):
        verdict, true_s, _ = confirmed("dp8", f"compute:1.4@rank{rank}:step103", **plan)
        assert verdict.rank == rank
        assert verdict.since_ns / 1e9 == pytest.approx(true_s, abs=NEAR_STEPS * 1.4 * STEP_S)


def test_the_present_rise_counts_and_not_one_of_before() -> None:
    """A rise that ended for long; a short pause is a part of it; nothing known is the begin."""
    low, high = [0.0, 0.01, -0.01, 0.0, 0.0], [0.2, 0.19, 0.21, 0.2]
    assert onset_of(np.array(low + high + low + high), 0.0, 0.01) == len(low + high + low)
    assert onset_of(np.array(low + high + low[:1] + high), 0.0, 0.01) == len(low)
    assert onset_of(np.array(high), 0.0, 0.01) == 0
    assert onset_of(np.full(4, np.nan), 0.0, 0.01) == 0
    assert onset_of(np.array(low), 0.0, 0.01) in range(len(low))


def test_the_begin_of_a_step_is_that_of_its_rank() -> None:
    """Between known blocks by their distance; unknown of a rank without times."""
    begins = StepBegins()
    assert (len(begins), begins.at_ns(0, 3)) == (0, 0)
    for table in worlds.made("dp4", steps=40):
        begins.add(table)
    first = next(iter(worlds.made("dp4", steps=40)))
    assert begins.at_ns(2, 0) == pytest.approx(first.start_ns[0].max(), abs=2 * 10**8)
    assert begins.at_ns(2, 7) > begins.at_ns(2, 5) > begins.at_ns(2, 0)
