"""The two tiers of GPU timing: CUDA events around sections, and kernels by CUPTI."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

from otel_straggler.client.gpu.reasons import Refusal, refusal_of
from otel_straggler.client.gpu.surroundings import Surroundings
from otel_straggler.native import NATIVE
from otel_straggler.semconv import GpuTier


class Timer(Protocol):
    """Times sections on the GPU, between ``start()`` and ``stop()``, again and again."""

    tier: GpuTier

    @property
    def native(self) -> Any:
        """The object in C++ that recorder and exporter use; None until it was prepared."""

    @property
    def about(self) -> str:
        """What it works with, for a log."""

    def prepare(self) -> Refusal | None:
        """Load what is needed; nothing is switched on. Why it cannot be had, or None."""

    def start(self) -> Refusal | None:
        """Set everything up from scratch, once prepared; why it cannot be had, or None: it
        works."""

    def stop(self, deadline_ns: int) -> None:
        """Give back what was taken; wait for what is under way until ``deadline_ns``
        (monotonic)."""

    def flush(self) -> None:
        """Take what the GPU has ended."""

    def end(self) -> None:
        """End the threads; it is stopped, and is not started again."""

    def trouble(self) -> Refusal | None:
        """Why it must not go on, though it works; None: it is well."""

    def counts(self) -> dict[str, int]:
        """By name; empty until it was prepared."""


class EventsTimer:
    """See :class:`Timer`.

    Args:
        surroundings: knows where the driver is.
    """

    tier: GpuTier = "events"

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._timer: Any = None

    @property
    def native(self) -> Any:
        return self._timer

    @property
    def about(self) -> str:
        return "CUDA events"

    def prepare(self) -> Refusal | None:
        if self._timer is not None:
            return None
        if NATIVE is None:
            return Refusal("no_extension")
        path = self._surroundings.driver_path()
        if path not in _EVENT_TIMERS:
            timer = NATIVE.EventTimer(path, self._surroundings.current_stream(), _ANY_DEVICE)
            try:
                timer.state()
            except RuntimeError as error:  # there is nothing behind it
                return Refusal("no_events", str(error))
            _EVENT_TIMERS[path] = timer
        self._timer = _EVENT_TIMERS[path]
        return None

    def start(self) -> Refusal | None:
        reason: str = self._timer.start()
        return Refusal("no_events", reason) if reason else None

    def stop(self, deadline_ns: int) -> None:
        self._timer.stop(deadline_ns)

    def flush(self) -> None:
        """What the GPU has come to is seen when the exporter asks."""

    def end(self) -> None:
        """It has no thread."""

    def trouble(self) -> Refusal | None:
        reason: str = self._timer.reason()
        return Refusal("events_failed", reason) if reason else None

    def counts(self) -> dict[str, int]:
        return {} if self._timer is None else dict(self._timer.state())


_ANY_DEVICE = -1
_EVENT_TIMERS: dict[str, Any] = {}
"""By the driver's path: a timer is never destroyed, so it is used again."""

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


class CuptiTimer:
    """See :class:`Timer`.

    Args:
        path: of the libcupti to use; empty: search.
        surroundings: knows where torch's is, and the driver.
    """

    tier: GpuTier = "cupti"

    def __init__(self, path: str, surroundings: Surroundings) -> None:
        self._path = path
        self._surroundings = surroundings
        self._timer: Any = None
        self._has_thread = False

    @property
    def native(self) -> Any:
        return self._timer

    @property
    def about(self) -> str:
        if self._timer is None:
            return ""
        path, version, is_untried = self._timer.library()
        newer = ", newer than all that were tried" if is_untried else ""
        return f"{path} (interface {version}{newer})"

    def prepare(self) -> Refusal | None:
        if self._timer is not None:
            return None
        made = self._made()
        if isinstance(made, Refusal):
            return made
        self._timer = made
        return None

    def start(self) -> Refusal | None:
        reason: str = self._timer.start()
        if reason:
            return refusal_of(reason)
        if not self._has_thread:
            self._has_thread = True
            self._timer.start_thread()
        return None

    def stop(self, deadline_ns: int) -> None:
        self._timer.stop(deadline_ns)

    def flush(self) -> None:
        self._timer.flush()

    def end(self) -> None:
        if self._has_thread:
            self._has_thread = False
            self._timer.stop_thread()

    def trouble(self) -> Refusal | None:
        return trouble_of(self.counts(), has_daemon=bool(os.environ.get(_DAEMON)))

    def counts(self) -> dict[str, int]:
        return {} if self._timer is None else dict(self._timer.state())

    def _made(self) -> Any:
        """One for each libcupti and process: its buffers' addresses are never given back."""
        if NATIVE is None:
            return Refusal("no_extension")
        requested = (
            self._path,
            self._surroundings.cupti_folder(),
            self._surroundings.driver_path(),
        )
        if requested in _CUPTI_TIMERS:
            return _CUPTI_TIMERS[requested]
        timer = NATIVE.KernelTimer(
            *requested, _PREFERS_LAUNCHES, _TIMES_MEMORY, _TIMES_WHOLE_GRAPHS
        )
        try:
            timer.state()
        except RuntimeError as error:  # there is nothing behind it
            return refusal_of(str(error))
        return _CUPTI_TIMERS.setdefault(requested, timer)


_CUPTI_TIMERS: dict[tuple[str, str, str], Any] = {}


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
    if counts.get("silent_flushes", 0) >= limit:
        return Refusal("takeover")
    return None
