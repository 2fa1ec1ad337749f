"""NVRx 0.4.1 as a peer: its own code, less what needs a GPU."""

from __future__ import annotations

import importlib.util
from typing import Any

NOT_INSTALLED = "nvidia-resiliency-ext 0.4.1 is not installed (make bench-peers installs it)"


def is_installed() -> bool:
    return importlib.util.find_spec("nvidia_resiliency_ext") is not None


def their_detector(*, has_reports: bool = False) -> Any:
    """Its ``Detector`` without CUPTI and without synchronising a device.

    Args:
        has_reports: whether it gathers reports over the process group.
    """
    import torch
    from nvidia_resiliency_ext.straggler import Detector

    class NoCupti:
        def get_results(self) -> dict[str, Any]:
            return {}

        def reset_results(self) -> None:
            """Nothing to reset."""

    torch.cuda.synchronize = lambda *_: None  # type: ignore[assignment]
    Detector.custom_sections = {}
    Detector.cupti_manager = NoCupti()
    Detector.profiling_interval = 1
    Detector.initialized = True
    if has_reports:
        from nvidia_resiliency_ext.straggler.reporting import ReportGenerator

        scores = ["relative_perf_scores", "individual_perf_scores"]
        Detector.reporter = ReportGenerator(scores, gather_on_rank0=True, node_name="node")
    return Detector
