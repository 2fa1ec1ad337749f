"""What charts over time have in common: the axis of time, and annotations."""

from __future__ import annotations

from html import escape
from typing import Any, Final

from otel_straggler.dashboards.preview.drawn import Look, local

_HOURS: Final = "%H:%M"
_DAYS: Final = "%m/%d %H:%M"


def time_axis(look: Look) -> dict[str, Any]:
    """The range of the page; what stands at its marks gets finer where one looks closer."""
    formats = [
        {"dtickrange": [None, 60_000], "value": "%H:%M:%S"},
        {"dtickrange": [60_000, 86_400_000], "value": _HOURS if _is_short(look) else _DAYS},
        {"dtickrange": [86_400_000, None], "value": "%m/%d"},
    ]
    span = [local(look.span.from_s), local(look.span.to_s)]
    return {"type": "date", "range": span, "tickformatstops": formats}


def _is_short(look: Look) -> bool:
    return look.span.length_s <= 86_400


def events_of(look: Look) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Lines or bands for all annotations, and the marks below them that tell what they are."""
    shapes = []
    for event in look.events:
        begin, end = local(event.begin_s), local(event.end_s)
        across = {"yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
        line = {"color": event.colour, "width": 1, "dash": "dash"}
        shapes.append({"type": "line", "x0": begin, "x1": begin, "line": line, **across})
        if event.end_s > event.begin_s:
            band = {"fillcolor": event.colour, "opacity": 0.1, "line": {"width": 0}}
            shapes.append({"type": "rect", "x0": begin, "x1": end, **band, **across})
    if not look.events:
        return [], []
    marks = {
        "type": "scatter",
        "mode": "markers",
        "x": [local(event.begin_s) for event in look.events],
        "y": [0] * len(look.events),
        "yaxis": "y2",
        "marker": {
            "color": [event.colour for event in look.events],
            "symbol": "triangle-up",
            "size": 9,
        },
        "customdata": [escape(event.text) for event in look.events],
        "hovertemplate": "%{customdata}<extra></extra>",
        "cliponaxis": False,
        "meta": {"annotations": True},
    }
    return shapes, [marks]
