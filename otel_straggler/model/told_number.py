"""A number that a rank tells and the collector shows as it is: of its GPU, or of its run's time."""

from __future__ import annotations

from dataclasses import dataclass

from otel_straggler.model.rank import Source
from otel_straggler.semconv import Metric


@dataclass(frozen=True, slots=True)
class ToldNumber:
    """One data point.

    Attributes:
        source: the rank that told it.
        metric: one of ``semconv.AS_TOLD``.
        values: of the attributes that the metric has there, in that order; empty if not told.
        value: finite, at least 0, in the unit of the metric.
    """

    source: Source
    metric: Metric
    values: tuple[str, ...]
    value: float
