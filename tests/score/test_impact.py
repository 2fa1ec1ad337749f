"""What a slow subject costs."""

from __future__ import annotations

import math

from otel_straggler.detect.verdicts.candidates import gpu_seconds_per_hour


def test_an_unknown_cost_is_nan_and_no_cost_is_more_than_all() -> None:
    """No step time, no excess, an excess longer than the step."""
    assert math.isnan(gpu_seconds_per_hour(math.nan, 1.0, 8))
    assert math.isnan(gpu_seconds_per_hour(0.1, 0.0, 8))
    assert math.isnan(gpu_seconds_per_hour(0.1, math.nan, 8))
    assert gpu_seconds_per_hour(5.0, 1.0, 8) == 8 * 3600.0
    assert gpu_seconds_per_hour(-1.0, 1.0, 8) == 0.0
