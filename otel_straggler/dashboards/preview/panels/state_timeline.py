"""A row for each series, coloured by what it was when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from otel_straggler.dashboards.preview import units
from otel_straggler.dashboards.preview.drawn import Drawn, Look, local
from otel_straggler.dashboards.preview.frames import Field, Frame, display_name
from otel_straggler.dashboards.preview.panels.over_time import events_of, time_axis
from otel_straggler.dashboards.preview.panels.timeseries import with_gaps
from otel_straggler.dashboards.preview.shown import show, step_of

_LONGEST_NAME: Final = 40


@dataclass(slots=True)
class Stretch:
    """A state of a row, from and to in seconds since the epoch."""

    begin_s: float
    end_s: float
    text: str
    colour: str


def draw(frames: Sequence[Frame], panel: Mapping[str, Any], look: Look) -> Drawn:
    options = panel.get("options") or {}
    is_merged = bool(options.get("mergeValues", True)) and panel["type"] == "state-timeline"
    found = [
        (display_name(one, frames), stretches(one, frame, look, is_merged=is_merged))
        for frame in frames
        for one in frame.numbers()
    ]
    rows = [(name, held) for name, held in found if held]
    if not rows:
        return Drawn()
    notes = []
    per_page = int(options.get("perPage") or len(rows))
    if len(rows) > per_page:
        pages = -(-len(rows) // per_page)
        notes.append(f"Rows {per_page + 1} to {len(rows)} are on other pages of {pages}.")
        rows = rows[:per_page]
    figure = {"data": [_bars(rows, options), *events_of(look)[1]], "layout": _layout(rows, look)}
    n_points = sum(len(held) for _, held in rows)
    return Drawn('<div class="chart"></div>', figure, len(rows), n_points, notes)


def stretches(one: Field, frame: Frame, look: Look, *, is_merged: bool) -> list[Stretch]:
    """What lasts to the next value, or one step; equal texts in a row are one, if merged."""
    times = frame.times()
    if times is None or not one.values:
        return []
    at_s, values = with_gaps(times.values, one.values, frame.step_s)
    ends_s = [*at_s[1:], min(at_s[-1] + frame.step_s, look.span.to_s)]
    made: list[Stretch] = []
    for begin_s, end_s, value in zip(at_s, ends_s, values, strict=True):
        if value is None:
            continue
        shown = show(one, value, look.palette)
        text = _span_of(one, value) if is_merged and _goes_by_steps(one) else shown.text
        last = made[-1] if made else None
        if (
            is_merged
            and last
            and (last.end_s, last.text, last.colour)
            == (
                begin_s,
                text,
                shown.colour,
            )
        ):
            last.end_s = end_s
        else:
            made.append(Stretch(begin_s, end_s, text, shown.colour))
    return [one for one in made if one.end_s > one.begin_s]


def _goes_by_steps(one: Field) -> bool:
    """Whether all values between two thresholds are one state, as Grafana merges them."""
    is_by_steps = (one.config.get("color") or {}).get("mode") == "thresholds"
    return is_by_steps and not one.config.get("mappings")


def _span_of(one: Field, value: float) -> str:
    """The thresholds that a value lies between, in words."""
    steps = (one.config.get("thresholds") or {}).get("steps") or ()
    told, unit = step_of(one.config, value), str(one.config.get("unit") or "")
    after = next((s for s in steps if _is_above(s.get("value"), told.get("value"))), None)
    words = []
    if told.get("value") is not None:
        words.append(f"from {units.shown(float(told['value']), unit, None)}")
    if after:
        words.append(f"below {units.shown(float(after['value']), unit, None)}")
    return " ".join(words)


def _is_above(value: float | None, told: float | None) -> bool:
    return value is not None and (told is None or value > told)


def _bars(rows: Sequence[tuple[str, list[Stretch]]], options: Mapping[str, Any]) -> dict[str, Any]:
    flat = [(at, name, one) for at, (name, held) in enumerate(rows) for one in held]
    texts = [f"{escape(name)}<br>{escape(one.text)}<br>{_when(one)}" for _, name, one in flat]
    return {
        "type": "bar",
        "orientation": "h",
        "y": [at for at, _, _ in flat],
        "base": [local(one.begin_s) for _, _, one in flat],
        "x": [(one.end_s - one.begin_s) * 1e3 for _, _, one in flat],
        "width": float(options.get("rowHeight", 0.9)),
        "marker": {"color": [one.colour or "#808080" for _, _, one in flat], "line": {"width": 0}},
        "customdata": texts,
        "hovertemplate": "%{customdata}<extra></extra>",
        "text": [escape(o.text) if options.get("showValue") != "never" else "" for _, _, o in flat],
        "textposition": "inside",
        "insidetextanchor": "start",
    }


def _when(one: Stretch) -> str:
    return f"{local(one.begin_s)[:19]} to {local(one.end_s)[11:19]}"


def _layout(rows: Sequence[tuple[str, list[Stretch]]], look: Look) -> dict[str, Any]:
    names = [name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…" for name, _ in rows]
    marks = {"tickvals": list(range(len(rows))), "ticktext": [escape(name) for name in names]}
    return {
        "xaxis": time_axis(look),
        "yaxis": {"range": [len(rows) - 0.5, -0.5], "fixedrange": True, "showgrid": False} | marks,
        "barmode": "overlay",
        "hovermode": "closest",
        "showlegend": False,
        "shapes": events_of(look)[0],
    }
