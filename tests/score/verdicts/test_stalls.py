"""How often and how long a rank stalls that stalls now and then, and that the verdict says so."""

from __future__ import annotations

import numpy as np
import pytest

from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.detect.verdicts.stalls import StallHistory, StallPattern
from otel_straggler.model.verdict import Verdict
from tests.score.verdicts.worlds import by_hand, usual, with_waiting

RANKS, SLOW, FORWARD = 16, 5, 1


def reported(
    at: list[int], steps: int, *, lasting: int = 1, lost_s: float = 0.5
) -> StallPattern | None:
    """Of a rank that stalls in these steps, each time for so many."""
    is_spike = np.zeros((steps, 2, 3), bool)
    for begin in at:
        is_spike[begin : begin + lasting, 1, 2] = True
    is_new = is_spike & ~np.concatenate([np.zeros((1, 2, 3), bool), is_spike[:-1]])
    stalls = StallHistory((2, 3))
    stalls.record(is_spike, is_new, np.where(is_new, lost_s, 0.0))
    assert stalls.of(0, 0) is None
    return stalls.of(1, 2)


def run_verdicts(*stalls: tuple[int, float], steps: int = 300) -> Verdict:
    """The newest verdict of a run in which one rank takes so many times as long in some steps of
    forward: ``(step, times)``."""
    work_s = usual(steps, RANKS)[..., :2]
    for step, times in stalls:
        work_s[step, SLOW, FORWARD] *= times
    judge = VerdictEngine()
    for table in by_hand(with_waiting(work_s)):
        judge.observe(table)
    judge.finish()
    return judge.changes[-1]


def test_the_rate_is_of_the_trouble_and_not_of_the_time_before_it() -> None:
    """One spike long ago, then one in ten steps."""
    assert reported([3, 900, 910, 920, 930, 940], 945) == StallPattern(share=0.1, each_s=0.5)


def test_nothing_is_told_of_few_stalls_nor_of_those_that_have_ceased() -> None:
    """Three are no rate; after fifty steps without one it is another."""
    assert reported([10, 20, 30], 35) is None
    assert reported([10, 20, 30, 40], 45) is not None
    assert reported([10, 20, 30, 40], 200) is None


def test_who_is_slow_for_steps_in_a_row_is_not_slow_in_one_of_so_many() -> None:
    """Five of twenty steps are not one of twenty."""
    begins = list(range(0, 200, 20))
    assert reported(begins, 200) is not None
    assert reported(begins, 200, lasting=5) is None


def test_new_sections_do_not_change_what_is_told_of_the_last_column() -> None:
    """Lateness keeps its place behind them."""
    stalls = StallHistory((1, 2))
    spikes = np.zeros((40, 1, 2), bool)
    spikes[::10, 0, 1] = True
    stalls.record(spikes, spikes, np.full(spikes.shape, 0.5))
    stalls.widen(4)
    assert (stalls.of(0, 1), stalls.of(0, 3)) == (None, StallPattern(share=0.1, each_s=0.5))


@pytest.mark.parametrize(("every", "times"), [(10, 2.0), (5, 1.5)])
def test_a_rank_that_stalls_now_and_then_is_told_so(every: int, times: float) -> None:
    """Where, how often, by how much; and the mean and the cost are those of these stalls."""
    verdict = run_verdicts(*((step, times) for step in range(50, 300, every)))
    assert (verdict.state, verdict.rank, verdict.section) == ("confirmed", SLOW, "forward")
    assert f"in about 1 of {every} steps, by {times - 1.0:.1f}" in _rounded(verdict.sentence)
    mean = 1.0 + (times - 1.0) / every
    assert verdict.slowdown == pytest.approx(mean, abs=0.015)
    assert verdict.own_s == pytest.approx(mean * verdict.peers_s, rel=0.015)


def test_who_is_slow_in_every_step_is_told_of_no_stalls() -> None:
    """It takes one and a half times as long, always."""
    verdict = run_verdicts(*((step, 1.5) for step in range(50, 300)))
    assert verdict.slowdown == pytest.approx(1.5, abs=0.02)
    assert "steps, by" not in verdict.sentence


def _rounded(sentence: str) -> str:
    """With seconds to one digit: they are measured, with noise."""
    before, _, rest = sentence.partition("steps, by ")
    seconds, _, after = rest.partition(" s each time")
    assert after
    return f"{before}steps, by {float(seconds):.1f} s each time{after}"
