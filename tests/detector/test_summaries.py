"""Statistics of sections against the plain definitions of Python's own library."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.model.observation import Section
from otel_straggler.report.statistics import SectionStatistics, times_of
from otel_straggler.report.types import Statistic

RUNS = st.integers(1, 10**13)


def some(lengths: st.SearchStrategy[int]) -> st.SearchStrategy[list[list[int]]]:
    """Runs in nanoseconds, by section."""
    return st.lists(
        lengths.flatmap(lambda n: st.lists(RUNS, min_size=n, max_size=n)), min_size=1, max_size=6
    )


EVEN = st.integers(1, 9).flatmap(lambda n: some(st.just(n)))


@given(st.one_of(some(st.integers(1, 9)), EVEN))
def test_all_six_statistics_are_those_of_the_definitions(runs_ns: list[list[int]]) -> None:
    """Whether the sections ran equally often or not."""
    reported = SectionStatistics(
        [(Section(f"s{n}"), np.array(runs, np.int64)) for n, runs in enumerate(runs_ns)]
    )
    assert len(reported) == len(runs_ns)
    for n, runs in enumerate(runs_ns):
        lengths_ms = [run / 1e6 for run in runs]
        result = reported[f"s{n}"]
        assert result[Statistic.MIN] == pytest.approx(min(lengths_ms), rel=1e-12)
        assert result[Statistic.MAX] == pytest.approx(max(lengths_ms), rel=1e-12)
        assert result[Statistic.MED] == pytest.approx(statistics.median(lengths_ms), rel=1e-12)
        assert result[Statistic.AVG] == pytest.approx(statistics.fmean(lengths_ms), rel=1e-12)
        assert result[Statistic.NUM] == len(runs)
        if len(runs) == 1:
            assert math.isnan(result[Statistic.STD])
        else:
            expected = statistics.stdev(lengths_ms)
            assert result[Statistic.STD] == pytest.approx(expected, rel=1e-6, abs=1e-6)
        assert reported.times.median_s[n] == pytest.approx(statistics.median(lengths_ms) / 1e3)
        assert reported.times.total_s[n] == pytest.approx(sum(lengths_ms) / 1e3)


@given(some(st.integers(1, 9)))
def test_times_of_statistics_are_those_they_were_made_from(runs_ns: list[list[int]]) -> None:
    """There and back."""
    reported = SectionStatistics(
        [(Section(f"s{n}"), np.array(runs, np.int64)) for n, runs in enumerate(runs_ns)]
    )
    back = times_of(reported, 1e-3)
    assert back.names == reported.times.names
    assert back.median_s == pytest.approx(reported.times.median_s)
    assert back.total_s == pytest.approx(reported.times.total_s)
    assert back.count.tolist() == reported.times.count.tolist()
