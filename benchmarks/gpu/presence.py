"""Whether there is a GPU to measure. Imports nothing that may be missing."""

from __future__ import annotations

import os

FAKE = "OTEL_STRAGGLER_GPU_CHECK_FAKE"
"""Set in the environment of a run without a GPU."""


def why_no_gpu() -> str:
    """One sentence; empty if there is a GPU, or one is faked."""
    if os.environ.get(FAKE):
        return ""
    try:
        import torch
    except ImportError:
        return "There is no PyTorch here, so no GPU was measured."
    if torch.version.cuda is None:
        return f"PyTorch {torch.__version__} was built without CUDA, so no GPU was measured."
    if not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} finds no NVIDIA GPU here, so nothing was measured."
    return ""
