"""Points of metrics that protobuf's parser has read."""

from __future__ import annotations

import math
from typing import Any

from otel_straggler import semconv
from otel_straggler.model.kernels import KernelTimesBuilder
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat, PassthroughMetric, SectionTimes
from otel_straggler.otlp import metric_rules as rules
from otel_straggler.otlp.identity import Aliases, Resource, Value, read_attributes


class MetricPoints:
    """The points of one request, in the order in which they came."""

    def __init__(self, aliases: Aliases) -> None:
        self._aliases = aliases
        self._process_keys = aliases.process_keys()
        self._points = dict.fromkeys(rules.USES, 0)
        self._heartbeats: list[Heartbeat] = []
        self._section_times: list[SectionTimes] = []
        self._kernel_times = KernelTimesBuilder()
        self._passthrough: list[PassthroughMetric] = []
        self._processes: dict[Source, _Process] = {}

    def read(self, metric: Any, resource: Resource) -> None:
        which = metric.WhichOneof("data")
        if which is None:
            return
        data_points = getattr(metric, which).data_points
        if which not in rules.DATA_OF.get(metric.name, ()):
            self._points[rules.UNKNOWN] += len(data_points)
            return
        for point in data_points:
            attributes = read_attributes(point.attributes)
            named = {key: value for key, value in attributes.items() if key in self._process_keys}
            identity = resource.overridden_by(named) if named else resource.identity
            if identity.source is None:
                use = identity.outcome
            elif metric.name in rules.HEARTBEAT_METRICS:
                process = self._processes.get(identity.source)
                if process is None:
                    process = self._processes[identity.source] = _Process(resource, named)
                use = rules.USED if process.add(metric.name, point, attributes) else rules.UNKNOWN
            else:
                use = self._read_other(metric, which, point, identity.source, attributes)
            self._points[use] += 1

    def _read_other(
        self, metric: Any, which: str, point: Any, source: Source, attributes: dict[str, Value]
    ) -> str:
        """Read a point that stands for itself; its outcome."""
        if metric.name == semconv.SECTION_DURATION.name:
            times = rules.section_times(metric, which, point, source, attributes, self._aliases)
            if times is None:
                return rules.MALFORMED
            self._section_times.append(times)
            return rules.SECTION_TIMES
        if metric.name == semconv.KERNEL_DURATION.name:
            return rules.add_kernel_times(
                metric, point, source, attributes, self._aliases, self._kernel_times
            )
        passed = rules.passthrough_metric(metric, _number(point), attributes, source)
        if passed is None:
            return rules.UNKNOWN
        self._passthrough.append(passed)
        return rules.USED

    def end_resource(self) -> None:
        beats = (process.heartbeat(source) for source, process in self._processes.items())
        self._heartbeats += [beat for beat in beats if beat is not None]
        self._processes.clear()

    def build(self) -> rules.DecodedMetrics:
        return rules.DecodedMetrics(
            heartbeats=tuple(self._heartbeats),
            section_times=tuple(self._section_times),
            kernel_times=self._kernel_times.build() if len(self._kernel_times) else None,
            passthrough=tuple(self._passthrough),
            points=self._points,
        )


class _Process:
    """The points of a heartbeat, of one process in one resource; ``named`` are attributes of the
    points that name the process."""

    def __init__(self, resource: Resource, named: dict[str, Value]) -> None:
        self._resource = resource
        self._named = named
        self._info: dict[str, Value] = {}
        self._numbers: dict[str, float] = {}
        self._texts: dict[str, str] = {}
        self._counts: dict[str, dict[str, int]] = {name: {} for name in rules.COUNTS}

    def add(self, name: str, point: Any, attributes: dict[str, Value]) -> bool:
        if name == semconv.RANK_INFO.name:
            self._info = attributes
            return True
        number = _number(point)
        if number is None or not 0 <= number <= rules.MAX_VALUES[name]:
            return False
        if name in rules.COUNTS:
            (key, limit), counts = rules.COUNTS[name], self._counts[name]
            if len(counts) < limit:
                counts[rules.count_name(attributes.get(key))] = int(number)
        else:
            self._numbers[name] = number
            self._texts |= {
                key: rules.as_text(value)
                for key, value in attributes.items()
                if key in rules.TEXTS and isinstance(value, str)
            }
        return True

    def heartbeat(self, source: Source) -> Heartbeat | None:
        """None if no point made sense."""
        dropped, folded = self._counts.values()
        if not (self._info or self._numbers or dropped or folded):
            return None
        described = self._resource.overridden_by({**self._info, **self._named}).source
        sent_at_s, progress_at_s, step, open_time_s, finished_at_s = map(
            self._numbers.get, rules.NUMBERS
        )
        section, phase, outcome = (self._texts.get(key, "") for key in rules.TEXTS)
        return Heartbeat(
            source=described or source,
            sent_at_s=sent_at_s,
            progress_at_s=progress_at_s,
            step=None if step is None else int(step),
            open_section=section,
            open_time_s=open_time_s,
            phase=phase,
            finished_at_s=finished_at_s,
            outcome=rules.outcome_of(finished_at_s, outcome),
            dropped=dropped,
            folded=folded,
            **rules.describe_rank(self._info, self._resource.values)._asdict(),
        )


def _number(point: Any) -> float | None:
    which = point.WhichOneof("value")
    if which is None:
        return None
    number = getattr(point, which)
    return number if math.isfinite(number) else None
