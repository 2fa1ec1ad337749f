"""The one definition of loss: of a verdict, of a run, and of verdicts together."""

from __future__ import annotations

import math
from typing import Any

import pytest

from otel_straggler.detect.verdicts.losses import attributed, loss_of, with_costliest
from otel_straggler.model.verdict import RunVerdicts, Verdict, WorldSummary

RANKS = 8
HOUR = RANKS * 3600.0


def verdict(share: float, **changes: Any) -> Verdict:
    """A confirmed rank that costs a part of the peers' usual step."""
    values: dict[str, Any] = {
        "run_id": "run",
        "subject_id": "rank/node-0/5",
        "scope": "rank",
        "rank": 5,
        "state": "confirmed",
        "slowdown": 1.5,
        "gpu_seconds_lost_per_hour": min(1.0, share) * HOUR,
        "loss_share": share,
        "sentence": "as evaluated",
        **changes,
    }
    return Verdict(**values)


def world(waste: float = math.nan, **changes: Any) -> WorldSummary:
    """A step of one second, in which ranks wait for each other."""
    values: dict[str, Any] = {
        "run_id": "run",
        "waste": waste,
        "slowdown": 1.0 / (1.0 - waste),
        "n_ranks": RANKS,
        "step_s": 1.0,
        "slowest_step_s": 1.0,
        **changes,
    }
    return WorldSummary(**values)


def losses(world: WorldSummary, *verdicts: Verdict) -> list[float]:
    """Of each verdict, as shown."""
    shown = attributed(RunVerdicts(changes=verdicts, worlds=(world,)))
    return [each.gpu_seconds_lost_per_hour / HOUR for each in shown.current]


@pytest.mark.parametrize(
    ("share", "slowest_s", "peers_s", "loss"),
    [
        (0.3, 1.0, 0.6, 0.3),  # the step contains the waiting
        (0.3, 1.3, 1.0, 0.3 / 1.3),  # it does not
        (3.0, 4.0, 1.0, 0.75),
        (3.0, 1.0, 1.0, 0.75),  # in few steps, which the median does not contain
    ],
)
def test_a_loss_is_a_part_of_the_actual_step(
    share: float, slowest_s: float, peers_s: float, loss: float
) -> None:
    """Whether or not the times of the peers contain their waiting."""
    slow = verdict(share, peers_s=peers_s)
    assert loss_of(slow, world(slowest_step_s=slowest_s)) == pytest.approx(loss)


def test_a_loss_without_its_step_is_the_cost_per_hour() -> None:
    """Of roles and runs; unknown costs and worlds are nothing."""
    of_run = verdict(math.nan, scope="run", gpu_seconds_lost_per_hour=0.2 * HOUR)
    assert loss_of(of_run, world()) == pytest.approx(0.2)
    assert loss_of(of_run, world(n_ranks=0)) == 0.0
    assert loss_of(verdict(0.2, gpu_seconds_lost_per_hour=math.nan), world()) == 0.0


def test_a_run_loses_at_least_what_the_costliest_costs() -> None:
    """The balance of work, which leaves out loading of data, sees nothing of it."""
    balance = world(0.02, m_w=0.9, m_s=0.4)
    shown = with_costliest(balance, [verdict(0.5), verdict(0.3, subject_id="b")])
    assert (shown.waste, shown.slowdown) == pytest.approx((0.5, 2.0))
    assert math.isnan(shown.m_w)
    assert math.isnan(shown.m_s)
    assert with_costliest(balance, [verdict(0.5, state="suspect")]) is balance
    assert with_costliest(world(0.6), [verdict(0.2)]).waste == 0.6
    # Of several ranks one is the last in each step, by chance: that is nobody's.
    assert with_costliest(world(0.6), [verdict(0.5)]).waste == 0.5
    assert with_costliest(world(), [verdict(0.5)]).slowdown == pytest.approx(2.0)
    near = with_costliest(balance, [verdict(0.03)])
    assert (near.waste, near.m_w) == (0.03, 0.9)


def test_verdicts_lose_no_more_than_the_run() -> None:
    """In proportion; suspects share what is left."""
    run = world(0.5)
    assert losses(run, verdict(0.3)) == pytest.approx([0.3])
    two = losses(run, verdict(0.5), verdict(0.5, subject_id="b"))
    assert two == pytest.approx([0.25, 0.25])
    suspect = verdict(0.4, subject_id="b", state="suspect")
    assert losses(run, suspect, verdict(0.3)) == pytest.approx([0.2, 0.3])
    gone = verdict(0.0, subject_id="c", state="recovered")
    assert losses(run, gone, verdict(0.5), suspect) == pytest.approx([0.0, 0.5, 0.0])


def test_a_suspect_may_lose_more_than_the_balance_of_work_sees() -> None:
    """As the run would if it were confirmed; several suspects share that."""
    run = world(0.02)
    suspect = verdict(0.4, subject_id="b", state="suspect")
    assert losses(run, suspect) == pytest.approx([0.4])
    other = verdict(0.4, subject_id="c", state="suspect")
    assert losses(run, suspect, other) == pytest.approx([0.2, 0.2])
    assert losses(world(0.3), suspect, verdict(0.3)) == pytest.approx([0.1, 0.3])


def test_a_sentence_has_the_loss_that_is_shown() -> None:
    """Only where that is another than evaluated; changes of before stay."""
    before = verdict(0.5, state="suspect")
    both = (before, verdict(0.5), verdict(0.5, subject_id="b"))
    shown = attributed(RunVerdicts(changes=both, worlds=(world(0.5),))).changes
    assert shown[0] is before
    assert "The job loses 2.0 h of rank time per hour." in shown[1].sentence
    assert shown[1].loss_share == pytest.approx(0.25)
    alone = RunVerdicts(changes=(verdict(0.5),), worlds=(world(0.5),))
    assert attributed(alone) == alone
    unknown = RunVerdicts(changes=both, worlds=(world(0.5, n_ranks=0),))
    assert attributed(unknown) == unknown
