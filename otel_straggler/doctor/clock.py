"""How far this clock is from another's, as far as one answer can tell."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from otel_straggler.doctor.findings import Finding, info, ok, warning

MOST_SKEW_S = 1.0


@dataclass(frozen=True, slots=True)
class ClockBounds:
    """The other clock minus ours lies between these, in seconds."""

    least_s: float
    most_s: float

    @property
    def middle_s(self) -> float:
        return (self.least_s + self.most_s) / 2

    @property
    def error_s(self) -> float:
        return (self.most_s - self.least_s) / 2


def clock_bounds(date: str, asked_s: float, came_s: float) -> ClockBounds | None:
    """From a Date header, which is cut to whole seconds, and our time around the request.

    None if there is no such header.

    >>> clock_bounds("Thu, 01 Jan 1970 00:01:00 GMT", 10.0, 10.5)
    ClockBounds(least_s=49.5, most_s=51.0)
    """
    try:
        stamped_s = parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return None
    return ClockBounds(stamped_s - came_s, stamped_s + 1.0 - asked_s)


def check_clock(bounds: ClockBounds | None, whose: str) -> Finding:
    """Windows of spans without steps, and traces, are put together by the ranks' clocks."""
    if bounds is None:
        sentence = (
            "The other side's clock is not known: no answer had a Date. "
            "--collector URL asks the collector's own address."
        )
        return info("clock.skew", sentence)
    value = {"skew_s": round(bounds.middle_s, 3), "error_s": round(bounds.error_s, 3)}
    size = f"{abs(bounds.middle_s):.1f} s"
    error = f"give or take {bounds.error_s:.1f} s"
    if bounds.least_s > MOST_SKEW_S or bounds.most_s < -MOST_SKEW_S:
        direction = "behind" if bounds.middle_s > 0 else "ahead of"
        sentence = (
            f"This clock is {direction} {whose} by {size}, {error}: spans of different ranks do "
            "not line up."
        )
        return warning("clock.skew", sentence, "chronyc tracking   # or: timedatectl", value)
    return ok("clock.skew", f"This clock agrees with {whose}: {size} apart, {error}.", value)
