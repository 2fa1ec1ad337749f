"""Times for equal work."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from otel_straggler.detect.scores.medians import Groups, nan_median
from otel_straggler.detect.verdicts.equal_work import WorkNormaliser, sureness, tokens_of_peers
from otel_straggler.model.observation import Floats

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
    peers = Groups.of(GROUPS * seconds.shape[1])
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
    reported = np.isfinite(tokens) & (tokens > 0)
    of_ranks = nan_median(np.where(reported, tokens, np.nan), axis=0)
    usual = np.nanmedian(of_ranks) if reported.any() else 1.0
    per_token = np.where(reported, usual / np.where(reported, tokens, 1.0), 1.0)[:, :, None]
    low, high = np.minimum(1.0, per_token), np.maximum(1.0, per_token)
    known = np.isfinite(seconds)
    assert (np.isfinite(equal) == known).all()
    assert (equal[known] >= (seconds * low)[known] * (1 - 1e-9)).all()
    assert (equal[known] <= (seconds * high)[known] * (1 + 1e-9)).all()


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.randoms(use_true_random=False))
def test_neither_units_nor_the_order_of_ranks_matter(
    unit: float, text: float, random: st.DrawFn
) -> None:
    """Seconds or milliseconds, tokens or thousands of them."""
    seconds, tokens = job(steps=8, ranks=6)
    order = list(range(6))
    random.shuffle(order)  # type: ignore[attr-defined]
    moved = normalised(seconds[:, order] * unit, tokens[:, order] * text)
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
        Groups.of(np.repeat([0, 1], 8).tolist()),
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


# --- noise is not taken for work ------------------------------------------------------------------


def waves(random: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Noise that lasts some ten steps."""
    drawn = random.standard_normal(shape)
    for t in range(1, len(drawn)):
        drawn[t] = 0.9 * drawn[t - 1] + 0.44 * drawn[t]
    return drawn


NOISES = {
    "normal": lambda random, shape: random.standard_normal(shape),
    "pauses": lambda random, shape: random.standard_t(2.0, shape),
    "waves": waves,
    "shared waves": lambda random, shape: waves(random, (shape[0], 1)) + np.zeros(shape),
}
LENGTHS = {
    "free": lambda random, shape: np.exp(0.3 * random.standard_normal(shape)),
    "sorted": lambda random, shape: np.exp(0.3 * waves(random, shape)),
    "same for all": lambda random, shape: (
        np.exp(0.3 * waves(random, (shape[0], 1))) * np.ones(shape)
    ),
}


def shares_of(seconds: Floats, tokens: Floats, ranks: int) -> Floats:
    """(blocks, runs) what is told after each block of 5 steps; a run is a group of ``ranks``."""
    names = [f"run {run}" for run in range(seconds.shape[1] // ranks)]
    peers = Groups.of(np.repeat(names, ranks).tolist())
    work, reported = WorkNormaliser(), []
    for at in range(0, len(seconds), 5):
        block = slice(at, at + 5)
        work.normalise(seconds[block, :, None], tokens[block], peers, names, SECTIONS)
        reported.append(work.share(names, SECTIONS)[:, 0])
    return np.array(reported)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("noise", NOISES)
def test_noise_is_not_taken_for_work(noise: str, lengths: str) -> None:
    """Times that have nothing to do with tokens, from the first block on: 800 blocks of 4 ranks.
    ``benchmarks.work_share`` counts millions."""
    random = np.random.default_rng([list(NOISES).index(noise), list(LENGTHS).index(lengths)])
    shape = (5 * 20, 4 * 40)
    seconds = np.exp(0.024 * NOISES[noise](random, shape))
    assert not shares_of(seconds, 2048.0 * LENGTHS[lengths](random, shape), ranks=4).any()


def test_what_is_common_to_all_ranks_is_no_evidence() -> None:
    """A room that warms up while sequences grow."""
    random = np.random.default_rng(5)
    rising = np.linspace(1.0, 1.5, 200)[:, None]
    seconds = rising * np.exp(0.002 * random.standard_normal((200, 64)))
    assert not shares_of(seconds, 2048.0 * rising + np.zeros((200, 64)), ranks=8).any()


@pytest.mark.parametrize(("share", "blocks"), [(1.0, 2), (0.3, 2), (0.05, 8)])
def test_a_share_is_seen_after_few_blocks(share: float, blocks: int) -> None:
    """The smaller it is, the more it takes: 8 ranks, noise of 2.4 %, lengths that vary by 30 %."""
    random = np.random.default_rng(6)
    tokens = LENGTHS["free"](random, (5 * blocks, 8 * 20))
    seconds = (1.0 - share + share * tokens) * np.exp(0.024 * random.standard_normal(tokens.shape))
    newest = shares_of(seconds, tokens, ranks=8)[-1]
    assert (newest > 0).mean() >= 0.9
    assert np.median(newest) == pytest.approx(share, rel=0.2)


@pytest.mark.parametrize(
    ("pieces", "ratio", "deviates"), [(3, 70.70, 3.54), (5, 13.03, 3.72), (11, 5.694, 3.72)]
)
def test_few_pieces_of_evidence_are_less_sure_than_many(
    pieces: int, ratio: float, deviates: float
) -> None:
    """As Student's table has it: with 4 degrees of freedom 13.03 standard errors are as unlikely
    as 3.72 deviations, 1 in 10,000."""
    apart = np.linspace(-1.0, 1.0, pieces)
    error = np.sqrt((apart * apart).sum() / (pieces - 1) / pieces)
    seen = ratio * error + apart
    sums = np.array([seen.sum(), pieces, (seen * seen).sum(), seen.sum(), pieces])
    assert float(sureness(sums)) == pytest.approx(deviates, rel=0.02)


def test_one_piece_of_evidence_is_none() -> None:
    """However clear it looks; and nothing is known of nothing."""
    assert sureness(np.array([5.0, 5.0, 25.0, 25.0, 25.0])) == 0.0
    assert sureness(np.zeros(5)) == 0.0


# --- who lastingly has more -----------------------------------------------------------------------


def with_more(seconds_per_token: float, *, vary: float) -> tuple[Floats, Floats]:
    """Rank 5 of 8 has 1.5 times the tokens in every step; ten steps."""
    random = np.random.default_rng(4)
    tokens = 1000.0 * random.uniform(1.0 - vary, 1.0 + vary, (10, 8))
    tokens[:, 5] *= 1.5
    grown = 1.0 + seconds_per_token * (tokens - 1000.0) / 1000.0
    return (grown * random.lognormal(0.0, 0.01, grown.shape))[:, :, None], tokens


def test_who_has_more_tokens_is_not_slow_where_nobody_knows_what_tokens_take() -> None:
    """Everybody's stay the same from step to step, so nothing can be learnt."""
    seconds, tokens = with_more(1.0, vary=0.0)
    assert slowdown_of(seconds, 5) > 1.4
    assert slowdown_of(normalised(seconds, tokens), 5) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("longer", [1.0, 1.2, 1.5, 2.0])
def test_classes_of_ranks_differ_by_what_more_tokens_do_not_explain(longer: float) -> None:
    """Half of the ranks have 1.5 times the tokens, in one odd step fewer; each half keeps its own
    slow rank."""
    random = np.random.default_rng(4)
    tokens = np.where(np.arange(8) < 4, 1500.0, 1000.0) * np.ones((10, 8))
    tokens[3, 2] = 100.0
    seconds = random.lognormal(0.0, 0.01, (10, 8, 1))
    seconds[:, :4] *= longer
    seconds[:, [1, 6]] *= 1.3
    usual = np.median(normalised(seconds, tokens)[..., 0], axis=0)
    assert usual[1] / usual[0] == pytest.approx(1.3, rel=0.03)
    assert usual[6] / usual[7] == pytest.approx(1.3, rel=0.03)
    assert usual[3] / usual[7] == pytest.approx(max(1.0, longer / 1.5), rel=0.03)


def test_how_many_times_the_tokens_of_its_peers_a_rank_has() -> None:
    """Only where it is so in nearly every step; nothing is known where none are told."""
    tokens = np.where(np.arange(8) < 4, 1500.0, 1000.0) * np.ones((5, 8))
    peers = Groups.of(GROUPS * 8)
    assert [tokens_of_peers(tokens, peers, row) for row in (0, 7)] == [1.5, pytest.approx(2 / 3)]
    tokens[:3, 0] = 900.0
    assert tokens_of_peers(tokens, peers, 0) == 1.0
    tokens[:, 0] = np.nan
    assert np.isnan(tokens_of_peers(tokens, peers, 0))


def test_who_takes_longer_per_token_is_slow_whatever_tokens_take() -> None:
    """1.5 times the tokens, twice the time."""
    seconds, tokens = with_more(0.0, vary=0.0)
    seconds[:, 5] *= 2.0
    assert slowdown_of(normalised(seconds, tokens), 5) > 1.3


def test_who_has_more_is_slow_where_tokens_are_known_to_take_no_time() -> None:
    """Times did not follow the tokens of anybody, though they varied."""
    random = np.random.default_rng(3)
    work = WorkNormaliser()
    for _ in range(20):
        tokens = random.uniform(900.0, 1100.0, (5, 16))
        tokens[:, 5] *= 1.5
        seconds = random.lognormal(0.0, 0.005, (5, 16, 1))
        seconds[:, 5] *= 1.5
        equal = normalised(seconds, tokens, work)
    assert slowdown_of(equal, 5) > 1.4


def test_what_an_earlier_version_kept_is_begun_anew() -> None:
    """It had no evidence."""
    work = WorkNormaliser()
    normalised(*job(), work)
    kept = {name: work.state()[name] for name in ("keys", "names", "zy", "zz")}
    later = WorkNormaliser()
    later.restore(kept)
    assert later.share(GROUPS, ["section-0"]).item() == 0.0
