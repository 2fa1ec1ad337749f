"""How many points a preview asks for, and over what it takes rates, is what Grafana would."""

from __future__ import annotations

import pytest

from otel_straggler.dashboards.preview.intervals import Interval, aligned, interval_of
from otel_straggler.dashboards.preview.ranges import TimeRange, moment, seconds
from otel_straggler.errors import ConfigError

HOUR = TimeRange.parse("now-1h", "now", 1_700_003_600.0)
DAY = TimeRange.parse("now-1d", "now", 1_700_086_400.0)


@pytest.mark.parametrize(
    ("span", "panel", "target", "scrape_s", "step_s", "rate_s"),
    [
        (HOUR, {}, {}, 15.0, 15.0, 60.0),  # 3600 s over 780 points is less than a scrape
        (HOUR, {}, {}, 1.0, 5.0, 6.0),  # 4.6 s is rounded to 5 s; the step and a scrape
        (HOUR, {"maxDataPoints": 200}, {}, 15.0, 20.0, 60.0),
        (HOUR, {"interval": "1m"}, {}, 15.0, 60.0, 75.0),
        (HOUR, {}, {"interval": "30s"}, 15.0, 30.0, 120.0),
        (HOUR, {}, {"interval": "$__interval"}, 15.0, 15.0, 60.0),
        (HOUR, {}, {"intervalFactor": 2}, 15.0, 30.0, 60.0),
        (DAY, {}, {}, 15.0, 120.0, 135.0),
        (DAY, {"maxDataPoints": 100_000}, {}, 1.0, 10.0, 4.0),  # never beyond 11,000 points
    ],
)
def test_step_and_rate_interval(
    span: TimeRange, panel: dict, target: dict, scrape_s: float, step_s: float, rate_s: float
) -> None:
    """In a panel of 780 px, exactly."""
    assert interval_of(panel, target, span, 780.5, scrape_s) == Interval(step_s, rate_s)


def test_values_for_expressions() -> None:
    """As PromQL reads them, in seconds and milliseconds."""
    assert Interval(15.0, 75.0).values(HOUR) == {
        "__rate_interval_ms": "75000",
        "__rate_interval": "1m15s",
        "__interval_ms": "15000",
        "__interval": "15s",
        "__range_ms": "3600000",
        "__range_s": "3600",
        "__range": "3600s",
    }


def test_both_ends_are_moved_back_to_a_step() -> None:
    """So that the same points are asked for after a reload."""
    assert aligned(TimeRange(103.0, 229.0, ("", "")), 20.0) == (100.0, 220.0)


@pytest.mark.parametrize(
    ("text", "at_s"),
    [
        ("now", 1_000.0),
        ("now-5m", 700.0),
        ("now+1h", 4_600.0),
        ("1700000000", 1_700_000_000.0),
        ("1700000000123", 1_700_000_000.123),
        ("2023-11-14T22:13:20Z", 1_700_000_000.0),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000.0),
        ("2023-11-14 22:13:20", 1_700_000_000.0),
    ],
)
def test_moments(text: str, at_s: float) -> None:
    """As people and links of Grafana write them."""
    assert moment(text, 1_000.0) == at_s


@pytest.mark.parametrize("wrong", ["", "now/d", "yesterday", "now-", "now-5 m"])
def test_what_is_no_moment_is_named(wrong: str) -> None:
    with pytest.raises(ConfigError, match="a bound of the range"):
        moment(wrong, 1_000.0)


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ConfigError, match="a beginning before the end"):
        TimeRange.parse("now", "now-1h", 1_000.0)


@pytest.mark.parametrize("wrong", ["", "0s", "x", "5 parsecs"])
def test_what_is_no_duration_is_named(wrong: str) -> None:
    with pytest.raises(ConfigError, match="a duration"):
        seconds(wrong)
