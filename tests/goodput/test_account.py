"""The account of a run: where its time went, by category, rank and window."""

import numpy as np
import pytest

from otel_straggler.goodput.account import Account, StragglerLoss, account
from otel_straggler.goodput.activities import (
    ALL_RANKS,
    ATTEMPT,
    NO_END,
    STEP,
    Activities,
    Activity,
)
from otel_straggler.goodput.steps import ideal_step_s, step_deviation_s
from otel_straggler.goodput.windows import rolling_goodput, timeline
from otel_straggler.semconv import BADPUT

S = 10**9
AT = 1_700_000_000 * S


def at(what: str, start_s: float, end_s: float | None = None, **rest: int) -> Activity:
    """An activity of rank 0; times in seconds since the run began."""
    end_ns = NO_END if end_s is None else AT + round(end_s * S)
    return Activity(what, AT + round(start_s * S), end_ns, **{"rank": 0, **rest})


def steps(first: int, start_s: float, n: int, each_s: float = 1.0, **rest: int) -> list[Activity]:
    return [
        at(STEP, start_s + k * each_s, start_s + (k + 1) * each_s, step=first + k, **rest)
        for k in range(n)
    ]


def account_of(*rows: Activity, **options: object) -> Account:
    result = account(Activities.of(rows), **options)  # type: ignore[arg-type]
    assert result is not None
    assert int(result.run_ns.sum()) == result.elapsed_ns
    assert (result.time_ns.sum(axis=1) == result.elapsed_ns).all()
    return result


def seconds(result: Account) -> dict[str, float]:
    """Categories with time, in seconds."""
    pairs = zip(result.categories, result.run_ns.tolist(), strict=True)
    return {name: ns / S for name, ns in pairs if ns}


def test_there_are_at_least_14_categories_of_badput() -> None:
    assert len(BADPUT) >= 14


def test_an_undisturbed_run_is_all_goodput() -> None:
    assert account_of(*steps(0, 0, 10)).goodput == 1.0


def test_nothing_with_a_length_is_no_account() -> None:
    assert account(Activities.of([])) is None
    assert account(Activities.of([at(STEP, 3, 3, step=0)])) is None


def test_what_covers_a_step_is_badput_of_its_own_category() -> None:
    result = account_of(
        *steps(0, 0, 10, 10),
        at("data", 0, 1),
        at("checkpoint", 9, 13),
        at("eval", 20, 30),
        at("cache warm-up", 31, 32),
    )
    covered = {"data": 1.0, "checkpoint": 4.0, "eval": 10.0, "custom:cache warm-up": 1.0}
    assert seconds(result) == {"productive": 84.0, **covered}


def test_overlapping_reports_count_once() -> None:
    """A custom activity wins over a checkpoint, that over data loading."""
    result = account_of(
        *steps(0, 0, 1, 10), at("data", 0, 4), at("checkpoint", 2, 6), at("custom:x", 5, 7)
    )
    assert seconds(result) == {"productive": 3.0, "data": 2.0, "checkpoint": 3.0, "custom:x": 2.0}


def test_time_between_the_reported_is_named_by_where_it_lies() -> None:
    result = account_of(
        at("scheduling", 0, 100, rank=ALL_RANKS),
        at(ATTEMPT, 100, 200),
        at("initialization", 110, 120),
        *steps(0, 130, 10),
        *steps(10, 145, 5),
        at(ATTEMPT, 260, 400, attempt=1),
        at("checkpoint_load", 270, 280, attempt=1),
        *steps(15, 300, 20, attempt=1),
    )
    assert seconds(result) == {
        "scheduling": 100.0,
        "start_up": 20.0,
        "initialization": 10.0,
        "productive": 35.0,
        "other": 5.0,
        "hang": 50.0,
        "restart": 60.0,
        "reinitialization": 30.0,
        "checkpoint_load": 10.0,
        "shutdown": 80.0,
    }
    assert result.recovery_ns == 140 * S
    assert result.steps.disruptions == 1


def test_steps_done_again_after_a_restart_were_wasted_the_first_time() -> None:
    result = account_of(*steps(0, 0, 10), *steps(6, 20, 4, attempt=1))
    assert seconds(result) == {"productive": 10.0, "redone": 4.0, "restart": 10.0}
    assert (result.steps.productive, result.steps.redone, result.steps.newest) == (10, 4, 9)


def test_of_a_row_of_several_steps_the_part_that_was_done_again_was_wasted() -> None:
    row = at(STEP, 0, 20, step=0, steps=20)
    result = account_of(row, at(STEP, 20, 30, step=15, steps=5, attempt=1))
    assert seconds(result) == {"productive": 25.0, "redone": 5.0}


def test_a_rank_that_never_comes_back_has_wasted_the_steps_that_others_do_again() -> None:
    result = account_of(*steps(0, 0, 10), *steps(0, 0, 10, rank=1), *steps(5, 10, 10, attempt=1))
    assert result.time_ns[1, result.categories.index("redone")] == 5 * S
    assert result.time_ns[1, result.categories.index("replica_down")] == 10 * S
    assert result.available_part == 0.75
    assert result.stepping_part == 0.75


def test_a_step_counter_that_goes_back_without_a_new_attempt_is_a_disruption() -> None:
    result = account_of(*steps(0, 0, 10), *steps(8, 12, 4))
    assert seconds(result) == {"productive": 12.0, "redone": 2.0, "other": 2.0}
    assert result.steps.disruptions == 1


def test_steps_delivered_twice_count_once() -> None:
    once = account_of(*steps(0, 0, 10), at("data", 0, 0.5))
    twice = account_of(*steps(0, 0, 10), *steps(0, 0, 10), at("data", 0, 0.5), at("data", 0, 0.5))
    assert (once.run_ns == twice.run_ns).all()
    assert once.steps == twice.steps


def test_a_slow_first_step_is_start_up_beyond_the_mean_of_the_others() -> None:
    result = account_of(at(STEP, 0, 8, step=0), *steps(1, 8, 5))
    assert seconds(result) == {"productive": 6.0, "start_up": 7.0}


def test_a_step_without_an_end_lasts_until_the_next_one() -> None:
    rows = [at(STEP, second, step=second) for second in range(5)]
    result = account_of(*rows, at(ATTEMPT, 0, 6))
    assert result.goodput == 1.0
    assert result.steps.productive == 5


def test_the_last_step_of_a_failed_attempt_that_has_no_end_is_none() -> None:
    rows = [at(STEP, second, step=second) for second in range(5)]
    result = account_of(*rows, at(ATTEMPT, 0, 10), *steps(4, 20, 1, attempt=1))
    assert seconds(result) == {"productive": 5.0, "hang": 6.0, "restart": 10.0}


def test_a_reference_step_time_makes_the_rest_of_slow_steps_badput() -> None:
    """Also below a second."""
    result = account_of(*steps(0, 0, 100, 0.003), reference_step_s=0.002)
    assert seconds(result) == pytest.approx({"productive": 0.2, "slow_steps": 0.1})
    assert result.steps.slowdown == pytest.approx(1.5)


def test_steps_wait_for_a_straggler_as_long_as_its_verdict_stands() -> None:
    loss = StragglerLoss(AT + 50 * S, AT + 80 * S, 0.2)
    result = account_of(*steps(0, 0, 100), stragglers=[loss])
    assert seconds(result) == pytest.approx({"productive": 94.0, "stragglers": 6.0})


def test_what_is_excluded_counts_neither_way() -> None:
    result = account_of(
        *steps(0, 0, 10), *steps(10, 30, 10), at("excluded", 10, 25, rank=ALL_RANKS)
    )
    assert seconds(result) == {"productive": 20.0, "other": 5.0, "excluded": 15.0}
    assert result.wall_ns == 25 * S
    assert result.goodput == 0.8


def test_the_run_is_the_mean_of_its_ranks_to_the_nanosecond() -> None:
    rows = [Activity(STEP, 0, 10, rank, 0, 0) for rank in range(3)]
    result = account_of(*rows, Activity("data", 0, 1, 0))
    assert result.run_ns.sum() == 10
    assert result.goodput_of_ranks().tolist() == [0.9, 1.0, 1.0]


def test_a_timeline_splits_the_same_time_into_bins() -> None:
    result = account_of(*steps(0, 0, 10), *steps(6, 20, 4, attempt=1), at("data", 3, 5))
    line = timeline(result, 7)
    assert (line.time_ns.sum(axis=0) == np.diff(line.edges_ns)).all()
    assert (line.time_ns.sum(axis=1) == result.run_ns).all()


def test_rolling_goodput_is_of_the_window_before_each_time() -> None:
    result = account_of(*steps(0, 0, 10), *steps(10, 20, 10, attempt=1))
    ends = AT + np.array([10, 15, 20, 30]) * S
    assert rolling_goodput(result, 10 * S, ends).tolist() == [1.0, 0.5, 0.0, 1.0]


def test_a_rolling_window_that_begins_before_the_run_is_of_what_there_is() -> None:
    result = account_of(*steps(0, 0, 10))
    assert rolling_goodput(result, 100 * S, np.array([AT + 5 * S])).tolist() == [1.0]


def test_the_ideal_step_leaves_out_outliers_and_knows_steps_of_milliseconds() -> None:
    assert ideal_step_s(np.array([0.002] * 99 + [5.0])) == pytest.approx(0.002)
    assert np.isnan(ideal_step_s(np.array([])))


def test_the_deviation_compares_the_newest_steps_with_those_before() -> None:
    usual = [1.0] * 1000
    assert step_deviation_s(np.array([*usual, *[1.0] * 100]), 1.0) == 0.0
    assert step_deviation_s(np.array([*usual, *[1.5] * 100]), 1.0) == pytest.approx(0.5)
    assert step_deviation_s(np.array([1.5] * 200), 1.0) == pytest.approx(0.5)


def test_activities_survive_the_way_to_columns_and_back() -> None:
    rows = [at(STEP, 0, 1, step=3, steps=2), at("eval", 1, rank=4, attempt=2)]
    assert Activities.of(rows).rows() == rows
