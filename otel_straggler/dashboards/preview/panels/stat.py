"""Large figures: one for each series."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from otel_straggler.dashboards.preview.colours import contrasting
from otel_straggler.dashboards.preview.drawn import Drawn, Look, linked
from otel_straggler.dashboards.preview.frames import Field, Frame, display_name
from otel_straggler.dashboards.preview.reducers import reduce
from otel_straggler.dashboards.preview.shown import Shown, show

_MOST_ROWS: Final = 25
Value = tuple[str, Field, Any]


def draw(frames: Sequence[Frame], panel: Mapping[str, Any], look: Look) -> Drawn:
    options = panel.get("options") or {}
    values = reduced(frames, options.get("reduceOptions") or {})
    if not values:
        return Drawn()
    has_names = options.get("textMode") in {"name", "value_and_name"} or len(values) > 1
    has_names = has_names and options.get("textMode") != "value"
    cells = [_cell(value, options, look, has_name=has_names) for value in values]
    notes = []
    if options.get("graphMode", "area") == "area" and any(len(f) > 1 for f in frames):
        notes.append("The line behind a figure is not drawn here.")
    html = f'<div class="stats">{"".join(cells)}</div>'
    return Drawn(html, None, len(values), len(values), notes)


def reduced(frames: Sequence[Frame], options: Mapping[str, Any]) -> list[Value]:
    """Name, field and value of what a panel of single values shows.

    One for each field and calculation, ``last`` if none is named, or each row where the panel
    wants all values. Fields are numbers, unless the panel names them.
    """
    wanted = str(options.get("fields") or "")
    made: list[Value] = []
    for frame in frames:
        for one in frame.fields:
            name = display_name(one, frames)
            if one.kind != "number" if not wanted else not _is_wanted(wanted, name):
                continue
            if options.get("values"):
                made += [(name, one, value) for value in one.values]
            elif one.values:
                calculations = options.get("calcs") or ["last"]
                made += [(name, one, reduce(one.values, calc)) for calc in calculations]
    return made[: int(options.get("limit") or _MOST_ROWS)] if options.get("values") else made


def _is_wanted(pattern: str, name: str) -> bool:
    """A pattern stands between slashes; anything else is the name of one field."""
    if len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/"):
        return bool(re.search(pattern[1:-1], name))
    return name == pattern


def _cell(value: Value, options: Mapping[str, Any], look: Look, *, has_name: bool) -> str:
    name, one, held = value
    shown: Shown = show(one, held, look.palette)
    title = f'<div class="name">{escape(name)}</div>' if has_name else ""
    style = ""
    if shown.colour and options.get("colorMode", "value").startswith("background"):
        style = f"background: {shown.colour}; color: {contrasting(shown.colour)}"
    elif shown.colour and options.get("colorMode", "value") == "value":
        style = f"color: {shown.colour}"
    text = linked(shown.text, one, look, {})
    return (
        f'<div class="stat" style="{escape(style, quote=True)}">{title}'
        f'<div class="value">{text}</div></div>'
    )
