"""Export in C++: its thread drains, encodes, sends and says that the rank lives, whoever has the
GIL.

Beside it runs a thread in Python for what needs Python and can wait: it tells what is new of the
rank, logs what a person should know, sends times of kernels, and histograms of sections to an
endpoint that is no scorer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from otel_straggler.config import ClientSettings
from otel_straggler.export.drops import (
    ENCODE_ERROR,
    GPU_REASONS,
    INBOX_FULL,
    PROCESS_ENDED,
    QUEUE_FULL,
    REJECTED,
    RING_FULL,
)
from otel_straggler.export.sender import log_given_up, log_kept, log_refused, log_takes_again
from otel_straggler.native import NATIVE
from otel_straggler.record.clock import SystemClock
from otel_straggler.record.description import Attributes, Topology, resource_attributes
from otel_straggler.record.exporter_thread import ExporterThread
from otel_straggler.record.handshake import Handshake, is_one_origin
from otel_straggler.record.histogram_export import HistogramExport
from otel_straggler.record.kernel_export import KernelExport
from otel_straggler.record.native_recorder import RECORDER
from otel_straggler.record.native_spans import NativeSpanPacker
from otel_straggler.record.recorder import Epoch
from otel_straggler.record.recording import RECORDING
from otel_straggler.semconv import Outcome
from otel_straggler.transport.addresses import address_of
from otel_straggler.transport.client import Response
from otel_straggler.wire.encode_metrics import encode_point_attributes, heartbeat_texts
from otel_straggler.wire.ids import SpanIds

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
_LOG = logging.getLogger("otel_straggler")


class NativeExport:
    """Begins to record when it is made; see :class:`otel_straggler.record.exporting.Export`.

    Args:
        settings: what ``configure()`` decided; its endpoints are such as C++ can reach.
        topology: what is known of the rank now.
        other_losses: counts from outside, by reason.
        span_ids: by number.
    """

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
            settings, self._resource, RECORDER.epoch.generation, span_ids
        )
        self._exporter: Any = _exporter(settings, self._packer.encoder)
        self._telling = threading.RLock()  # a signal handler may flush in the middle of a flush
        self._attendant = Attendant(settings, topology, self)
        self._thread = ExporterThread(self._attendant)

    @property
    def is_scorer(self) -> bool:
        return bool(self._exporter.state()["is_scorer"])

    @property
    def queued_requests(self) -> int:
        in_python = self._attendant.queued_requests
        return int(self._exporter.state()["queued_requests"]) + in_python

    @property
    def recorded(self) -> int:
        """Runs that it was given so far."""
        return int(self._exporter.state()["recorded"])

    def start(self) -> None:
        self.tell()
        self._tell_losses()
        RECORDER.on_new_number = self.tell
        self._exporter.start()
        self._thread.start()

    def flush(self, timeout_s: float, outcome: Outcome | None = None) -> bool:
        """The wait is cut into slices, so that signal handlers run meanwhile."""
        deadline_ns = time.monotonic_ns() + int(timeout_s * 1e9)
        self.tell()
        self._tell_losses()
        histograms = self._thread.begin_flush(deadline_ns / 1e9, outcome)
        number = self._exporter.begin_flush(deadline_ns, outcome or "")
        while not self._exporter.wait(number, _next_slice_ns(deadline_ns)):
            if time.monotonic_ns() >= deadline_ns:
                return False
        left_s = max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9)
        return histograms is None or histograms.wait(left_s)

    def stop(self, timeout_s: float) -> None:
        if RECORDER.on_new_number == self.tell:
            RECORDER.on_new_number = None
        self._attendant.log()
        self._thread.stop(timeout_s)
        self._attendant.close()
        self._exporter.stop(time.monotonic_ns() + int(timeout_s * 1e9))
        RECORDING.release()

    def tell(self) -> None:
        """Tell the thread in C++ what numbers in records stand for."""
        for epoch, resource in self._packer.tell(RECORDER).items():
            self._exporter.set_resource(epoch, resource)

    def refresh(self) -> list[tuple[int, int, str]]:
        """Tell it what else is new; what has come up there since the last time."""
        self.tell()
        self._tell_losses()
        notes: list[tuple[int, int, str]] = self._exporter.take_notes()
        return notes

    def _tell_losses(self) -> None:
        """Counted and told at once: who counted earlier must not have the last word."""
        with self._telling:
            told = {**self._other_losses(), **self._attendant.losses()}
            losses = {reason.encode(): count for reason, count in told.items()}
            info = encode_point_attributes(self._topology().attributes())
            self._exporter.describe(info, losses)

    def _resource(self, epoch: Epoch) -> Attributes:
        return resource_attributes(self._settings, epoch.session_id, self._topology())


class Attendant:
    """What a thread in Python does for the exporter in C++.

    Args:
        settings: what ``configure()`` decided.
        topology: what is known of the rank now.
        export: whose attendant it is.
    """

    def __init__(
        self, settings: ClientSettings, topology: Callable[[], Topology], export: NativeExport
    ) -> None:
        self._settings = settings
        self._export = export
        self._clock = SystemClock()
        self._handshake = Handshake(settings)
        self._started_s = self._clock.monotonic_s()
        self._recorded = 0
        self._histograms: HistogramExport | None = None
        if settings.metrics.is_enabled and not settings.is_trusted:
            self._histograms = HistogramExport(settings, RECORDER, self._clock, topology)
            RECORDING.listen(self._histograms.add, begins_anew=False)
        self._kernels: KernelExport | None = None
        if settings.metrics.is_enabled:
            self._kernels = KernelExport(settings, RECORDER, self._clock, topology)
        self._has_logged_error = False

    def tick(self, now_s: float) -> float:
        """Do what is due at ``now_s`` (monotonic); the time of the next tick."""
        self.log()
        recorded = self._export.recorded
        self._handshake.is_scorer = self._export.is_scorer
        self._handshake.note_spans(recorded - self._recorded, now_s - self._started_s)
        self._recorded = recorded
        if self._handshake.is_scorer:
            self._end_histograms()
        RECORDING.pull()
        if self._histograms is not None:
            self._histograms.send_if_due(now_s)
        if self._kernels is not None:
            self._kernels.send_if_due(now_s)
        return now_s + self._settings.flush_s

    def flush(self, deadline_s: float, outcome: Outcome | None) -> None:
        """Spans are sent in C++; who listens gets what there is, and kernel times are sent."""
        RECORDING.pull()
        if self._kernels is not None:
            self._kernels.flush(deadline_s, is_last=outcome is not None)

    def log(self) -> None:
        """Pass on what the thread in C++ has to say."""
        for kind, status, words in self._export.refresh():
            _LOGS[kind](self._settings.traces.url, Response(status, error=words))

    def losses(self) -> dict[str, int]:
        """What was lost here, by reason."""
        return {} if self._kernels is None else self._kernels.losses()

    @property
    def queued_requests(self) -> int:
        return 0 if self._kernels is None else self._kernels.queued_requests

    def close(self) -> None:
        """Listen no longer."""
        self._end_histograms()
        if self._kernels is not None:
            self._kernels.close()

    def _end_histograms(self) -> None:
        """A scorer needs none of sections."""
        histograms, self._histograms = self._histograms, None
        if histograms is not None:
            RECORDING.unlisten(histograms.add)

    def survive(self, error: Exception) -> None:
        """Telemetry never stops training: log the first error."""
        if not self._has_logged_error:
            self._has_logged_error = True
            _LOG.warning("telemetry could not be attended to; training goes on", exc_info=error)


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
