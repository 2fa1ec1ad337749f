"""What was lost, by reason: the numbers behind ``straggler.records.dropped``."""

from __future__ import annotations

from typing import Final

RING_FULL: Final = "ring_full"
INBOX_FULL: Final = "inbox_full"
QUEUE_FULL: Final = "queue_full"
REJECTED: Final = "rejected"
SPAN_BUDGET: Final = "span_budget"
PROCESS_ENDED: Final = "process_ended"
ENCODE_ERROR: Final = "encode_error"
GPU_MISSING: Final = "gpu_missing"
GPU_DROPPED: Final = "gpu_dropped"
GPU_INVALID: Final = "gpu_invalid"
GPU_LOST: Final = "gpu_lost"
GPU_LATE: Final = "gpu_late"
GPU_REASONS: Final = (GPU_MISSING, GPU_DROPPED, GPU_INVALID, GPU_LOST, GPU_LATE)
"""No span is lost: the first counts spans without GPU times, the others what the GPU has done that
is in no span. In the order in which the native part counts them."""
KERNELS_LOST: Final = "kernels_lost"
SDK_RATE: Final = "sdk_rate"
SDK_ERROR: Final = "sdk_error"
SDK_QUEUE_FULL: Final = "sdk_queue_full"


class Drops:
    """Cumulative counts by reason. Written by the exporter thread only."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, reason: str, count: int) -> None:
        if count > 0:
            self._counts[reason] = self._counts.get(reason, 0) + count

    def counts(self) -> dict[str, int]:
        """A copy: reason -> records lost so far."""
        return dict(self._counts)
