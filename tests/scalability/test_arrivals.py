"""Who arrives last at collectives, in made traces of eight ranks with known late ones."""

from __future__ import annotations

import numpy as np
import pytest

from otel_straggler.model.traced_collective import Collective
from otel_straggler.scalability.arrivals import Arrivals, find_arrivals

RANKS = 8
WORK_US = 10_000.0


def made(
    slow: dict[int, float],
    *,
    collectives: int = 16,
    noise: float = 0.02,
    seed: int = 0,
    clocks_s: float = 5.0,
    only_first: bool = False,
    named: bool = True,
) -> dict[int, list[Collective]]:
    """Ranks work, wait for the last one, and communicate for a tenth of the time.

    Args:
        slow: by rank, how much longer its work takes; only_first: before the first collective.
        clocks_s: spread of the ranks' clocks.
    """
    rng = np.random.default_rng(seed)
    clock = rng.uniform(-clocks_s, clocks_s, RANKS) * 1e6
    result: dict[int, list[Collective]] = {rank: [] for rank in range(RANKS)}
    left = 0.0
    for number in range(collectives):
        factor = np.array([1.0 + slow.get(rank, 0.0) for rank in range(RANKS)])
        if only_first and number:
            factor[:] = 1.0
        work = WORK_US * factor * rng.normal(1.0, noise, RANKS)
        left_at = left + work.max() + WORK_US / 10
        for rank in range(RANKS):
            end = left_at + rng.normal(0.0, 5.0) + clock[rank]
            result[rank].append(
                Collective(
                    left + work[rank] + clock[rank], end, "allreduce", "0" if named else "",
                    number if named else -1, RANKS, "0/7",
                )
            )  # fmt: skip
        left = left_at
    return result


def arrivals(slow: dict[int, float], **how: float) -> Arrivals:
    span_s = 1.1 * WORK_US / 1e6 * how.get("collectives", 16)
    result = find_arrivals(made(slow, **how), span_s)  # type: ignore[arg-type]
    assert result is not None
    return result


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("slow", [{5: 0.3}, {0: 0.3, 7: 0.5}, {1: 0.4, 2: 0.3, 6: 0.8}])
def test_all_late_ranks_are_named_and_nobody_else(slow: dict[int, float], seed: int) -> None:
    """Several at once, however far apart their clocks are; the latest first."""
    result = arrivals(slow, seed=seed)
    assert sorted(result.late) == sorted(slow)
    assert result.late[0] == max(slow, key=lambda rank: slow[rank])


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("slow", [{3: 0.3}, {2: 0.4, 5: 0.3}])
def test_ten_collectives_are_enough(slow: dict[int, float], seed: int, named: bool) -> None:
    """With and without names of process groups."""
    result = arrivals(slow, seed=seed, collectives=10, named=named)
    assert sorted(result.late) == sorted(slow)


@pytest.mark.parametrize("collectives", [1, 4, 9])
def test_fewer_than_ten_collectives_name_nobody(collectives: int) -> None:
    """However late a rank is there: the numbers stay, and nobody is called late by them."""
    result = arrivals({1: 2.0}, collectives=collectives)
    assert result.late == ()
    assert result.late_by_s[1] > 0.0


@pytest.mark.parametrize("seed", range(5))
def test_a_rank_that_is_late_once_is_not_named(seed: int) -> None:
    """It may be chance, and often is: the number alone tells of it."""
    result = arrivals({4: 2.0}, seed=seed, collectives=12, only_first=True)
    assert result.late == ()
    assert np.nanargmax(result.late_by_s) == 4


@pytest.mark.parametrize("seed", range(5))
def test_a_rank_is_named_that_is_late_at_the_first_collective_of_every_step(seed: int) -> None:
    """The others wait for it there, and all come to the next ones together."""
    rng = np.random.default_rng(seed)
    ranks: dict[int, list[Collective]] = {rank: [] for rank in range(4)}
    for number in range(40):
        first = number % 5 == 0
        for rank in range(4):
            at = 10_000.0 * number + rng.uniform(0.0, 100.0) + 3_000.0 * (rank == 2 and first)
            ranks[rank].append(
                Collective(at, 10_000.0 * number + 5_000.0, "allreduce", "0", number, 4, "0/7")
            )
    result = find_arrivals(ranks, 0.4, steps=8)
    assert result is not None
    assert result.late == (2,)


def test_a_rank_that_is_late_in_half_of_the_steps_is_not_named() -> None:
    """As measured of two equal ranks over gloo: 178, 54 and 142 ms late in three of seven steps."""
    late_ms = [(0.0, 56.1), (0.0, 100.1), (178.0, 0.0), (54.4, 0.0), (141.5, 0.0), (0.0, 59.6),
               (0.0, 78.6)]  # fmt: skip
    ranks: dict[int, list[Collective]] = {0: [], 1: []}
    for number, of_step in enumerate(late_ms):
        for part in (0.0, 60.0):
            for rank, late in enumerate(of_step):
                begin = 1e3 * (400.0 * number + part + late * (part == 0.0))
                end = 1e3 * (400.0 * number + part + 200.0)
                ranks[rank].append(
                    Collective(begin, end, "gloo:all_reduce", "0", len(ranks[rank]), 2, "0/7")
                )
    result = find_arrivals(ranks, 2.8, steps=7)
    assert result is not None
    assert result.late == ()


@pytest.mark.parametrize("collectives", [4, 10, 64])
def test_equal_ranks_are_never_late(collectives: int) -> None:
    """A hundred traces with noise of 2 %, and as many with 10 %: at most two false names."""
    named = [
        len(arrivals({}, seed=seed, collectives=collectives, noise=noise).late)
        for seed in range(100)
        for noise in (0.02, 0.1)
    ]
    assert sum(named) <= 2


def test_clocks_are_found_within_a_tenth_of_a_millisecond() -> None:
    """To judge by the ends, which come together."""
    result = arrivals({5: 0.3}, seed=1)
    clock = np.random.default_rng(1).uniform(-5.0, 5.0, RANKS)
    difference = (result.clock_s - clock) - np.median(result.clock_s - clock)
    assert np.abs(difference).max() < 1e-4
    assert result.end_spread_s < 1e-4


def test_lateness_and_waiting_are_those_that_were_planted() -> None:
    """3 ms at each of 16 collectives; the late rank itself waits for nobody."""
    result = arrivals({5: 0.3}, noise=0.0)
    assert result.late_by_s[5] == pytest.approx(16 * 3e-3, rel=0.02)
    assert result.waited_s[5] == pytest.approx(0.0, abs=1e-3)
    assert result.waited_s[0] == pytest.approx(16 * 3e-3, rel=0.02)
    assert result.times_last[5] == 16


def test_groups_are_matched_by_name_and_number() -> None:
    """Two pairs of ranks, each with its own group; a rank without a partner does not matter."""

    def one(rank: int, seq: int, begin: float, end: float) -> Collective:
        return Collective(begin, end, "allreduce", str(rank // 2), seq, 2, "0/7")

    late = {1: 400.0}
    ranks = {
        rank: [
            one(rank, n, 1_000.0 * n + late.get(rank, 0.0), 1_000.0 * n + 500.0) for n in range(9)
        ]
        for rank in range(4)
    }
    result = find_arrivals({**ranks, 9: [one(9, 0, 0.0, 1.0)]})
    assert result is not None
    assert result.late == (1,)
    assert np.isnan(result.late_by_s[4])


def test_without_collectives_in_common_there_is_no_answer() -> None:
    """A single rank, none at all, and messages between two ranks."""
    assert find_arrivals({}) is None
    assert find_arrivals({0: made({})[0]}) is None
    sends = [Collective(0.0, 1.0, "ncclDevKernel_SendRecv", "", -1, 0, "0/7")]
    assert find_arrivals({0: sends, 1: sends}) is None
