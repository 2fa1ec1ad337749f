"""How much means of steps move by themselves, and who comes last more often than by chance."""

from __future__ import annotations

import numpy as np
import pytest

from otel_straggler.detect.scores.medians import Groups
from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.detect.verdicts.log import SubjectState, Work
from otel_straggler.detect.verdicts.noise import INDEPENDENT, NoiseScales, beyond_chance
from otel_straggler.detect.verdicts.track import Track
from otel_straggler.detect.verdicts.waits import LateArrivals, Lateness
from otel_straggler.model.observation import Floats

from .real_loops import noise

RANKS = 32


def tracked(excess: Floats) -> Track:
    track = Track(excess.shape[1:], VerdictSettings())
    for at in range(0, len(excess), 5):
        track.observe(excess[at : at + 5])
    return track


def with_memory(memory: float, steps: int = 800, cv: float = 0.03) -> Floats:
    """(T, R, 1) excesses."""
    return np.log(noise(np.random.default_rng(5), steps, RANKS, cv, memory))[..., None]


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.7, 0.9])
def test_windows_scatter_as_measured_whatever_the_memory(memory: float) -> None:
    """Within a third, of 20 and of 100 steps."""
    excess = with_memory(memory)
    measured = np.sqrt(tracked(excess).noise.variance[1:3, 0])
    true = [excess[:, :, 0].reshape(-1, n, RANKS).mean(axis=1).std() for n in (20, 100)]
    np.testing.assert_allclose(measured, true, rtol=0.35)


def test_what_was_hardly_seen_is_not_believed_to_average_out() -> None:
    """After 30 steps with much memory nothing promises that longer means scatter less."""
    early = tracked(with_memory(0.97)[:30]).noise
    white = tracked(with_memory(0.0)[:30]).noise
    assert early.variance[2, 0] > 0.3 * early.variance[0, 0]
    assert white.variance[2, 0] < 0.3 * white.variance[0, 0]


def test_one_jump_of_half_of_the_ranks_is_no_noise() -> None:
    """It is counted once, and for little."""
    excess = with_memory(0.0, 300, cv=0.01)
    before = tracked(excess).noise.variance[1, 0]
    excess[150:, : RANKS // 2] += 0.3
    after = tracked(excess).noise.variance[1, 0]
    assert after < 16.0 * before
    assert np.sqrt(after) < 0.03


def test_errors_between_the_scales_lie_between_theirs() -> None:
    scales = NoiseScales((RANKS, 1))
    scales.evaluate(np.array([0.02]))
    errors = [float(scales.error(n)[0]) for n in (1, 2, 4, 10, 20, 50, 80, 1000)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] == pytest.approx(INDEPENDENT[0] * 0.02)


def test_few_values_ask_for_more() -> None:
    limits = beyond_chance(5.5, np.array([3.0, 10.0, 1000.0]))
    assert limits[0] > 10 * limits[2]
    assert limits[2] == pytest.approx(5.5, rel=0.02)


# --- who comes last -------------------------------------------------------------------------------


def arrivals(waited_s: Floats, own_late_s: Floats | None = None) -> LateArrivals:
    late = LateArrivals(waited_s.shape[1])
    own = np.zeros_like(waited_s) if own_late_s is None else own_late_s
    groups = Groups.of([0] * waited_s.shape[1])
    for at in range(0, len(waited_s), 5):
        late.observe(waited_s[at : at + 5], own[at : at + 5], groups)
    return late


def last_in(steps: int, ranks: int, who: dict[int, float]) -> Floats:
    """(T, R) waits; these ranks are last in that part of the steps, by 0.1 s, others by 1 ms."""
    rng = np.random.default_rng(2)
    late_s = np.abs(rng.normal(0.0, 1e-3, (steps, ranks)))
    for rank, part in who.items():
        late_s[rng.random(steps) < part, rank] += 0.1
    return np.asarray(late_s.max(axis=1, keepdims=True) - late_s)


def found(late: LateArrivals, ranks: int) -> list[int]:
    return late.found(Groups.of([0] * ranks), 5.5, np.full(ranks, 1e-3))


def test_all_who_come_last_often_are_found_and_by_how_much() -> None:
    late = arrivals(last_in(200, 8, {0: 0.4, 6: 0.3}))
    assert found(late, 8) == [0, 6]
    lateness = late.lateness(0)
    assert isinstance(lateness, Lateness)
    assert lateness.share == pytest.approx(0.35, abs=0.1)
    assert lateness.each_s == pytest.approx(0.1, rel=0.25)


def test_who_is_last_because_of_its_own_work_is_named_there() -> None:
    waited_s = last_in(200, 8, {3: 0.9})
    own_late_s = np.zeros_like(waited_s)
    own_late_s[:, 3] = 0.1
    assert found(arrivals(waited_s, own_late_s), 8) == []


def test_who_is_last_for_many_steps_in_a_row_may_be_so_by_chance() -> None:
    """One after the other, each for 25 steps."""
    late_s = np.zeros((200, 8))
    for step in range(200):
        late_s[step, step // 25] = 0.1
    assert found(arrivals(late_s.max(axis=1, keepdims=True) - late_s), 8) == []


# --- changes of a slow rank -----------------------------------------------------------------------


def slow_by(excess: float, peers: float = 0.0) -> Work:
    return Work(own=peers + excess, peers=peers, unsettled=0.0)


def slow_subject() -> SubjectState:
    subject = SubjectState(state="confirmed", floor=0.03)
    assert not subject.learn_work(slow_by(0.2), 50, is_new=True)
    return subject


def test_a_slow_rank_gets_worse_and_eases_by_its_own_time() -> None:
    subject = slow_subject()
    assert not subject.learn_work(slow_by(0.25), 60, is_new=False)
    assert subject.learn_work(slow_by(0.7), 70, is_new=False)
    assert subject.change == "worse since about step 70, 1.22x before"
    assert subject.learn_work(slow_by(0.2), 90, is_new=False)
    assert subject.change == "eased since about step 90, 2.01x before"


def test_peers_that_become_slower_do_not_ease_it() -> None:
    subject = slow_subject()
    moved = Work(own=0.2, peers=0.15, unsettled=0.0)
    assert not subject.learn_work(moved, 70, is_new=False)
    assert subject.only_peers_moved(Work(own=0.2, peers=0.2, unsettled=0.0))
    assert not subject.only_peers_moved(Work(own=0.0, peers=0.0, unsettled=0.0))
