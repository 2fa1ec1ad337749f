"""Asks what the panels of a page ask, and keeps what was asked and what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from otel_straggler.dashboards.preview.chosen import Chosen, filled
from otel_straggler.dashboards.preview.frames import CUMULATIVE, Frame, of_series, of_table
from otel_straggler.dashboards.preview.intervals import Interval, aligned, duration, interval_of
from otel_straggler.dashboards.preview.prometheus import Prometheus, QueryError, Series
from otel_straggler.dashboards.preview.ranges import TimeRange


@dataclass(frozen=True, slots=True)
class Asking:
    """Whom a page asks, about what."""

    server: Prometheus
    span: TimeRange
    chosen: Mapping[str, Chosen]
    scrape_s: float


@dataclass(slots=True)
class Answer:
    """Tables of one panel; ``asked`` are the expressions as sent, with step."""

    frames: list[Frame] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def answer(panel: Mapping[str, Any], asking: Asking, width_px: float) -> Answer:
    """All queries of a panel that are not hidden, one after the other."""
    made = Answer()
    targets = [t for t in panel.get("targets") or () if not t.get("hide") and t.get("expr")]
    tables = [t for t in targets if t.get("format") == "table"]
    for target in targets:
        kind = (target.get("datasource") or panel.get("datasource") or {}).get("type")
        if kind not in {None, "prometheus"}:
            made.errors.append(f"{target['refId']}: asks a data source of type {kind}, not asked")
            continue
        interval = interval_of(dict(panel), target, asking.span, width_px, asking.scrape_s)
        expr = filled(target["expr"], asking.chosen, interval.values(asking.span))
        how = "now" if target.get("instant") else f"every {duration(interval.step_s)}"
        made.asked.append(f"{target['refId']} ({how}): {expr}")
        try:
            series = _ask(asking, target, expr, interval)
        except (QueryError, OSError) as error:
            made.errors.append(f"{target['refId']}: {error}")
            continue
        legend = filled(str(target.get("legendFormat") or ""), asking.chosen, {}, is_query=False)
        if target in tables:
            made.frames.append(of_table(target["refId"], series, is_only=len(tables) == 1))
        else:
            step_s = 0.0 if target.get("instant") else interval.step_s
            made.frames += _over_time(target, series, legend, expr, step_s)
    return made


def _over_time(
    target: Mapping[str, Any], series: list[Series], legend: str, expr: str, step_s: float
) -> list[Frame]:
    is_buckets = target.get("format") == "heatmap"
    if is_buckets and legend in {"", "__auto"}:
        legend = "{{le}}"
    frames = of_series(target["refId"], series, legend, expr, step_s)
    for frame in frames if is_buckets else ():
        frame.name = CUMULATIVE
    return frames


def _ask(asking: Asking, target: Mapping[str, Any], expr: str, interval: Interval) -> list[Series]:
    if target.get("instant"):
        return asking.server.instant(expr, asking.span.to_s)
    begin_s, end_s = aligned(asking.span, interval.step_s)
    return asking.server.over_range(expr, begin_s, end_s, interval.step_s)
