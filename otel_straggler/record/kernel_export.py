"""Kernel histograms on their way to an endpoint: a delta every few seconds of the wall clock, so
that all ranks tell of the same seconds.

A request is sent as it is until it is answered: a receiver that has it already knows it by its
interval, so nothing counts twice. What finds no room in the queue, or is refused, is counted.
"""

from __future__ import annotations

from collections.abc import Callable

from otel_straggler.config import ClientSettings
from otel_straggler.export.drops import KERNELS_LOST, PROCESS_ENDED, Drops
from otel_straggler.export.sender import SpanSender
from otel_straggler.model.kernels import longest_kernels
from otel_straggler.record.clock import Clock
from otel_straggler.record.description import Topology, resource_attributes
from otel_straggler.record.kernel_feed import KERNELS, KernelFeed
from otel_straggler.record.recorder import Recorder
from otel_straggler.transport.client import client_for
from otel_straggler.wire.encode_metrics import encode_kernel_times

MOST_QUEUED_BYTES = 4 * 1024 * 1024
"""Some minutes of a large model's kernels."""


class KernelExport:
    """Sends what a share of the kernels holds. One thread calls it.

    Args:
        settings: identity, endpoint, interval and how many cells to tell of.
        recorder: knows the session.
        clock: time.
        topology: what is known of the rank now.
        feed: whose kernels.
        rng: numbers in [0, 1) for jitter.
    """

    def __init__(
        self,
        settings: ClientSettings,
        recorder: Recorder,
        clock: Clock,
        topology: Callable[[], Topology],
        feed: KernelFeed = KERNELS,
        rng: Callable[[], float] | None = None,
    ) -> None:
        self._settings = settings
        self._recorder = recorder
        self._clock = clock
        self._topology = topology
        self._share = feed.share()
        self._drops = Drops()
        self._sender = SpanSender(
            settings.metrics,
            client_for(settings.metrics, "metrics"),
            budget_bytes=min(settings.queue_bytes, MOST_QUEUED_BYTES),
            drops=self._drops,
            monotonic_s=clock.monotonic_s,
            on_answer=lambda _: None,
            rng=rng,
            what="kernel times",
        )
        self._interval_ns = round(settings.kernel_interval_s * 1e9)
        self._start_ns = clock.wall_ns()

    @property
    def queued_requests(self) -> int:
        return self._sender.queued_requests

    def losses(self) -> dict[str, int]:
        """Kernels of which nothing will be told, by reason."""
        lost = sum(self._drops.counts().values())
        return {KERNELS_LOST: lost} if lost else {}

    def send_if_due(self, now_s: float) -> None:
        """Begin a new interval if it is time, and send what waits.

        Args:
            now_s: monotonic.

        Cost: about 30 µs a kernel once an interval, in the thread that calls.
        """
        wall_ns = self._clock.wall_ns()
        due_ns = (self._start_ns // self._interval_ns + 1) * self._interval_ns
        if wall_ns >= due_ns or wall_ns < self._start_ns:  # or the clock was set back
            self._end_interval(wall_ns)
        self._sender.send(until_s=now_s + self._settings.flush_s)

    def flush(self, deadline_s: float, *, is_last: bool) -> None:
        """Send all that was counted until now, before ``deadline_s``; if it is the last, what could
        not be sent is lost."""
        self._end_interval(self._clock.wall_ns())
        self._sender.send_before(deadline_s)
        if is_last:
            self._sender.give_up(PROCESS_ENDED)

    def close(self) -> None:
        self._share.close()

    def _end_interval(self, end_ns: int) -> None:
        start_ns, self._start_ns = min(self._start_ns, end_ns), end_ns
        kernels = longest_kernels(self._share.take(), self._settings.kernel_cells)
        if not kernels:
            return
        session_id = self._recorder.epoch.session_id
        body = encode_kernel_times(
            kernels,
            resource=resource_attributes(self._settings, session_id, self._topology()),
            start_ns=start_ns,
            end_ns=end_ns,
        )
        self._sender.put(body, sum(kernel.count for kernel in kernels))
