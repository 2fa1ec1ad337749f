"""The methods beside ours do what their formulas say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from benchmarks.detection.episodes import FlagTracker
from benchmarks.detection.methods import METHODS
from benchmarks.detection.methods.bocd import Bocd, RunLengths
from benchmarks.detection.methods.nvrx import Nvrx, relative_scores
from benchmarks.detection.methods.robust import iqr_fence, mad_2, modified_z
from benchmarks.detection.methods.signals import median_over_steps, role_codes

from .made import healthy, tables

BASELINES = [name for name in METHODS if name != "otel-straggler"]


def printed(method, seconds, **fields):
    return [episode for table in tables(seconds, **fields) for episode in method.take(table)]


def test_medians_leave_gaps_out_like_numpys():
    """The quick median is nanmedian."""
    values = np.random.default_rng(0).normal(size=(20, 7, 3))
    values[values > 1] = np.nan
    values[:, 2, 1] = np.nan
    values[3:, 4, 2] = np.nan
    with pytest.warns(RuntimeWarning, match="All-NaN"):
        expected = np.nanmedian(values, axis=0)
    np.testing.assert_allclose(median_over_steps(values), expected)


def test_roles_are_places_in_the_layout_but_for_data():
    """Ranks of one stage are peers; those of two are not."""
    table = tables(healthy(5, 8), stages=2)[0]
    assert role_codes(table.sources).tolist() == [0] * 4 + [1] * 4


def test_the_robust_rules_agree_with_scipy():
    """MAD, Iglewicz-Hoaglin's z and Tukey's fence, from their textbook definitions."""
    values = np.random.default_rng(0).lognormal(size=41)
    mad = stats.median_abs_deviation(values)
    distance = values - np.median(values)
    np.testing.assert_allclose(mad_2(values) > 1, distance > 2 * 1.4826 * mad)
    np.testing.assert_allclose(modified_z(values) > 1, 0.6745 * distance / mad > 3.5)
    fence = np.quantile(values, 0.75) + 1.5 * stats.iqr(values)
    np.testing.assert_allclose(iqr_fence(values) > 1, values > fence)


def test_ranks_that_are_all_equal_are_not_flagged():
    """No spread is no reason."""
    for rule in (mad_2, modified_z, iqr_fence):
        assert rule(np.ones(8)).max() == 0.0


def test_nvrx_divides_the_fastest_median_by_the_own():
    """Section by section; a rank that did not run one has no score there."""
    medians = np.array([[1.0, 2.0], [2.0, np.nan], [1.6, 1.0]])
    expected = [[1.0, 0.5], [0.5, np.nan], [0.625, 1.0]]
    everybody = [np.arange(3)]
    np.testing.assert_allclose(relative_scores(medians, everybody), expected)


def test_nvrx_calls_a_slow_stage_slow_and_its_variant_within_roles_does_not():
    """The reason to compare with peers."""
    seconds = healthy()
    seconds[:, 8:, 1] *= 1.5
    assert {rank for e in printed(Nvrx(), seconds, stages=2) for rank in e.ranks} == set(
        range(8, 16)
    )
    assert printed(Nvrx(within_roles=True), seconds, stages=2) == []


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_finds_a_rank_that_becomes_much_slower(name):
    """Nothing is compared that does not work."""
    seconds = healthy(steps=100)
    seconds[50:, 5, 1] *= 1.6
    episodes = printed(METHODS[name](), seconds)
    assert any(e.ranks == {5} and 50 <= e.begin_step < 80 and e.end_step is None for e in episodes)


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_survive_gaps_and_silent_ranks(name):
    """Missing reports, a rank that says nothing, and other ranks after a restart."""
    seconds = healthy(steps=100)
    seconds[np.random.default_rng(0).random(seconds.shape) < 0.05] = np.nan
    seconds[:, 3] = np.nan
    method = METHODS[name]()
    printed(method, seconds)
    assert not printed(method, healthy(steps=15, ranks=4)), "a new world has no full window yet"


def test_bocd_run_lengths_agree_with_a_plain_recursion():
    """The vectorised posterior is Adams and MacKay's, one series at a time and untruncated."""
    rng = np.random.default_rng(3)
    series = np.concatenate((rng.normal(0, 0.01, 12), rng.normal(0.1, 0.01, 8)))
    lengths = RunLengths(2, sigma=0.01, longest=40)
    measured = np.array([lengths.take(np.array([x, 0.0])) for x in series])
    np.testing.assert_allclose(measured[:, 0], plain_bocd(series, 0.01), rtol=1e-9)
    assert measured[12, 0] > 0.9
    assert measured[1:12, 0].max() < 0.5
    assert measured[:, 1].max() < 0.5


def plain_bocd(series, sigma, hazard=1 / 250):
    """P(r = 0) by the textbook: lists, scipy's t, no truncation."""
    runs, answers = [], []
    for x in series:
        new = hazard * predictive([], sigma).pdf(x) * sum(p for p, _ in runs) if runs else 1.0
        old = [(p * (1 - hazard) * predictive(seen, sigma).pdf(x), [*seen, x]) for p, seen in runs]
        total = new + sum(p for p, _ in old)
        runs = [(new / total, [x]), *((p / total, seen) for p, seen in old)]
        answers.append(new / total if len(runs) > 1 else 0.0)
    return answers


def predictive(seen, sigma):
    """Student-t of the next point under a normal-gamma prior."""
    n, mean = len(seen), np.mean(seen) if seen else 0.0
    kappa_0, alpha_0 = RunLengths.KAPPA_0, RunLengths.ALPHA_0
    kappa, alpha = kappa_0 + n, alpha_0 + n / 2
    squares = float(np.sum((np.array(seen) - mean) ** 2))
    beta = alpha_0 * sigma**2 + squares / 2 + kappa_0 * n * mean**2 / (2 * kappa)
    scale = np.sqrt(beta * (kappa + 1) / (alpha * kappa))
    return stats.t(2 * alpha, n * mean / kappa, scale)


def test_bocd_verifies_the_size_of_a_change():
    """A clear change of 7 % is found with a limit of 5 % and not with one of 10 %."""
    seconds = healthy(steps=100, noise=0.005)
    seconds[50:, 5, :2] *= 1.07
    assert printed(Bocd(0.10), seconds) == []
    assert [episode.ranks for episode in printed(Bocd(0.05), seconds)] == [{5}]


def test_bocd_cannot_see_who_was_always_slow():
    """A change point needs a change: a limit of the method, not of the benchmark."""
    seconds = healthy(steps=100, noise=0.005)
    seconds[:, 5, :2] *= 1.3
    assert printed(Bocd(0.05), seconds) == []


def test_flags_in_consecutive_evaluations_are_one_episode():
    """Off and on again is a second one; the peak is kept."""
    flags, off, on = FlagTracker(), np.array([False]), np.array([True])
    first = flags.take([7], on, np.array([2.0]), 10)
    flags.take([7], on, np.array([3.0]), 15)
    flags.take([7], off, np.array([0.0]), 20)
    second = flags.take([7], on, np.array([1.0]), 25)
    assert [(e.begin_step, e.end_step, e.strength) for e in first] == [(10, 20, 3.0)]
    assert [(e.begin_step, e.end_step) for e in second] == [(25, None)]
