"""Annotations of a page: what happened when, from series that are above zero."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from otel_straggler.dashboards.preview.chosen import filled
from otel_straggler.dashboards.preview.colours import Palette
from otel_straggler.dashboards.preview.drawn import Event
from otel_straggler.dashboards.preview.frames import legend_of
from otel_straggler.dashboards.preview.intervals import Interval, aligned
from otel_straggler.dashboards.preview.prometheus import QueryError, Series
from otel_straggler.dashboards.preview.queries import Asking
from otel_straggler.dashboards.preview.ranges import seconds

_STEP: Final = "60s"


def events(
    annotations: Sequence[Mapping[str, Any]], asking: Asking, palette: Palette
) -> tuple[list[Event], list[str]]:
    """All of the range, and what could not be found out."""
    made: list[Event] = []
    problems = []
    for told in annotations:
        if not told.get("enable", True) or not told.get("expr"):
            continue
        step_s = seconds(str(told.get("step") or _STEP))
        step_s = max(step_s, asking.span.length_s / 11_000)
        built_in = Interval(step_s, 4 * asking.scrape_s).values(asking.span)
        expr = filled(told["expr"], asking.chosen, built_in)
        try:
            series = asking.server.over_range(expr, *aligned(asking.span, step_s), step_s)
        except (QueryError, OSError) as error:
            problems.append(f"annotation {told.get('name')}: {error}")
            continue
        colour = palette.named(str(told.get("iconColor") or "blue"))
        for one in series:
            made += _of_series(one, told, step_s, colour)
    inside = [e for e in made if asking.span.from_s <= e.begin_s <= asking.span.to_s]
    return sorted(inside, key=lambda event: event.begin_s), problems


def _of_series(one: Series, told: Mapping[str, Any], step_s: float, colour: str) -> list[Event]:
    """Points that are not more than a step apart are one event."""
    if told.get("useValueForTime"):
        at_s = [math.floor(value) / 1e3 for value in one.values if math.isfinite(value)]
    else:
        at_s = [at for at, value in zip(one.times_s, one.values, strict=True) if value > 0]
    text = f"{told.get('name')}: {legend_of(str(told.get('titleFormat') or ''), one.labels, '')}"
    made: list[Event] = []
    for begin_s in at_s:
        if made and made[-1].end_s + step_s >= begin_s:
            made[-1] = Event(made[-1].begin_s, begin_s, text, colour)
        else:
            made.append(Event(begin_s, begin_s, text, colour))
    return made
