"""How long a rank may take, learnt from the run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.detect.hangs.timeouts import BETWEEN, Durations, Timeouts
from otel_straggler.detect.scores.settings import HangSettings
from otel_straggler.model.observation import Section
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable

HOUR_S = 3_600.0


def table(*seconds: float, name: str = "save", runs: int = 1, apart_s: float = 0.0) -> StepTable:
    """One rank that runs one section once (or ``runs`` times) in each step."""
    times = np.array(seconds)[:, None, None]
    return StepTable(
        steps=np.arange(len(seconds)),
        sources=(Source(run_id="run", rank=0),),
        sections=(Section(name),),
        seconds=times,
        runs=np.full(times.shape, runs, np.int32),
        run_cv=np.full((1, 1), np.nan),
        tokens=np.full((len(seconds), 1), np.nan),
        start_ns=np.zeros((len(seconds), 1), np.int64),
        end_ns=((times[:, :, 0] + apart_s) * 1e9).astype(np.int64),
    )


@pytest.mark.parametrize(
    ("seconds", "timeout_s"),
    [
        ([0.1] * 40, 30.0),  # never under the floor
        ([20.0] * 40, 60.0),  # three times the longest
        ([20.0] * 39 + [40.0], 120.0),
        ([200.0] * 40, 480.0),  # the ceiling
        ([600.0] * 40, 900.0),  # but what is usual is no hang
        ([20.0] * 30, 60.0),
        ([20.0] * 29, 480.0),  # too few to know
        ([], 480.0),
    ],
)
def test_a_timeout_follows_what_a_section_takes(seconds: list[float], timeout_s: float) -> None:
    """3 x the longest, between 30 and 480 s, and never under 1.5 x the longest."""
    timeouts = Timeouts(HangSettings())
    if seconds:
        timeouts.learn(table(*seconds))
    assert timeouts.timeout_s("save", 0.0) == pytest.approx(timeout_s, rel=1e-6)


def test_one_long_run_among_thousands_counts_once_not_three_times() -> None:
    """From 1,000 runs on the 99.9th percentile rules, to the width of a bucket. But a pause that
    was survived may come back: 1.2 times the longest are allowed, up to the ceiling."""
    timeouts = Timeouts(HangSettings())
    timeouts.learn(table(*[20.0] * 4_999, 40.0))
    assert timeouts.timeout_s("save", 0.0) == pytest.approx(60.0, rel=0.05)
    timeouts.learn(table(150.0))
    assert timeouts.timeout_s("save", 0.0) == pytest.approx(180.0)
    timeouts.learn(table(4_000.0))
    assert timeouts.timeout_s("save", 0.0) == pytest.approx(480.0)


def test_what_was_learnt_can_be_taken_up_again() -> None:
    """The same timeouts, and the same slow shrinking."""
    timeouts = Timeouts(HangSettings())
    timeouts.learn(table(*[100.0] * 40))
    assert timeouts.timeout_s("save", 0.0) == pytest.approx(300.0)
    again = Timeouts(HangSettings())
    again.restore(json.loads(json.dumps(timeouts.state())))
    assert again.timeout_s("save", 10.0) == timeouts.timeout_s("save", 10.0)
    for one in (timeouts, again):
        for _ in range(3):
            one.learn(table(*[20.0] * 19_999))
    assert again.timeout_s("save", HOUR_S) == pytest.approx(240.0, rel=0.05)
    assert again.timeout_s("save", HOUR_S) == timeouts.timeout_s("save", HOUR_S)
    assert again.state() == timeouts.state()


@pytest.mark.parametrize(
    "change",
    [
        {"durations": {"save": {}}},
        {"durations": {"save": {"longest_s": [1.0], "counts": [[], []]}}},
        {"durations": {"save": {"longest_s": [1.0, 1.0], "counts": [[[320, 1]], []]}}},
        {"durations": {"save": {"longest_s": [1.0, 1.0], "counts": [[[0, -1]], []]}}},
        {"given": {"save": "x"}},
        {"given": None},
    ],
)
def test_a_damaged_state_of_timeouts_is_refused(change: Any) -> None:
    """Whole."""
    timeouts = Timeouts(HangSettings())
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        timeouts.restore({"durations": {}, "given": {}} | change)


def test_a_timeout_grows_at_once_and_shrinks_by_a_fifth_per_hour() -> None:
    """What has been usual lately is not forgotten within minutes."""
    timeouts = Timeouts(HangSettings())
    timeouts.learn(table(*[100.0] * 40))
    assert timeouts.timeout_s("save", 0.0) == pytest.approx(300.0)
    for _ in range(3):  # three generations of short runs: the long ones are forgotten
        timeouts.learn(table(*[1.0] * 20_001))
    assert timeouts.timeout_s("save", 0.5 * HOUR_S) == pytest.approx(300.0 * 0.8**0.5, rel=1e-3)
    assert timeouts.timeout_s("save", 1.0 * HOUR_S) == pytest.approx(300.0 * 0.8, rel=1e-2)
    assert timeouts.timeout_s("save", 50.0 * HOUR_S) == pytest.approx(30.0, rel=1e-3)
    timeouts.learn(table(*[100.0] * 40))
    assert timeouts.timeout_s("save", 50.0 * HOUR_S) == pytest.approx(300.0, rel=0.05)


def test_sections_and_phases_are_learnt_apart_and_so_is_the_time_between_them() -> None:
    """A checkpoint of minutes does not make a forward of seconds wait."""
    timeouts = Timeouts(HangSettings())
    timeouts.learn(table(*[100.0] * 40, name="checkpoint/save", apart_s=15.0))
    timeouts.learn(table(*[1.0] * 40, name="forward", apart_s=15.0))
    assert timeouts.timeout_s("checkpoint/save", 0.0) == pytest.approx(300.0)
    assert timeouts.timeout_s("forward", 0.0) == pytest.approx(30.0)
    assert timeouts.timeout_s(BETWEEN, 0.0) == pytest.approx(45.0)


def test_the_time_between_is_what_no_section_took() -> None:
    """Of several sections all are taken out."""
    one = table(*[1.0] * 40, apart_s=35.0)
    two = replace(
        one,
        sections=(*one.sections, Section("backward")),
        seconds=np.concatenate([one.seconds, np.full_like(one.seconds, 20.0)], axis=2),
        runs=np.repeat(one.runs, 2, axis=2),
    )
    timeouts = Timeouts(HangSettings())
    timeouts.learn(two)
    assert timeouts.timeout_s(BETWEEN, 0.0) == pytest.approx(45.0)
    assert timeouts.timeout_s("backward", 0.0) == pytest.approx(60.0)


def test_every_ranks_longest_counts_also_of_those_that_are_not_counted() -> None:
    """Of thousands of ranks some are drawn for the percentiles; a pause of any may come back."""
    times = np.full((3, 2_000, 1), 20.0)
    times[1, 1_999] = 100.0
    many = replace(
        table(20.0, 20.0, 20.0),
        sources=tuple(Source(run_id="run", rank=rank) for rank in range(2_000)),
        seconds=times,
        runs=np.ones(times.shape, np.int32),
        start_ns=np.zeros((3, 2_000), np.int64),
        end_ns=np.zeros((3, 2_000), np.int64),
    )
    timeouts = Timeouts(HangSettings())
    timeouts.learn(many)
    assert timeouts.timeout_s("save", 0.0) == pytest.approx(120.0)


def test_runs_of_microbatches_are_learnt_by_their_mean() -> None:
    """Eight runs of 20 s each in a step: twice the mean stands for the longest."""
    timeouts = Timeouts(HangSettings())
    timeouts.learn(table(*[160.0] * 40, runs=8))
    assert timeouts.timeout_s("save", 0.0) == pytest.approx(120.0)


@given(
    seconds=st.lists(st.floats(1e-5, 1e5), min_size=1, max_size=300),
    q=st.floats(0.01, 1.0),
)
def test_a_quantile_is_right_to_the_width_of_a_bucket(seconds: list[float], q: float) -> None:
    """An eighth of an octave: within 4.5 % of the exact one."""
    durations = Durations()
    durations.add(np.array(seconds))
    exact = float(np.quantile(seconds, q, method="inverted_cdf"))
    assert durations.quantile_s(q) == pytest.approx(exact, rel=0.045)
    assert durations.longest_s == max(seconds)
    assert len(durations) == len(seconds)


@given(seconds=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=100))
def test_a_median_deviation_is_right_to_the_width_of_a_bucket(seconds: list[float]) -> None:
    """Of the lengths and of their median, each by half a bucket."""
    durations = Durations()
    durations.add(np.array(seconds))
    middle = float(np.quantile(seconds, 0.5, method="inverted_cdf"))
    apart = np.abs(np.array(seconds) - middle)
    exact = float(np.quantile(apart, 0.5, method="inverted_cdf"))
    assert durations.median_deviation_s() == pytest.approx(exact, abs=0.1 * (middle + exact))


def test_what_varies_from_run_to_run_gets_ten_deviations_over_its_median() -> None:
    """Half of the runs are 15 s off: that is more than three times the longest."""
    timeouts = Timeouts(HangSettings())
    timeouts.learn(table(*[5.0] * 15, *[20.0] * 10, *[35.0] * 15))
    assert timeouts.timeout_s("save", 0.0) == pytest.approx(20.0 + 10.0 * 15.0, rel=0.1)


def test_what_is_no_time_is_not_counted() -> None:
    """NaN, zero and less."""
    durations = Durations()
    durations.add(np.array([[np.nan, 0.0], [-1.0, 2.0]]))
    assert (len(durations), durations.longest_s) == (1, 2.0)
    assert np.isnan(Durations().quantile_s(0.5))
    assert np.isnan(Durations().median_deviation_s())


@given(st.lists(st.floats(1e-7, 20.0), min_size=30, max_size=60))
def test_short_sections_get_the_timeout_that_their_quantiles_ask_for(seconds: list[float]) -> None:
    """These are not looked up where all that a section ever took is short."""
    found = Timeouts(HangSettings(quantile_samples=40))
    found._add("forward", np.array([seconds]))
    timeout_s = found.timeout_s("forward", 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Timeouts, "_is_surely_short", lambda *_: False)
        assert timeout_s == found._wanted_s("forward")
