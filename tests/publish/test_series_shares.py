"""The series budget is one for all runs, shared fairly, and what is folded is counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler import semconv
from otel_straggler.collector.metrics.families import Families, label
from otel_straggler.collector.metrics.series_shares import (
    keep_within_share,
    series_needed,
    share_of_each,
)

RUN = label("run_id", "r")


@pytest.mark.parametrize(
    ("needs", "budget", "share"),
    [
        ([], 100, 100),
        ([500], 1_000, 1_000),
        ([5_000], 1_000, 1_000),
        ([500, 500], 1_000, 1_000),
        ([501, 501], 1_000, 500),
        ([10, 20, 5_000], 1_000, 970),
        ([5_000, 10, 20, 5_000], 1_000, 480),
    ],
)
def test_each_run_has_the_same_share_and_what_smaller_ones_leave(
    needs: list[int], budget: int, share: int
) -> None:
    assert share_of_each(needs, budget) == share


@given(st.lists(st.integers(0, 10**6), min_size=1), st.integers(100, 10**6))
def test_runs_within_their_share_fit_the_budget(needs: list[int], budget: int) -> None:
    share = share_of_each(needs, budget)
    assert sum(min(need, share) for need in needs) <= budget
    assert share >= budget // len(needs) * 0.9


def test_a_run_far_beyond_its_share_keeps_what_came_first_and_counts_the_rest() -> None:
    families = Families()
    for number in range(30):
        families.add(semconv.RUN_INFO, label("group", number), 1)
    for number in range(10_000):
        families.add(semconv.RECORDS_DROPPED, label("reason", number), 1)
    for number in range(50):
        families.add(semconv.RANK_STEP, label("rank", number), 1)
    keep_within_share(families, 100, "r", 'collector="c"')
    text = families.render().decode()
    assert text.count(semconv.RUN_INFO.prometheus_name + "{") == 30
    assert text.count(semconv.RECORDS_DROPPED.prometheus_name + "{") == 1_000 - 30
    folded = semconv.COLLECTOR_SERIES_FOLDED.prometheus_name
    for metric, count in ((semconv.RECORDS_DROPPED, 9_030), (semconv.RANK_STEP, 50)):
        line = f'{folded}{{run_id="r",family="{metric.prometheus_name}",collector="c"}} {count}\n'
        assert line in text
    assert series_needed(families) == 30 + 10_000 + 50 + 2


def test_a_run_within_its_share_is_left_alone() -> None:
    families = Families()
    for number in range(900):
        families.add(semconv.RANK_STEP, label("rank", number), 1)
    before = families.render()
    keep_within_share(families, 10, "r", "")
    assert families.render() == before
