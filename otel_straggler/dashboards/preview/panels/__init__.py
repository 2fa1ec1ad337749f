"""Kinds of panels, by the names that pages have for them; what is not here is told, not drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from otel_straggler.dashboards.preview.drawn import Drawn, Look
from otel_straggler.dashboards.preview.frames import Frame
from otel_straggler.dashboards.preview.panels import (
    bargauge,
    heatmap,
    stat,
    state_timeline,
    table,
    text,
    timeseries,
)

KINDS: Final[dict[str, Callable[[Sequence[Frame], Mapping[str, Any], Look], Drawn]]] = {
    "bargauge": bargauge.draw,
    "heatmap": heatmap.draw,
    "stat": stat.draw,
    "state-timeline": state_timeline.draw,
    "status-history": state_timeline.draw,
    "table": table.draw,
    "text": text.draw,
    "timeseries": timeseries.draw,
}
