"""A rank that keeps all others waiting at each save is named, one bad save is not."""

from __future__ import annotations

import pytest

from otel_straggler.detect.slow_writers import SlowWriters


def saves(*of_rank_2: float) -> list[dict[int, float]]:
    return [{0: 2.0, 1: 2.2, 2: seconds, 3: 1.9} for seconds in of_rank_2]


def test_a_rank_that_is_slow_in_most_saves_is_named_once() -> None:
    writers = SlowWriters()
    found = [writers.observe(save) for save in saves(5.0, 6.0, 5.0, 5.0)]
    assert [len(each) for each in found] == [0, 0, 1, 0]
    slow = found[2][0]
    assert slow.rank == 2
    assert slow.ratio == pytest.approx(16.0 / 6.0)
    assert slow.excess_s == pytest.approx(3.0)
    assert slow.text.startswith("rank 2 takes 2.7 times as long as its peers to write its part, ")


def test_one_slow_save_names_nobody() -> None:
    writers = SlowWriters()
    assert not any(writers.observe(save) for save in saves(2.0, 30.0, 2.0, 2.0, 2.0))


def test_one_that_got_well_is_named_again_if_it_falls_back() -> None:
    writers = SlowWriters()
    found = [bool(writers.observe(save)) for save in saves(*[5.0] * 3, *[2.0] * 5, *[5.0] * 5)]
    assert sum(found) == 2


def test_what_costs_next_to_nothing_is_not_reported() -> None:
    """0.02 s where others take 0.01 s."""
    writers = SlowWriters()
    assert not any(writers.observe({0: 0.01, 1: 0.01, 2: 0.02}) for _ in range(5))


def test_two_ranks_have_no_majority() -> None:
    writers = SlowWriters()
    assert not any(writers.observe({0: 1.0, 1: 9.0}) for _ in range(5))
