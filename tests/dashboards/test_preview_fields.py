"""How a value is shown: overrides, names, mappings, thresholds, and text that reads as a number."""

from __future__ import annotations

import math
from typing import Any

import pytest

from otel_straggler.dashboards.preview.colours import Palette, contrasting
from otel_straggler.dashboards.preview.frames import Field, Frame, display_name, of_series
from otel_straggler.dashboards.preview.overrides import configure
from otel_straggler.dashboards.preview.prometheus import Series
from otel_straggler.dashboards.preview.shown import show

DARK = Palette("dark")
STEPS = {
    "mode": "absolute",
    "steps": [
        {"value": None, "color": "green"},
        {"value": 1.05, "color": "orange"},
        {"value": 1.15, "color": "dark-red"},
    ],
}
GREEN, ORANGE, DARK_RED = "#73BF69", "#FF9830", "#C4162A"


def number(value: float = 1.0, **config: Any) -> Field:
    return Field("Value", "number", [value], config=config)


@pytest.mark.parametrize(
    ("value", "colour"),
    [(0.0, GREEN), (1.0499, GREEN), (1.05, ORANGE), (1.15, DARK_RED), (math.nan, GREEN)],
)
def test_thresholds_begin_at_their_value(value: float, colour: str) -> None:
    """The last one that is reached; no number has the lowest."""
    assert show(number(thresholds=STEPS), value, DARK).colour == colour


def test_thresholds_in_percent_and_a_fixed_colour() -> None:
    """Percent of the way from min to max; other schemes go by line and have no colour here."""
    half = {"mode": "percentage", "steps": [*STEPS["steps"][:1], {"value": 50, "color": "red"}]}
    assert show(number(thresholds=half, min=10, max=20), 15.0, DARK).colour == DARK.named("red")
    assert show(number(thresholds=half, min=10, max=20), 14.0, DARK).colour == GREEN
    fixed = {"mode": "fixed", "fixedColor": "#123456"}
    assert show(number(color=fixed), 1.0, DARK).colour == "#123456"
    assert show(number(color={"mode": "palette-classic"}), 1.0, DARK).colour == ""


@pytest.mark.parametrize(
    ("value", "text", "colour"),
    [
        (0.0, "not flagged", GREEN),
        (1.0, "straggling", DARK.named("red")),
        (7.0, "many", DARK_RED),
        (math.nan, "unknown", GREEN),
        (2.0, "2", DARK_RED),
    ],
)
def test_mappings_give_words_and_colours(value: float, text: str, colour: str) -> None:
    """Of a value, a range, what is no number; the first that fits."""
    mappings = [
        {"type": "value", "options": {"0": {"text": "not flagged"}}},
        {"type": "value", "options": {"1": {"text": "straggling", "color": "red"}}},
        {"type": "range", "options": {"from": 5, "to": None, "result": {"text": "many"}}},
        {"type": "special", "options": {"match": "nan", "result": {"text": "unknown"}}},
    ]
    shown = show(number(mappings=mappings, thresholds=STEPS, unit="none"), value, DARK)
    assert (shown.text, shown.colour) == (text, colour)


def test_a_pattern_is_mapped() -> None:
    options = {"pattern": "/^node-/", "result": {"text": "a node"}}
    text = Field("node", "string", [], config={"mappings": [{"type": "regex", "options": options}]})
    assert show(text, "node-5", DARK).text == "a node"


def test_text_that_reads_as_a_number_is_shown_as_one() -> None:
    """Grafana's rule, which a page avoids with the unit `string`."""
    assert (
        show(Field("rank", "string", [], config={"unit": "short"}), "1024", DARK).text == "1.02 K"
    )
    assert show(Field("rank", "string", [], config={"unit": "string"}), "1024", DARK).text == "1024"
    assert show(Field("rank", "string", []), "0007", DARK).text == "0007"
    assert show(Field("rank", "string", [], config={"unit": "short"}), "n-1", DARK).text == "n-1"
    assert show(Field("rank", "string", [], config={"noValue": "-"}), "", DARK).text == "-"


def test_overrides_change_those_that_they_match() -> None:
    """By name, pattern, kind and query; later ones win; decimals are for numbers alone."""
    frame = Frame(
        "A",
        [Field("node", "string", ["n"]), Field("0", "number", [1.0]), Field("a\\b", "string", [])],
    )
    unknown = configure(
        [frame],
        {
            "defaults": {"unit": "short", "decimals": 2, "custom": {"align": "auto"}},
            "overrides": [
                {"matcher": {"id": "byRegexp", "options": "^(?!.*\\\\).*$"},
                 "properties": [{"id": "custom.cellOptions", "value": {"type": "color-text"}}]},
                {"matcher": {"id": "byName", "options": "node"},
                 "properties": [{"id": "unit", "value": "string"}, {"id": "decimals", "value": 1}]},
                {"matcher": {"id": "byType", "options": "number"},
                 "properties": [{"id": "decimals", "value": 3}]},
                {"matcher": {"id": "byFrameRefID", "options": "B"},
                 "properties": [{"id": "unit", "value": "s"}]},
                {"matcher": {"id": "byValue", "options": {}}, "properties": []},
            ],
        },
    )  # fmt: skip
    node, cell, corner = (one.config for one in frame.fields)
    text = {"align": "auto", "cellOptions": {"type": "color-text"}}
    assert node == {"unit": "string", "custom": text}
    assert cell == {"unit": "short", "decimals": 3, "custom": text}
    assert corner == {"unit": "short", "custom": {"align": "auto"}}
    assert unknown == ["override byValue"]


@pytest.mark.parametrize(
    ("legend", "labels", "names"),
    [
        ("rank {{rank}}", [{"rank": "5"}, {"rank": "6"}], ["rank 5", "rank 6"]),
        ("__auto", [{"state": "ok"}, {"state": "late"}], ["ok", "late"]),
        ("__auto", [{"a": "1", "b": "2"}], ['{a="1", b="2"}']),
        ("__auto", [{}], ["sum(up)"]),
        ("", [{"__name__": "up", "a": "1"}], ['up{a="1"}']),
        ("", [{}], ["sum(up)"]),
        ("{{ node }} {{gone}}", [{"node": "n"}], ["n "]),
    ],
)
def test_series_have_names(legend: str, labels: list[dict[str, str]], names: list[str]) -> None:
    """From the legend; `__auto` is the only label's value, all labels, or the expression."""
    series = [Series(one, [1.0], [1.0]) for one in labels]
    frames = of_series("A", series, legend, "sum(up)", 0.0)
    assert [display_name(frame.fields[1], frames) for frame in frames] == names


def test_a_light_page_has_darker_colours() -> None:
    """And text on a colour is black or white."""
    assert (DARK.named("green"), Palette("light").named("green")) == ("#73BF69", "#56A64B")
    assert DARK.named("#abcdef") == "#abcdef"
    assert [DARK.line(at) for at in (0, 1)] == [DARK.named("green"), DARK.named("yellow")]
    assert DARK.line(26) == DARK.line(0)
    assert (contrasting("#FFFFFF"), contrasting("#000000"), contrasting("red")) == (
        "#000000",
        "#FFFFFF",
        "inherit",
    )
