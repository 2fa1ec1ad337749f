"""The machine that figures belong to: GPU, driver, clocks, versions."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from benchmarks.gpu.presence import FAKE
from benchmarks.harness.about import about

_ASKED = (
    "name",
    "driver_version",
    "pci.bus_id",
    "memory.total",
    "clocks.sm",
    "clocks.mem",
    "clocks.max.sm",
    "temperature.gpu",
    "power.draw",
    "persistence_mode",
    "compute_mode",
    "mig.mode.current",
    "clocks_throttle_reasons.active",
)


def environment() -> dict[str, Any]:
    """What stays the same during a run, and the GPU's state now."""
    return {
        **about("torch", "numpy", "triton", "nvidia-cuda-cupti", "nvidia-ml-py"),
        "torch": _torch(),
        "gpu": gpu_now(),
        "is_fake": bool(os.environ.get(FAKE)),
    }


def gpu_now() -> dict[str, str]:
    """Clocks, temperature and throttle reasons of the first GPU; empty without ``nvidia-smi``."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_ASKED)}", "--format=csv,noheader", "--id=0"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = [value.strip() for value in answer.stdout.strip().split(",")]
    if answer.returncode or len(values) != len(_ASKED):
        return {"nvidia-smi": (answer.stdout + answer.stderr).strip()[-300:]}
    return dict(zip(_ASKED, values, strict=True))


def _torch() -> dict[str, Any]:
    try:
        import torch
    except ImportError:
        return {}
    return {"version": torch.__version__, "cuda": torch.version.cuda}
