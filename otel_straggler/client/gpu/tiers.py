"""The two tiers of GPU timing, CUDA events around sections and kernels by CUPTI, and the ladder of
them, from the highest that is wanted down to what can be had."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from otel_straggler.client.gpu import use_timer
from otel_straggler.client.gpu.reasons import Refusal, refusal_of
from otel_straggler.client.gpu.surroundings import Surroundings
from otel_straggler.native import NATIVE
from otel_straggler.semconv import GPU_TIERS, GpuTier


class Timer:
    """Times sections on the GPU, between ``start()`` and ``stop()``, again and again.

    Attributes:
        native: the object in C++ that recorder and exporter use; None until it was prepared.
    """

    tier: ClassVar[GpuTier]

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self.native: Any = None

    @property
    def about(self) -> str:
        """Its library, for a log."""
        raise NotImplementedError

    def prepare(self) -> Refusal | None:
        """Load what is needed; nothing is switched on. Why it cannot be had, or None."""
        if self.native is None:
            if NATIVE is None:
                return Refusal("no_extension")
            paths = self._paths()
            if paths not in _TIMERS:
                timer = self._create(*paths)
                try:
                    timer.state()
                except RuntimeError as error:  # there is nothing behind it
                    return self._refusal(str(error))
                _TIMERS[paths] = timer
            self.native = _TIMERS[paths]
        return None

    def start(self) -> Refusal | None:
        """Set everything up from scratch, once prepared; why it cannot be had, or None."""
        reason: str = self.native.start()
        return self._refusal(reason) if reason else None

    def stop(self, deadline_ns: int) -> None:
        """Give back what was taken; wait for pending work until ``deadline_ns`` (monotonic)."""
        self.native.stop(deadline_ns)

    def flush(self) -> None:
        """Collect what the GPU has ended."""

    def end(self) -> None:
        """End the threads; it is stopped, and is not started again."""

    def trouble(self) -> Refusal | None:
        """Why it must not go on, though it works; None: it is well."""
        raise NotImplementedError

    def counts(self) -> dict[str, int]:
        """By name; empty until it was prepared."""
        return {} if self.native is None else dict(self.native.state())

    def _paths(self) -> tuple[str, ...]:
        raise NotImplementedError

    def _create(self, *paths: str) -> Any:
        raise NotImplementedError

    def _refusal(self, reason: str) -> Refusal:
        return refusal_of(reason)


_ANY_DEVICE = -1
_TIMERS: dict[tuple[str, ...], Any] = {}
"""By paths of libraries. A timer is never destroyed: its buffers' addresses are never given
back."""


class EventsTimer(Timer):
    """CUDA events around sections."""

    tier = "events"

    @property
    def about(self) -> str:
        return "CUDA events"

    def trouble(self) -> Refusal | None:
        reason: str = self.native.reason()
        return Refusal("events_failed", reason) if reason else None

    def _paths(self) -> tuple[str, ...]:
        return (self._surroundings.driver_path(),)

    def _create(self, *paths: str) -> Any:
        assert NATIVE is not None
        return NATIVE.EventTimer(*paths, self._surroundings.current_stream(), _ANY_DEVICE)

    def _refusal(self, reason: str) -> Refusal:
        return Refusal("no_events", reason)


SILENT_FLUSHES = 60
"""So many flushes in a row, half a minute, that gave nothing back although there was work: somebody
else got it. A GPU that is never idle gives a buffer back only when it is full, after 1,200 kernels,
which a step of few long kernels takes many seconds for."""
SILENT_FLUSHES_WITH_DAEMON = 3
"""The same where a profiler that needs no Python is to be expected."""
_PREFERS_LAUNCHES = False  # it would take the one subscriber that there may be
_TIMES_MEMORY = False
_TIMES_WHOLE_GRAPHS = False
_DAEMON = "KINETO_USE_DAEMON"  # torch then lets dynolog start Kineto, without a call of Python


class CuptiTimer(Timer):
    """Kernels, by the libcupti at ``path``; empty: search."""

    tier = "cupti"

    def __init__(self, path: str, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._path = path
        self._has_thread = False

    @property
    def about(self) -> str:
        if self.native is None:
            return ""
        path, version, is_untried = self.native.library()
        newer = ", newer than all that were tried" if is_untried else ""
        return f"{path} (interface {version}{newer})"

    def start(self) -> Refusal | None:
        refusal = super().start()
        if refusal is None and not self._has_thread:
            self._has_thread = True
            self.native.start_thread()
        return refusal

    def flush(self) -> None:
        self.native.flush()

    def end(self) -> None:
        if self._has_thread:
            self._has_thread = False
            self.native.stop_thread()

    def trouble(self) -> Refusal | None:
        return trouble_of(self.counts(), has_daemon=bool(os.environ.get(_DAEMON)))

    def _paths(self) -> tuple[str, ...]:
        return self._path, self._surroundings.cupti_folder(), self._surroundings.driver_path()

    def _create(self, *paths: str) -> Any:
        assert NATIVE is not None
        return NATIVE.KernelTimer(*paths, _PREFERS_LAUNCHES, _TIMES_MEMORY, _TIMES_WHOLE_GRAPHS)


def trouble_of(counts: Mapping[str, int], *, has_daemon: bool) -> Refusal | None:
    """Why a timer with these counts must stop; None: it is well.

    Args:
        has_daemon: Kineto may be asked by dynolog to take CUPTI (``KINETO_USE_DAEMON``).

    >>> trouble_of({"silent_flushes": 3}, has_daemon=True)
    Refusal(code='takeover', detail='')
    """
    if counts.get("is_invalid_too_often"):
        seen, invalid = counts.get("events", 0), counts.get("invalid", 0)
        return Refusal(
            "invalid_timestamps",
            f"more than 1 % of the last kernels had no valid timestamps ({invalid} of {seen} so "
            "far), as on some versions of CUPTI after millions of kernels",
        )
    limit = SILENT_FLUSHES_WITH_DAEMON if has_daemon else SILENT_FLUSHES
    return Refusal("takeover") if counts.get("silent_flushes", 0) >= limit else None


_SWITCH_NS = 200_000_000
"""The longest wait of a timer that is switched off for pending work."""


class Ladder:
    """Starts and stops timers, by tier; not thread-safe, its owner is.

    Attributes:
        timer: the one in charge, working or halted; None: tier off.
        is_working: whether it times at this moment.
    """

    def __init__(self, timers: Mapping[GpuTier, Timer]) -> None:
        self._timers = timers
        self.barred: dict[GpuTier, Refusal] = {}
        self.timer: Timer | None = None
        self.is_working = False

    @property
    def tier(self) -> GpuTier:
        return "off" if self.timer is None else self.timer.tier

    def climb(self, wanted: GpuTier) -> Refusal | None:
        """Start the highest tier up to ``wanted``; why it is not that one, or None: it is."""
        first: Refusal | None = None
        for tier in reversed(GPU_TIERS[1 : GPU_TIERS.index(wanted) + 1]):
            if tier == self.tier and tier not in self.barred:
                return first
            refusal = self.barred.get(tier) or self._exchange(self._timers[tier])
            if refusal is None:
                return first
            if refusal.retry_s is None:
                self.barred[tier] = refusal
            first = first or refusal
        self.leave()
        return first

    def halt(self, timeout_ns: int = _SWITCH_NS) -> None:
        """Pause the timer in charge, which gives back what it took."""
        if self.timer is not None and self.is_working:
            self.is_working = False
            self.timer.stop(time.monotonic_ns() + timeout_ns)

    def resume(self) -> Refusal | None:
        """After a halt, from scratch."""
        if self.timer is None or self.is_working:
            return None
        refusal = self.timer.start()
        self.is_working = refusal is None
        return refusal

    def leave(self) -> None:
        self.halt()
        if self.timer is not None:
            self.timer.end()
            self.timer = None
            use_timer(None)

    def _exchange(self, timer: Timer) -> Refusal | None:
        """This timer in the place of the one in charge, which goes on if this one cannot."""
        refusal = timer.prepare()
        if refusal is not None:
            return refusal
        before = self.timer
        self.halt()
        use_timer(timer.native)  # first: a boundary that it misses would be a wrong sum
        refusal = timer.start()
        if refusal is None:
            self.timer, self.is_working = timer, True
            if before is not None:
                before.end()
        else:
            use_timer(None if before is None else before.native)
            self.resume()
        return refusal
