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


def why_not_built() -> str:
    """What to do first; empty if nothing is. Builds the probe."""
    try:
        from otel_straggler.native import NATIVE, REASON
    except ImportError as error:
        return f"otel_straggler cannot be imported ({error}); run from the root of a checkout."
    if NATIVE is None:
        build = "python -c 'from setuptools import setup; setup()' build_ext --inplace"
        return f"The extension of otel_straggler is missing: {REASON}. Build it here: {build}"
    from benchmarks.gpu import native

    try:
        native.build()
        if os.environ.get(FAKE):
            native.build_fake()
    except native.NoProbeError as error:
        return str(error)
    return ""
