"""What the collector tells of all ranks together, so that nobody has to ask for each of them."""

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

# --- from the collector, of all ranks together -------------------------------------------------
SECTION_WORST = Metric(
    "straggler.section.worst_score",
    "{score}",
    "gauge",
    "the relative score of the 20 ranks that are lowest in the section; not of sections in which "
    "ranks wait, save or evaluate. Never folded",
)
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
"""Label ``ranks_below``: so much of the ranks (0.05: 5 %) is lower; it is not called ``quantile``,
which Prometheus keeps for summaries. The first and the third are always told; each other one stands
for ranks whose series were folded by the budget."""
