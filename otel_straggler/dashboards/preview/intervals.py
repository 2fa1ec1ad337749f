"""How far apart the points of a panel are, and what ``$__rate_interval`` is: Grafana's rules.

Grafana divides the range by the points that fit a panel and rounds to a step that people know;
never below the scrape interval that its data source is told, nor beyond 11,000 points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from otel_straggler.dashboards.preview.ranges import TimeRange, seconds

_ROUNDED_MS: Final = (  # below, becomes
    (10, 1),
    (15, 10),
    (35, 20),
    (75, 50),
    (150, 100),
    (350, 200),
    (750, 500),
    (1_500, 1_000),
    (3_500, 2_000),
    (7_500, 5_000),
    (12_500, 10_000),
    (17_500, 15_000),
    (25_000, 20_000),
    (45_000, 30_000),
    (90_000, 60_000),
    (210_000, 120_000),
    (450_000, 300_000),
    (750_000, 600_000),
    (1_050_000, 900_000),
    (1_500_000, 1_200_000),
    (2_700_000, 1_800_000),
    (5_400_000, 3_600_000),
    (9_000_000, 7_200_000),
    (16_200_000, 10_800_000),
    (32_400_000, 21_600_000),
    (86_400_000, 43_200_000),
    (604_800_000, 86_400_000),
    (1_814_400_000, 604_800_000),
    (3_628_800_000, 2_592_000_000),
)
_YEAR_MS: Final = 31_536_000_000
_MOST_POINTS: Final = 11_000
_PARTS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


@dataclass(frozen=True, slots=True)
class Interval:
    """Of one query, in seconds: between its points, and over which it takes rates."""

    step_s: float
    rate_s: float

    def values(self, span: TimeRange) -> dict[str, str]:
        """By the names that expressions use, longest first where one begins another."""
        whole_s = round(span.length_s)
        return {
            "__rate_interval_ms": str(round(self.rate_s * 1e3)),
            "__rate_interval": duration(self.rate_s),
            "__interval_ms": str(round(self.step_s * 1e3)),
            "__interval": duration(self.step_s),
            "__range_ms": str(round(span.length_s * 1e3)),
            "__range_s": str(whole_s),
            "__range": f"{whole_s}s",
        }


def rounded_s(interval_s: float) -> float:
    """
    >>> rounded_s(4.5), rounded_s(18.0), rounded_s(100.0)
    (5.0, 20.0, 120.0)
    """
    interval_ms = interval_s * 1e3
    return next((to for below, to in _ROUNDED_MS if interval_ms < below), _YEAR_MS) / 1e3


def interval_of(
    panel: dict[str, Any], target: dict[str, Any], span: TimeRange, width_px: float, scrape_s: float
) -> Interval:
    """What Grafana would ask for in a panel of this width.

    Args:
        scrape_s: what the data source is told of the scrape interval.
    """
    points = panel.get("maxDataPoints") or max(1, math.floor(width_px))
    least_s = seconds(panel["interval"]) if panel.get("interval") else scrape_s
    of_panel_s = max(rounded_s(span.length_s / points), least_s)
    own_least = str(target.get("interval") or "")
    own_least_s = seconds(own_least) if own_least and "$" not in own_least else 0.0
    step_s = max(of_panel_s, own_least_s, rounded_s(span.length_s / _MOST_POINTS))
    step_s *= int(target.get("intervalFactor") or 1)
    told_s = own_least_s or scrape_s
    return Interval(step_s, max(of_panel_s + told_s, 4 * told_s))


def aligned(span: TimeRange, step_s: float) -> tuple[float, float]:
    """Both ends moved back to a multiple of the step, so that a reload asks for the same points."""
    begin, end = (math.floor(t / step_s) * step_s for t in (span.from_s, span.to_s))
    return begin, end


def duration(length_s: float) -> str:
    """As PromQL reads it.

    >>> duration(60.0), duration(75.0), duration(0.5)
    ('1m', '1m15s', '500ms')
    """
    whole, rest_ms = divmod(round(length_s * 1e3), 1_000)
    text = ""
    for unit, size in _PARTS:
        count, whole = divmod(whole, size)
        text += f"{count}{unit}" if count else ""
    return text + (f"{rest_ms}ms" if rest_ms or not text else "")
