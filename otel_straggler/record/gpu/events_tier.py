"""The tier that times sections by CUDA events around them."""

from __future__ import annotations

from typing import Any

from otel_straggler.native import NATIVE
from otel_straggler.record.gpu.reasons import Refusal
from otel_straggler.record.gpu.surroundings import Surroundings
from otel_straggler.semconv import GpuTier


class EventsTimer:
    """See :class:`otel_straggler.record.gpu.timer.Timer`.

    Args:
        surroundings: tells where the driver is.
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
        if path not in _MADE:
            timer = NATIVE.EventTimer(path, self._surroundings.current_stream(), _ANY_DEVICE)
            try:
                timer.state()
            except RuntimeError as error:  # there is nothing behind it
                return Refusal("no_events", str(error))
            _MADE[path] = timer
        self._timer = _MADE[path]
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
_MADE: dict[str, Any] = {}
"""By the driver's path: a timer is never destroyed, so it is used again."""
