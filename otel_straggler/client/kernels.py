"""Kernel times of this process, drained once for all: the exporter, the report in process. Each
gets all kernels since it last asked."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from otel_straggler.client.recording import RECORDER
from otel_straggler.client.sender import KERNELS_LOST, PROCESS_ENDED, Drops, SpanSender
from otel_straggler.client.topology import RankContext
from otel_straggler.client.worker import LogOnce
from otel_straggler.model.kernels import (
    KernelCell,
    KernelCounts,
    KernelTally,
    longest_kernels,
)
from otel_straggler.model.observation import Kernel
from otel_straggler.otlp.clients.client import client_for
from otel_straggler.otlp.encode_metrics import encode_kernel_times
from otel_straggler.semconv import KERNEL_CLASSES

_TIERS = "otel_straggler.client.gpu"
_STEP = 0


def current_timer() -> Any:
    """The ``_native.KernelTimer`` that is on now, or was until now; None without GPU timing."""
    tiers = sys.modules.get(_TIERS)
    return None if tiers is None else tiers.current_timer()


def section_name(number: int) -> str:
    """Of the number in records; empty for the step itself, and where there is none."""
    known = getattr(RECORDER, "sections", ())  # the fallback has none
    return known[number][0] if _STEP < number < len(known) else ""


class KernelFeed:
    """Hands out what ``timer`` counts, with the names of its sections."""

    def __init__(
        self,
        timer: Callable[[], Any] = current_timer,
        section_name: Callable[[int], str] = section_name,
    ) -> None:
        self.timer = timer
        self._section_name = section_name
        self._newest: Any = None
        self._shares: list[KernelShare] = []
        self._log_error = LogOnce("kernel times could not be read")
        self._lock = threading.RLock()  # a signal handler may flush while a report is made

    def share(self) -> KernelShare:
        with self._lock:
            self._pull()
            share = KernelShare(self)
            self._shares.append(share)
            return share

    def flush(self) -> None:
        """Collect what the GPU has ended; it is not waited for."""
        timer = self.timer()
        flush = getattr(timer, "flush", None)
        if flush is None:
            return
        try:
            flush()
            flush()  # what was full before the first one may come with the second
        except Exception as error:  # noqa: BLE001
            self._log_error(error)

    def drain(self, share: KernelShare) -> list[KernelCounts]:
        """All kernels of the share since the last time. Cost: some µs for each."""
        with self._lock:
            self._pull()
            return share.tally.take()

    def close(self, share: KernelShare) -> None:
        with self._lock:
            self._shares = [each for each in self._shares if each is not share]

    def reset_after_fork(self) -> None:
        self._shares = []
        self._newest = None
        self._lock = threading.RLock()

    def _pull(self) -> None:
        before, self._newest = self._newest, self.timer()
        if before is not None and before is not self._newest:
            self._empty(before)  # what came since the last time, until it was switched off
        if self._newest is not None:
            self._empty(self._newest)

    def _empty(self, timer: Any) -> None:
        """Telemetry never stops training: a timer that fails has counted nothing."""
        try:
            kernels = []
            for each in timer.take_kernels():
                name, kernel_class, section = each[:3]
                kernel = Kernel(name, KERNEL_CLASSES[kernel_class])
                kernels.append((KernelCell(self._section_name(section), kernel), each))
            for share in self._shares if kernels else ():
                share.tally.add(kernels)
        except Exception as error:  # noqa: BLE001
            self._log_error(error)


class KernelShare:
    """One listener's part of a feed; bounded, see :class:`KernelTally`."""

    def __init__(self, feed: KernelFeed) -> None:
        self._feed = feed
        self.tally = KernelTally()

    def take(self) -> list[KernelCounts]:
        """All kernels since the last time. Cost: some µs for each."""
        return self._feed.drain(self)

    def close(self) -> None:
        self._feed.close(self)


KERNELS = KernelFeed()
os.register_at_fork(after_in_child=KERNELS.reset_after_fork)

MAX_QUEUED_BYTES = 4 * 1024 * 1024
"""Some minutes of a large model's kernels."""


class KernelExport:
    """Sends what a share of the kernels holds. One thread calls it."""

    def __init__(
        self, rank: RankContext, feed: KernelFeed = KERNELS, rng: Callable[[], float] | None = None
    ) -> None:
        settings = rank.settings
        self._rank = rank
        self._share = feed.share()
        self._drops = Drops()
        self._sender = SpanSender(
            settings.metrics,
            client_for(settings.metrics, "metrics"),
            budget_bytes=min(settings.queue_bytes, MAX_QUEUED_BYTES),
            drops=self._drops,
            monotonic_s=rank.clock.monotonic_s,
            on_answer=lambda _: None,
            rng=rng,
            what="kernel times",
        )
        self._interval_ns = round(settings.kernel_interval_s * 1e9)
        self._start_ns = rank.clock.wall_ns()

    @property
    def queued_requests(self) -> int:
        return self._sender.queued_requests

    def losses(self) -> dict[str, int]:
        lost = sum(self._drops.counts().values())
        return {KERNELS_LOST: lost} if lost else {}

    def send_if_due(self, now_s: float) -> None:
        """At ``now_s`` (monotonic), begin a new interval if it is time, and send. Cost: about 30 µs
        a kernel once an interval."""
        wall_ns = self._rank.clock.wall_ns()
        due_ns = (self._start_ns // self._interval_ns + 1) * self._interval_ns
        if wall_ns >= due_ns or wall_ns < self._start_ns:  # or the clock was set back
            self._end_interval(wall_ns)
        self._sender.send(until_s=now_s + self._rank.settings.flush_s)

    def flush(self, deadline_s: float, *, is_last: bool) -> None:
        """Send all before ``deadline_s``; if it is the last, count the rest as lost."""
        self._end_interval(self._rank.clock.wall_ns())
        self._sender.send_before(deadline_s)
        if is_last:
            self._sender.give_up(PROCESS_ENDED)

    def close(self) -> None:
        self._share.close()

    def disconnect(self) -> None:
        self._sender.close()

    def _end_interval(self, end_ns: int) -> None:
        start_ns, self._start_ns = min(self._start_ns, end_ns), end_ns
        kernels = longest_kernels(self._share.take(), self._rank.settings.kernel_cells)
        if not kernels or not self._rank.settings.metrics.is_enabled:
            return
        body = encode_kernel_times(
            kernels, resource=self._rank.resource(), start_ns=start_ns, end_ns=end_ns
        )
        self._sender.put(body, sum(kernel.count for kernel in kernels))
