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

from otel_straggler import semconv
from otel_straggler.client import sender
from otel_straggler.client.heartbeats import (
    LAST_WORD_PART,
    Handshake,
    HeartbeatMaker,
    SectionHistograms,
    is_one_origin,
    say_end,
)
from otel_straggler.client.kernels import KernelExport
from otel_straggler.client.native_recorder import RECORDER
from otel_straggler.client.packing import NativeSpanPacker
from otel_straggler.client.recording import RECORDING
from otel_straggler.client.topology import RankContext, Topology
from otel_straggler.client.worker import Clock, LogOnce, Worker
from otel_straggler.config import ClientSettings
from otel_straggler.native import NATIVE
from otel_straggler.otlp.clients.addresses import address_of
from otel_straggler.otlp.clients.client import Response, client_for
from otel_straggler.otlp.encode_metrics import encode_point_attributes, heartbeat_texts
from otel_straggler.otlp.ids import SpanIds
from otel_straggler.semconv import Outcome

REASONS = (
    sender.RING_FULL,
    sender.INBOX_FULL,
    sender.QUEUE_FULL,
    sender.REJECTED,
    sender.PROCESS_ENDED,
    sender.ENCODE_ERROR,
    *sender.GPU_REASONS,
)
"""In the order of heartbeat.hpp."""
_SLICE_NS = 50_000_000
"""Slice of a wait, between which signal handlers get their turn."""
_LOGS: tuple[Callable[[str, Response], None], ...] = (
    sender.log_recovery,
    sender.log_retry,
    sender.log_rejection,
    lambda url, response: sender.log_loss(url, response.status),
)
"""In the order of ``Note::Kind`` in span_sender.hpp."""


class NativeExport:
    """Sends what is recorded, and heartbeats. Recording begins when it is made."""

    def __init__(
        self,
        settings: ClientSettings,
        topology: Callable[[], Topology],
        other_losses: Callable[[], dict[str, int]],
        span_ids: SpanIds,
    ) -> None:
        RECORDING.hold()
        clock = Clock()
        rank = RankContext(settings, RECORDER, clock, topology)
        self._settings = settings
        self._topology = topology
        self._other_losses = other_losses
        self._packer = NativeSpanPacker(
            settings, rank.resource, RECORDER.session.generation, span_ids
        )
        self._exporter: Any = _exporter(settings, self._packer.encoder)
        self._describing = threading.RLock()  # a signal handler may flush in the middle of a flush
        self._handshake = Handshake(settings)
        self._started_s = clock.monotonic_s()
        self._recorded = 0
        self._metrics_client = client_for(settings.metrics, "metrics")
        self._kernels = KernelExport(rank)
        self._heartbeats = HeartbeatMaker(rank, self._losses, dict)
        self._histograms: SectionHistograms | None = None
        if settings.metrics.is_enabled and not settings.is_trusted:
            self._histograms = SectionHistograms(rank)
            RECORDING.listen(self._histograms.add)
        log_error = LogOnce("telemetry could not be attended to; training goes on")
        self._worker = Worker(self._tick, log_error)

    @property
    def is_scorer(self) -> bool:
        return bool(self._exporter.state()["is_scorer"])

    @property
    def queued_requests(self) -> int:
        return int(self._exporter.state()["queued_requests"]) + self._kernels.queued_requests

    def start(self) -> None:
        self._register_names()
        self._describe()
        RECORDER.on_new_number = self._register_names
        self._exporter.start()
        self._worker.start()

    def flush(self, timeout_s: float, outcome: Outcome | None = None) -> bool:
        """Send everything, within ``timeout_s``; whether it was in time. With an outcome, report
        also that the rank has ended. The wait is cut into slices: signal handlers run meanwhile."""
        deadline_ns = time.monotonic_ns() + int(timeout_s * 1e9)
        until_ns = deadline_ns
        if outcome is not None:
            until_ns -= int(timeout_s * LAST_WORD_PART * 1e9)
        self._register_names()
        self._describe()
        is_last = outcome is not None
        in_python = self._worker.ask(lambda: self._flush_here(deadline_ns / 1e9, is_last))
        number = self._exporter.begin_flush(until_ns, outcome or "")
        while not self._exporter.wait(number, min(until_ns, time.monotonic_ns() + _SLICE_NS)):
            if time.monotonic_ns() >= until_ns:
                if outcome is not None:
                    body = self._heartbeats.heartbeat(outcome)
                    say_end(self._settings, body, deadline_ns / 1e9)
                return False
        left_s = max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9)
        return in_python is None or in_python.wait(left_s)

    def stop(self, timeout_s: float) -> None:
        if RECORDER.on_new_number == self._register_names:
            RECORDER.on_new_number = None
        self._log_notes()
        has_ended = self._worker.stop(timeout_s)
        self._end_histograms()
        self._kernels.close()
        if has_ended:  # else the thread still uses the connections
            self._kernels.disconnect()
            self._metrics_client.close()
        self._exporter.stop(time.monotonic_ns() + int(timeout_s * 1e9))
        RECORDING.release()

    def correct_at_exit(self, outcome: Outcome, timeout_s: float) -> None:
        """After ``stop()``: send another outcome if the process exits with a code other than 0."""
        self._exporter.correct_at_exit(outcome, semconv.EXIT_CODE, int(timeout_s * 1e9))

    def _tick(self, now_s: float) -> float:
        self._register_names()
        self._describe()
        self._log_notes()
        state = self._exporter.state()
        self._handshake.is_scorer = bool(state["is_scorer"])
        recorded, self._recorded = self._recorded, state["recorded"]
        self._handshake.count_spans(self._recorded - recorded, now_s - self._started_s)
        if self._handshake.is_scorer:
            self._end_histograms()
        RECORDING.pull()
        if self._histograms is not None and (body := self._histograms.encoded_if_due(now_s)):
            sender.post_metrics(
                self._metrics_client, self._settings, body, self._settings.heartbeat_s
            )
        self._kernels.send_if_due(now_s)
        return now_s + self._settings.flush_s

    def _losses(self) -> dict[str, int]:
        return {name: count for name, count in self._exporter.state()["dropped"].items() if count}

    def _flush_here(self, deadline_s: float, is_last: bool) -> None:
        """Spans are sent in C++; listeners get what there is, and kernel times are sent."""
        RECORDING.pull()
        self._kernels.flush(deadline_s, is_last=is_last)

    def _end_histograms(self) -> None:
        """A scorer needs none of sections."""
        histograms, self._histograms = self._histograms, None
        if histograms is not None:
            RECORDING.unlisten(histograms.add)

    def _register_names(self) -> None:
        """Pass on to the thread in C++ what numbers in records stand for."""
        for session, resource in self._packer.register(RECORDER).items():
            self._exporter.set_resource(session, resource)

    def _describe(self) -> None:
        """Pass on what else is new. Counted and passed on at once: who counted earlier must not
        have the last word."""
        with self._describing:
            lost = {**self._other_losses(), **self._kernels.losses()}
            losses = {reason.encode(): count for reason, count in lost.items()}
            info = encode_point_attributes(self._topology().info())
            self._exporter.describe(info, losses)

    def _log_notes(self) -> None:
        for kind, status, text in self._exporter.take_notes():
            _LOGS[kind](self._settings.traces.url, Response(status, error=text))


def _exporter(settings: ClientSettings, encoder: Any) -> Any:
    assert NATIVE is not None  # the recorder is native
    traces, metrics = settings.traces, settings.metrics
    return NATIVE.Exporter(
        (*heartbeat_texts(), *(reason.encode() for reason in REASONS)),
        encoder,
        address_of(traces),
        address_of(metrics),
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
