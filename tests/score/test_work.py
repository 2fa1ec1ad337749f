"""Times for equal work."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from otel_straggler.model.observation import Floats
from otel_straggler.score.verdicts.work import WorkNormaliser

GROUPS, SECTIONS = ["dp"], ["forward"]


def job(
    seed: int = 1, steps: int = 20, ranks: int = 16, fixed_s: float = 0.1, noise: float = 0.02
) -> tuple[Floats, Floats]:
    """Seconds and tokens: 0.1 s and 0.1 ms a token, 500 to 1,500 tokens a step."""
    random = np.random.default_rng(seed)
    tokens = random.uniform(500.0, 1500.0, (steps, ranks))
    seconds = (fixed_s + tokens * 1e-4) * random.lognormal(0.0, noise, (steps, ranks))
    return seconds[:, :, None], tokens


def normalised(seconds: Floats, tokens: Floats, using: WorkNormaliser | None = None) -> Floats:
    peers = np.zeros(seconds.shape[1], np.int64)
    sections = [f"section-{s}" for s in range(seconds.shape[2])]
    return (using or WorkNormaliser()).normalise(seconds, tokens, peers, GROUPS, sections)


def slowdown_of(seconds: Floats, rank: int) -> float:
    usual = np.nanmedian(seconds[:, :, 0], axis=0)
    return float(usual[rank] / np.median(usual))


def test_what_tokens_explain_is_taken_out_and_the_mean_stays() -> None:
    """The spread falls from 15 % to the noise of 2 %."""
    seconds, tokens = job()
    equal = normalised(seconds, tokens)
    assert np.std(np.log(seconds)) > 0.12
    assert np.std(np.log(equal)) == pytest.approx(0.02, rel=0.2)
    assert equal.mean() == pytest.approx(seconds.mean(), rel=0.02)


def test_the_share_that_grows_with_tokens_is_found() -> None:
    """Half of the time, beside ranks that pause in one step of ten."""
    seconds, tokens = job(steps=50)
    seconds[np.random.default_rng(8).random(seconds.shape) < 0.1] *= 5.0
    work = WorkNormaliser()
    normalised(seconds, tokens, work)
    assert work.share(GROUPS, ["section-0"]).item() == pytest.approx(0.5, abs=0.05)


def test_a_rank_that_is_slow_per_token_stays_slow() -> None:
    """Whether it gets as many tokens as its peers, more, or fewer because it is slow."""
    for factor in (1.0, 1.5, 0.7):
        seconds, tokens = job()
        tokens[:, 5] *= factor
        seconds[:, 5, 0] = (0.1 + tokens[:, 5] * 1e-4) * 1.3
        assert slowdown_of(normalised(seconds, tokens), 5) == pytest.approx(1.3, abs=0.05)


def test_a_slow_rank_with_more_tokens_does_not_teach_that_tokens_make_slow() -> None:
    """Time does not depend on tokens here; rank 5 has more of them and is slow."""
    random = np.random.default_rng(2)
    tokens = random.uniform(900.0, 1100.0, (20, 16))
    seconds = random.lognormal(0.0, 0.02, (20, 16, 1))
    tokens[:, 5] *= 1.5
    seconds[:, 5] *= 1.5
    assert slowdown_of(normalised(seconds, tokens), 5) == pytest.approx(1.5, abs=0.05)


def test_a_rank_with_more_tokens_is_not_slow() -> None:
    """1.5 times the tokens, 1.25 times the time."""
    seconds, tokens = job()
    tokens[:, 5] *= 1.5
    seconds[:, 5, 0] = 0.1 + tokens[:, 5] * 1e-4
    assert slowdown_of(seconds, 5) > 1.2
    assert slowdown_of(normalised(seconds, tokens), 5) == pytest.approx(1.0, abs=0.03)


def test_times_that_do_not_depend_on_tokens_stay_as_they_are() -> None:
    """And so do all times where tokens are not told, or do not vary."""
    random = np.random.default_rng(3)
    seconds = random.lognormal(0.0, 0.02, (20, 16, 1))
    varying = random.uniform(500.0, 1500.0, (20, 16))
    assert normalised(seconds, varying) == pytest.approx(seconds, rel=1e-9)
    for nothing in (np.full((20, 16), np.nan), np.zeros((20, 16)), np.full((20, 16), 1000.0)):
        assert normalised(seconds, nothing).tolist() == seconds.tolist()


cells = st.one_of(st.just(float("nan")), st.just(0.0), st.floats(1e-12, 1e9))
blocks = st.tuples(st.integers(0, 6), st.integers(0, 5)).flatmap(
    lambda shape: st.tuples(
        arrays(np.float64, (*shape, 2), elements=cells), arrays(np.float64, shape, elements=cells)
    )
)


@given(blocks)
def test_a_time_for_equal_work_lies_between_the_time_and_the_time_per_token(
    block: tuple[Floats, Floats],
) -> None:
    """So a rank that is slow by both is never made to look healthy; gaps and zeros survive."""
    seconds, tokens = block
    equal = normalised(seconds, tokens)
    told = np.isfinite(tokens) & (tokens > 0)
    usual = tokens[told].mean() if told.any() else 1.0
    per_token = np.where(told, usual / np.where(told, tokens, 1.0), 1.0)[:, :, None]
    low, high = np.minimum(1.0, per_token), np.maximum(1.0, per_token)
    known = np.isfinite(seconds)
    assert (np.isfinite(equal) == known).all()
    assert (equal[known] >= (seconds * low)[known] * (1 - 1e-9)).all()
    assert (equal[known] <= (seconds * high)[known] * (1 + 1e-9)).all()


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.randoms(use_true_random=False))
def test_neither_units_nor_the_order_of_ranks_matter(
    unit: float, words: float, random: st.DrawFn
) -> None:
    """Seconds or milliseconds, tokens or thousands of them."""
    seconds, tokens = job(steps=8, ranks=6)
    order = list(range(6))
    random.shuffle(order)  # type: ignore[attr-defined]
    moved = normalised(seconds[:, order] * unit, tokens[:, order] * words)
    assert moved == pytest.approx(normalised(seconds, tokens)[:, order] * unit)


def test_what_was_learnt_survives_a_restart() -> None:
    """The first block after it is as well normalised as the last before."""
    work, later = WorkNormaliser(), WorkNormaliser()
    for seed in range(5):
        normalised(*job(seed), work)
    later.restore(work.state())
    seconds, tokens = job(9, steps=1)
    assert normalised(seconds, tokens, later).tolist() == normalised(seconds, tokens, work).tolist()
    assert np.std(np.log(normalised(seconds, tokens, later))) < 0.05


def test_groups_learn_for_themselves() -> None:
    """Stage 0 grows with tokens, stage 1 does not."""
    grows, tokens = job(ranks=8, fixed_s=0.0)
    fixed = np.ones_like(grows)
    work = WorkNormaliser()
    work.normalise(
        np.concatenate([grows, fixed], axis=1),
        np.concatenate([tokens, tokens], axis=1),
        np.repeat([0, 1], 8),
        ["stage 0", "stage 1"],
        SECTIONS,
    )
    assert work.share(["stage 0", "stage 1"], SECTIONS)[:, 0].tolist() == [
        pytest.approx(1.0, abs=0.03), 0.0,
    ]  # fmt: skip


def test_a_model_that_changes_is_learnt_anew() -> None:
    """Sums of earlier blocks fade: after 400 blocks the old share is gone."""
    work = WorkNormaliser()
    for seed in range(50):
        normalised(*job(seed, steps=5), work)
    for seed in range(400):
        normalised(*job(seed, steps=5, fixed_s=0.0), work)
    assert work.share(GROUPS, ["section-0"]).item() == pytest.approx(1.0, abs=0.03)


def test_one_odd_block_does_not_unteach_what_many_have_shown() -> None:
    """Sums of earlier blocks are kept: half of those of fifty blocks before."""
    seconds, tokens = job(steps=5 * 50)
    work = WorkNormaliser()
    for at in range(0, len(seconds), 5):
        normalised(seconds[at : at + 5], tokens[at : at + 5], work)
    share = work.share(GROUPS, ["section-0"]).item()
    assert share == pytest.approx(0.5, abs=0.05)
    for _ in range(50):
        normalised(np.full((5, 16, 1), 0.2), tokens[:5], work)
    assert work.share(GROUPS, ["section-0"]).item() == pytest.approx(share / 3.0, rel=0.2)
