"""Numbers of the GPU for the exporter in Python: runs wait in the extension until they have them.

The exporter in C++ has the same stage, ``gpu_stage.hpp``. Who listens in the process gets runs
before, at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from otel_straggler.export.drops import GPU_REASONS
from otel_straggler.native import NATIVE
from otel_straggler.record.batch import RECORD_BYTES, NativeBatch
from otel_straggler.record.recorder import RING_CAPACITY, Recorder

if TYPE_CHECKING:
    from otel_straggler.record.native_recorder import NativeRecorder

LOOK_S = 0.1
"""How often somebody should ask while the GPU is timed."""
_PATIENCE_S = 2.0
_SHORT_LOOK_S = 0.01


def gpu_numbers_of(recorder: Recorder) -> GpuNumbers | None:
    """For the runs of this recorder; None for the one in Python, whose runs have none."""
    if NATIVE is None:
        return None
    from otel_straggler.record.native_recorder import NativeRecorder

    return GpuNumbers(recorder) if isinstance(recorder, NativeRecorder) else None


class GpuNumbers:
    """Holds back the runs whose numbers are awaited, for 2 s at most; all come out in order.

    Args:
        recorder: what the runs come from.
    """

    def __init__(self, recorder: NativeRecorder) -> None:
        assert NATIVE is not None  # the recorder is native
        self._recorder = recorder
        self._stage: Any = NATIVE.GpuStage()
        self._ready: list[bytes] = []

    @property
    def is_needed(self) -> bool:
        """Whether anybody has ever timed the GPU in this process."""
        return bool(self._stage.is_needed())

    @property
    def is_full(self) -> bool:
        """Whether so many runs are ready that somebody should take them."""
        return sum(map(len, self._ready)) > RING_CAPACITY // 2 * RECORD_BYTES

    def put(self, batch: NativeBatch) -> None:
        """Runs in the order of the ring."""
        self._stage.put(batch.block)

    def look(self) -> None:
        """Ask for numbers, now that all that has ended was put. Cost: some ns a run."""
        self._ready.append(self._stage.take_ready(time.monotonic_ns()))

    def take(self) -> NativeBatch:
        """Runs whose numbers are there, or are not waited for any longer; see ``look``."""
        block = b"".join(self._ready)
        self._ready.clear()
        return NativeBatch(block, self._recorder, {}, {})

    def wait(self, deadline_s: float, look: Callable[[], None]) -> None:
        """Give what waits a last chance, of half the time until ``deadline_s`` at most; the rest
        then goes without numbers.

        Args:
            deadline_s: monotonic.
            look: called again and again meanwhile.
        """
        now_s = time.monotonic()
        until_s = now_s + min(max(0.0, (deadline_s - now_s) / 2), _PATIENCE_S)
        while self._stage.may_get_more() and time.monotonic() < until_s:
            time.sleep(_SHORT_LOOK_S)
            look()
        self._ready.append(self._stage.take_all())

    def losses(self) -> dict[str, int]:
        """What the numbers lack, by reason."""
        counts = zip(GPU_REASONS, self._stage.losses(), strict=True)
        return {reason: count for reason, count in counts if count}
