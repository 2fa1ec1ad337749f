"""Faults that this rank injects into itself, and their spans; see ``otel_straggler.inject``."""

from __future__ import annotations

import os

import numpy as np

from otel_straggler import semconv
from otel_straggler.client.sections import Section
from otel_straggler.client.topology import RankContext
from otel_straggler.client.worker import LogOnce
from otel_straggler.config import ClientSettings
from otel_straggler.inject.effects import Surroundings
from otel_straggler.inject.faults import Place
from otel_straggler.inject.injector import Injection, Injector
from otel_straggler.inject.plan import InjectionPlan
from otel_straggler.inject.slow_sections import restore_sections
from otel_straggler.model.observation import Ints
from otel_straggler.otlp.clients.client import client_for, encoded_body
from otel_straggler.otlp.encode_spans import SpanGroup, encode_request, encode_resource, encode_rows
from otel_straggler.otlp.ids import SpanIds, window_trace_id

_WAIT_S = 2.0
"""For the answer to a span: a rank that kills itself sends it before."""


_LOG_ERROR = LogOnce("a fault was injected, but its span could not be sent")


class FaultInjection:
    """The injector of this rank, wired to its steps and its endpoint."""

    def __init__(self, plan: InjectionPlan, context: RankContext, span_ids: SpanIds) -> None:
        self._context = context
        self._span_ids = span_ids
        settings = context.settings
        place = Place.of(
            settings.rank, settings.world_size, settings.local_rank, settings.attempt, os.environ
        )
        self._injector = Injector(
            Surroundings(place, plan, Section),
            step=lambda: context.recorder.progress().step,
            report=self.report,
        )

    def start(self) -> None:
        self._injector.start()

    def stop(self, timeout_s: float) -> None:
        self._injector.stop(timeout_s)

    def leave_to_parent(self) -> None:
        """In a forked child: the threads are the parent's."""
        restore_sections()

    def report(self, injection: Injection) -> None:
        """Send its span."""
        endpoint = self._context.settings.traces
        if not endpoint.is_enabled:
            return
        try:
            client = client_for(endpoint, "traces")
            body, encoding = encoded_body(endpoint, self._encoded(injection))
            client.post(
                body,
                content_type="application/x-protobuf",
                content_encoding=encoding,
                timeout_s=min(endpoint.timeout_s, _WAIT_S),
            )
            client.close()
        except Exception as error:  # noqa: BLE001  telemetry never stops training
            _LOG_ERROR(error)

    def _encoded(self, injection: Injection) -> bytes:
        settings = self._context.settings
        span_ids = self._span_ids.of(np.array([_number()], np.uint64))
        labels = [(semconv.FAULT_KIND, injection.fault.kind), (semconv.FAULT, str(injection.fault))]
        if injection.reason:
            labels.append((semconv.FAULT_REASON, injection.reason))
        step: dict[str, Ints] = {}
        if injection.step is not None:
            step[semconv.STEP] = np.array([injection.step])
        group = SpanGroup(
            name=semconv.FAULT_SPAN,
            labels=tuple((str(key), text) for key, text in labels),
            numbers=step,
            trace_ids=np.frombuffer(_trace_id(settings, injection), np.uint8).reshape(1, 16),
            span_ids=span_ids,
            parent_ids=None,
            start_ns=np.array([injection.start_ns]),
            end_ns=np.array([injection.end_ns]),
            is_error=bool(injection.reason),
        )
        return encode_request(encode_resource(self._context.resource()), encode_rows(group))


def _trace_id(settings: ClientSettings, injection: Injection) -> bytes:
    return window_trace_id(
        settings.run_id, settings.attempt, settings.group, settings.rank, injection.start_ns
    )


def _number() -> int:
    """Far from those of sections, which count from 1."""
    return int.from_bytes(os.urandom(8), "big") | 1 << 63
