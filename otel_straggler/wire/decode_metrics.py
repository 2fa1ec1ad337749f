"""OTLP metrics requests -> heartbeats, times of sections and kernels, numbers shown as told.

Metrics that are not ours are counted and left alone. Who sent a point is said on its resource, or
on the point. The extension module does not take numbers that are shown as told: a request that has
some is read here, point by point, at some 10 µs a point.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from otel_straggler import native, semconv
from otel_straggler.errors import InputError
from otel_straggler.model.kernels import KernelTimesBuilder
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat, PassthroughMetric, SectionTimes
from otel_straggler.wire.decode_json import message_from_json
from otel_straggler.wire.identity import (
    Aliases,
    Resource,
    Resources,
    Value,
    Values,
    read_attributes,
)
from otel_straggler.wire.metric_rules import (
    DATA_OF,
    MALFORMED,
    MAX_FOLDED,
    MAX_REASONS,
    MAX_VALUES,
    SECTION_TIMES,
    TEXTS,
    UNKNOWN,
    USED,
    USES,
    DecodedMetrics,
    add_count,
    add_kernel_times,
    as_text,
    describe_rank,
    heartbeat,
    is_passthrough,
    may_have_passthrough,
    passthrough_metric,
    section_times,
)
from otel_straggler.wire.native_metrics import NativeMetrics


class MetricDecoder:
    """Decodes metrics requests; safe to use from several threads.

    Args:
        aliases: what attributes mean.
        extension: the extension module; None reads in plain Python, with the same result.
    """

    def __init__(
        self, aliases: Aliases | None = None, extension: ModuleType | None = native.NATIVE
    ) -> None:
        self._aliases = aliases or Aliases()
        self._process_keys = self._aliases.process_keys()
        self._resources = Resources(self._aliases)
        self._native: NativeMetrics | None = None
        if extension is not None:
            self._native = NativeMetrics(extension, self._aliases, self._resources)

    def decode(self, body: bytes) -> DecodedMetrics:
        """Decode binary protobuf.

        Raises:
            InputError: the body is not an ``ExportMetricsServiceRequest``.
        """
        try:
            decoded = None if self._native is None else self._native.decode(body)
            if decoded is not None and not (decoded.points[UNKNOWN] and may_have_passthrough(body)):
                return decoded
            return self._decode(ExportMetricsServiceRequest.FromString(body))
        except DecodeError as error:
            msg = f"body: not an ExportMetricsServiceRequest in protobuf: {error}"
            raise InputError(msg) from error

    def decode_json(self, body: bytes) -> DecodedMetrics:
        """Decode OTLP-JSON.

        Raises:
            InputError: the body is not an ``ExportMetricsServiceRequest``.
        """
        return self._decode(message_from_json(body, ExportMetricsServiceRequest))

    def _decode(self, request: Any) -> DecodedMetrics:
        taken = _Taken()
        for resource_metrics in request.resource_metrics:
            resource = self._resources.read(resource_metrics.resource)
            for scope_metrics in resource_metrics.scope_metrics:
                for metric in scope_metrics.metrics:
                    self._take(metric, resource, taken)
            taken.end_resource()
        return DecodedMetrics(
            heartbeats=tuple(taken.heartbeats),
            section_times=tuple(taken.section_times),
            kernel_times=taken.kernel_times.build() if len(taken.kernel_times) else None,
            told=tuple(taken.told),
            points=taken.points,
        )

    def _take(self, metric: Any, resource: Resource, taken: _Taken) -> None:
        which = metric.WhichOneof("data")
        if which is None:
            return
        data_points = getattr(metric, which).data_points
        if which not in DATA_OF.get(metric.name, ()):
            taken.points[UNKNOWN] += len(data_points)
            return
        for point in data_points:
            found = read_attributes(point.attributes)
            told = {key: value for key, value in found.items() if key in self._process_keys}
            identity = resource.overridden_by(told) if told else resource.identity
            if identity.source is None:
                taken.points[identity.outcome] += 1
            elif metric.name == semconv.SECTION_DURATION.name:
                taken.take_times(
                    section_times(metric, which, point, identity.source, found, self._aliases)
                )
            elif metric.name == semconv.KERNEL_DURATION.name:
                use = add_kernel_times(
                    metric, point, identity.source, found, self._aliases, taken.kernel_times
                )
                taken.points[use] += 1
            elif is_passthrough(metric.name):
                taken.take_told(passthrough_metric(metric, _number(point), found, identity.source))
            else:
                taken.take_number(metric.name, point, found, identity.source, (resource, told))


class _Taken:
    """Collects what a request says, one resource after the other."""

    def __init__(self) -> None:
        self.points = dict.fromkeys(USES, 0)
        self.heartbeats: list[Heartbeat] = []
        self.section_times: list[SectionTimes] = []
        self.kernel_times = KernelTimesBuilder()
        self.told: list[PassthroughMetric] = []
        self._readings: dict[Source, tuple[_Reading, tuple[Resource, dict[str, Value]]]] = {}

    def take_times(self, times: SectionTimes | None) -> None:
        self.points[MALFORMED if times is None else SECTION_TIMES] += 1
        if times is not None:
            self.section_times.append(times)

    def take_told(self, told: PassthroughMetric | None) -> None:
        self.points[UNKNOWN if told is None else USED] += 1
        if told is not None:
            self.told.append(told)

    def take_number(
        self,
        name: str,
        point: Any,
        found: dict[str, Value],
        source: Source,
        told_by: tuple[Resource, dict[str, Value]],
    ) -> None:
        reading, _ = self._readings.setdefault(source, (_Reading(), told_by))
        self.points[USED if reading.take(name, point, found) else UNKNOWN] += 1

    def end_resource(self) -> None:
        """Make a heartbeat of every process that spoke."""
        for source, (reading, (resource, told)) in self._readings.items():
            if not reading.is_empty:
                described = resource.overridden_by({**reading.info, **told}).source
                self.heartbeats.append(reading.beat(described or source, resource.values))
        self._readings.clear()


class _Reading:
    """Collects the data points of one resource."""

    def __init__(self) -> None:
        self.info: dict[str, Value] = {}
        self._numbers: dict[str, float] = {}
        self._texts: dict[str, str] = {}
        self._dropped: dict[str, int] = {}
        self._folded: dict[str, int] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.info or self._numbers or self._dropped or self._folded)

    def take(self, name: str, point: Any, found: dict[str, Value]) -> bool:
        """Take one data point and its attributes; False if it makes no sense."""
        if name == semconv.RANK_INFO.name:
            self.info = found
            return True
        number = _number(point)
        if number is None or not 0 <= number <= MAX_VALUES.get(name, -1.0):
            return False
        if name == semconv.RECORDS_DROPPED.name:
            add_count(self._dropped, found.get(semconv.REASON), int(number), MAX_REASONS)
            return True
        if name == semconv.RECORDS_FOLDED.name:
            add_count(self._folded, found.get(semconv.SECTION), int(number), MAX_FOLDED)
            return True
        self._numbers[name] = number
        for key, value in found.items():
            if key in TEXTS and isinstance(value, str):
                self._texts[key] = as_text(value)
        return True

    def beat(self, source: Source, resource: Values) -> Heartbeat:
        numbers = self._numbers
        return heartbeat(
            source,
            (
                numbers.get(semconv.HEARTBEAT.name),
                numbers.get(semconv.PROGRESS.name),
                numbers.get(semconv.PROGRESS_STEP.name),
                numbers.get(semconv.SECTION_OPEN.name),
                numbers.get(semconv.RANK_FINISHED.name),
            ),
            (
                self._texts.get(semconv.SECTION, ""),
                self._texts.get(semconv.PHASE, ""),
                self._texts.get(semconv.OUTCOME, "unknown"),
            ),
            self._dropped,
            self._folded,
            describe_rank(self.info, resource),
        )


def _number(point: Any) -> float | None:
    which = point.WhichOneof("value")
    if which is None:
        return None
    number = getattr(point, which)
    return number if math.isfinite(number) else None
