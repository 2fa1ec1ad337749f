"""Text and colour of a value by its field: mapping, unit, decimals, thresholds."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from otel_straggler.dashboards.preview import units
from otel_straggler.dashboards.preview.colours import Palette
from otel_straggler.dashboards.preview.frames import Field
from otel_straggler.dashboards.preview.patterns import compiled


@dataclass(frozen=True, slots=True)
class Shown:
    """``colour`` is empty where the field is not coloured by its value."""

    text: str
    colour: str
    number: float


def show(one: Field, value: Any, palette: Palette) -> Shown:
    """What a panel writes for a value.

    Text that reads as a number is one, unless the field's unit is ``string``: Grafana's rule, by
    which rank 1024 of a column with unit ``short`` is 1.02 K.
    """
    config = one.config
    unit = config.get("unit") or ("string" if one.kind == "string" else "")
    number = math.nan if unit == "string" else as_number(value)
    mapped = mapping_of(config.get("mappings") or (), value, number)
    colour = palette.named(str(mapped["color"])) if mapped.get("color") else ""
    colour = colour or _scale(config, number, palette)
    if mapped.get("text") is not None:
        return Shown(str(mapped["text"]), colour, number)
    if one.kind == "time" and not math.isnan(number):
        return Shown(units.text_of(number * 1e3, "dateTimeAsIso", None), colour, number)
    is_number = isinstance(value, int | float) or not math.isnan(number)
    if not is_number or (unit == "string" and not isinstance(value, int | float)):
        empty = config.get("noValue") or ""
        return Shown(str(empty if value in {None, ""} else value), colour, number)
    text = units.shown(float(value), str(unit), config.get("decimals"))
    return Shown(text, colour, number)


def as_number(value: Any) -> float:
    """
    >>> as_number("1024"), as_number("node-1"), as_number("")
    (1024.0, nan, nan)
    """
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float):
        return float(value)
    text = str(value).strip() if value is not None else ""
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text):
        return float(text)
    return math.nan


def mapping_of(mappings: Sequence[Mapping[str, Any]], value: Any, number: float) -> dict[str, Any]:
    """Text and colour that the page gives to a value, range, pattern or special value."""
    for mapping in mappings:
        options = mapping.get("options") or {}
        kind = mapping.get("type")
        if kind == "value":
            found = options.get(_key(value))
        elif kind == "range":
            least, most = options.get("from"), options.get("to")
            is_in = not math.isnan(number) and (least is None or number >= least)
            found = options.get("result") if is_in and (most is None or number <= most) else None
        elif kind == "regex":
            is_like = compiled(str(options.get("pattern", ""))).search(str(value))
            found = options.get("result") if is_like else None
        else:
            found = options.get("result") if _is_special(options.get("match"), value) else None
        if found:
            return dict(found)
    return {}


def _key(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _is_special(match: Any, value: Any) -> bool:
    is_nan = isinstance(value, float) and math.isnan(value)
    return (
        (match == "null" and value is None)
        or (match == "nan" and is_nan)
        or (match == "null+nan" and (value is None or is_nan))
        or (match == "empty" and value == "")
        or (match == "true" and value is True)
        or (match == "false" and value is False)
    )


def _scale(config: Mapping[str, Any], number: float, palette: Palette) -> str:
    """By thresholds, or the one colour that is set; the other ways go by line, not by value."""
    colour = config.get("color") or {}
    mode = colour.get("mode", "thresholds")
    if mode == "fixed":
        return palette.named(str(colour.get("fixedColor", "")))
    if mode != "thresholds":
        return ""
    step = step_of(config, number)
    return palette.named(str(step.get("color", ""))) if step else ""


def step_of(config: Mapping[str, Any], number: float) -> Mapping[str, Any]:
    """The last threshold that the number reaches, the lowest for what is no number."""
    steps = (config.get("thresholds") or {}).get("steps") or ()
    found = steps[0] if steps else {}
    for step in steps:
        if step.get("value") is None or number >= _limit(config, step["value"]):
            found = step
    return dict(found)


def _limit(config: Mapping[str, Any], value: float) -> float:
    if (config.get("thresholds") or {}).get("mode") != "percentage":
        return float(value)
    least, most = float(config.get("min") or 0), float(config.get("max") or 100)
    return least + (most - least) * float(value) / 100
