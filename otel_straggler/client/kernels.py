"""The timer of kernels is emptied once, for all who want what it counted: the exporter, the report
in process. Each gets all kernels since it last asked, whoever came first."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from otel_straggler.client.recorder import Recorder
from otel_straggler.client.recording import RECORDER
from otel_straggler.client.sender import KERNELS_LOST, PROCESS_ENDED, Drops, SpanSender
from otel_straggler.client.topology import Topology, resource_attributes
from otel_straggler.client.worker import Clock
from otel_straggler.config import ClientSettings
from otel_straggler.model.kernels import (
    KernelCell,
    KernelCounts,
    KernelTally,
    TimedKernel,
    longest_kernels,
)
from otel_straggler.model.observation import Kernel
from otel_straggler.otlp.clients.client import client_for
from otel_straggler.otlp.encode_metrics import encode_kernel_times
from otel_straggler.semconv import KERNEL_CLASSES

_TIERS = "otel_straggler.client.gpu"
_STEP = 0
_LOG = logging.getLogger("otel_straggler")


class KernelSource(Protocol):
    """What counts kernels: ``_native.KernelTimer``, or a script in a test."""

    def take_kernels(self) -> list[TimedKernel]:
        """What was seen of each since the last time."""


def current_timer() -> KernelSource | None:
    """The timer that is on now, or was until now; None while nobody has thought of GPU timing."""
    tiers = sys.modules.get(_TIERS)
    timer: KernelSource | None = None if tiers is None else tiers.current_timer()
    return timer


def section_name(number: int) -> str:
    """Name of the section that has this number in records; empty for the step itself, and where
    there is none."""
    known = getattr(RECORDER, "sections", ())  # the fallback has none
    return known[number][0] if _STEP < number < len(known) else ""


class KernelFeed:
    """Hands out what a timer counts.

    Attributes:
        timer: gives the one that is on now; may be another function later.
    """

    def __init__(
        self,
        timer: Callable[[], KernelSource | None] = current_timer,
        section_name: Callable[[int], str] = section_name,
    ) -> None:
        self.timer = timer
        self._section_name = section_name
        self._newest: KernelSource | None = None
        self._shares: list[KernelShare] = []
        self._has_logged = False
        self._lock = threading.RLock()  # a signal handler may flush while a report is made

    def share(self) -> KernelShare:
        """All kernels from now on, for one who takes them now and then."""
        with self._lock:
            self._pull()
            share = KernelShare(self)
            self._shares.append(share)
            return share

    def taken(self, share: KernelShare) -> list[KernelCounts]:
        """What the share has, with all that was counted until now."""
        with self._lock:
            self._pull()
            return share.tally.take()

    def close(self, share: KernelShare) -> None:
        """It gets nothing more."""
        with self._lock:
            self._shares = [each for each in self._shares if each is not share]

    def reset_after_fork(self) -> None:
        """Nobody takes anything in a child, and its timer counts nothing."""
        self._shares = []
        self._newest = None
        self._lock = threading.RLock()

    def _pull(self) -> None:
        before, self._newest = self._newest, self.timer()
        if before is not None and before is not self._newest:
            self._empty(before)  # what came since the last time, until it was switched off
        if self._newest is not None:
            self._empty(self._newest)

    def _empty(self, timer: KernelSource) -> None:
        """Telemetry never stops training: a timer that fails has counted nothing."""
        try:
            self._give(timer.take_kernels())
        except Exception as error:  # noqa: BLE001
            if not self._has_logged:
                self._has_logged = True
                _LOG.warning("times of kernels could not be taken", exc_info=error)

    def _give(self, taken: list[TimedKernel]) -> None:
        if not self._shares or not taken:
            return
        kernels = [(self._cell_of(each), each) for each in taken]
        for share in self._shares:
            share.tally.add(kernels)

    def _cell_of(self, taken: TimedKernel) -> KernelCell:
        name, kernel_class, section = taken[:3]
        return KernelCell(self._section_name(section), Kernel(name, KERNEL_CLASSES[kernel_class]))


class KernelShare:
    """One listener's part of a feed; bounded, see :class:`KernelTally`."""

    def __init__(self, feed: KernelFeed) -> None:
        self._feed = feed
        self.tally = KernelTally()

    def take(self) -> list[KernelCounts]:
        """All kernels since the last time. Cost: some µs for each."""
        return self._feed.taken(self)

    def close(self) -> None:
        self._feed.close(self)


KERNELS = KernelFeed()
os.register_at_fork(after_in_child=KERNELS.reset_after_fork)

MAX_QUEUED_BYTES = 4 * 1024 * 1024
"""Some minutes of a large model's kernels."""


class KernelExport:
    """Sends what a share of the kernels holds. One thread calls it."""

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
            budget_bytes=min(settings.queue_bytes, MAX_QUEUED_BYTES),
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
        """Kernels that will not be reported, by reason."""
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
        """Want no more kernels."""
        self._share.close()

    def disconnect(self) -> None:
        """Once nobody sends any more."""
        self._sender.close()

    def _end_interval(self, end_ns: int) -> None:
        start_ns, self._start_ns = min(self._start_ns, end_ns), end_ns
        kernels = longest_kernels(self._share.take(), self._settings.kernel_cells)
        if not kernels or not self._settings.metrics.is_enabled:
            return
        session_id = self._recorder.session.session_id
        body = encode_kernel_times(
            kernels,
            resource=resource_attributes(self._settings, session_id, self._topology()),
            start_ns=start_ns,
            end_ns=end_ns,
        )
        self._sender.put(body, sum(kernel.count for kernel in kernels))
