"""Export in C++: its thread drains, encodes, sends spans and heartbeats, whoever has the GIL.

A second thread, in Python, does what needs Python and can wait: it passes on what is new of the
rank, logs what a person should know, sends times of kernels, and histograms of sections to an
endpoint that is no scorer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from otel_straggler.client.heartbeats import Handshake, SectionHistograms, is_one_origin
from otel_straggler.client.kernels import KernelExport
from otel_straggler.client.native_recorder import RECORDER
from otel_straggler.client.packing import NativeSpanPacker
from otel_straggler.client.recorder import RecordingSession
from otel_straggler.client.recording import RECORDING
from otel_straggler.client.sender import (
    ENCODE_ERROR,
    GPU_REASONS,
    INBOX_FULL,
    PROCESS_ENDED,
    PROTOBUF,
    QUEUE_FULL,
    REJECTED,
    RING_FULL,
    log_given_up,
    log_kept,
    log_refused,
    log_takes_again,
)
from otel_straggler.client.topology import Attributes, Topology, resource_attributes
from otel_straggler.client.worker import LogOnce, SystemClock, Worker
from otel_straggler.config import ClientSettings
from otel_straggler.native import NATIVE
from otel_straggler.otlp.clients.addresses import address_of
from otel_straggler.otlp.clients.client import Response, client_for, encoded_body
from otel_straggler.otlp.encode_metrics import encode_point_attributes, heartbeat_texts
from otel_straggler.otlp.ids import SpanIds
from otel_straggler.semconv import Outcome

REASONS = (
    RING_FULL,
    INBOX_FULL,
    QUEUE_FULL,
    REJECTED,
    PROCESS_ENDED,
    ENCODE_ERROR,
    *GPU_REASONS,
)
"""In the order of heartbeat.hpp."""
_SLICE_S = 0.05
"""How long a wait lasts before signal handlers get their turn."""
_LOGS: tuple[Callable[[str, Response], None], ...] = (
    log_takes_again,
    log_kept,
    log_refused,
    lambda url, response: log_given_up(url, response.status),
)
"""In the order of ``Note::Kind`` in span_sender.hpp."""


class NativeExport:
    """Begins to record when it is made; see :class:`otel_straggler.client.session.Export`."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        topology: Callable[[], Topology],
        other_losses: Callable[[], dict[str, int]],
        span_ids: SpanIds,
    ) -> None:
        RECORDING.hold()
        self._settings = settings
        self._topology = topology
        self._other_losses = other_losses
        self._packer = NativeSpanPacker(
            settings, self._resource, RECORDER.session.generation, span_ids
        )
        self._exporter: Any = _exporter(settings, self._packer.encoder)
        self._describing = threading.RLock()  # a signal handler may flush in the middle of a flush
        self._supervisor = ExportSupervisor(settings, topology)
        self._worker = Worker(
            self._tick, LogOnce("telemetry could not be attended to; training goes on")
        )

    @property
    def is_scorer(self) -> bool:
        return bool(self._exporter.state()["is_scorer"])

    @property
    def queued_requests(self) -> int:
        in_cpp = int(self._exporter.state()["queued_requests"])
        return in_cpp + self._supervisor.kernels.queued_requests

    def start(self) -> None:
        self._register_names()
        self._describe()
        RECORDER.on_new_number = self._register_names
        self._exporter.start()
        self._worker.start()

    def flush(self, timeout_s: float, outcome: Outcome | None = None) -> bool:
        """The wait is cut into slices, so that signal handlers run meanwhile."""
        deadline_ns = time.monotonic_ns() + int(timeout_s * 1e9)
        self._register_names()
        self._describe()
        is_last = outcome is not None
        in_python = self._worker.ask(lambda: self._supervisor.flush(deadline_ns / 1e9, is_last))
        number = self._exporter.begin_flush(deadline_ns, outcome or "")
        while not self._exporter.wait(number, _next_slice_ns(deadline_ns)):
            if time.monotonic_ns() >= deadline_ns:
                return False
        left_s = max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9)
        return in_python is None or in_python.wait(left_s)

    def stop(self, timeout_s: float) -> None:
        if RECORDER.on_new_number == self._register_names:
            RECORDER.on_new_number = None
        self._log_notes()
        has_ended = self._worker.stop(timeout_s)
        self._supervisor.close(is_idle=has_ended)
        self._exporter.stop(time.monotonic_ns() + int(timeout_s * 1e9))
        RECORDING.release()

    def _tick(self, now_s: float) -> float:
        self._register_names()
        self._describe()
        self._log_notes()
        state = self._exporter.state()
        self._supervisor.tick(now_s, state["recorded"], is_scorer=bool(state["is_scorer"]))
        return now_s + self._settings.flush_s

    def _register_names(self) -> None:
        """Pass on to the thread in C++ what numbers in records stand for."""
        for session, resource in self._packer.register(RECORDER).items():
            self._exporter.set_resource(session, resource)

    def _describe(self) -> None:
        """Pass on what else is new. Counted and passed on at once: who counted earlier must not
        have the last word."""
        with self._describing:
            lost = {**self._other_losses(), **self._supervisor.kernels.losses()}
            losses = {reason.encode(): count for reason, count in lost.items()}
            info = encode_point_attributes(self._topology().attributes())
            self._exporter.describe(info, losses)

    def _log_notes(self) -> None:
        for kind, status, text in self._exporter.take_notes():
            _LOGS[kind](self._settings.traces.url, Response(status, error=text))

    def _resource(self, session: RecordingSession) -> Attributes:
        return resource_attributes(self._settings, session.session_id, self._topology())


class ExportSupervisor:
    """What a thread in Python does alongside the exporter in C++.

    Attributes:
        kernels: sends times of kernels.
    """

    def __init__(self, settings: ClientSettings, topology: Callable[[], Topology]) -> None:
        self._settings = settings
        clock = SystemClock()
        self._handshake = Handshake(settings)
        self._started_s = clock.monotonic_s()
        self._recorded = 0
        self._metrics_client = client_for(settings.metrics, "metrics")
        self.kernels = KernelExport(settings, RECORDER, clock, topology)
        self._histograms: SectionHistograms | None = None
        if settings.metrics.is_enabled and not settings.is_trusted:
            self._histograms = SectionHistograms(settings, RECORDER, clock, topology)
            RECORDING.listen(self._histograms.add)

    def tick(self, now_s: float, recorded: int, *, is_scorer: bool) -> None:
        """Do what is due at ``now_s`` (monotonic), with so many executions recorded so far."""
        self._handshake.is_scorer = is_scorer
        self._handshake.count_spans(recorded - self._recorded, now_s - self._started_s)
        self._recorded = recorded
        if is_scorer:
            self._end_histograms()
        RECORDING.pull()
        if self._histograms is not None and (body := self._histograms.encoded_if_due(now_s)):
            body, encoding = encoded_body(self._settings.metrics, body)
            self._metrics_client.post(
                body,
                content_type=PROTOBUF,
                content_encoding=encoding,
                timeout_s=self._settings.heartbeat_s,
            )
        self.kernels.send_if_due(now_s)

    def flush(self, deadline_s: float, is_last: bool) -> None:
        """Spans are sent in C++; who listens gets what there is, and kernel times are sent."""
        RECORDING.pull()
        self.kernels.flush(deadline_s, is_last=is_last)

    def close(self, *, is_idle: bool) -> None:
        """Listen no longer; drop the connections, unless the thread still uses them."""
        self._end_histograms()
        self.kernels.close()
        if is_idle:
            self.kernels.disconnect()
            self._metrics_client.close()

    def _end_histograms(self) -> None:
        """A scorer needs none of sections."""
        histograms, self._histograms = self._histograms, None
        if histograms is not None:
            RECORDING.unlisten(histograms.add)


def _exporter(settings: ClientSettings, encoder: Any) -> Any:
    assert NATIVE is not None  # the recorder is native
    traces, metrics = settings.traces, settings.metrics
    return NATIVE.Exporter(
        (*heartbeat_texts(), *(reason.encode() for reason in REASONS)),
        encoder,
        address_of(traces).as_tuple(),
        address_of(metrics).as_tuple(),
        traces.is_enabled,
        metrics.is_enabled,
        is_one_origin(settings),
        settings.is_trusted,
        int(traces.timeout_s * 1e9),
        int(metrics.timeout_s * 1e9),
        int(settings.flush_s * 1e9),
        int(settings.heartbeat_s * 1e9),
        settings.queue_bytes,
        settings.sample_steps,
    )


def _next_slice_ns(deadline_ns: int) -> int:
    return min(deadline_ns, time.monotonic_ns() + int(_SLICE_S * 1e9))
