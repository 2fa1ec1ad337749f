"""A bar for each series."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from otel_straggler.dashboards.preview.drawn import Drawn, Look, linked
from otel_straggler.dashboards.preview.frames import Field, Frame
from otel_straggler.dashboards.preview.panels.stat import reduced
from otel_straggler.dashboards.preview.shown import as_number, show


def draw(frames: Sequence[Frame], panel: Mapping[str, Any], look: Look) -> Drawn:
    options = panel.get("options") or {}
    values = reduced(frames, options.get("reduceOptions") or {})
    if not values:
        return Drawn()
    numbers = [as_number(value) for _, _, value in values]
    finite = [number for number in numbers if math.isfinite(number)] or [0.0]
    rows = []
    for (name, one, value), number in zip(values, numbers, strict=True):
        shown = show(one, value, look.palette)
        style = f"width: {_part(one, number, finite) * 100:.2f}%; background: {shown.colour}"
        rows.append(
            f'<div class="name">{linked(name, one, look, {})}</div>'
            f'<div class="track"><div class="bar" style="{escape(style, quote=True)}"></div></div>'
            f'<div class="value" style="color: {escape(shown.colour, quote=True)}">'
            f"{escape(shown.text)}</div>"
        )
    return Drawn(f'<div class="bars">{"".join(rows)}</div>', None, len(values), len(values))


def _part(one: Field, number: float, all_numbers: Sequence[float]) -> float:
    """How much of its track a bar fills: between what is told, else between all values."""
    told_least, told_most = one.config.get("min"), one.config.get("max")
    least = float(told_least) if told_least is not None else min(all_numbers)
    most = float(told_most) if told_most is not None else max(all_numbers)
    if not math.isfinite(number) or most <= least:
        return 0.0
    return min(1.0, max(0.0, (number - least) / (most - least)))
