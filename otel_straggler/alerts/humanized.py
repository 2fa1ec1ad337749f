"""Numbers as the functions of Prometheus' templates write them, to the letter."""

from __future__ import annotations

import math
from typing import Final

_DAY_S, _HOUR_S, _MINUTE_S = 86_400, 3_600, 60
_SMALL: Final = ("m", "u", "n", "p", "f", "a", "z", "y")
_LARGE: Final = ("k", "M", "G", "T", "P", "E", "Z", "Y")


def humanize(value: float) -> str:
    """With a prefix of the metric system.

    >>> humanize(1234567.0), humanize(0.0021), humanize(0.0)
    ('1.235M', '2.1m', '0')
    """
    if value == 0 or not math.isfinite(value):
        return _short(value)
    prefix = ""
    if abs(value) >= 1:
        for larger in _LARGE:
            if abs(value) < 1_000:
                break
            prefix, value = larger, value / 1_000
        return _short(value) + prefix
    for smaller in _SMALL:
        if abs(value) >= 1:
            break
        prefix, value = smaller, value * 1_000
    return _short(value) + prefix


def humanize_percentage(value: float) -> str:
    """
    >>> humanize_percentage(0.5), humanize_percentage(0.12345678)
    ('50%', '12.35%')
    """
    return f"{_short(value * 100)}%"


def humanize_duration(value_s: float) -> str:
    """
    >>> humanize_duration(300.0), humanize_duration(97_265.0), humanize_duration(0.25)
    ('5m 0s', '1d 3h 1m 5s', '250ms')
    """
    if value_s == 0 or not math.isfinite(value_s):
        return _short(value_s) + ("s" if value_s == 0 else "")
    sign = "-" if value_s < 0 else ""
    if abs(value_s) < 1:
        return humanize(value_s) + "s"
    value_s = abs(value_s)
    whole = int(value_s)
    seconds, minutes = whole % 60, whole // _MINUTE_S % 60
    hours, days = whole // _HOUR_S % 24, whole // _DAY_S
    if days:
        return f"{sign}{days}d {hours}h {minutes}m {seconds}s"
    if hours:
        return f"{sign}{hours}h {minutes}m {seconds}s"
    if minutes:
        return f"{sign}{minutes}m {seconds}s"
    return f"{sign}{_short(value_s)}s"


def _short(value: float) -> str:
    """Go's %.4g."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return f"{value:.4g}"
