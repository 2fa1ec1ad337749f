"""Clocks that tell time coarsely."""

from __future__ import annotations

import numpy as np
import pytest

from otel_straggler.detect.verdicts.resolution import TICKS, ClockResolution
from otel_straggler.model.observation import Floats

from .worlds import active, by_hand, ever_confirmed, run_verdicts, usual, with_waiting

TICK_S = 1.0 / 64.0


def by_ticks(seconds: Floats, seed: int = 0) -> Floats:
    """As a clock of 15.6 ms has it: a section begins anywhere between two ticks."""
    begun = np.random.default_rng(seed).random(seconds.shape)
    return np.floor(begun + seconds / TICK_S) * TICK_S


def learnt(seconds: Floats) -> ClockResolution:
    resolution = ClockResolution()
    for at in range(0, len(seconds), 5):
        resolution.learn(seconds[at : at + 5])
    return resolution


def test_the_tick_of_a_clock_is_found() -> None:
    """To the microsecond, whatever the sections take."""
    seconds = np.abs(np.random.default_rng(1).normal([0.02, 1.0, 0.1], 0.01, (40, 8, 3)))
    assert learnt(by_ticks(seconds)).ticks_s() == pytest.approx([TICK_S] * 3, abs=1e-6)
    assert learnt(seconds).ticks_s().tolist() == [0.0] * 3


def test_times_that_never_change_tell_nothing_of_a_clock() -> None:
    """Nor does a single change, nor do holes."""
    seconds = np.ones((40, 8, 1))
    seconds[20:, 3] = 2.0
    assert learnt(seconds).ticks_s().tolist() == [0.0]
    assert learnt(np.full((40, 8, 1), np.nan)).ticks_s().tolist() == [0.0]
    assert learnt(np.ones((1, 1, 1))).ticks_s().tolist() == [0.0]


def test_a_finer_clock_is_believed_at_once() -> None:
    """As after a restart on other machines."""
    seconds = np.abs(np.random.default_rng(1).normal(0.02, 0.01, (80, 8, 1)))
    mixed = np.concatenate([by_ticks(seconds[:40]), seconds[40:45]])
    assert learnt(mixed).ticks_s()[0] < 0.2 * TICK_S


def test_what_is_less_than_the_clock_tells_is_no_difference() -> None:
    """Of a section 1.5 ticks; of a section that comes later nothing is known, nor of one without a
    price."""
    resolution = learnt(by_ticks(np.abs(np.random.default_rng(1).normal(0.1, 0.01, (40, 4, 1)))))
    resolution.learn(np.ones((5, 4, 2)))
    columns_s = np.array([[1.0, 0.1, 0.5, 2.0], [1.0, np.nan, 0.0, 2.0]])
    whole, price = (np.log1p(TICKS * TICK_S / s) for s in (np.array([1.0, 2.0]), 0.1))
    expected = [[whole[0], price, 0.0, whole[1]], [whole[0], 0.0, 0.0, whole[1]]]
    assert resolution.min_effects(columns_s) == pytest.approx(np.array(expected), abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_short_sections_by_a_coarse_clock_accuse_nobody(seed: int) -> None:
    """20 ms are one tick or two."""
    work_s = by_ticks(0.02 * usual(300, 8, seed=seed)[..., :2], seed)
    assert ever_confirmed(run_verdicts(by_hand(with_waiting(work_s)))) == set()


@pytest.mark.parametrize(("factor", "unit_s"), [(4.0, 0.02), (1.2, 1.0)])
def test_what_is_more_than_a_tick_is_found_by_a_coarse_clock(factor: float, unit_s: float) -> None:
    """Short sections that take several times as long, and long ones."""
    work_s = unit_s * usual(160, 8)[..., :2]
    work_s[60:, 3, 1] *= factor
    result = active(run_verdicts(by_hand(with_waiting(by_ticks(work_s)))))
    assert set(result) == {"rank/node-0/3"}
