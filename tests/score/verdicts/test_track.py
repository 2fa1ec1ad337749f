"""What is remembered of ranks, and who is beyond the others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.detect.verdicts.noise import INDEPENDENT
from otel_straggler.detect.verdicts.significance import Findings
from otel_straggler.detect.verdicts.track import Track

SEEDS = st.integers(0, 2**32 - 1)
RANKS = 8
NOTHING = np.zeros(RANKS)


def noise(seed: int, steps: int, sigma: float = 0.02, columns: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, sigma, (steps, RANKS, columns))


def tracked(excess: np.ndarray, *, learns: bool = False, block_steps: int = 5) -> Track:
    track = Track(excess.shape[1:], VerdictSettings())
    for at in range(0, len(excess), block_steps):
        track.observe(excess[at : at + block_steps])
        if learns:
            track.learn_reference(np.zeros(excess.shape[1], bool))
    return track


def result(excess: np.ndarray, **how: bool) -> Findings:
    return tracked(excess, **how).evaluate(np.zeros(excess.shape[1]))


def with_fault(size: float, *, onset: int, steps: int, seed: int = 0) -> np.ndarray:
    excess = noise(seed, steps)
    excess[onset:, 3, 1] += size
    return excess


@settings(max_examples=20)
@given(SEEDS, st.sampled_from([0.001, 0.02, 0.1]), st.sampled_from([5, 20, 100, 120]))
def test_noise_is_not_beyond_and_not_verified(seed: int, sigma: float, steps: int) -> None:
    """However loud, and however few the steps."""
    findings = result(noise(seed, steps, sigma))
    assert not findings.beyond.any()
    assert not findings.verified.any()


def test_a_large_excess_is_verified_within_fifteen_steps_with_its_onset() -> None:
    """The CUSUM says since when."""
    findings = result(with_fault(0.2, onset=60, steps=75))
    assert np.argwhere(findings.verified).tolist() == [[3, 1]]
    assert abs(int(findings.since[3, 1]) - 61) <= 1
    assert findings.effect[3, 1] == pytest.approx(0.2, abs=0.03)


def test_a_small_lasting_excess_is_found_by_a_longer_window() -> None:
    """Late rather than never: 9 % at a noise of 5 %."""
    excess = noise(1, 405, 0.05)
    excess[:, 3, 1] += 0.09
    assert not result(excess[:20]).beyond[3, 1]
    assert result(excess).beyond[3, 1]


@pytest.mark.parametrize("size", [0.02, 0.005])
def test_under_three_percent_nothing_is_confirmed(size: float) -> None:
    """However long it lasts and however quiet the times are."""
    excess = noise(0, 400, 0.001)
    excess[:, 3, 1] += size
    findings = result(excess)
    assert not (findings.beyond | findings.verified).any()


@settings(max_examples=20)
@given(SEEDS, st.floats(0.0, 1.0), st.integers(0, 110))
def test_a_slower_rank_never_gets_a_better_finding(seed: int, more: float, onset: int) -> None:
    """What is beyond stays beyond, by no less."""
    excess = noise(seed, 115)
    excess[60:, 3, 1] += 0.1
    worse = excess.copy()
    worse[onset:, 3, 1] += more
    here, there = result(excess), result(worse)
    assert there.recent[3, 1] >= here.recent[3, 1] - 1e-12
    is_result = here.beyond[3, 1] | here.verified[3, 1]
    assert (there.beyond[3, 1] | there.verified[3, 1]) >= is_result
    others = np.arange(RANKS) != 3
    assert not (there.beyond | there.verified)[others].any()


@settings(max_examples=15)
@given(SEEDS)
def test_findings_go_with_the_rank_whatever_its_row(seed: int) -> None:
    """Rows permuted, findings permuted."""
    excess = noise(seed, 115)
    excess[50:, 3, 1] += 0.15
    order = np.random.default_rng(seed).permutation(RANKS)
    here, there = result(excess), result(excess[:, order])
    for name in ("beyond", "verified", "effect", "z", "recent", "since"):
        expected = getattr(here, name)[order]
        np.testing.assert_allclose(getattr(there, name), expected, err_msg=name)


@pytest.mark.parametrize("block_steps", [1, 2, 4, 7])
def test_blocks_of_any_length_find_the_same(block_steps: int) -> None:
    """Tables are shorter at the end of a run and where telemetry is late."""
    track = tracked(with_fault(0.3, onset=60, steps=84), block_steps=block_steps)
    findings = track.evaluate(NOTHING)
    flagged = findings.beyond | findings.verified
    assert np.argwhere(flagged).tolist() == [[3, 1]]
    assert track.steps == 84


def test_the_newest_steps_are_a_median() -> None:
    """Of at most twenty; a wild one changes nothing."""
    excess = np.zeros((40, RANKS, 2))
    excess[20:, 0] = 0.1
    excess[33, 0] = 9.0
    track = tracked(excess)
    np.testing.assert_allclose(track.recent()[0], 0.1)
    np.testing.assert_allclose(track.since(np.array([0, 1]), 7), [[0.1, 0.1], [0.0, 0.0]])


def test_what_a_rank_always_was_is_its_reference_but_not_while_it_is_in_trouble() -> None:
    """Slowness does not become normal."""
    excess = noise(0, 100)
    excess[:, 2] += 0.02
    excess[50:, 3] += 0.5
    track = Track((RANKS, 2), VerdictSettings())
    held = np.zeros(RANKS, bool)
    for at in range(0, 100, 5):
        held[3] = at >= 50
        track.observe(excess[at : at + 5])
        track.learn_reference(held)
    assert track.reference[2] == pytest.approx(0.02, abs=0.01)
    assert track.reference[3] == pytest.approx(0.0, abs=0.01)


def test_who_was_faster_than_its_peers_and_is_as_fast_now_is_not_slow() -> None:
    """It has risen over its own past, but nobody waits for it."""
    excess = noise(0, 150, 0.005)
    excess[:80, 3] -= 0.3
    findings = result(excess, learns=True)
    assert not findings.verified.any()
    assert not findings.beyond.any()


def test_a_reference_that_is_given_counts_at_once() -> None:
    """After a restart."""
    excess = noise(0, 20, 0.005)
    excess[:, 3] += 0.04
    track = Track((RANKS, 2), VerdictSettings())
    given_s = np.full((RANKS, 2), np.nan)
    given_s[3] = 0.04
    track.seed_reference(given_s)
    for at in range(0, 20, 5):
        track.observe(excess[at : at + 5])
    assert track.g[3].max() < 3.0
    assert np.isnan(track.reference[0]).all()


def test_who_is_in_trouble_from_the_start_has_no_reference() -> None:
    """However little it rises."""
    held = np.arange(RANKS) == 3
    track = Track((RANKS, 2), VerdictSettings())
    for at in range(10):
        track.observe(noise(at, 5))
        track.learn_reference(held)
    assert np.isnan(track.reference[3]).all()
    assert np.isfinite(track.reference[~held]).all()


@pytest.mark.parametrize(
    "excess",
    [
        np.full((30, RANKS, 2), np.nan),
        np.zeros((30, RANKS, 2)),
        np.zeros((30, 1, 1)),
        np.where(np.arange(30)[:, None, None] % 2, np.nan, np.zeros((30, RANKS, 2))),
    ],
)
def test_nothing_known_and_all_equal_are_not_beyond(excess: np.ndarray) -> None:
    """And raise no warning."""
    track = tracked(excess, learns=True)
    findings = track.evaluate(np.zeros(excess.shape[1]))
    assert not (findings.beyond | findings.verified).any()
    track.resolvable(np.zeros(excess.shape[1]))


def test_small_groups_need_more() -> None:
    """An excess below what is asked of the row never counts."""
    track = tracked(with_fault(0.15, onset=40, steps=100))
    assert track.evaluate(NOTHING).beyond[3, 1]
    asked = np.where(np.arange(RANKS) == 3, 0.22, 0.0)
    findings = track.evaluate(asked)
    assert not (findings.beyond | findings.verified).any()


def test_what_can_be_resolved_follows_the_noise() -> None:
    """And nothing can where nothing is known."""
    sizes = [tracked(noise(0, 50, sigma)).resolvable(NOTHING) for sigma in (0.005, 0.02, 0.1)]
    assert sizes == sorted(sizes)
    assert 1.03 < sizes[0] < 1.12 < 1.2 < sizes[2]
    assert np.isnan(tracked(np.full((20, RANKS, 2), np.nan)).resolvable(NOTHING))


def test_quantities_that_appear_late_leave_the_others_as_they_were() -> None:
    """A new section costs no memory; it stands before the last column."""
    excess = with_fault(0.2, onset=60, steps=80)
    track = tracked(excess[:70])
    before = track.evaluate(NOTHING)
    track.widen(4)
    after = track.evaluate(NOTHING)
    for name in ("beyond", "verified", "effect", "since"):
        np.testing.assert_array_equal(getattr(after, name)[:, [0, 3]], getattr(before, name))
    more = np.concatenate([excess[70:, :, :1], noise(5, 10), excess[70:, :, 1:]], axis=2)
    for at in (0, 5):
        track.observe(more[at : at + 5])
    flagged = track.evaluate(NOTHING)
    assert np.argwhere(flagged.beyond | flagged.verified).tolist() == [[3, 3]]


@pytest.mark.parametrize(("quiet", "is_lasting"), [([], True), ([1, 3, 5, 9], False)])
def test_pauses_close_together_are_no_lasting_rise(quiet: list[int], is_lasting: bool) -> None:
    """Of twelve steps eight are long: their median has risen, but not their lower quartile."""
    excess = noise(0, 52, 0.04)
    excess[40:, 3, 1] = 0.5
    excess[np.array(quiet, int) + 40, 3, 1] = 0.0
    findings = result(excess)
    assert findings.since[3, 1] == 41
    assert findings.verified[3, 1] == is_lasting


@pytest.mark.parametrize("sigma", [0.01, 0.05])
def test_the_noise_that_is_learnt_is_that_of_the_steps(sigma: float) -> None:
    """To a tenth: from deviations within blocks; and of windows, which differ no more than that."""
    excess = np.random.default_rng(3).normal(0.0, sigma, (200, 64, 2))
    track = tracked(excess)
    np.testing.assert_allclose(track.sigma, sigma, rtol=0.1)
    errors = np.sqrt(track.noise.variance[:2])
    np.testing.assert_allclose(errors, sigma * INDEPENDENT[:2, None] * np.ones(2), rtol=0.25)


def test_a_rise_that_began_is_counted_from_its_first_step() -> None:
    """Without noise exactly; what never rose began nowhere."""
    excess = np.zeros((70, RANKS, 2))
    excess[60:, 3, 1] = 0.2
    findings = result(excess)
    assert findings.since[3, 1] == 61
    assert (np.delete(findings.since[:, 1], 3) == -1).all()


def test_an_excess_that_was_always_there_is_not_verified_where_it_is_common() -> None:
    """Without a past of its own a rank must stand out from its peers, and not from nothing."""
    excess = noise(0, 15, 0.002)
    excess += np.linspace(-0.12, 0.12, RANKS)[:, None]
    assert not result(excess).verified.any()
