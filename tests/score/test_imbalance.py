"""Work that is dealt unevenly, told from ranks that are slow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from otel_straggler.detect.verdicts.imbalance import (
    expert_imbalance,
    sequence_imbalance,
    strength_of_sequences,
    which_expert,
)
from otel_straggler.model.observation import Floats
from otel_straggler.model.step_table import StepTable

from .step_tables import step_table

TRAINING = {"data": "data", "one": "compute", "two": "compute", "sync": "wait", "opt": "compute"}
USUAL_S = np.array([0.1, 1.0, 2.0, 0.3, 0.1])


def healthy(steps: int = 40, ranks: int = 16, seed: int = 3) -> Floats:
    """2 % noise of its own on each section, 3 % common to all ranks of a step."""
    random = np.random.default_rng(seed)
    common = random.lognormal(0.0, 0.03, (steps, 1, 1))
    return USUAL_S * common * random.lognormal(0.0, 0.02, (steps, ranks, 5))


def with_sequences(seconds: Floats, cv: float, microbatches: int = 8) -> Floats:
    """Microbatches of random length: forward and backward of a rank take as long together."""
    random = np.random.default_rng(4)
    length = random.lognormal(0.0, cv, (*seconds.shape[:2], microbatches)).mean(axis=2)
    out = seconds.copy()
    out[:, :, 1:3] *= length[:, :, None]
    return out


def table_of(seconds: Floats, run_cv: float = float("nan"), runs: int = 8) -> StepTable:
    return step_table(seconds, TRAINING, runs=[1, runs, runs, 1, 1], run_cv=run_cv)


def test_sequences_of_different_length_are_recognised() -> None:
    """The two sections are found by their times, in the order in which they run."""
    result = sequence_imbalance(table_of(with_sequences(healthy(), 0.4), 0.4), 0.02)
    assert result.is_present
    assert result.sections == ("one", "two")
    assert 0.5 < result.strength <= 1.0


def test_whole_steps_tell_the_variation_of_microbatches_too() -> None:
    """sqrt(8) x the variation of the steps."""
    result = sequence_imbalance(table_of(with_sequences(healthy(), 0.4)), 0.02)
    assert result.is_present
    assert result.microbatch_cv == pytest.approx(0.4, rel=0.25)


def test_a_healthy_run_has_none() -> None:
    """What is common to all ranks of a step is no imbalance, however much it is."""
    result = sequence_imbalance(table_of(healthy(), 0.02), 0.3)
    assert not result.is_present
    assert result.correlation < 0.5
    assert not sequence_imbalance(table_of(healthy(), runs=64), float("nan")).is_present


def test_a_rank_that_is_slow_now_and_then_is_none() -> None:
    """Its two sections move together; the other ranks' do not."""
    seconds = healthy()
    seconds[::2, 5] *= 2.0
    assert not sequence_imbalance(table_of(seconds, 0.15), 0.0).is_present


@pytest.mark.parametrize(
    ("heartbeats", "strength"),
    [
        ((0.9, 0.10, 0.0), 0.5),
        ((0.95, 0.10, 0.49), 0.625),
        ((0.9, 0.15, float("nan")), 0.625),
        ((1.0, 0.30, 0.0), 1.0),
        ((0.89, 0.30, 0.0), 0.0),
        ((1.0, 0.09, 0.0), 0.0),
        ((1.0, 0.30, 0.5), 0.0),
        ((float("nan"), 0.30, 0.0), 0.0),
        ((1.0, float("nan"), 0.0), 0.0),
    ],
)
def test_the_strength_grows_from_a_half_to_one(
    heartbeats: tuple[float, float, float], strength: float
) -> None:
    """Half of what is above a half for each sign; 0 where one is missing or not known."""
    assert strength_of_sequences(*heartbeats) == pytest.approx(strength)


@pytest.mark.parametrize(("cv", "m_w"), [(0.02, 0.0), (0.4, 0.5), (float("nan"), 0.0)])
def test_all_three_signs_must_agree(cv: float, m_w: float) -> None:
    """Even microbatches, or few workers that have all the loss: something else."""
    random = np.random.default_rng(5)
    seconds = healthy() * random.lognormal(0.0, 0.2, (40, 16, 1))
    result = sequence_imbalance(table_of(seconds, cv, runs=1), m_w)
    assert result.correlation > 0.9
    assert result.is_present is (cv != cv and m_w < 0.5)  # whole steps stand in for no run_cv


@given(st.floats(1e-3, 1e3), st.randoms(use_true_random=False))
def test_neither_the_unit_of_time_nor_the_order_of_ranks_matters(
    unit: float, random: st.DrawFn
) -> None:
    """The numbers stay."""
    seconds = with_sequences(healthy(20, 6), 0.3)
    order = list(range(6))
    random.shuffle(order)  # type: ignore[attr-defined]
    result = sequence_imbalance(table_of(seconds), 0.0)
    moved = sequence_imbalance(table_of(seconds[:, order] * unit), 0.0)
    assert moved.correlation == pytest.approx(result.correlation)
    assert moved.microbatch_cv == pytest.approx(result.microbatch_cv)


cells = st.one_of(st.just(float("nan")), st.just(0.0), st.just(1.0), st.floats(1e-12, 1e9))
shapes = st.tuples(st.integers(0, 12), st.integers(0, 6), st.just(5))


@given(shapes.flatmap(lambda shape: arrays(np.float64, shape, elements=cells)))
def test_gaps_zeros_and_few_ranks_survive(seconds: Floats) -> None:
    """Whatever comes, an answer without a warning; strength lies in 0 to 1."""
    ranks = seconds.shape[1]
    parallel = [(("expert", r % 2),) for r in range(ranks)]
    table = step_table(seconds, TRAINING, parallel=parallel, wall_s=1.0)
    assert 0.0 <= sequence_imbalance(table, float("nan")).strength <= 1.0
    assert 0.0 <= expert_imbalance(table).strength <= 1.0


# --- experts ----------------------------------------------------------------------------------


EXPERTS = tuple((("data", r), ("expert", r % 4)) for r in range(16))
MOE = {"one": "compute", "experts": "compute"}
SPREAD = [f"host-{r // 4}" for r in range(16)]  # each expert on every host


def moe(steps: int = 30, seed: int = 6) -> Floats:
    return np.random.default_rng(seed).lognormal(0.0, 0.02, (steps, 16, 2))


def moe_table(seconds: Floats, nodes: list[str] = SPREAD) -> StepTable:
    return step_table(seconds, MOE, parallel=EXPERTS, nodes=nodes)


def test_an_expert_that_gets_more_tokens_is_recognised() -> None:
    """Its four ranks take a third longer, always."""
    seconds = moe()
    seconds[:, 2::4, 1] *= 1.33
    result = expert_imbalance(moe_table(seconds))
    assert result.is_present
    assert (result.section, result.worst_expert, result.is_rotating) == ("experts", 2, False)
    assert result.slowdown == pytest.approx(1.33, rel=0.05)
    assert which_expert(result) == "expert 2 the longest in 100 % of the steps"


def test_a_worst_expert_that_changes_is_rotating() -> None:
    """Routing differs from step to step."""
    seconds = moe()
    for step in range(len(seconds)):
        seconds[step, step % 4 :: 4, 1] *= 1.33
    result = expert_imbalance(moe_table(seconds))
    assert result.is_present
    assert result.is_rotating
    assert which_expert(result) == "the longest expert changes from step to step"
    assert which_expert(expert_imbalance(step_table(moe(), MOE))) == ""


def test_even_experts_are_no_imbalance() -> None:
    """Noise alone is far below the contrast asked for."""
    assert not expert_imbalance(moe_table(moe())).is_present


def test_a_slow_rank_is_not_its_expert() -> None:
    """One of four, or one of two, ranks."""
    seconds = moe()
    seconds[:, 6] *= 2.0
    assert not expert_imbalance(moe_table(seconds)).is_present
    pairs = [(("expert", r % 8),) for r in range(16)]
    table = step_table(seconds, MOE, parallel=pairs, nodes=SPREAD)
    assert not expert_imbalance(table).is_present


def test_a_slow_host_with_all_ranks_of_an_expert_is_not_that_expert() -> None:
    """Nothing tells one from the other, so nothing is said."""
    seconds = moe()
    seconds[:, 2::4] *= 1.33
    hosts = [f"host-{r % 4}" for r in range(16)]
    assert not expert_imbalance(moe_table(seconds, hosts)).is_present


def test_a_long_stage_is_no_expert() -> None:
    """Experts are compared within their stage."""
    seconds = moe()
    seconds[:, 8:] *= 2.0
    staged = [(("pipeline", r // 8), ("expert", (r // 8) * 2 + r % 2)) for r in range(16)]
    table = step_table(seconds, MOE, parallel=staged, nodes=SPREAD)
    assert not expert_imbalance(table).is_present


def test_one_rank_per_expert_says_nothing() -> None:
    """Nor ranks that tell no expert, nor a rank that is not heard."""
    parallel = [(("expert", r),) for r in range(16)]
    assert expert_imbalance(step_table(moe(), MOE, parallel=parallel)).section == ""
    assert expert_imbalance(step_table(moe(), MOE)).section == ""


def test_a_missing_rank_does_not_hide_an_expert() -> None:
    """Three of its four ranks still tell."""
    seconds = moe()
    seconds[:, 2::4, 1] *= 1.33
    seconds[:, 2] = np.nan
    assert expert_imbalance(moe_table(seconds)).is_present


@given(st.floats(1e-3, 1e3))
def test_expert_imbalance_does_not_depend_on_the_unit_of_time(unit: float) -> None:
    """Nor do more even experts hide it."""
    seconds = moe(10)
    seconds[:, 2::4, 1] *= 1.33
    result, scaled = (expert_imbalance(moe_table(s)) for s in (seconds, seconds * unit))
    assert scaled.slowdown == pytest.approx(result.slowdown)
    assert scaled.contrast == pytest.approx(result.contrast)


def test_two_experts_are_enough_and_a_short_section_before_hides_nothing() -> None:
    """The section with next to no time is left out, not those behind it."""
    seconds = np.concatenate([0.001 * moe(seed=3)[..., :1], moe()], axis=2)
    seconds[:, 1::2, 2] *= 1.4
    two = tuple((("data", r), ("expert", r % 2)) for r in range(16))
    sections = {"short": "compute", **MOE}
    result = expert_imbalance(step_table(seconds, sections, parallel=two, nodes=SPREAD))
    assert result.is_present
    assert (result.section, result.worst_expert) == ("experts", 1)
