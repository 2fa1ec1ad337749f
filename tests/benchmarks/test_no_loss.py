"""The account of ``benchmarks.no_loss``: it must see what is missing, and put it down rightly."""

from __future__ import annotations

import numpy as np

from benchmarks.no_loss.account import Doubts, doubts_of
from benchmarks.no_loss.course import Ending
from benchmarks.no_loss.ledger import Arrivals
from benchmarks.no_loss.memory import trend

ENDINGS = [Ending("TERM", 10.0, 11.0, 12.0), Ending("KILL", 20.0, 20.1, 22.0)]


def doubts(runs: list[tuple[int, int]], recorded: int) -> Doubts:
    """Of runs that came in this order: number and collector."""
    arrivals = Arrivals()
    for number, collector in runs:
        arrivals.add(number, 1, float(number), collector)
    return doubts_of(arrivals.whole(recorded))


def test_what_came_once_is_in_no_doubt() -> None:
    """Whichever collector passed it on; a folded span brings several."""
    arrivals = Arrivals()
    arrivals.add(0, 1_500, 1.0, 1)
    arrivals.add(1_500, 500, 2.0, 2)
    assert len(doubts_of(arrivals.whole(2_000)).missing) == 0
    assert arrivals.beyond(2_000) == 0
    assert arrivals.beyond(1_900) == 100


def test_a_gap_is_put_down_to_the_end_of_the_collector_before_it() -> None:
    """The first run of the next collector closes it."""
    measured = doubts([(0, 1), (1, 1), (3, 2), (4, 2), (6, 3)], recorded=7)
    assert measured.missing.tolist() == [True, True]
    assert measured.ended_s.tolist() == [2.0, 5.0]
    assert measured.by_ending(ENDINGS).tolist() == [1, 2]


def test_a_gap_over_two_ends_is_put_down_to_the_kill() -> None:
    """A collector that passed nothing on may have held it."""
    measured = doubts([(0, 1), (2, 3)], recorded=3)
    assert measured.by_ending(ENDINGS).tolist() == [2]


def test_a_gap_within_the_life_of_a_collector_is_put_down_to_no_end() -> None:
    """Nor is what is missing at the very end, or everything."""
    assert doubts([(0, 3), (2, 3)], recorded=3).by_ending(ENDINGS).tolist() == [0]
    assert doubts([(0, 3)], recorded=2).by_ending(ENDINGS).tolist() == [0]
    assert doubts([], recorded=2).by_ending(ENDINGS).tolist() == [0, 0]


def test_what_came_twice_is_put_down_to_the_end_between() -> None:
    """Or to none, if one collector passed it on twice."""
    measured = doubts([(0, 2), (0, 3), (1, 3), (1, 3)], recorded=2)
    assert measured.missing.tolist() == [False, False]
    assert measured.by_ending(ENDINGS).tolist() == [2, 0]


def test_memory_that_grows_is_not_flat() -> None:
    """1 MiB a minute for 5 minutes; noise around a level is flat."""
    at_s = np.arange(0.0, 300.0, 0.5)
    noise = np.random.default_rng(1).normal(0, 0.2, len(at_s))
    grows = np.column_stack([at_s, 50 + at_s / 60 + noise])
    level = np.column_stack([at_s, 50 + noise])
    assert not trend(grows, 0.0, 300.0)["is_flat"]
    assert trend(level, 0.0, 300.0)["is_flat"]
