"""The run as a whole, and its groups, against their own past."""

from __future__ import annotations

import numpy as np
import pytest

from otel_straggler.detect.verdicts.engine import VerdictEngine

from .worlds import active, by_hand, ever_confirmed, made, newest, run_verdicts, usual, with_waiting


def risen(factor: float, steps: int = 160, *, column: int = 1, ranks: int = 8) -> VerdictEngine:
    """Everybody takes so many times as long from the 60th step on."""
    seconds = usual(steps, ranks)
    seconds[60:, :, column] *= factor
    return run_verdicts(by_hand(with_waiting(seconds[..., :2]) if column < 2 else seconds))


@pytest.mark.parametrize("factor", [1.08, 1.3, 2.5])
def test_a_uniform_slowdown_is_measured_against_the_past(factor: float) -> None:
    """Also one so large that its first steps look like checkpoints."""
    (result,) = active(risen(factor)).values()
    assert result.subject_id == "run/uniform_slowdown"
    assert result.slowdown == pytest.approx(1 + (factor - 1) / 1.15, rel=0.03)  # of the whole step
    assert result.since_step is not None
    assert abs(result.since_step - 160) <= 25
    assert not result.pages


@pytest.mark.parametrize("factor", [1.02, 0.7])
def test_a_little_slower_or_faster_is_nothing(factor: float) -> None:
    """Days and data differ by that."""
    assert risen(factor).changes == ()


def test_one_rank_alone_has_its_past_to_be_compared_with() -> None:
    """It has no peers."""
    assert set(active(risen(1.3, ranks=1))) == {"run/uniform_slowdown"}


def partly(slow: int, ranks: int, *, noise: float = 0.02, steps: int = 160) -> VerdictEngine:
    """The first ranks take 1.3 times as long from the 60th step on."""
    work_s = usual(steps, ranks, noise=noise)[..., :2]
    work_s[60:, :slow, 1] *= 1.3
    return run_verdicts(by_hand(with_waiting(work_s)))


@pytest.mark.parametrize(
    ("slow", "ranks", "printed"),
    [
        (1, 2, "1 of its 2 ranks takes longer than before (0), the others do not."),
        (2, 3, "2 of its 3 ranks take longer than before (0, 1), the others do not."),
        (2, 4, "2 of its 4 ranks take longer than before (0, 1), the others do not."),
        (6, 8, "6 of its 8 ranks take longer than before, the others do not (6, 7)."),
    ],
)
def test_some_ranks_are_not_all_ranks(slow: int, ranks: int, printed: str) -> None:
    """So many, or among so few, that no peer tells who is slow: their own pasts do."""
    (result,) = active(partly(slow, ranks)).values()
    assert (result.scope, result.cause, result.pages) == ("run", "unknown", False)
    assert printed in result.sentence


def test_half_of_the_ranks_that_are_called_slow_are_not_also_all_ranks() -> None:
    """One thing is told once."""
    names = {f"rank/node-0/{rank}" for rank in range(4)}
    assert ever_confirmed(partly(4, 8)) == names
    assert ever_confirmed(partly(8, 16)) == {"host/node-0"}


def test_all_ranks_are_all_ranks_however_noisy() -> None:
    """Whether a single one has risen is not known then."""
    assert set(active(partly(32, 32, noise=0.12))) == {"run/uniform_slowdown"}


def test_the_others_follow() -> None:
    """First half of two ranks is slower, then all of them, then half again, then none."""
    work_s = usual(400, 2)[..., :2]
    work_s[60:310, 0, 1] *= 1.3
    work_s[140:230, 1, 1] *= 1.3
    judge = run_verdicts(by_hand(with_waiting(work_s)))
    reported = [v.cause for v in judge.changes if v.state == "confirmed"]
    assert reported == ["unknown", "uniform_slowdown", "unknown"]
    assert active(judge) == {}


def with_tokens(
    more: object, *, vary: float, slower: float = 1.0, share: float = 1.0
) -> VerdictEngine:
    """8 ranks that get so many times the tokens, and take ``slower``, from the 100th step on."""
    random = np.random.default_rng(7)
    tokens = 1000.0 * random.uniform(1.0 - vary, 1.0 + vary, (200, 8))
    tokens[100:] *= more
    work_s = usual(200, 8)[..., :2]
    work_s[..., 1] *= 1.0 - share + share * tokens / 1000.0
    work_s[100:] *= slower
    return run_verdicts(by_hand(with_waiting(work_s), tokens=tokens))


ONE_OF_8 = np.where(np.arange(8) == 5, 1.5, 1.0)
HALF = np.where(np.arange(8) < 4, 1.5, 1.0)


@pytest.mark.parametrize("vary", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("more", [ONE_OF_8, 1.5, 3.0])
def test_more_tokens_are_no_slowdown(more: object, vary: float) -> None:
    """Of one rank or of all, a longer sequence: whether it is known what tokens take, or not,
    because they do not vary from step to step."""
    assert ever_confirmed(with_tokens(more, vary=vary)) == set()


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("vary", [0.0, 0.02, 0.3])
def test_more_tokens_for_half_of_the_ranks_are_no_slowdown(vary: float, share: float) -> None:
    """The usual number of tokens is between theirs and the others'; neither those are slow who
    have more, nor those who take as long with fewer."""
    assert ever_confirmed(with_tokens(HALF, vary=vary, share=share)) == set()


@pytest.mark.parametrize("slow", [1, 6])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_slow_rank_is_seen_among_those_with_as_many_tokens(slow: int, share: float) -> None:
    """Half of the ranks have half as many again in every step, so that nobody can learn what
    tokens take: one that takes 1.3 times as long as its likes is named, and what it has more."""
    tokens = np.broadcast_to(1000.0 * HALF, (160, 8)).copy()
    work_s = usual(160, 8)[..., :2]
    work_s[..., 1] *= 1.0 - share + share * tokens / 1000.0
    work_s[60:, slow, 1] *= 1.3
    judge = run_verdicts(by_hand(with_waiting(work_s), tokens=tokens))
    (result,) = active(judge).values()
    assert (result.rank, result.cause, result.pages) == (slow, "slow_gpu", True)
    assert result.slowdown == pytest.approx(1.3, rel=0.05)
    more = ", beyond what 1.50x as many tokens as theirs explain."
    assert (more in result.sentence) == (slow == 1)


@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("vary", [0.0, 0.3])
def test_who_all_take_longer_for_the_same_tokens_are_slower(vary: float, share: float) -> None:
    """Whether times grow with tokens or not."""
    (result,) = active(with_tokens(1.0, vary=vary, slower=1.3, share=share)).values()
    assert result.subject_id == "run/uniform_slowdown"
    assert result.slowdown == pytest.approx(1.3, rel=0.05)


def test_who_all_take_longer_than_more_tokens_explain_are_slower() -> None:
    """Half as much again of tokens, and a third more time for each."""
    (result,) = active(with_tokens(1.5, vary=0.3, slower=1.3)).values()
    assert result.subject_id == "run/uniform_slowdown"
    assert result.slowdown == pytest.approx(1.3, rel=0.07)


def test_a_uniform_slowdown_ends() -> None:
    """When all are as fast as before."""
    seconds = usual(260, 8)
    seconds[60:140, :, 1] *= 1.3
    judge = run_verdicts(by_hand(with_waiting(seconds[..., :2])))
    states = [v.state for v in judge.changes if v.subject_id == "run/uniform_slowdown"]
    assert states == ["suspect", "confirmed", "recovered"]


def test_longer_transfers_are_a_link() -> None:
    """All wait longer, also the last to come, and nobody works longer."""
    seconds = usual(160, 8)
    seconds[60:, :, 2] += 0.3
    judge = run_verdicts(by_hand(seconds))
    assert set(active(judge)) == {"run/link"}
    assert not active(judge)["run/link"].pages


def test_a_slow_rank_makes_no_link_of_those_who_wait_for_it() -> None:
    """Who waits is a victim."""
    judge = run_verdicts(made("dp8", "compute:1.5@rank2:step60"))
    assert ever_confirmed(judge) == {"rank/node-0/2"}
    assert not [name for name in newest(judge) if "link" in name]


def test_where_the_times_hide_the_work_nobody_is_confirmed() -> None:
    """Half of the step is spent in a section that waits, by everybody."""
    seconds = usual(160, 8)
    seconds[..., 2] += 1.5
    seconds[60:, :, 2] += 0.6
    judge = run_verdicts(by_hand(seconds))
    assert ever_confirmed(judge) == set()
    (suspect,) = [v for v in newest(judge).values() if v.state == "suspect"]
    assert (suspect.cause, suspect.is_localised, suspect.evidence) == (
        "unknown",
        False,
        "synchronised",
    )


def test_work_that_grows_where_the_times_hide_it_is_not_localised() -> None:
    """Host times of launches grew for all: that is not known to be the work."""
    seconds = usual(160, 8)
    seconds[..., 2] += 1.5
    seconds[60:, :, :2] *= 1.3
    judge = run_verdicts(by_hand(seconds))
    assert ever_confirmed(judge) == set()
    assert {v.cause for v in newest(judge).values()} == {"unknown"}


@pytest.mark.parametrize("stage", [0, 1])
def test_a_stage_that_works_longer_is_no_link_of_the_others(stage: int) -> None:
    """They wait for it."""
    judge = run_verdicts(made("tp1,pp2,dp8", f"compute:1.5@stage{stage}:step60", steps=160))
    assert not [v for v in judge.changes if v.cause == "link"]
    assert not [v for v in judge.changes if v.scope in ("rank", "host")]


def test_groups_that_are_not_there_are_no_link() -> None:
    """A stage that sends nothing for a while, then all as before."""
    tables = made("tp1,pp2,dp8", steps=160)
    holes = [
        table if at not in range(14, 18) else without_stage(table, 1)
        for at, table in enumerate(tables)
    ]
    assert ever_confirmed(run_verdicts(holes)) == set()


def without_stage(table, stage):  # type: ignore[no-untyped-def]
    from .worlds import with_seconds

    index = np.array([dict(source.parallel)["pipeline"] for source in table.sources])
    return with_seconds(table, np.where((index == stage)[None, :, None], np.nan, table.seconds))
