"""The range of time that is looked at, as Grafana writes it, and durations as Prometheus does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

from otel_straggler.errors import ConfigError, describe

UNIT_S: Final = {
    "ms": 0.001,
    "s": 1,
    "m": 60,
    "h": 3600,
    "d": 86_400,
    "w": 604_800,
    "M": 2_592_000,
    "y": 31_536_000,
}
_MATH: Final = re.compile(r"now(?:([+-])(\d+)(s|m|h|d|w|M|y))?")
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdwMy])?")


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Seconds since the epoch; ``raw`` is what was asked for, for links and headings."""

    from_s: float
    to_s: float
    raw: tuple[str, str]

    @property
    def length_s(self) -> float:
        return self.to_s - self.from_s

    @classmethod
    def parse(cls, begin: str, end: str, now_s: float) -> TimeRange:
        """
        >>> TimeRange.parse("now-1h", "now", 7200.0).from_s
        3600.0

        Raises:
            ConfigError: a bound cannot be read, or the range is empty.
        """
        made = cls(moment(begin, now_s), moment(end, now_s), (begin, end))
        if made.length_s <= 0:
            raise ConfigError(
                describe(
                    where="--from and --to",
                    value=f"{begin} to {end}",
                    expected="a beginning before the end",
                    remedy="Try --from now-1h --to now.",
                )
            )
        return made


def moment(text: str, now_s: float) -> float:
    """Seconds since the epoch of ``now-1h``, of a time as ISO 8601, or of Unix time.

    Numbers above 10^11 are milliseconds, as in the links of Grafana. A time without a zone is UTC.

    >>> moment("now-30m", 3600.0), moment("1700000000000", 0.0)
    (1800.0, 1700000000.0)
    """
    if relative := _MATH.fullmatch(text):
        sign, count, unit = relative.groups()
        shift_s = float(count) * UNIT_S[unit] if count else 0.0
        return now_s - shift_s if sign == "-" else now_s + shift_s
    try:
        if re.fullmatch(r"\d+(\.\d+)?", text):
            number = float(text)
            return number / 1e3 if number > 1e11 else number
        read = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise ConfigError(
            describe(
                where="a bound of the range",
                value=text,
                expected="now, now-1h, 2026-01-31T12:00:00 or Unix time",
                remedy="Rounding as in now/d is not known here.",
            )
        ) from None
    return (read if read.tzinfo else read.replace(tzinfo=timezone.utc)).timestamp()


def seconds(text: str) -> float:
    """
    >>> seconds("15s"), seconds("1m"), seconds("30")
    (15.0, 60.0, 30.0)

    Raises:
        ConfigError: it is no duration above zero.
    """
    found = _DURATION.fullmatch(text.strip())
    length_s = float(found[1]) * UNIT_S[found[2] or "s"] if found else 0.0
    if length_s <= 0:
        raise ConfigError(
            describe(
                where="a duration",
                value=text,
                expected="a number with a unit, as in 15s or 1m",
                remedy="Units are ms, s, m, h, d, w, M and y.",
            )
        )
    return length_s
