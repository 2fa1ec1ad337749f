"""Runs from our own recordings: spans of steps and epochs, and the sensors of their GPUs."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_straggler import semconv
from otel_straggler.errors import InputError
from otel_straggler.model.names import clean_name
from otel_straggler.model.observation import NO_KERNEL, NO_STEP, ObservationBatch, merge_batches
from otel_straggler.model.rank import Source
from otel_straggler.otlp.decode_json import message_from_json
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.otlp.identity import Aliases, Resources
from otel_straggler.recordings.otlp import documents, messages
from otel_straggler.scalability.energy import counter_wh, sampled_wh
from otel_straggler.scalability.gpu_traces import strategy_of
from otel_straggler.scalability.runs import ScalingRun

EPOCH_SECTION = "epoch"
"""A section or phase of this name is one epoch."""
_GAUGES = (semconv.HW_POWER.name, semconv.HW_GPU_UTILIZATION.name)
_TOTALS = (semconv.HW_ENERGY.name, semconv.SAMPLES_TOTAL, semconv.TOKENS_TOTAL)
_MARKS = tuple(name.encode() for name in (*_GAUGES, *_TOTALS))
_UNNAMED_JOB = "unknown_service"


class _Series(NamedTuple):
    """Points of one metric of one device, or of one rank without one."""

    run_id: str
    metric: str
    device: str


class RecordedRuns:
    """Collects files of OTLP and tables of sections; :meth:`runs` are of all of them."""

    def __init__(self) -> None:
        aliases = Aliases()
        self._resources = Resources(aliases)
        self._spans = SpanDecoder(aliases, resources=self._resources)
        self._batches: list[ObservationBatch] = []
        self._points: dict[_Series, list[tuple[float, float]]] = {}
        self._sources: dict[str, dict[Source, None]] = {}
        self.skipped = 0

    def add_rows(self, batch: ObservationBatch) -> None:
        if len(batch):
            self._batches.append(batch)

    def add_json(self, file: io.BufferedReader, name: str) -> None:
        """Requests of traces and metrics, one a line; others are skipped."""
        for document, _ in documents(file, name):
            if b'"resourceSpans"' in document:
                self.add_rows(self._spans.decode_json(document).batch)
            elif any(mark in document for mark in _MARKS):
                self._add_metrics(message_from_json(document, ExportMetricsServiceRequest))

    def add_proto(self, file: io.BufferedReader, name: str) -> None:
        """Requests of traces and metrics, each preceded by its length; others are skipped."""
        if file.peek(1)[:1] == b"\n":
            self._add_message(file.read())
            return
        for message, _ in messages(file, name):
            self._add_message(message)

    def _add_message(self, message: bytes) -> None:
        request = _metrics_request(message)
        if request is not None:
            self._add_metrics(request)
            return
        try:
            self.add_rows(self._spans.decode(message).batch)
        except InputError:  # of logs
            self.skipped += 1

    def _add_metrics(self, request: Any) -> None:
        for of_resource in request.resource_metrics:
            source = self._resources.read(of_resource.resource).identity.source
            if source is None:
                continue
            self._sources.setdefault(source.run_id, {})[source] = None
            for of_scope in of_resource.scope_metrics:
                for metric in of_scope.metrics:
                    self._add_metric(metric, source)

    def _add_metric(self, metric: Any, source: Source) -> None:
        which = metric.WhichOneof("data")
        if which not in ("gauge", "sum") or metric.name not in (*_GAUGES, *_TOTALS):
            return
        for point in getattr(metric, which).data_points:
            value = getattr(point, point.WhichOneof("value") or "as_double")
            device = next((a.value.string_value for a in point.attributes if a.key == "hw.id"), "")
            if math.isfinite(value) and value >= 0.0:
                series = _Series(source.run_id, metric.name, device or f"rank {source.key}")
                self._points.setdefault(series, []).append((point.time_unix_nano / 1e9, value))

    def runs(self) -> Iterator[ScalingRun]:
        """One for each run and group. Cost: O(n log n) in rows."""
        batch = merge_batches(self._batches)
        for source in batch.sources:
            self._sources.setdefault(source.run_id, {})[source] = None
        declared = {
            each.identity.source.run_id: clean_name(str(strategy))
            for each in self._resources.remembered()
            if each.identity.source and (strategy := each.values.get(semconv.STRATEGY))
        }
        for run_id, sources in self._sources.items():
            yield self._run(run_id, list(sources), batch, declared.get(run_id, ""))

    def _run(
        self, run_id: str, sources: list[Source], batch: ObservationBatch, strategy: str
    ) -> ScalingRun:
        size = max(*(s.world_size for s in sources), len({(s.group, s.rank) for s in sources}))
        job = next((s.job for s in sources if not s.job.startswith(_UNNAMED_JOB)), "")
        of_run = np.array([source.run_id == run_id for source in batch.sources], np.bool_)
        rows = batch.take(of_run[batch.source]) if len(batch) else batch
        step_s = _step_s(rows)
        return ScalingRun(
            name=run_id,
            strategy=strategy or strategy_of(job or run_id, size),
            size=size,
            epochs_s=_epochs_s(rows),
            step_s=step_s,
            samples_per_s=self._rate(run_id, semconv.SAMPLES_TOTAL),
            tokens_per_s=_first(self._rate(run_id, semconv.TOKENS_TOTAL), _tokens(rows) / step_s),
            utilization=_mean(self._values(run_id, semconv.HW_GPU_UTILIZATION.name)),
            power_w=_sum(map(_mean, self._each(run_id, semconv.HW_POWER.name).values())),
            energy_wh=self._energy_wh(run_id),
        )

    def _each(self, run_id: str, metric: str) -> dict[str, list[float]]:
        return {
            series.device: [value for _, value in sorted(points)]
            for series, points in self._points.items()
            if (series.run_id, series.metric) == (run_id, metric)
        }

    def _values(self, run_id: str, metric: str) -> list[float]:
        return [value for values in self._each(run_id, metric).values() for value in values]

    def _energy_wh(self, run_id: str) -> float:
        """By the counter of a GPU, else by its power."""
        energy = {d: counter_wh(np.array(v)) for d, v in self._each(run_id, _TOTALS[0]).items()}
        for series, points in self._points.items():
            if (series.run_id, series.metric) != (run_id, semconv.HW_POWER.name):
                continue
            if math.isnan(energy.get(series.device, math.nan)):
                at_s, power_w = np.array(sorted(points)).T
                energy[series.device] = sampled_wh(at_s, power_w)
        return _sum(energy.values())

    def _rate(self, run_id: str, metric: str) -> float:
        """Of a running total, summed over its series."""
        rates = []
        for series, points in self._points.items():
            if (series.run_id, series.metric) == (run_id, metric):
                points.sort()
                took_s, done = points[-1][0] - points[0][0], points[-1][1] - points[0][1]
                rates.append(done / took_s if took_s > 0.0 and done > 0.0 else math.nan)
        return _sum(rates)


def _metrics_request(message: bytes) -> Any:
    """A request of metrics with one of ours; None for anything else. Nothing in a file says which
    signal a message is of, and the name of a metric may be an attribute of a span."""
    if not any(mark in message for mark in _MARKS):
        return None
    try:
        request = ExportMetricsServiceRequest.FromString(message)
    except DecodeError:
        return None
    scopes = (scope for each in request.resource_metrics for scope in each.scope_metrics)
    names = {metric.name for scope in scopes for metric in scope.metrics}
    return request if names.intersection((*_GAUGES, *_TOTALS)) else None


def _first(*values: float) -> float:
    return next((value for value in values if not math.isnan(value)), math.nan)


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def _sum(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) if known else math.nan


def _step_s(rows: ObservationBatch) -> float:
    """Median time from the begin of a step to that of the next, over all ranks; NaN without."""
    at = np.flatnonzero((rows.step != NO_STEP) & (rows.kernel == NO_KERNEL))
    order = at[np.lexsort((rows.start_ns[at], rows.step[at], rows.source[at]))]
    source, step, start = rows.source[order], rows.step[order], rows.start_ns[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (source[1:] != source[:-1]) | (step[1:] != step[:-1])
    source, step, start = source[is_first], step[is_first], start[is_first]
    is_next = (source[1:] == source[:-1]) & (start[1:] > start[:-1])
    if not is_next.any():
        return math.nan
    steps = np.diff(step)[is_next]
    return float(np.median(np.diff(start)[is_next] / steps)) / 1e9


def _epochs_s(rows: ObservationBatch) -> tuple[float, ...]:
    """Of the slowest rank in each."""
    is_epoch = np.array([s.name.split("/")[-1] == EPOCH_SECTION for s in rows.sections], np.bool_)
    if not is_epoch.any():
        return ()
    at: list[int] = np.flatnonzero(is_epoch[rows.section] & (rows.kernel == NO_KERNEL)).tolist()
    slowest: dict[tuple[int, int], float] = {}
    seen: dict[int, int] = {}
    for row in sorted(at, key=lambda row: int(rows.start_ns[row])):
        code = int(rows.source[row])
        number = seen[code] = seen.get(code, -1) + 1
        key = rows.sources[code].attempt, number
        slowest[key] = max(slowest.get(key, 0.0), float(rows.duration_s[row]))
    return tuple(slowest[key] for key in sorted(slowest))


def _tokens(rows: ObservationBatch) -> float:
    """Of all ranks in one step: of the section that has most; NaN if none has any."""
    if rows.tokens is None:
        return math.nan
    known = ~np.isnan(rows.tokens) & (rows.step != NO_STEP)
    if not known.any():
        return math.nan
    of_section = np.bincount(rows.section[known], rows.tokens[known])
    largest = int(of_section.argmax())
    steps = len(np.unique(rows.step[known & (rows.section == largest)]))
    return float(of_section[largest]) / steps
