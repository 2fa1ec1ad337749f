"""The two tiers of GPU timing, CUDA events around sections and, over these, kernels by CUPTI; and
the ladder of them, from the highest that is wanted down to what can be had."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from otel_straggler.client.gpu import use_timer
from otel_straggler.client.gpu.reasons import Refusal, refusal_of
from otel_straggler.client.gpu.surroundings import Surroundings
from otel_straggler.native import NATIVE
from otel_straggler.semconv import GPU_TIERS, GpuTier

_LOG = logging.getLogger("otel_straggler")
_SWITCH_NS = 200_000_000
"""The longest wait of a timer that is switched off for pending work."""


class Timer:
    """Times sections on the GPU, between ``start()`` and ``stop()``, again and again.

    Attributes:
        native: the object in C++ that recorder and exporter use; None until it was prepared.
    """

    tier: ClassVar[GpuTier]
    _role: ClassVar[str] = "on its own"

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
            key = (self._role, *paths)
            if key not in _TIMERS:
                timer = self._create(*paths)
                try:
                    timer.state()
                except RuntimeError as error:  # there is nothing behind it
                    return self._refusal(str(error))
                _TIMERS[key] = timer
            self.native = _TIMERS[key]
        return None

    def start(self) -> Refusal | None:
        """Set everything up from scratch, once prepared; why it cannot be had, or None."""
        reason: str = self.native.start()
        return self._refusal(reason) if reason else None

    def stop(self, deadline_ns: int) -> None:
        """Give back what was taken; wait for pending work until ``deadline_ns`` (monotonic)."""
        self.native.stop(deadline_ns)

    def pause(self) -> None:
        """Without what may cost something, for a while."""
        self.stop(time.monotonic_ns() + _SWITCH_NS)

    def unpause(self) -> Refusal | None:
        """Go on; why it cannot, or None."""
        return self.start()

    def give_way(self, deadline_ns: int) -> None:
        """Give back what a profiler needs; go on with the rest."""
        self.stop(deadline_ns)

    @property
    def is_proven(self) -> bool:
        """Whether it is known to give what it promises."""
        return True

    @property
    def tier_meanwhile(self) -> GpuTier:
        """What sections are timed by until it is proven."""
        return self.tier

    def set_rate(self, steps: int, runs: int) -> None:
        """Time kernels in one step of so many, and outside of steps in one run of each section of
        so many; 0: in none."""

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
"""By role and paths of libraries. A timer is never destroyed: its buffers' addresses are never
given back."""


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


class EventsBeneath(EventsTimer):
    """CUDA events for the steps in which kernels have no records."""

    _role = "beneath"


SILENT_FLUSHES = 60
"""So many flushes in a row, half a minute, that gave nothing back although there was work: somebody
else got it. A GPU that is never idle gives a buffer back only when it is full, after 1,200 kernels,
which a step of few long kernels takes many seconds for."""
SILENT_FLUSHES_WITH_DAEMON = 3
"""The same where a profiler that needs no Python is to be expected."""
_PREFERS_LAUNCHES = False  # it would take the one subscriber that there may be
_TIMES_MEMORY = False
_TIMES_WHOLE_GRAPHS = True  # a graph captured while records were off has none for its kernels
_DAEMON = "KINETO_USE_DAEMON"  # torch then lets dynolog start Kineto, without a call of Python


class CuptiTimer(Timer):
    """Kernels in one step of N, by the libcupti at ``path`` (empty: search), over CUDA events in
    every step."""

    tier = "cupti"

    def __init__(self, path: str, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._path = path
        self._has_thread = False
        self._beneath = EventsBeneath(surroundings)
        self._has_events = False
        self._rate = 1, 1

    @property
    def about(self) -> str:
        if self.native is None:
            return ""
        path, version, is_untried = self.native.library()
        newer = ", newer than all that were tried" if is_untried else ""
        return f"{path} (interface {version}{newer})"

    def prepare(self) -> Refusal | None:
        refusal = super().prepare()
        if refusal is None and self._beneath.prepare() is None:
            self.native.set_beneath(self._beneath.native)
        return refusal

    def start(self) -> Refusal | None:
        self._start_events()
        self.native.set_rate(*self._rate)
        refusal = super().start()
        if refusal is not None:
            self._stop_events(time.monotonic_ns())
        elif not self._has_thread:
            self._has_thread = True
            self.native.start_thread()
        return refusal

    def stop(self, deadline_ns: int) -> None:
        super().stop(deadline_ns)
        self._stop_events(deadline_ns)

    def pause(self) -> None:
        super().stop(time.monotonic_ns() + _SWITCH_NS)

    def unpause(self) -> Refusal | None:
        reason: str = self.native.start(True)
        return self._refusal(reason) if reason else None

    def give_way(self, deadline_ns: int) -> None:
        super().stop(deadline_ns)

    def set_rate(self, steps: int, runs: int) -> None:
        self._rate = steps, runs
        if self.native is not None:
            self.native.set_rate(steps, runs)

    @property
    def is_proven(self) -> bool:
        return bool(self.counts().get("is_proven"))

    @property
    def tier_meanwhile(self) -> GpuTier:
        return "events" if self._has_events else "off"

    def flush(self) -> None:
        self.native.flush()

    def end(self) -> None:
        if self._has_thread:
            self._has_thread = False
            self.native.stop_thread()

    def trouble(self) -> Refusal | None:
        counts = self.counts()
        if counts.get("has_failed"):
            return self._take_next_way(counts)
        has_daemon = bool(os.environ.get(_DAEMON))
        return trouble_of(counts, has_daemon=has_daemon, interval=self._rate[0])

    def _take_next_way(self, counts: Mapping[str, int]) -> Refusal | None:
        """After the self-test of one way to tell kernels apart; None: the next one has begun."""
        seen = counts["events"]
        none = f"of {seen} kernels {counts['attributed']} could be attributed to a section"
        self.native.stop(time.monotonic_ns() + _SWITCH_NS)
        if not self.native.take_next_way():
            self._stop_events(time.monotonic_ns())
            return Refusal("no_marks", none)
        _LOG.info("kernels are attributed in another way from now on: %s", none)
        return super().start()

    def _start_events(self) -> None:
        native = self._beneath.native
        self._has_events = native is not None and self._beneath.start() is None

    def _stop_events(self, deadline_ns: int) -> None:
        if self._has_events:
            self._has_events = False
            self._beneath.stop(deadline_ns)

    def _paths(self) -> tuple[str, ...]:
        return self._path, self._surroundings.cupti_folder(), self._surroundings.driver_path()

    def _create(self, *paths: str) -> Any:
        assert NATIVE is not None
        return NATIVE.KernelTimer(*paths, _PREFERS_LAUNCHES, _TIMES_MEMORY, _TIMES_WHOLE_GRAPHS)


def trouble_of(counts: Mapping[str, int], *, has_daemon: bool, interval: int = 1) -> Refusal | None:
    """Why a timer with these counts must stop; None: it is well.

    Args:
        has_daemon: Kineto may be asked by dynolog to take CUPTI (``KINETO_USE_DAEMON``).
        interval: one step in so many has kernel records. The fewer, the sooner a buffer is whole.

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
    patience = max(SILENT_FLUSHES // max(interval, 1), SILENT_FLUSHES_WITH_DAEMON)
    limit = SILENT_FLUSHES_WITH_DAEMON if has_daemon else patience
    return Refusal("takeover") if counts.get("silent_flushes", 0) >= limit else None


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
        self._rest: Literal["", "paused", "yielded"] = ""

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
        """Stop the timer in charge, which gives back what it took."""
        if self.timer is not None and (self.is_working or self._rest):
            self.is_working, self._rest = False, ""
            self.timer.stop(time.monotonic_ns() + timeout_ns)

    def pause(self) -> None:
        """Have the timer in charge do without what may cost something, for a while."""
        if self.timer is not None and self.is_working:
            self.is_working, self._rest = False, "paused"
            self.timer.pause()

    def give_way(self, timeout_ns: int) -> None:
        """Have the timer in charge give back what a profiler needs."""
        if self.timer is not None and (self.is_working or self._rest):
            self.is_working, self._rest = False, "yielded"
            self.timer.give_way(time.monotonic_ns() + timeout_ns)

    def resume(self) -> Refusal | None:
        """After a pause; after anything else from scratch."""
        if self.timer is None or self.is_working:
            return None
        refusal = self.timer.unpause() if self._rest == "paused" else self.timer.start()
        self.is_working, self._rest = refusal is None, ""
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
