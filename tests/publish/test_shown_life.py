"""Which ranks show which signs of life where they do not fit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_straggler import semconv
from otel_straggler.collector.metrics.series_choice import EVERYTHING, KINDS, RankKey, choose

CONSTANT = 'collector="c"'


def keys(count: int) -> list[RankKey]:
    return [("", rank) for rank in range(count)]


def test_everything_is_shown_where_it_fits_half_of_the_budget() -> None:
    """And nothing is said of folding then."""
    shown = choose(keys(100), {}, 2 * 100 * len(KINDS))
    assert shown is EVERYTHING
    assert len(shown.folded("run", CONSTANT)) == 0
    assert choose(keys(100), {}, 2 * 100 * len(KINDS) - 2) is not EVERYTHING


def test_ten_thousand_ranks_leave_half_of_the_default_budget() -> None:
    """Every rank can be found and has a state; those in trouble show everything."""
    trouble = {("", 9_999): 0, ("", 5_000): 2}
    shown = choose(keys(10_000), trouble, 50_000)
    assert shown.kinds == {semconv.LAST_HEARTBEAT, semconv.RANK_STATE}
    assert shown.whole is not None
    assert trouble.keys() <= shown.whole
    assert ("", 0) in shown.whole
    assert shown.shows(semconv.LAST_HEARTBEAT, ("", 7_000))
    assert not shown.shows(semconv.RANK_TIMEOUT, ("", 7_000))
    assert len(shown.whole) == (25_000 - 20_000) // 6


def test_in_a_hang_whom_it_waits_for_comes_before_who_waits() -> None:
    """Nearly all are in trouble then: who is named first, then the others in their order."""
    trouble = {("", rank): 2 for rank in range(5_000)} | {("", 4_999): 0, ("", 4_000): 1}
    shown = choose(keys(5_000), trouble, 3_000)
    assert shown.whole == {("", 4_999), ("", 4_000), *keys(185)}


@given(st.integers(0, 800), st.integers(100, 8_000), st.sets(st.integers(0, 799)))
def test_what_is_shown_and_what_is_folded_is_everything(
    ranks: int, budget: int, trouble: set[int]
) -> None:
    """And fits half of the budget, but for the ranks that always show all."""
    shown = choose(keys(ranks), {("", rank): 1 for rank in trouble}, budget)
    lines = {kind: sum(shown.shows(kind, key) for key in keys(ranks)) for kind in KINDS}
    folded = sum(map(_value, shown.folded("run", CONSTANT).render().decode().splitlines()))
    assert sum(lines.values()) + folded == ranks * len(KINDS)
    assert sum(lines.values()) <= max(budget // 2, 100 * len(KINDS))
    assert list(lines.values()) == sorted(lines.values(), reverse=True)


def _value(line: str) -> int:
    return 0 if line.startswith("#") else int(float(line.rsplit(" ", 1)[1]))
