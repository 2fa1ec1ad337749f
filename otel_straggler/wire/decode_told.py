"""Data points that are shown as they are told: of hardware, and of what a run's time went to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otel_straggler import semconv
from otel_straggler.model.rank import Source
from otel_straggler.model.told_number import ToldNumber
from otel_straggler.wire.identity import Value
from otel_straggler.wire.metric_rules import as_text

_BY_NAME: Final = {metric.name: metric for metric in semconv.AS_TOLD}
_LARGEST: Final = 2.0**63
_NAMES: Final = tuple(name.encode() for name in _BY_NAME)
_CUMULATIVE: Final = 2


def may_tell(body: bytes) -> bool:
    """Whether there can be such points in a request. Cost: a dozen searches, each about 1 GB/s."""
    return any(name in body for name in _NAMES)


def is_told(name: str) -> bool:
    """Whether the metric is one of them."""
    return name in _BY_NAME


def told_number(
    metric: Any, number: float | None, found: Mapping[str, Value], source: Source
) -> ToldNumber | None:
    """One data point; None if it makes no sense, or is a change rather than a running total."""
    known = _BY_NAME[metric.name]
    if number is None or not 0.0 <= number <= _LARGEST:
        return None
    if metric.HasField("sum") and metric.sum.aggregation_temporality != _CUMULATIVE:
        return None
    values = tuple(as_text(str(found.get(key, ""))) for key in semconv.AS_TOLD[known])
    return ToldNumber(source, known, values, number)
