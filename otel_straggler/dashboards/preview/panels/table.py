"""Rows and columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from otel_straggler.dashboards.preview.colours import contrasting
from otel_straggler.dashboards.preview.drawn import Drawn, Look, linked
from otel_straggler.dashboards.preview.frames import Field, Frame, display_name
from otel_straggler.dashboards.preview.shown import mapping_of, show
from otel_straggler.dashboards.preview.transformations import natural, sorted_by

_MOST_ROWS: Final = 1_000


def draw(frames: Sequence[Frame], panel: Mapping[str, Any], look: Look) -> Drawn:
    """The first table that has rows; Grafana lets the reader choose among several."""
    options = panel.get("options") or {}
    filled = [frame for frame in frames if len(frame)]
    if not filled:
        return Drawn()
    frame = filled[0]
    for order in options.get("sortBy") or ():
        named = next(
            (f for f in frame.fields if display_name(f, frames) == order["displayName"]), None
        )
        if named is not None:
            frame = sorted_by(frame, named.name, natural, is_down=bool(order.get("desc")))
    columns = [f for f in frame.fields if not (f.config.get("custom") or {}).get("hidden")]
    notes = []
    if len(filled) > 1:
        notes.append(f"{len(filled) - 1} more tables: in Grafana there is a list to choose from.")
    if len(frame) > _MOST_ROWS:
        notes.append(f"{len(frame) - _MOST_ROWS} more rows are left out here.")
    head = "".join(
        f'<th style="text-align: {_side(one)}">{escape(display_name(one, frames))}</th>'
        for one in columns
    )
    rows = [_row(at, frame, columns, look) for at in range(min(len(frame), _MOST_ROWS))]
    heading = f"<thead><tr>{head}</tr></thead>" if options.get("showHeader", True) else ""
    html = f'<div class="scroll"><table>{heading}<tbody>{"".join(rows)}</tbody></table></div>'
    return Drawn(html, None, len(frame), len(frame) * len(columns), notes)


def _row(at: int, frame: Frame, columns: Sequence[Field], look: Look) -> str:
    row = {one.name: one.values[at] for one in frame.fields}
    return f"<tr>{''.join(_cell(one, one.values[at], row, look) for one in columns)}</tr>"


def _cell(one: Field, value: Any, row: Mapping[str, Any], look: Look) -> str:
    shown = show(one, value, look.palette)
    custom = one.config.get("custom") or {}
    kind = str((custom.get("cellOptions") or {}).get("type") or "auto")
    is_named = bool(mapping_of(one.config.get("mappings") or (), value, shown.number).get("color"))
    has_value = value is not None and value != "" and (is_named or not math.isnan(shown.number))
    style = ""
    if shown.colour and has_value and kind.startswith("color-background"):
        style = f"background: {shown.colour}; color: {contrasting(shown.colour)}; "
    elif shown.colour and has_value and kind == "color-text":
        style = f"color: {shown.colour}; "
    style = escape(f"{style}text-align: {_side(one)}", quote=True)
    return f'<td style="{style}">{linked(shown.text, one, look, row)}</td>'


def _side(one: Field) -> str:
    told = str((one.config.get("custom") or {}).get("align") or "auto")
    if told in {"left", "center", "right"}:
        return told
    return "right" if one.kind == "number" else "left"
