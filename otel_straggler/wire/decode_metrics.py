"""OTLP metrics requests -> heartbeats and section times. Metrics that are not ours are counted and
left alone. Who sent a point is said on its resource, or on the point."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from otel_straggler import semconv
from otel_straggler.errors import InputError
from otel_straggler.model.heartbeat import Heartbeat
from otel_straggler.model.rank import Source
from otel_straggler.model.section_times import SectionTimes
from otel_straggler.semconv import Outcome
from otel_straggler.wire.decode_histograms import section_times
from otel_straggler.wire.decode_json import message_from_json
from otel_straggler.wire.identity import (
    BAD_RANK,
    NO_RANK,
    Aliases,
    Resource,
    Resources,
    Value,
    read_attributes,
)

_MAX_S = 2.0**63 / 1e9
_MAX_STEP = 2.0**62
_MAX_REASONS = 100
_MAX_FOLDED = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedMetrics:
    """One metrics request: signs of life, section times, and data points by what they were.

    ``used`` points make heartbeats, ``section_times`` histograms of sections, ``unknown`` ones
    are metrics of others (or no numbers), ``no_rank`` ones of ours do not say who sent them.
    """

    heartbeats: tuple[Heartbeat, ...]
    section_times: tuple[SectionTimes, ...] = ()
    points: dict[str, int]

    @property
    def rejected(self) -> dict[str, int]:
        """Malformed points, by reason."""
        return {use: count for use, count in self.points.items() if use in _MALFORMED and count}


class MetricDecoder:
    """Decodes metrics requests; safe to use from several threads."""

    def __init__(self, aliases: Aliases | None = None) -> None:
        self._aliases = aliases or Aliases()
        self._process_keys = self._aliases.process_keys()
        self._resources = Resources(self._aliases)

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
            points=taken.points,
        )

    def _take(self, metric: Any, resource: Resource, taken: _Taken) -> None:
        which = metric.WhichOneof("data")
        if which is None:
            return
        data_points = getattr(metric, which).data_points
        if which not in _DATA_OF.get(metric.name, ()):
            taken.points["unknown"] += len(data_points)
            return
        for point in data_points:
            found = read_attributes(point.attributes)
            told = {key: value for key, value in found.items() if key in self._process_keys}
            identity = resource.overridden_by(told) if told else resource.identity
            if identity.source is None:
                taken.points[identity.fate] += 1
            elif metric.name == semconv.SECTION_DURATION.name:
                taken.take_times(
                    section_times(metric, which, point, identity.source, found, self._aliases)
                )
            else:
                taken.take_number(metric.name, point, found, identity.source, (resource, told))


class _Taken:
    """Collects what a request says, one resource after the other."""

    def __init__(self) -> None:
        self.points = dict.fromkeys(_USES, 0)
        self.heartbeats: list[Heartbeat] = []
        self.section_times: list[SectionTimes] = []
        self._readings: dict[Source, tuple[_Reading, tuple[Resource, dict[str, Value]]]] = {}

    def take_times(self, times: SectionTimes | None) -> None:
        self.points["malformed" if times is None else "section_times"] += 1
        if times is not None:
            self.section_times.append(times)

    def take_number(
        self,
        name: str,
        point: Any,
        found: dict[str, Value],
        source: Source,
        told_by: tuple[Resource, dict[str, Value]],
    ) -> None:
        reading, _ = self._readings.setdefault(source, (_Reading(), told_by))
        self.points["used" if reading.take(name, point, found) else "unknown"] += 1

    def end_resource(self) -> None:
        """Make a heartbeat of every process that spoke."""
        for source, (reading, (resource, told)) in self._readings.items():
            if not reading.is_empty:
                described = resource.overridden_by({**reading.info, **told}).source
                self.heartbeats.append(reading.beat(described or source))
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
        if number is None or not 0 <= number <= _LARGEST.get(name, -1.0):
            return False
        if name == semconv.RECORDS_DROPPED.name:
            _take_count(self._dropped, found.get(semconv.REASON), int(number), _MAX_REASONS)
            return True
        if name == semconv.RECORDS_FOLDED.name:
            _take_count(self._folded, found.get(semconv.SECTION), int(number), _MAX_FOLDED)
            return True
        self._numbers[name] = number
        for key, value in found.items():
            if key in _TEXTS and isinstance(value, str):
                self._texts[key] = value[:256]
        return True

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
            folded=self._folded,
        )


def _take_count(counts: dict[str, int], name: Value, count: int, most: int) -> None:
    if len(counts) < most:
        counts[str(name or "unknown")[:256]] = count


_LARGEST = {
    semconv.HEARTBEAT.name: _MAX_S,
    semconv.PROGRESS.name: _MAX_S,
    semconv.PROGRESS_STEP.name: _MAX_STEP,
    semconv.SECTION_OPEN.name: _MAX_S,
    semconv.RANK_FINISHED.name: _MAX_S,
    semconv.RECORDS_DROPPED.name: _MAX_STEP,
    semconv.RECORDS_FOLDED.name: _MAX_STEP,
}
_DATA_OF = {
    **dict.fromkeys((*_LARGEST, semconv.RANK_INFO.name), ("gauge", "sum")),
    semconv.SECTION_DURATION.name: ("histogram", "exponential_histogram"),
}
_USES = ("used", "section_times", "unknown", NO_RANK, BAD_RANK, "malformed")
_MALFORMED = frozenset({BAD_RANK, "malformed"})
_TEXTS = frozenset((semconv.SECTION, semconv.PHASE, semconv.OUTCOME))


def _number(point: Any) -> float | None:
    which = point.WhichOneof("value")
    if which is None:
        return None
    number = getattr(point, which)
    return number if math.isfinite(number) else None
