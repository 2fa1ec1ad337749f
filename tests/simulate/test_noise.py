"""The noise of a run is what the plan names."""

from __future__ import annotations

import numpy as np
import pytest

from otel_straggler.simulate.work import length_variance

from .generated import QUIET, make, seconds

PASSES = ("forward", "backward")


def spread(values: np.ndarray) -> float:
    """Standard deviation of the logs."""
    return float(np.log(values).std())


@pytest.mark.parametrize(
    ("noise", "cv"), [("AR", 0.009), ("ST", 0.024), ("SE", 0.116), (0.05, 0.05)]
)
def test_a_rank_varies_from_step_to_step_as_the_preset_says(noise, cv):
    """The compute time of a step, as it was measured on real jobs."""
    run = make("dp64", **{**QUIET, "noise": noise}, steps=200)
    assert spread(seconds(run, *PASSES)) == pytest.approx(cv, rel=0.05)


def test_lasting_differences_between_ranks_lie_between_the_bounds():
    """Without a fault no two devices are equal."""
    for seed in range(5):
        run = make("dp256", noise=0.0, spikes=0.0, common_mode=0.0, seed=seed, steps=2)
        assert 0.0025 < spread(seconds(run, *PASSES)[0]) < 0.0115


def test_the_common_mode_moves_all_ranks_alike():
    """It cancels where ranks are compared."""
    run = make("dp32", **{**QUIET, "common_mode": 0.03}, steps=300)
    times = seconds(run, *PASSES)
    assert np.ptp(times / times[:, :1], axis=0).max() < 1e-9
    assert spread(times[:, 0]) == pytest.approx(0.03, rel=0.15)


def test_spikes_are_as_frequent_as_planned_and_only_ever_longer():
    """A section takes up to several times as long, now and then."""
    run = make("dp64", **{**QUIET, "spikes": 0.02}, steps=200)
    local = ("data_loading", "forward", "backward", "optimizer")
    times = seconds(run, *local)
    usual = np.median(times)
    is_spike = times > usual * (1 + 1e-9)
    assert is_spike.mean() == pytest.approx(0.02, rel=0.15)
    assert times.min() >= usual * (1 - 1e-9)


@pytest.mark.parametrize("cv", [0.05, 0.22, 0.6])
def test_lengths_of_sequences_make_the_spread_that_is_asked_for(cv):
    """Of single microbatches; forward and backward vary together, step by step."""
    run = make("dp64", **QUIET, sequence_cv=cv, steps=100)
    pooled = np.sqrt(np.nanmean([np.square(t.run_cv[:, 1]) for t in run.tables(100)]))
    assert pooled == pytest.approx(cv, rel=0.1)
    forward, backward = seconds(run, "forward"), seconds(run, "backward")
    assert np.corrcoef(forward.ravel(), backward.ravel())[0, 1] > 0.99
    assert length_variance(0.0) == 0.0


def test_tokens_tell_where_sequences_are_long():
    """Ranks of one pipeline share their data, so their tokens; times follow tokens."""
    run = make("tp2,pp2,dp16", **QUIET, sequence_cv=0.3, report_tokens=True)
    table = next(run.tables(20))
    tokens = table.tokens.reshape(20, 2, 16, 2)
    assert (tokens == tokens[:, :1, :, :1]).all()
    assert np.corrcoef(tokens.ravel(), table.seconds[:, :, 1].ravel())[0, 1] > 0.9
    assert np.isnan(next(make(sequence_cv=0.3).tables()).tokens).all()
    assert (next(make(report_tokens=True).tables()).tokens == 8 * 4 * 2048).all()


def test_experts_have_the_spread_that_is_asked_for_and_the_hot_one_changes():
    """Worst ranks rotate, which is what tells an imbalance from a fault."""
    run = make("ep8,dp32", **QUIET, expert_cv=0.3, steps=200)
    times = seconds(run, "experts")
    assert np.allclose(times.std(axis=1) / times.mean(axis=1), 0.3)
    hot = times.argmax(axis=1) % 8
    assert len(set(hot.tolist())) >= 4


def test_one_source_of_noise_does_not_disturb_another():
    """A run with a fault is the same run with a fault."""
    plain = seconds(make("dp16"), "forward")
    for more in ({"gc_every_steps": 7}, {"missing_reports": 0.2}, {"clock_offset_s": 1.0}):
        other = seconds(make("dp16", **more), "forward")
        assert np.array_equal(other[other > 0], plain[other > 0])
    slow = seconds(make("dp16", "compute:1.5@rank3:step30"), "forward")
    assert np.allclose(slow[30:, 3], 1.5 * plain[30:, 3])
    slow[30:, 3] = plain[30:, 3]
    assert np.array_equal(slow, plain)
