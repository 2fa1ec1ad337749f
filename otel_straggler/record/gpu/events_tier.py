"""The tier that times sections by CUDA events around them."""

from __future__ import annotations

import sys
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
        if NATIVE is None or not hasattr(NATIVE, "EventTimer"):
            return Refusal("no_events", "this version has no timing by CUDA events")
        if self._timer is None:
            self._timer = NATIVE.EventTimer(self._surroundings.driver_path(), _current_stream)
        return None

    def start(self) -> Refusal | None:
        reason: str = self._timer.start()
        return Refusal("no_events", reason) if reason else None

    def stop(self, deadline_ns: int) -> None:
        if self._timer is not None:
            self._timer.stop(deadline_ns)

    def flush(self) -> None:
        """What has ended is seen at the next boundary, or when the exporter asks."""

    def end(self) -> None:
        """It has no thread."""

    def counts(self) -> dict[str, int]:
        return {} if self._timer is None else dict(self._timer.state())


def _current_stream() -> int:
    """The handle of the stream that this thread launches on."""
    return int(sys.modules["torch"].cuda.current_stream().cuda_stream)
