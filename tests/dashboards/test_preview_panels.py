"""Panels are drawn from tables as the page wants them; the figures hold exactly what was asked."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import pytest

from otel_straggler.dashboards.preview.chosen import Chosen
from otel_straggler.dashboards.preview.colours import Palette
from otel_straggler.dashboards.preview.drawn import Drawn, Event, Look, local
from otel_straggler.dashboards.preview.frames import CUMULATIVE, Field, Frame, of_series, of_table
from otel_straggler.dashboards.preview.overrides import configure
from otel_straggler.dashboards.preview.panels import KINDS
from otel_straggler.dashboards.preview.panels.timeseries import with_gaps
from otel_straggler.dashboards.preview.prometheus import Series
from otel_straggler.dashboards.preview.ranges import TimeRange

SPAN = TimeRange(1_000.0, 1_060.0, ("now-1m", "now"))
LOOK = Look(
    Palette("dark"), SPAN, {"run_id": Chosen("run_id", ("r",))}, frozenset({"page-of-rank"})
)
STEPS = {
    "mode": "absolute",
    "steps": [{"value": None, "color": "green"}, {"value": 2, "color": "red"}],
}
LINK = {
    "title": "Rank ${__field.labels.rank}",
    "url": "/d/page-of-rank?${__url_time_range}&var-rank=${__field.labels.rank}",
}


def series(
    *held: tuple[str, list[tuple[float, float]]], legend: str = "rank {{rank}}"
) -> list[Frame]:
    made = [
        Series({"rank": rank}, [at for at, _ in points], [value for _, value in points])
        for rank, points in held
    ]
    return of_series("A", made, legend, "up", 15.0)


def drawn(
    kind: str,
    frames: list[Frame],
    options: Mapping[str, Any] | None = None,
    look: Look = LOOK,
    **defaults: Any,
) -> Drawn:
    configure(frames, {"defaults": defaults})
    return KINDS[kind](frames, {"type": kind, "options": options or {}}, look)


def words(html: str) -> list[str]:
    return [text for text in re.split(r"<[^>]*>", html) if text.strip()]


def figure(made: Drawn) -> dict[str, Any]:
    assert made.figure is not None
    return made.figure


def test_lines_break_where_points_are_missing() -> None:
    """More than a step apart, or no number."""
    assert with_gaps([0.0, 15.0, 60.0, 75.0], [1.0, 2.0, 3.0, math.nan], 15.0) == (
        [0.0, 15.0, 30.0, 60.0, 75.0],
        [1.0, 2.0, None, 3.0, None],
    )


def test_a_line_for_each_series() -> None:
    """With its points, its colour by order, its texts with the unit, from zero."""
    made = drawn(
        "timeseries",
        series(("5", [(1_000.0, 0.5), (1_015.0, 1.0)]), ("6", [(1_015.0, 2.0)]), ("7", [])),
        unit="s",
        min=0,
    )
    first, second = figure(made)["data"]
    assert (made.n_series, made.n_points) == (2, 3)
    assert (first["name"], first["y"], first["customdata"]) == (
        "rank 5",
        [0.5, 1.0],
        ["500 ms", "1 s"],
    )
    assert first["x"] == [local(1_000.0), local(1_015.0)]
    assert (first["line"]["color"], second["line"]["color"]) == ("#73BF69", "#FADE2A")
    assert (first["marker"]["size"], second["marker"]["size"]) == ([0, 0], [5])
    assert figure(made)["layout"]["yaxis"]["range"] == [0.0, pytest.approx(2.15)]
    assert figure(made)["layout"]["yaxis"]["ticktext"][:2] == ["0 s", "500 ms"]


def test_a_legend_is_there_if_the_page_shows_it() -> None:
    """With links to pages that are drawn, and the calculations that the page names."""
    frames = series(("5", [(1_000.0, 1.0), (1_015.0, 3.0)]))
    shown = {"legend": {"showLegend": True, "calcs": ["max", "mean"]}}
    made = drawn("timeseries", frames, shown, unit="s", links=[LINK])
    assert words(made.html) == ["rank 5", "max: 3 s", "mean: 2 s"]
    assert 'href="#page-of-rank" title="Rank 5: in Grafana /d/page-of-rank?from=now-1m' in made.html
    assert "legend" not in drawn("timeseries", frames, {"legend": {"showLegend": False}}).html


def test_stacked_lines_and_bars_and_thresholds() -> None:
    """The axis reaches the sum; a dashed line stands at each threshold but the lowest."""
    frames = series(("5", [(1_000.0, 30.0)]), ("6", [(1_000.0, 34.0)]))
    custom = {
        "stacking": {"mode": "normal"},
        "fillOpacity": 30,
        "thresholdsStyle": {"mode": "dashed"},
    }
    made = figure(drawn("timeseries", frames, custom=custom, min=0, thresholds=STEPS))
    assert [trace["stackgroup"] for trace in made["data"]] == ["A", "A"]
    assert made["data"][0]["fillcolor"] == "rgba(115, 191, 105, 0.3)"
    assert made["layout"]["yaxis"]["range"] == [0.0, pytest.approx(70.4)]
    (line,) = made["layout"]["shapes"]
    assert (line["y0"], line["y1"], line["line"]["dash"]) == (2, 2, "dash")
    bars = figure(drawn("timeseries", frames, custom={"drawStyle": "bars"}))
    assert [trace["type"] for trace in bars["data"]] == ["bar", "bar"]


def test_annotations_stand_in_charts_over_time() -> None:
    """A line, a band if they last, and a mark with their text; they are no series."""
    look = Look(
        LOOK.palette, SPAN, {}, frozenset(), (Event(1_010.0, 1_020.0, "Alerts: <b>", "red"),)
    )
    made = drawn("timeseries", series(("5", [(1_000.0, 1.0)])), look=look)
    line, band = figure(made)["layout"]["shapes"]
    assert (line["x0"], band["x1"]) == (local(1_010.0), local(1_020.0))
    assert figure(made)["data"][-1]["customdata"] == ["Alerts: &lt;b&gt;"]
    assert made.n_series == 1


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"text"}))
def test_without_data_nothing_is_drawn(kind: str) -> None:
    """Whatever the panel is: no table, one without rows, one without values."""
    for frames in ([], [Frame("A", [])], [of_table("A", [], is_only=True)], series(("5", []))):
        made = drawn(kind, frames)
        assert (made.n_series, made.n_points, made.figure) == (0, 0, None)


def test_figures_have_names_where_there_are_several() -> None:
    """One alone has none, unless the page wants it; colours by threshold."""
    several = drawn(
        "stat", series(("5", [(1.0, 1.0)]), ("6", [(1.0, 3.0)])), unit="s", thresholds=STEPS
    )
    assert words(several.html) == ["rank 5", "1 s", "rank 6", "3 s"]
    assert re.findall(r"color: (#\w+)", several.html) == ["#73BF69", "#F2495C"]
    alone = series(("5", [(1.0, 1.0), (2.0, 1.5)]))
    assert words(drawn("stat", alone, decimals=2).html) == ["1.50"]
    assert words(drawn("stat", alone, {"textMode": "value_and_name"}).html) == ["rank 5", "1.5"]
    calculated = {"reduceOptions": {"calcs": ["max"]}, "colorMode": "background"}
    filled = drawn("stat", series(("5", [(1.0, 7.0), (2.0, 1.0)])), calculated, thresholds=STEPS)
    assert words(filled.html) == ["7"]
    assert "background: #F2495C; color: #000000" in filled.html


def test_figures_from_every_row_of_a_table() -> None:
    """If the page wants all values, and of a column that it names."""
    table = of_table("A", [Series({"x": name}, [1.0], [2.0]) for name in "ab"], is_only=True)
    made = drawn("stat", [table], {"reduceOptions": {"values": True, "fields": "/^x$/"}})
    assert words(made.html) == ["x", "a", "x", "b"]


def test_bars_fill_their_part_between_least_and_most() -> None:
    """From the page's minimum to the largest value."""
    made = drawn("bargauge", series(("5", [(1.0, 5.0)]), ("6", [(1.0, 10.0)])), min=0, unit="s")
    assert words(made.html) == ["rank 5", "5 s", "rank 6", "10 s"]
    assert re.findall(r"width: ([\d.]+)%", made.html) == ["50.00", "100.00"]
    even = drawn("bargauge", series(("5", [(1.0, 0.0)])), min=0)
    assert re.findall(r"width: ([\d.]+)%", even.html) == ["0.00"]


def test_a_table_has_cells_with_units_colours_and_links() -> None:
    """Sorted as the page says, what is missing lowest."""
    frame = Frame(
        "A",
        [
            Field("rank", "string", ["5", "6", "7"]),
            Field("slowdown", "number", [1.0, 3.0, None]),
        ],
    )
    link = {"title": "Rank ${__data.fields.rank}", "url": "/d/elsewhere?var-rank=1"}
    cell = {"cellOptions": {"type": "color-background"}}
    order = {"sortBy": [{"displayName": "slowdown", "desc": True}]}
    made = drawn("table", [frame], order, unit="short", links=[link], custom=cell, thresholds=STEPS)
    assert words(made.html) == ["rank", "slowdown", "6", "3", "5", "1", "7"]
    assert 'title="Rank 6: in Grafana /d/elsewhere?var-rank=1"' in made.html
    assert "background: #F2495C; color: #000000; text-align: right" in made.html
    assert (made.n_series, made.n_points) == (3, 6)


def test_states_in_a_row_are_one_stretch() -> None:
    """Equal words are merged; a gap ends a stretch, and the last lasts a step."""
    words_of = [{"type": "value", "options": {"0": {"text": "ok"}, "1": {"text": "slow"}}}]
    points = [(1_000.0, 0.0), (1_015.0, 0.0), (1_030.0, 1.0)]
    made = drawn("state-timeline", series(("5", points)), mappings=words_of, thresholds=STEPS)
    (bars,) = figure(made)["data"]
    assert bars["base"] == [local(1_000.0), local(1_030.0)]
    assert bars["x"] == [30_000.0, 15_000.0]
    assert (made.n_series, made.n_points) == (1, 2)
    assert figure(made)["layout"]["yaxis"]["ticktext"] == ["rank 5"]
    apart = drawn("status-history", series(("5", points)), mappings=words_of)
    assert apart.n_points == 3


def test_values_between_two_thresholds_are_one_state() -> None:
    """If the colour goes by thresholds; the words are the two."""
    points = [(1_000.0, 0.5), (1_015.0, 1.5), (1_030.0, 2.0), (1_045.0, 9.0)]
    made = drawn(
        "state-timeline",
        series(("5", points)),
        thresholds=STEPS,
        color={"mode": "thresholds"},
        unit="s",
    )
    (bars,) = figure(made)["data"]
    assert bars["x"] == [30_000.0, 30_000.0]
    assert [text.split("<br>")[1] for text in bars["customdata"]] == ["below 2 s", "from 2 s"]


def test_a_page_of_states_has_so_many_rows() -> None:
    """The others are told."""
    frames = series(*((str(rank), [(1_000.0, 1.0)]) for rank in range(5)))
    made = drawn("state-timeline", frames, {"perPage": 2})
    assert made.n_series == 2
    assert made.notes == ["Rows 3 to 5 are on other pages of 3."]


def test_buckets_are_rows_in_the_order_of_their_bounds() -> None:
    """Those of Prometheus count all below them, and are taken apart."""
    frames = [
        Frame("A", [Field("Time", "time", [1_000.0]), Field("Value", "number", [count], {}, bound)],
              15.0, CUMULATIVE)
        for bound, count in (("+Inf", 9.0), ("10", 7.0), ("2.5", 3.0))
    ]  # fmt: skip
    made = drawn("heatmap", frames, unit="short")
    (trace,) = figure(made)["data"]
    assert trace["z"] == [[3.0], [4.0], [2.0]]
    assert figure(made)["layout"]["yaxis"]["ticktext"] == ["2.5", "10", "+Inf"]


def test_text_is_text() -> None:
    """With variables; markup is not run."""
    made = drawn("text", [], {"content": "# <b>$run_id</b>"})
    assert made.html == '<pre class="text"># &lt;b&gt;r&lt;/b&gt;</pre>'
