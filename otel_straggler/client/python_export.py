"""Export in Python: for what the exporter in C++ cannot do (TLS, gRPC, gzip, a proxy, the SDK's
provider), and where the native part is missing. One thread drains, encodes, sends and beats.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from otel_straggler.client.heartbeats import (
    LAST_WORD_PART,
    Handshake,
    HeartbeatMaker,
    SectionHistograms,
    say_end,
)
from otel_straggler.client.kernels import KernelExport
from otel_straggler.client.native_records import NativeBatch
from otel_straggler.client.packing import GPU_POLL_S, GpuNumbers, packer_for
from otel_straggler.client.recorder import Record
from otel_straggler.client.recording import RECORDER, RECORDING, Inbox
from otel_straggler.client.sender import (
    ENCODE_ERROR,
    INBOX_FULL,
    PROCESS_ENDED,
    Drops,
    SpanSender,
    post_metrics,
)
from otel_straggler.client.topology import RankContext, Topology
from otel_straggler.client.worker import Clock, LogOnce, Worker
from otel_straggler.config import ClientSettings
from otel_straggler.native import NATIVE
from otel_straggler.otlp.clients.client import client_for
from otel_straggler.otlp.ids import SpanIds
from otel_straggler.semconv import Outcome

if TYPE_CHECKING:
    from otel_straggler.client.native_recorder import NativeRecorder
    from otel_straggler.client.sdk_feed import SdkSink


class PythonExport:
    """Sends what is recorded, and heartbeats. Recording begins when it is made."""

    def __init__(
        self,
        settings: ClientSettings,
        topology: Callable[[], Topology],
        other_losses: Callable[[], dict[str, int]],
        span_ids: SpanIds,
        sdk: SdkSink | None,
    ) -> None:
        self._other_losses = other_losses
        self._inbox = Inbox(RECORDING)
        self._exporter = Exporter(
            settings,
            RECORDER,
            drain=self._inbox.drain,
            topology=topology,
            other_losses=self._losses,
            sdk=sdk,
            span_ids=span_ids,
        )
        self._worker = Worker(self._exporter.tick, self._exporter.survive)

    @property
    def is_scorer(self) -> bool:
        return self._exporter.is_scorer

    @property
    def queued_requests(self) -> int:
        return self._exporter.queued_requests

    def start(self) -> None:
        self._worker.start()

    def flush(self, timeout_s: float, outcome: Outcome | None = None) -> bool:
        deadline_s = time.monotonic() + timeout_s
        wait_s = timeout_s if outcome is None else timeout_s * (1.0 - LAST_WORD_PART)
        until_s = time.monotonic() + wait_s
        is_done = self._worker.do(lambda: self._exporter.flush(until_s, outcome), wait_s)
        if not is_done and outcome is not None:
            self._exporter.say_end(outcome, deadline_s)
        return is_done

    def stop(self, timeout_s: float) -> None:
        has_ended = self._worker.stop(timeout_s)
        self._exporter.close(is_idle=has_ended)
        self._inbox.close()

    def correct_at_exit(self, outcome: Outcome, timeout_s: float) -> None:
        """Do nothing: the exit code is known only when Python has ended."""

    def _losses(self) -> dict[str, int]:
        losses = self._other_losses()
        return {**losses, INBOX_FULL: self._inbox.lost} if self._inbox.lost else losses


class Exporter:
    """Drains the recorder, encodes, and sends spans and heartbeats. Tests call :meth:`tick`."""

    def __init__(
        self,
        settings: ClientSettings,
        recorder: NativeRecorder,
        *,
        drain: Callable[[], Sequence[Sequence[Record]]] | None = None,
        topology: Callable[[], Topology] = Topology,
        other_losses: Callable[[], dict[str, int]] = dict,
        sdk: SdkSink | None = None,
        span_ids: SpanIds | None = None,
        clock: Clock | None = None,
        rng: Callable[[], float] | None = None,
    ) -> None:
        self._settings = settings
        self._drain = drain or (lambda: [recorder.drain()])
        self._sdk = sdk
        self._clock = clock or Clock()
        rank = RankContext(settings, recorder, self._clock, topology)
        self._drops = Drops()
        self._handshake = Handshake(settings)
        self._histograms = SectionHistograms(rank)
        self._packer = packer_for(recorder, settings, rank.resource, span_ids)
        self._gpu = None if NATIVE is None else GpuNumbers(RECORDER)
        self._heartbeats = HeartbeatMaker(
            rank, lambda: {**other_losses(), **self._own_losses()}, lambda: self._packer.folded_runs
        )
        self._kernels = KernelExport(rank, rng=rng)
        self._metrics_client = client_for(settings.metrics, "metrics")
        self._sender = SpanSender(
            settings.traces,
            client_for(settings.traces, "traces"),
            budget_bytes=settings.queue_bytes,
            drops=self._drops,
            monotonic_s=self._clock.monotonic_s,
            on_answer=self._handshake.record_traces_response,
            rng=rng,
        )
        self._started_s = self._clock.monotonic_s()
        self._next_tick_s = self._started_s
        self._next_heartbeat_s = self._started_s
        self._has_sent_outcome = False
        self._log_error = LogOnce("telemetry could not be exported; training goes on")

    @property
    def is_scorer(self) -> bool:
        return self._handshake.is_scorer

    @property
    def queued_requests(self) -> int:
        return self._sender.queued_requests + self._kernels.queued_requests

    def tick(self, now_s: float) -> float:
        """Do what is due at ``now_s`` (monotonic); the time of the next tick."""
        if self._is_gpu_poll(now_s):
            self._collect(now_s)
            return min(self._next_tick_s, now_s + GPU_POLL_S)
        self._send_heartbeat(now_s)
        self._collect(now_s)
        self._queue_timed()
        if not self._handshake.is_scorer and (body := self._histograms.encoded_if_due(now_s)):
            self._post_metrics(body, self._settings.heartbeat_s)
        self._sender.send(until_s=now_s + self._settings.flush_s)
        self._kernels.send_if_due(now_s)
        is_behind = self._clock.monotonic_s() >= now_s + self._settings.flush_s
        self._next_tick_s = (
            self._clock.monotonic_s() if is_behind else now_s + self._settings.flush_s
        )
        is_timed = self._gpu is not None and self._gpu.is_needed
        return min(self._next_tick_s, now_s + GPU_POLL_S) if is_timed else self._next_tick_s

    def flush(self, deadline_s: float, outcome: Outcome | None) -> None:
        """Send everything before ``deadline_s``; with an outcome, report that the rank has ended,
        and count what could not be sent."""
        self._collect(self._clock.monotonic_s())
        if self._sdk is not None:
            self._sdk.begin_flush(deadline_s)
        if self._gpu is not None:
            self._gpu.wait(deadline_s, lambda: self._collect(self._clock.monotonic_s()))
        self._queue_timed()
        self._sender.send_before(deadline_s)
        self._kernels.flush(deadline_s, is_last=outcome is not None)
        if outcome:
            self._sender.give_up(PROCESS_ENDED)
        if outcome and not self._has_sent_outcome:
            self._has_sent_outcome = True
            left_s = deadline_s - self._clock.monotonic_s()
            last = self._heartbeats.heartbeat(outcome)
            self._post_metrics(last, max(left_s, 0.05), is_last=True)

    def say_end(self, outcome: Outcome, deadline_s: float) -> None:
        """From another thread than that of the exporter, which still waits for an answer."""
        say_end(self._settings, self._heartbeats.heartbeat(outcome), deadline_s)

    def survive(self, error: Exception) -> None:
        """Telemetry never stops training."""
        self._drops.add(ENCODE_ERROR, 1)
        self._log_error(error)

    def close(self, *, is_idle: bool = True) -> None:
        """Drop the connections, unless the thread still uses them."""
        self._kernels.close()
        if is_idle:
            self._kernels.disconnect()
            self._sender.close()
            self._metrics_client.close()

    def _own_losses(self) -> dict[str, int]:
        of_times = {} if self._gpu is None else self._gpu.losses()
        losses = Counter({**self._drops.counts(), **self._kernels.losses(), **of_times})
        losses.update(self._packer.losses())
        return losses

    def _collect(self, now_s: float) -> None:
        batches = [batch for batch in self._drain() if batch]
        self._handshake.count_spans(sum(map(len, batches)), now_s - self._started_s)
        for batch in batches:
            if self._settings.metrics.is_enabled and not self._handshake.is_scorer:
                self._histograms.add(batch)
            if self._settings.traces.is_enabled:
                if self._gpu is not None and self._gpu.is_needed:
                    assert isinstance(batch, NativeBatch)  # a native recorder gives no others
                    self._gpu.put(batch)
                else:
                    self._queue(batch)
            if self._sdk is not None:
                self._sdk.put(batch)
        if self._gpu is not None and self._gpu.is_needed:
            self._gpu.poll()

    def _is_gpu_poll(self, now_s: float) -> bool:
        """Whether only the GPU's numbers are due."""
        gpu = self._gpu
        return gpu is not None and gpu.is_needed and not gpu.is_full and now_s < self._next_tick_s

    def _queue_timed(self) -> None:
        if self._gpu is not None and (timed := self._gpu.drain()):
            self._queue(timed)

    def _queue(self, records: Sequence[Record]) -> None:
        offset_ns = self._clock.wall_ns() - self._clock.perf_ns()
        try:
            for request in self._packer.pack(records, offset_ns, self._handshake.sample_every):
                self._sender.put(request.body, request.runs)
        except Exception as error:  # noqa: BLE001  these records are lost, the next are not
            self._drops.add(ENCODE_ERROR, len(records) - 1)
            self.survive(error)

    def _send_heartbeat(self, now_s: float) -> None:
        if now_s < self._next_heartbeat_s or not self._settings.metrics.is_enabled:
            return
        self._next_heartbeat_s = now_s + self._settings.heartbeat_s
        if not self._has_sent_outcome:
            self._post_metrics(self._heartbeats.heartbeat(), self._settings.heartbeat_s)

    def _post_metrics(self, body: bytes, timeout_s: float, *, is_last: bool = False) -> None:
        if not self._settings.metrics.is_enabled:
            return
        client, settings = self._metrics_client, self._settings
        response = post_metrics(client, settings, body, timeout_s, is_last=is_last)
        self._handshake.record_metrics_response(response)
        if response.is_success:
            self._sender.mark_reachable()
