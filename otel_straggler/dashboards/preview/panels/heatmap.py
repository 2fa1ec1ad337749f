"""Colours over time and buckets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any, Final

from otel_straggler.dashboards.preview.drawn import Drawn, Look, local
from otel_straggler.dashboards.preview.frames import CUMULATIVE, Field, Frame, display_name
from otel_straggler.dashboards.preview.panels.over_time import time_axis
from otel_straggler.dashboards.preview.shown import show

_ENDS: Final = {  # lightest to darkest
    "Oranges": ("#FFF5EB", "#FDAE6B", "#7F2704"),
    "Blues": ("#F7FBFF", "#6BAED6", "#08306B"),
    "Greens": ("#F7FCF5", "#74C476", "#00441B"),
    "Greys": ("#FFFFFF", "#969696", "#000000"),
    "Purples": ("#FCFBFD", "#9E9AC8", "#3F007D"),
    "Reds": ("#FFF5F0", "#FB6A4A", "#67000D"),
    "Viridis": ("#440154", "#21918C", "#FDE725"),
    "YlOrRd": ("#FFFFCC", "#FD8D3C", "#800026"),
    "RdYlGn": ("#A50026", "#FFFFBF", "#006837"),
    "RdBu": ("#67001F", "#F7F7F7", "#053061"),
}


def draw(frames: Sequence[Frame], panel: Mapping[str, Any], look: Look) -> Drawn:
    """A row of cells for each series, in the order of its name as a number."""
    rows = [
        (display_name(one, frames), one, dict(zip(times.values, one.values, strict=True)))
        for frame in frames
        if (times := frame.times()) is not None
        for one in frame.numbers()
    ]
    rows = [row for row in rows if row[2]]
    if not rows:
        return Drawn()
    rows.sort(key=lambda row: bound(row[0]))
    if any(frame.name == CUMULATIVE for frame in frames):
        rows = _apart(rows)
    at_s = sorted({time_s for _, _, held in rows for time_s in held})
    cells = [[_finite(held.get(time_s)) for time_s in at_s] for _, _, held in rows]
    texts = [
        ["" if v is None else escape(show(one, v, look.palette).text) for v in row]
        for row, (_, one, _) in zip(cells, rows, strict=True)
    ]
    trace = {
        "type": "heatmap",
        "x": [local(time_s) for time_s in at_s],
        "y": list(range(len(rows))),
        "z": cells,
        "customdata": texts,
        "hovertemplate": "%{x}<br>%{customdata}<extra></extra>",
        **_scale(panel),
    }
    marks = {"tickvals": trace["y"], "ticktext": [escape(name) for name, _, _ in rows]}
    layout = {
        "xaxis": time_axis(look),
        "yaxis": {"fixedrange": True, "showgrid": False, "nticks": 10} | _thinned(marks),
        "hovermode": "closest",
        "showlegend": False,
    }
    n_points = sum(value is not None for row in cells for value in row)
    notes = [] if _scheme(panel) in _ENDS else ["Colours of this scheme differ from Grafana's."]
    figure = {"data": [trace], "layout": layout}
    return Drawn('<div class="chart"></div>', figure, len(rows), n_points, notes)


def bound(name: str) -> tuple[float, str]:
    """
    >>> sorted(["+Inf", "10", "2.5"], key=bound)
    ['2.5', '10', '+Inf']
    """
    try:
        return float(name), name
    except ValueError:
        return math.inf, name


def _apart(rows: list[tuple[str, Field, dict[float, float]]]) -> list[Any]:
    """Each bucket less the one below it."""
    made = [rows[0]]
    for (_, _, below), (name, one, held) in pairwise(rows):
        less = {t: max(0.0, value - below.get(t, 0.0)) for t, value in held.items()}
        made.append((name, one, less))
    return made


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _scheme(panel: Mapping[str, Any]) -> str:
    colour = (panel.get("options") or {}).get("color") or {}
    return str(colour.get("scheme") or "Oranges")


def _scale(panel: Mapping[str, Any]) -> dict[str, Any]:
    colour = (panel.get("options") or {}).get("color") or {}
    scheme = _scheme(panel)
    made: dict[str, Any] = {
        "colorscale": list(zip((0, 0.5, 1), _ENDS.get(scheme, _ENDS["Oranges"]), strict=True)),
        "reversescale": bool(colour.get("reverse")),
        "colorbar": {"thickness": 8, "outlinewidth": 0},
    }
    if colour.get("min") is not None:
        made["zmin"] = colour["min"]
    if colour.get("max") is not None:
        made["zmax"] = colour["max"]
    return made


def _thinned(marks: dict[str, Any], most: int = 12) -> dict[str, Any]:
    every = -(-len(marks["tickvals"]) // most)
    return {name: held[::every] for name, held in marks.items()}
