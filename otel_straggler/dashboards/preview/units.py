"""Numbers with units, as Grafana writes them."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Final

Formatter = Callable[[float, "int | None"], tuple[str, str]]
"""Value and decimals (None: as many as show it) to the number's text and what stands behind."""

_SI: Final = ("f", "p", "n", "µ", "m", "", "k", "M", "G", "T", "P", "E", "Z", "Y")
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi")
_SHORT: Final = ("", " K", " Mil", " Bil", " Tri", " Quadr", " Quint", " Sext", " Sept")
_COUNT: Final = ("", "K", "M", "B", "T")
_SECONDS: Final = (
    (1e-6, 1e9, " ns"),
    (1e-3, 1e6, " µs"),
    (1, 1e3, " ms"),
    (60, 1, " s"),
    (3_600, 1 / 60, " min"),
    (86_400, 1 / 3_600, " hour"),
    (604_800, 1 / 86_400, " day"),
    (31_536_000, 1 / 604_800, " week"),
    (math.inf, 1 / 3.15569e7, " year"),
)


def text_of(value: float, unit: str, decimals: int | None) -> str:
    """
    >>> text_of(0.25, "s", None), text_of(1536.0, "bytes", None), text_of(0.123, "percentunit", 1)
    ('250 ms', '1.50 KiB', '12.3%')
    """
    number, behind = formatter(unit)(value, decimals)
    return number + behind


def shown(value: float, unit: str, decimals: int | None) -> str:
    """As a panel shows a value: without a fixed number of decimals, zeros at the end go.

    >>> shown(1536.0, "bytes", None), shown(1536.0, "bytes", 2)
    ('1.5 KiB', '1.50 KiB')
    """
    number, behind = formatter(unit)(value, decimals)
    if decimals is None and not unit.startswith("dateTime") and "." in number and "e" not in number:
        number = number.rstrip("0").rstrip(".")
    return number + behind


def fixed(value: float, decimals: int | None) -> str:
    """
    >>> fixed(0.126, None), fixed(12.6, None), fixed(3.0, None), fixed(2.5, 0)
    ('0.126', '12.6', '3', '3')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if decimals is None:
        decimals = _decimals_that_show(value)
    if value == 0:
        return f"{0:.{decimals}f}"
    factor = 10.0 ** max(0, decimals)
    rounded = math.floor(value * factor + 0.5) / factor
    if abs(rounded) >= 1e21:
        return repr(rounded)
    return f"{rounded:.{max(0, decimals)}f}"


def _decimals_that_show(value: float) -> int:
    """About two digits that mean something; none for whole numbers."""
    if value == 0 or value % 1 == 0:
        return 0
    decimals = -math.floor(math.log10(abs(value))) + 1
    if value * 10.0**decimals > 2.25:  # is between 1 and 10 in Grafana's words, not in its sums
        decimals += 1
    return max(0, decimals)


def formatter(unit: str) -> Formatter:
    """Of a unit's id; what is not known is written behind the number, as Grafana does."""
    if unit in KNOWN:
        return KNOWN[unit]
    kind, _, rest = unit.partition(":")
    if rest and kind == "suffix":
        return lambda value, decimals: (fixed(value, decimals), f" {rest}")
    if rest and kind == "prefix":
        return lambda value, decimals: (f"{rest}{fixed(value, decimals)}", "")
    if rest and kind == "si":
        return _scaled(1000, [f" {prefix}{rest}" for prefix in _SI], 5)
    return lambda value, decimals: (fixed(value, decimals), f" {unit}" if unit else "")


def _scaled(factor: float, endings: list[str], offset: int = 0) -> Formatter:
    def format_(value: float, decimals: int | None) -> tuple[str, str]:
        if not math.isfinite(value):
            return fixed(value, decimals), ""
        power = 0 if value == 0 else math.floor(math.log10(abs(value)) / math.log10(factor))
        power = min(max(power, -offset), len(endings) - offset - 1)
        return fixed(value / factor**power, decimals), endings[offset + power]

    return format_


def _count(symbol: str) -> Formatter:
    return _scaled(1000, [f"{prefix} {symbol}" for prefix in _COUNT])


def _seconds(value: float, decimals: int | None) -> tuple[str, str]:
    if value == 0 or not math.isfinite(value):
        return fixed(value, decimals), " s"
    factor, ending = next((f, e) for below, f, e in _SECONDS if abs(value) < below)
    return fixed(value * factor, decimals), ending


def _milliseconds(value: float, decimals: int | None) -> tuple[str, str]:
    return (fixed(value, decimals), " ms") if abs(value) < 1e3 else _seconds(value / 1e3, decimals)


def _time(value: float, _: int | None) -> tuple[str, str]:
    """From milliseconds, in the zone of this machine."""
    return datetime.fromtimestamp(value / 1e3).astimezone().strftime("%Y-%m-%d %H:%M:%S"), ""


def _ends(ending: str, factor: float = 1.0) -> Formatter:
    return lambda value, decimals: (fixed(value * factor, decimals), ending)


def _yes(value: float, _: int | None) -> tuple[str, str]:
    return ("Yes" if value else "No"), ""


KNOWN: Final[dict[str, Formatter]] = {
    "": _ends(""),
    "none": _ends(""),
    "string": lambda value, _: (f"{value:g}", ""),
    "short": _scaled(1000, list(_SHORT)),
    "percent": _ends("%"),
    "percentunit": _ends("%", 100),
    "s": _seconds,
    "ms": _milliseconds,
    "bytes": _scaled(1024, [f" {prefix}B" for prefix in _BINARY]),
    "decbytes": _scaled(1000, [f" {prefix}B" for prefix in _SI], 5),
    "binBps": _scaled(1024, [f" {prefix}B/s" for prefix in _BINARY]),
    "Bps": _scaled(1000, [f" {prefix}B/s" for prefix in _SI], 5),
    "bps": _scaled(1000, [f" {prefix}b/s" for prefix in _SI], 5),
    "hertz": _scaled(1000, [f" {prefix}Hz" for prefix in _SI], 5),
    "rothz": _scaled(1000, [f" {prefix}Hz" for prefix in _SI], 5),
    "watt": _scaled(1000, [f" {prefix}W" for prefix in _SI], 5),
    "joule": _scaled(1000, [f" {prefix}J" for prefix in _SI], 5),
    "volt": _scaled(1000, [f" {prefix}V" for prefix in _SI], 5),
    "celsius": _ends(" °C"),
    "cps": _count("c/s"),
    "ops": _count("ops/s"),
    "reqps": _count("req/s"),
    "rps": _count("rd/s"),
    "wps": _count("wr/s"),
    "iops": _count("io/s"),
    "bool": _yes,
    "bool_yes_no": _yes,
    "dateTimeAsIso": _time,
    "dateTimeAsSystem": _time,
    "dateTimeAsLocal": _time,
}
