"""Kernels of the detector, in the shape of NVRx's ``CuptiManager``."""

from __future__ import annotations

from dataclasses import dataclass

from otel_straggler.client.process import gpu_timing
from otel_straggler.report.types import Statistic
from otel_straggler.report.window import ReportWindow


@dataclass(frozen=True, slots=True)
class KernelStats:
    """Executions of one kernel, microseconds."""

    min: float
    max: float
    median: float
    avg: float
    stddev: float
    num_calls: int


class CuptiManager:
    """Reads what was timed. Timing begins with the first section of ``profile_cuda=True`` and ends
    with ``Detector.shutdown()``; ``gpu_timing()`` says why nothing is timed."""

    def __init__(self, window: ReportWindow) -> None:
        self._window = window

    @property
    def is_initialized(self) -> bool:
        """Whether kernels are timed now."""
        return gpu_timing().uses_cupti

    def get_results(self) -> dict[str, KernelStats]:
        """Kernels of this window so far, by name; the next report has them too."""
        return {
            name: KernelStats(*(each[key] for key in Statistic))  # type: ignore[arg-type]
            for name, each in self._window.kernels_so_far().items()
        }
