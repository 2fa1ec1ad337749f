"""The one thread: drains the recorder, encodes, sends, and says that the rank lives.

The thread is a loop around :meth:`Exporter.tick`, which tests call directly.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from otel_straggler.config import ClientSettings
from otel_straggler.export.drops import ENCODE_ERROR, PROCESS_ENDED, Drops
from otel_straggler.export.sender import PROTOBUF, SpanSender
from otel_straggler.record.batch import NativeBatch
from otel_straggler.record.clock import Clock, SystemClock
from otel_straggler.record.description import Attributes, Topology, resource_attributes
from otel_straggler.record.gpu_numbers import LOOK_S, gpu_numbers_of
from otel_straggler.record.handshake import Handshake
from otel_straggler.record.heartbeats import HeartbeatMaker
from otel_straggler.record.histograms import SectionHistograms
from otel_straggler.record.kernel_export import KernelExport
from otel_straggler.record.packing import packer_for
from otel_straggler.record.recorder import Epoch, Record, Recorder
from otel_straggler.record.waker import Waker
from otel_straggler.semconv import Outcome
from otel_straggler.transport.client import client_for, encoded_body
from otel_straggler.wire.ids import SpanIds

THREAD_NAME = "otel-straggler"
_LOG = logging.getLogger("otel_straggler")


@dataclass(frozen=True, slots=True)
class _Flush:
    """Somebody waits until everything is sent, or the deadline has passed."""

    deadline_s: float
    outcome: Outcome | None
    done: threading.Event = field(default_factory=threading.Event)


class Bystander(Protocol):
    """Gets the records too, and must never make the exporter wait."""

    def put(self, records: Sequence[Record]) -> None: ...

    def begin_flush(self, deadline_s: float) -> None:
        """Somebody waits for all that was put, until ``deadline_s``."""


class Exporter:
    """All that happens off the training thread.

    Args:
        settings: what ``configure()`` decided.
        recorder: what is drained.
        take: gives the records since the last time in batches; the recorder's own if left out.
        topology: what is known of the rank now.
        other_losses: counts from outside, by reason.
        bystander: gets the records too.
        span_ids: by number; its own if left out.
        clock: time.
        rng: numbers in [0, 1) for jitter.
    """

    def __init__(
        self,
        settings: ClientSettings,
        recorder: Recorder,
        *,
        take: Callable[[], Sequence[Sequence[Record]]] | None = None,
        topology: Callable[[], Topology] = Topology,
        other_losses: Callable[[], dict[str, int]] = dict,
        bystander: Bystander | None = None,
        span_ids: SpanIds | None = None,
        clock: Clock | None = None,
        rng: Callable[[], float] | None = None,
    ) -> None:
        self._settings = settings
        self._take = take or (lambda: [recorder.drain()])
        self._topology = topology
        self._bystander = bystander
        self._clock = clock or SystemClock()
        self._drops = Drops()
        self._handshake = Handshake(settings)
        self._histograms = SectionHistograms()
        self._packer = packer_for(recorder, settings, self._resource, span_ids)
        self._gpu = gpu_numbers_of(recorder)
        self._heartbeats = HeartbeatMaker(
            settings,
            recorder,
            self._clock,
            topology,
            lambda: {**other_losses(), **self._own_losses()},
            lambda: self._packer.folded_runs,
        )
        self._kernels: KernelExport | None = None
        if settings.metrics.is_enabled:
            self._kernels = KernelExport(settings, recorder, self._clock, topology, rng=rng)
        self._metrics_client = client_for(settings.metrics, "metrics")
        self._sender = SpanSender(
            settings.traces,
            client_for(settings.traces, "traces"),
            budget_bytes=settings.queue_bytes,
            drops=self._drops,
            monotonic_s=self._clock.monotonic_s,
            on_answer=self._handshake.note_traces,
            rng=rng,
        )
        self._started_s = self._clock.monotonic_s()
        self._next_tick_s = self._started_s
        self._next_heartbeat_s = self._started_s
        self._next_histograms_s = self._started_s + settings.histogram_s
        self._has_said_outcome = False
        self._has_logged_error = False

    @property
    def is_scorer(self) -> bool:
        """Whether the other side gets all spans."""
        return self._handshake.is_scorer

    @property
    def queued_requests(self) -> int:
        kernels = 0 if self._kernels is None else self._kernels.queued_requests
        return self._sender.queued_requests + kernels

    def tick(self, now_s: float) -> float:
        """Do what is due at ``now_s`` (monotonic); the time of the next tick."""
        if self._is_look(now_s):
            self._collect(now_s)
            return min(self._next_tick_s, now_s + LOOK_S)
        self._say_alive(now_s)
        self._collect(now_s)
        self._queue_timed()
        self._say_histograms(now_s)
        self._sender.send(until_s=now_s + self._settings.flush_s)
        if self._kernels is not None:
            self._kernels.send_if_due(now_s)
        is_behind = self._clock.monotonic_s() >= now_s + self._settings.flush_s
        self._next_tick_s = (
            self._clock.monotonic_s() if is_behind else now_s + self._settings.flush_s
        )
        is_timed = self._gpu is not None and self._gpu.is_needed
        return min(self._next_tick_s, now_s + LOOK_S) if is_timed else self._next_tick_s

    def flush(self, deadline_s: float, outcome: Outcome | None) -> None:
        """Send everything before ``deadline_s``; with an outcome, say that the rank has ended, and
        count what could not be sent."""
        self._collect(self._clock.monotonic_s())
        if self._bystander is not None:
            self._bystander.begin_flush(deadline_s)
        if self._gpu is not None:
            self._gpu.wait(deadline_s, lambda: self._collect(self._clock.monotonic_s()))
        self._queue_timed()
        self._sender.send_before(deadline_s)
        if self._kernels is not None:
            self._kernels.flush(deadline_s, is_last=outcome is not None)
        if outcome:
            self._sender.give_up(PROCESS_ENDED)
        if outcome and not self._has_said_outcome:
            self._has_said_outcome = True
            left_s = deadline_s - self._clock.monotonic_s()
            self._post_metrics(self._heartbeats.heartbeat(outcome), max(left_s, 0.05))

    def survive(self, error: Exception) -> None:
        """Telemetry never stops training: log the first error, count all."""
        self._drops.add(ENCODE_ERROR, 1)
        if not self._has_logged_error:
            self._has_logged_error = True
            _LOG.warning("telemetry could not be exported; training goes on", exc_info=error)

    def close(self) -> None:
        """Want no more kernels."""
        if self._kernels is not None:
            self._kernels.close()

    def _own_losses(self) -> dict[str, int]:
        of_kernels = {} if self._kernels is None else self._kernels.losses()
        of_times = {} if self._gpu is None else self._gpu.losses()
        losses = Counter({**self._drops.counts(), **of_kernels, **of_times})
        losses.update(self._packer.losses())
        return losses

    def _resource(self, epoch: Epoch) -> Attributes:
        return resource_attributes(self._settings, epoch.session_id, self._topology())

    def _collect(self, now_s: float) -> None:
        batches = [batch for batch in self._take() if batch]
        self._handshake.note_spans(sum(map(len, batches)), now_s - self._started_s)
        for batch in batches:
            if self._settings.metrics.is_enabled and not self._handshake.is_scorer:
                self._histograms.add(batch)
            if self._settings.traces.is_enabled:
                self._queue_or_wait(batch)
            if self._bystander is not None:
                self._bystander.put(batch)
        if self._gpu is not None and self._gpu.is_needed:
            self._gpu.look()

    def _is_look(self, now_s: float) -> bool:
        """Whether it is only the GPU's numbers that somebody asks for."""
        gpu = self._gpu
        return gpu is not None and gpu.is_needed and not gpu.is_full and now_s < self._next_tick_s

    def _queue_or_wait(self, records: Sequence[Record]) -> None:
        if self._gpu is not None and self._gpu.is_needed:
            assert isinstance(records, NativeBatch)  # a native recorder gives no others
            self._gpu.put(records)
        else:
            self._queue(records)

    def _queue_timed(self) -> None:
        """Queue what waits for the GPU no longer."""
        if self._gpu is not None and (timed := self._gpu.take()):
            self._queue(timed)

    def _queue(self, records: Sequence[Record]) -> None:
        offset_ns = self._clock.wall_ns() - self._clock.perf_ns()
        try:
            for request in self._packer.pack(records, offset_ns, self._handshake.one_in):
                self._sender.put(request.body, request.runs)
        except Exception as error:  # noqa: BLE001  these records are lost, the next are not
            self._drops.add(ENCODE_ERROR, len(records) - 1)
            self.survive(error)

    def _say_alive(self, now_s: float) -> None:
        if now_s < self._next_heartbeat_s or not self._settings.metrics.is_enabled:
            return
        self._next_heartbeat_s = now_s + self._settings.heartbeat_s
        if not self._has_said_outcome:
            self._post_metrics(self._heartbeats.heartbeat(), self._settings.heartbeat_s)

    def _say_histograms(self, now_s: float) -> None:
        if now_s < self._next_histograms_s:
            return
        self._next_histograms_s = now_s + self._settings.histogram_s
        if self._settings.metrics.is_enabled and not self._handshake.is_scorer:
            body = self._heartbeats.histograms(self._histograms)
            self._post_metrics(body, self._settings.heartbeat_s)

    def _post_metrics(self, body: bytes, timeout_s: float) -> None:
        if not self._settings.metrics.is_enabled:
            return
        body, encoding = encoded_body(self._settings.metrics, body)
        response = self._metrics_client.post(
            body, content_type=PROTOBUF, content_encoding=encoding, timeout_s=timeout_s
        )
        self._handshake.note_metrics(response)
        if response.is_success:
            self._sender.note_reachable()


class Ticking(Protocol):
    """What a thread can run; see :class:`Exporter`."""

    def tick(self, now_s: float) -> float: ...

    def flush(self, deadline_s: float, outcome: Outcome | None) -> None: ...

    def survive(self, error: Exception) -> None: ...


class ExporterThread:
    """Runs an :class:`Exporter` until told to stop. A daemon: it never keeps a process alive.

    Args:
        exporter: what to run.
        name: of the thread.
    """

    def __init__(self, exporter: Ticking, name: str = THREAD_NAME) -> None:
        self._exporter = exporter
        self._clock = SystemClock()
        self._flushes: deque[_Flush] = deque()
        self._is_stopping = False
        self._waker = Waker()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def flush(self, timeout_s: float, outcome: Outcome | None = None) -> bool:
        """Wait until everything is sent, for ``timeout_s`` at most; whether it was in time."""
        done = self.begin_flush(self._clock.monotonic_s() + timeout_s, outcome)
        return done is not None and done.wait(timeout_s)

    def begin_flush(
        self, deadline_s: float, outcome: Outcome | None = None
    ) -> threading.Event | None:
        """The same without waiting; None if the thread is gone."""
        if not self._thread.is_alive():
            return None
        flush = _Flush(deadline_s, outcome)
        self._flushes.append(flush)
        self._waker.wake()
        return flush.done

    def stop(self, timeout_s: float) -> None:
        """Let the thread end after what it is doing now; wait ``timeout_s`` for it."""
        self._is_stopping = True
        self._waker.wake()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        if not self._thread.is_alive():
            self._waker.close()

    def _run(self) -> None:
        next_s = self._clock.monotonic_s()
        while not self._is_stopping:
            if self._clock.monotonic_s() >= next_s:
                next_s = self._guarded_tick()
            self._do_flushes()
            self._waker.sleep(self._seconds_of_sleep(next_s))

    def _seconds_of_sleep(self, next_s: float) -> float:
        return 0.0 if self._flushes else next_s - self._clock.monotonic_s()

    def _guarded_tick(self) -> float:
        try:
            return self._exporter.tick(self._clock.monotonic_s())
        except Exception as error:  # noqa: BLE001  the thread outlives every mistake
            self._exporter.survive(error)
            return self._clock.monotonic_s() + 1.0

    def _do_flushes(self) -> None:
        while self._flushes:
            flush = self._flushes.popleft()
            try:
                self._exporter.flush(flush.deadline_s, flush.outcome)
            except Exception as error:  # noqa: BLE001  whoever waits must not wait in vain
                self._exporter.survive(error)
            flush.done.set()
