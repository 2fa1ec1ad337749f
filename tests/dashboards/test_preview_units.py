"""Numbers are written as Grafana writes them."""

from __future__ import annotations

import json
import math
from datetime import datetime, timezone

import pytest

from otel_straggler.dashboards.preview import axes, units
from otel_straggler.dashboards.preview.reducers import reduce

from .conftest import PAGES


@pytest.mark.parametrize(
    ("value", "unit", "decimals", "text"),
    [
        (0, "short", None, "0"),
        (999, "short", None, "999"),
        (1024, "short", None, "1.02 K"),
        (1_500_000, "short", 2, "1.50 Mil"),
        (-1500, "short", None, "-1.5 K"),
        (1.05, "short", 2, "1.05"),
        (0.4309, "percentunit", 2, "43.09%"),
        (1, "percentunit", None, "100%"),
        (0.101, "percentunit", None, "10.1%"),
        (12.5, "percent", None, "12.5%"),
        (0, "s", None, "0 s"),
        (0.25, "s", None, "250 ms"),
        (0.0000004, "s", None, "400 ns"),
        (0.00042, "s", None, "420 µs"),
        (5.76, "s", None, "5.76 s"),
        (344, "s", 2, "5.73 min"),
        (7200, "s", None, "2 hour"),
        (172_800, "s", None, "2 day"),
        (1_209_600, "s", None, "2 week"),
        (63_113_800, "s", None, "2 year"),
        (20, "ms", None, "20 ms"),
        (2500, "ms", None, "2.5 s"),
        (0, "bytes", None, "0 B"),
        (1536, "bytes", None, "1.5 KiB"),
        (5 * 1024**3, "bytes", 1, "5.0 GiB"),
        (1500, "decbytes", None, "1.5 kB"),
        (0.5, "cps", None, "0.5 c/s"),
        (8400, "cps", None, "8.4K c/s"),
        (700, "watt", None, "700 W"),
        (1_980_000_000, "hertz", None, "1.98 GHz"),
        (61, "celsius", None, "61 °C"),
        (0.25, "volt", None, "250 mV"),
        (12, "suffix:steps", None, "12 steps"),
        (12, "prefix:$", None, "$12"),
        (1500, "si:tok", None, "1.5 ktok"),
        (3, "furlongs", None, "3 furlongs"),
        (3, "none", None, "3"),
        (1, "bool_yes_no", None, "Yes"),
        (math.nan, "s", None, "NaN s"),
        (math.inf, "bytes", None, "∞"),
    ],
)
def test_a_number_with_its_unit(value: float, unit: str, decimals: int | None, text: str) -> None:
    """Scaled, rounded, with what stands behind it."""
    assert units.shown(float(value), unit, decimals) == text


def test_times_are_in_the_zone_of_this_machine() -> None:
    """From milliseconds."""
    at = datetime(2026, 1, 31, 12, 0, tzinfo=timezone.utc)
    expected = at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    assert units.text_of(at.timestamp() * 1e3, "dateTimeAsIso", None) == expected


def test_every_unit_of_the_pages_is_known() -> None:
    """One that is not known would be written behind the number, as it is."""
    used = set()
    for path in PAGES:
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
            config = panel.get("fieldConfig") or {}
            used.add(config.get("defaults", {}).get("unit", ""))
            for override in config.get("overrides", ()):
                used |= {p["value"] for p in override["properties"] if p["id"] == "unit"}
    assert {"s", "short"} < used
    assert used <= units.KNOWN.keys()


@pytest.mark.parametrize(
    ("least", "most", "base", "at"),
    [
        (0, 64, 10, [0, 20, 40, 60]),
        (0, 1.1, 10, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.92, 1.06, 10, [0.95, 1.0, 1.05]),
        (0, 5000, 1024, [0, 1024, 2048, 3072, 4096]),
        (3, 3, 10, [3]),
    ],
)
def test_axes_have_marks_at_round_numbers(
    least: float, most: float, base: float, at: list[float]
) -> None:
    """Bytes by powers of two."""
    assert axes.rounds(float(least), float(most), float(base)) == at


def test_an_axis_reaches_its_numbers() -> None:
    """With room, unless the panel says where it ends; never of no length."""
    assert axes.reach([0.0, 10.0], 0, None) == (0.0, 11.0)
    assert axes.reach([1.0, 2.0], None, 5) == (0.9, 5.0)
    assert axes.reach([], 0, None) == (0.0, 1.0)
    assert axes.reach([math.nan, 2.0], 2, 2) == (2.0, 3.0)


@pytest.mark.parametrize(
    ("calculation", "value"),
    [
        ("last", None),
        ("lastNotNull", 4.0),
        ("first", 1.0),
        ("min", 1.0),
        ("max", 4.0),
        ("mean", 2.5),
        ("median", 2.5),
        ("sum", 5.0),
        ("range", 3.0),
        ("diff", 3.0),
        ("count", 3),
        ("unheard of", None),
    ],
)
def test_one_value_from_many(calculation: str, value: float | None) -> None:
    """Missing values do not count, but for the last one."""
    assert reduce([1.0, 4.0, None], calculation) == value
