"""The tier that times kernels by CUPTI."""

from __future__ import annotations

import os
from typing import Any

from otel_straggler.native import NATIVE
from otel_straggler.record.gpu.reasons import Refusal, refusal_of
from otel_straggler.record.gpu.surroundings import Surroundings
from otel_straggler.record.gpu.watch import trouble_of
from otel_straggler.semconv import GpuTier

_PREFERS_LAUNCHES = False  # it would take the one subscriber that there may be
_TIMES_MEMORY = False
_DAEMON = "KINETO_USE_DAEMON"  # torch then lets dynolog start Kineto, without a call of Python
_TIMES_WHOLE_GRAPHS = False


class CuptiTimer:
    """See :class:`otel_straggler.record.gpu.timer.Timer`.

    Args:
        path: of the libcupti to use; empty: search.
        surroundings: tells where torch's is, and the driver.
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
        wish = (self._path, self._surroundings.cupti_folder(), self._surroundings.driver_path())
        if wish in _MADE:
            return _MADE[wish]
        timer = NATIVE.KernelTimer(*wish, _PREFERS_LAUNCHES, _TIMES_MEMORY, _TIMES_WHOLE_GRAPHS)
        try:
            timer.state()
        except RuntimeError as error:  # there is nothing behind it
            return refusal_of(str(error))
        return _MADE.setdefault(wish, timer)


_MADE: dict[tuple[str, str, str], Any] = {}
