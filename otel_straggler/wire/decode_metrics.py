"""OTLP metrics requests -> heartbeats. Metrics that are not ours are counted and left alone."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from otel_straggler import semconv
from otel_straggler.errors import InputError
from otel_straggler.model.heartbeat import Heartbeat
from otel_straggler.model.rank import Source
from otel_straggler.semconv import Outcome
from otel_straggler.wire.decode_json import message_from_json
from otel_straggler.wire.identity import Aliases, Resource, Resources, Value, read_attributes

_MAX_S = 2.0**63 / 1e9
_MAX_STEP = 2.0**62
_MAX_REASONS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedMetrics:
    """One metrics request: signs of life, and how many data points were of what use."""

    heartbeats: tuple[Heartbeat, ...]
    points: dict[str, int]


class MetricDecoder:
    """Decodes metrics requests; safe to use from several threads."""

    def __init__(self, aliases: Aliases | None = None) -> None:
        self._resources = Resources(aliases or Aliases())

    def decode(self, body: bytes) -> DecodedMetrics:
        """Decode binary protobuf.

        Raises:
            InputError: the body is not an ``ExportMetricsServiceRequest``.
        """
        request = ExportMetricsServiceRequest()
        try:
            request.ParseFromString(body)
        except DecodeError as error:
            msg = f"body: not an ExportMetricsServiceRequest in protobuf: {error}"
            raise InputError(msg) from error
        return self._decode(request)

    def decode_json(self, body: bytes) -> DecodedMetrics:
        """Decode OTLP-JSON.

        Raises:
            InputError: the body is not an ``ExportMetricsServiceRequest``.
        """
        return self._decode(message_from_json(body, ExportMetricsServiceRequest))

    def _decode(self, request: Any) -> DecodedMetrics:
        heartbeats = []
        points = {"used": 0, "unknown": 0, "no_rank": 0}
        for resource_metrics in request.resource_metrics:
            resource = self._resources.read(resource_metrics.resource)
            metrics = [m for scope in resource_metrics.scope_metrics for m in scope.metrics]
            beat = _heartbeat(resource, metrics, points)
            if beat is not None:
                heartbeats.append(beat)
        return DecodedMetrics(heartbeats=tuple(heartbeats), points=points)


def _heartbeat(
    resource: Resource, metrics: Iterable[Any], points: dict[str, int]
) -> Heartbeat | None:
    source = resource.identity.source
    reading = _Reading()
    used = 0
    for metric in metrics:
        for point in _number_points(metric):
            if source is None:
                points["no_rank"] += 1
            elif reading.take(metric.name, point):
                used += 1
            else:
                points["unknown"] += 1
    points["used"] += used
    if source is None or not used:
        return None
    if reading.info:
        described = resource.overridden_by(reading.info).source
        source = described or source
    return reading.beat(source)


def _number_points(metric: Any) -> Iterable[Any]:
    which = metric.WhichOneof("data")
    if which in ("gauge", "sum"):
        return cast("Iterable[Any]", getattr(metric, which).data_points)
    return ()


class _Reading:
    """Collects the data points of one resource."""

    def __init__(self) -> None:
        self.info: dict[str, Value] = {}
        self._numbers: dict[str, float] = {}
        self._texts: dict[str, str] = {}
        self._dropped: dict[str, int] = {}

    def take(self, name: str, point: Any) -> bool:
        """Take one data point; False if it is not one of ours, or makes no sense."""
        if name == semconv.RANK_INFO.name:
            self.info = read_attributes(point.attributes)
            return True
        number = _number(point)
        if number is None or not 0 <= number <= _LARGEST.get(name, -1.0):
            return False
        if name == semconv.RECORDS_DROPPED.name:
            self._take_dropped(point, int(number))
            return True
        self._numbers[name] = number
        for key, value in read_attributes(point.attributes).items():
            if key in _TEXTS and isinstance(value, str):
                self._texts[key] = value[:256]
        return True

    def _take_dropped(self, point: Any, count: int) -> None:
        reason = read_attributes(point.attributes).get(semconv.REASON)
        if len(self._dropped) < _MAX_REASONS:
            self._dropped[str(reason or "unknown")[:256]] = count

    def beat(self, source: Source) -> Heartbeat:
        numbers = self._numbers
        step = numbers.get(semconv.PROGRESS_STEP.name)
        outcome = self._texts.get(semconv.OUTCOME, "unknown")
        finished_at_s = numbers.get(semconv.RANK_FINISHED.name)
        known: Outcome = outcome if outcome in semconv.OUTCOMES else "unknown"
        return Heartbeat(
            source=source,
            sent_at_s=numbers.get(semconv.HEARTBEAT.name),
            progress_at_s=numbers.get(semconv.PROGRESS.name),
            step=None if step is None else int(step),
            open_section=self._texts.get(semconv.SECTION, ""),
            open_time_s=numbers.get(semconv.SECTION_OPEN.name),
            phase=self._texts.get(semconv.PHASE, ""),
            finished_at_s=finished_at_s,
            outcome=None if finished_at_s is None else known,
            dropped=self._dropped,
        )


_LARGEST = {
    semconv.HEARTBEAT.name: _MAX_S,
    semconv.PROGRESS.name: _MAX_S,
    semconv.PROGRESS_STEP.name: _MAX_STEP,
    semconv.SECTION_OPEN.name: _MAX_S,
    semconv.RANK_FINISHED.name: _MAX_S,
    semconv.RECORDS_DROPPED.name: _MAX_STEP,
}
_TEXTS = frozenset((semconv.SECTION, semconv.PHASE, semconv.OUTCOME))


def _number(point: Any) -> float | None:
    which = point.WhichOneof("value")
    if which is None:
        return None
    number = getattr(point, which)
    return number if math.isfinite(number) else None
