"""Two clocks, compared over one request."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from otel_straggler.doctor.findings import Finding
from otel_straggler.doctor.network import check_clock, clock_bounds

MIDNIGHT = "Thu, 01 Jan 1970 00:00:00 GMT"


@pytest.mark.parametrize(("ahead_s", "word"), [(60.0, "behind"), (-60.0, "ahead of")])
def test_a_skewed_clock_is_a_warning(
    examined: Callable[..., dict[str, Finding]],
    serve: Callable[..., str],
    ahead_s: float,
    word: str,
) -> None:
    """With how much, and how sure that is."""
    finding = examined(endpoint=serve(ahead_s=ahead_s))["clock.skew"]
    assert finding.status == "warning"
    assert f"This clock is {word} the endpoint's by" in finding.sentence
    assert finding.value["skew_s"] == pytest.approx(ahead_s, abs=2 * finding.value["error_s"] + 1)
    assert "chronyc" in finding.remedy


def test_the_error_is_half_a_second_and_half_the_round_trip() -> None:
    """A Date has whole seconds, and may have been written at any moment of the request."""
    bounds = clock_bounds(MIDNIGHT, 100.0, 104.0)
    assert bounds is not None
    assert (bounds.middle_s, bounds.error_s) == (-101.5, 2.5)


@pytest.mark.parametrize(
    ("now_s", "status"), [(-1.1, "warning"), (-0.9, "ok"), (1.9, "ok"), (2.1, "warning")]
)
def test_what_may_be_an_error_of_measurement_is_no_warning(now_s: float, status: str) -> None:
    """Only a clock that is certainly wrong by more than a second; Date says 0 for all of 0 to 1."""
    assert check_clock(clock_bounds(MIDNIGHT, now_s, now_s), "its").status == status


@pytest.mark.parametrize("date", ["", "today", "Thu, 99 Jan 1970 00:00:00 GMT"])
def test_no_date_says_nothing(date: str) -> None:
    """It is told what would."""
    finding = check_clock(clock_bounds(date, 0.0, 0.0), "its")
    assert finding.status == "info"
    assert "--collector" in finding.sentence
