"""What the collector tells of all ranks together where it cannot of each."""

from __future__ import annotations

from typing import Final

from otel_straggler.semconv.names import Metric
from otel_straggler.semconv.scores import (
    GPU_INDIVIDUAL,
    GPU_RELATIVE,
    SECTION_INDIVIDUAL,
    SECTION_MEDIAN,
    SECTION_RELATIVE,
    SECTION_SLOWDOWN,
    WORKER_SLOWDOWN,
)

# --- from the collector, for ranks folded by the series budget ---------------------------------
OVER_RANKS: Final = {
    metric.name: Metric(
        f"{metric.name}.over_ranks", metric.unit, "gauge", f"quantiles over ranks: {metric.meaning}"
    )
    for metric in (
        SECTION_RELATIVE,
        SECTION_INDIVIDUAL,
        SECTION_MEDIAN,
        SECTION_SLOWDOWN,
        GPU_RELATIVE,
        GPU_INDIVIDUAL,
        WORKER_SLOWDOWN,
    )
}
"""What stands for the ranks whose series were folded by the budget; label ``quantile``."""
