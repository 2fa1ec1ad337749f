"""Lines, bars or points over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from otel_straggler.dashboards.preview import axes
from otel_straggler.dashboards.preview.drawn import Drawn, Look, linked, local
from otel_straggler.dashboards.preview.frames import Field, Frame, display_name
from otel_straggler.dashboards.preview.panels.over_time import events_of, time_axis
from otel_straggler.dashboards.preview.reducers import reduce
from otel_straggler.dashboards.preview.shown import show

_GAP_STEPS: Final = 1.5
Line = tuple[Field, list[float], list[float | None], str, str]


def draw(frames: Sequence[Frame], panel: Mapping[str, Any], look: Look) -> Drawn:
    lines = [line for line in _lines(frames, look) if any(v is not None for v in line[2])]
    if not lines:
        return Drawn()
    first = lines[0][0].config
    numbers = _heights(lines)
    least, most = axes.reach(numbers, first.get("min"), first.get("max"))
    traces = [_trace(at, line, look) for at, line in enumerate(lines)]
    unit, decimals = str(first.get("unit") or ""), first.get("decimals")
    layout = {
        "xaxis": time_axis(look),
        "yaxis": {"range": [least, most], "fixedrange": True}
        | axes.marks(least, most, unit, decimals),
        "hovermode": "x unified" if _is_multi(panel) else "closest",
        "barmode": "stack" if _stacking(first) else "group",
        "showlegend": False,
        "shapes": _limits(first, look) + events_of(look)[0],
    }
    traces += events_of(look)[1]
    points = sum(value is not None for line in lines for value in line[2])
    html = f'<div class="chart"></div>{_legend(lines, panel, look)}'
    return Drawn(html, {"data": traces, "layout": layout}, len(lines), points)


def _lines(frames: Sequence[Frame], look: Look) -> list[Line]:
    made: list[Line] = []
    for frame in frames:
        times = frame.times()
        for one in frame.numbers() if times else ():
            assert times is not None
            at_s, values = with_gaps(times.values, one.values, frame.step_s)
            is_hidden = ((one.config.get("custom") or {}).get("hideFrom") or {}).get("viz")
            colour = _colour(one, len(made), look)
            if not is_hidden:
                made.append((one, at_s, values, display_name(one, frames), colour))
    return made


def with_gaps(
    times_s: Sequence[float], values: Sequence[float], step_s: float
) -> tuple[list[float], list[float | None]]:
    """None between points that are more than a step apart, and for NaN: lines break there."""
    at_s: list[float] = []
    kept: list[float | None] = []
    for time_s, value in zip(times_s, values, strict=True):
        if at_s and step_s and time_s - at_s[-1] > step_s * _GAP_STEPS:
            at_s.append(at_s[-1] + step_s)
            kept.append(None)
        at_s.append(time_s)
        kept.append(value if math.isfinite(value) else None)
    return at_s, kept


def _colour(one: Field, at: int, look: Look) -> str:
    told = one.config.get("color") or {}
    if told.get("mode") == "fixed":
        return look.palette.named(str(told.get("fixedColor", "")))
    if told.get("mode") == "thresholds":
        return show(one, reduce(one.values, "lastNotNull"), look.palette).colour
    return look.palette.line(at)


def _trace(at: int, line: Line, look: Look) -> dict[str, Any]:
    one, at_s, values, name, colour = line
    custom = one.config.get("custom") or {}
    texts = ["" if value is None else show(one, value, look.palette).text for value in values]
    stack = _stacking(one.config)
    trace: dict[str, Any] = {
        "type": "bar" if custom.get("drawStyle") == "bars" else "scatter",
        "name": escape(name),
        "x": [local(time_s) for time_s in at_s],
        "y": values,
        "customdata": [escape(text) for text in texts],
        "hovertemplate": f"{_plain(name)}: %{{customdata}}<extra></extra>",
        "marker": {"color": colour},
        "meta": {"series": at},
    }
    if trace["type"] == "bar":
        return trace
    trace["mode"] = "markers" if custom.get("drawStyle") == "points" else "lines+markers"
    trace["marker"] |= {"size": _sizes(values, custom), "opacity": 1, "line": {"width": 0}}
    trace["line"] = {"color": colour, "width": custom.get("lineWidth", 1), "shape": _shape(custom)}
    fill = float(custom.get("fillOpacity", 0)) / 100
    if stack:
        trace["stackgroup"] = str((custom.get("stacking") or {}).get("group") or "A")
        trace["groupnorm"] = "percent" if stack == "percent" else ""
    if stack or fill:
        trace |= {"fill": "tonexty" if stack else "tozeroy", "fillcolor": faint(colour, fill)}
    return trace


def _plain(name: str) -> str:
    """A name that the chart library takes as text: neither markup nor a place for a value."""
    return escape(name).replace("%{", "%&#123;")


def _sizes(values: Sequence[float | None], custom: Mapping[str, Any]) -> list[int]:
    """Points stand alone where a line cannot be seen: no value before it, none after."""
    size = int(custom.get("pointSize", 5))
    shown = custom.get("showPoints") == "always" or custom.get("drawStyle") == "points"
    ends = [None, *values, None]
    return [
        size if shown or (ends[at] is None and ends[at + 2] is None) else 0
        for at in range(len(values))
    ]


def _shape(custom: Mapping[str, Any]) -> str:
    shapes = {"smooth": "spline", "stepBefore": "vh", "stepAfter": "hv"}
    return shapes.get(str(custom.get("lineInterpolation")), "linear")


def _stacking(config: Mapping[str, Any]) -> str:
    mode = ((config.get("custom") or {}).get("stacking") or {}).get("mode", "none")
    return "" if mode == "none" else str(mode)


def _heights(lines: Sequence[Line]) -> list[float]:
    """What the axis must reach: values, or their sums where lines stand on each other."""
    if not _stacking(lines[0][0].config):
        return [value for line in lines for value in line[2] if value is not None]
    sums: dict[float, float] = {}
    for _, at_s, values, _, _ in lines:
        for time_s, value in zip(at_s, values, strict=True):
            sums[time_s] = sums.get(time_s, 0.0) + (value or 0.0)
    return list(sums.values())


def faint(colour: str, opacity: float) -> str:
    """
    >>> faint("#73BF69", 0.3)
    'rgba(115, 191, 105, 0.3)'
    """
    if len(colour) != 7:
        return colour
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity:g})"


def _limits(config: Mapping[str, Any], look: Look) -> list[dict[str, Any]]:
    """A line at each threshold, where the panel wants them seen."""
    mode = ((config.get("custom") or {}).get("thresholdsStyle") or {}).get("mode", "off")
    steps = (config.get("thresholds") or {}).get("steps") or ()
    made = []
    for step in steps if "line" in mode or "dashed" in mode else ():
        if step.get("value") is not None:
            line = {"color": look.palette.named(str(step.get("color"))), "width": 2}
            ends = {"xref": "paper", "x0": 0, "x1": 1, "y0": step["value"], "y1": step["value"]}
            style = {"dash": "dash" if "dashed" in mode else "solid"}
            made.append({"type": "line", **ends, "line": line | style, "layer": "below"})
    return made


def _is_multi(panel: Mapping[str, Any]) -> bool:
    tooltip = (panel.get("options") or {}).get("tooltip") or {}
    return bool(tooltip.get("mode") == "multi")


def _legend(lines: Sequence[Line], panel: Mapping[str, Any], look: Look) -> str:
    told = (panel.get("options") or {}).get("legend") or {}
    if not told.get("showLegend", True) or told.get("displayMode") == "hidden":
        return ""
    entries = []
    for at, (one, _, _, name, colour) in enumerate(lines):
        calcs = told.get("calcs") or ()
        texts = [show(one, reduce(one.values, calc), look.palette).text for calc in calcs]
        sums = [
            f"<small>{escape(calc)}: {escape(text)}</small>"
            for calc, text in zip(calcs, texts, strict=True)
        ]
        mark = f'<i style="background: {escape(colour, quote=True)}"></i>'
        text = linked(name, one, look, {})
        entries.append(f'<li data-series="{at}">{mark}<span>{text}</span>{"".join(sums)}</li>')
    place = "right" if told.get("placement") == "right" else "bottom"
    return f'<ul class="legend {place}">{"".join(entries)}</ul>'
