"""The machine that figures belong to: GPU, driver, clocks, versions."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any

from benchmarks.gpu.presence import FAKE
from benchmarks.harness.about import about

_ASKED = (
    "name",
    "uuid",
    "driver_version",
    "pci.bus_id",
    "memory.total",
    "memory.used",
    "clocks.sm",
    "clocks.mem",
    "clocks.max.sm",
    "temperature.gpu",
    "power.draw",
    "compute_mode",
    "mig.mode.current",
)
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active", None)
"""The newer and the older name; None: neither is known."""

_THROTTLE_FIELDS = {"power": 74, "thermal": 75, "sync_boost": 76, "board": 77, "reliability": 79}
"""Numbers of NVML's counters of throttled time."""
_MIN_SHARE = 0.05
"""Part of the window; less is no explanation."""
_CAUSES = {
    "power": "its power limit",
    "thermal": "its temperature",
    "sync_boost": "a GPU that it keeps in step with (sync boost)",
    "board": "the limits of its board",
    "reliability": "its voltage limit (reliability)",
}


def environment() -> dict[str, Any]:
    """What stays the same during a run, and the GPU's state now."""
    return {
        **about("torch", "numpy", "triton", "nvidia-cuda-cupti", "nvidia-ml-py"),
        "torch": _torch(),
        "gpu": gpu_now(),
        "is_fake": bool(os.environ.get(FAKE)),
    }


def gpu_now() -> dict[str, Any]:
    """Clocks, temperature and throttle reasons of the first GPU, by ``nvidia-smi``, and
    throttled time by NVML; without either, why."""
    result = _from_nvidia_smi()
    try:
        sensors = _from_nvml(result.get("uuid", ""))
    except Exception as error:  # noqa: BLE001 - no sensor is worth a run's results
        sensors = {"failed": f"{type(error).__name__}: {error}"}
    return {**result, "nvml": sensors}


def throttled(before: dict[str, Any], after: dict[str, Any]) -> str:
    """A sentence if the GPU was held back between the two; else empty."""
    early, late = before.get("nvml", {}), after.get("nvml", {})
    if not (early.get("throttled_ns") and late.get("throttled_ns")):
        return ""
    spent = {
        reason: total - early["throttled_ns"].get(reason, total)
        for reason, total in late["throttled_ns"].items()
    }
    return _sentence(late["at_ns"] - early["at_ns"], spent)


def _sentence(window_ns: int, throttled_ns: dict[str, int]) -> str:
    """
    >>> _sentence(10_000_000_000, {"thermal": 3_000_000_000, "power": 100})
    'The GPU was throttled for 30 % of the window, by its temperature.'
    """
    if window_ns <= 0:
        return ""
    shares = {reason: min(1.0, spent / window_ns) for reason, spent in throttled_ns.items()}
    listed = sorted((r for r in shares if shares[r] > _MIN_SHARE), key=lambda r: -shares[r])
    if not listed:
        return ""
    causes = " and ".join(_CAUSES.get(reason, reason) for reason in listed)
    percent = round(100 * shares[listed[0]])
    return f"The GPU was throttled for {percent} % of the window, by {causes}."


def _from_nvidia_smi() -> dict[str, Any]:
    text = ""
    for reasons in _REASONS:
        asked = (*_ASKED, reasons) if reasons else _ASKED
        command = ["nvidia-smi", f"--query-gpu={','.join(asked)}", "--format=csv,noheader"]
        try:
            answer = subprocess.run(
                [*command, "--id=0"], capture_output=True, text=True, timeout=20, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return {"nvidia-smi": str(error)}
        values = [value.strip() for value in answer.stdout.strip().split(",")]
        if answer.returncode == 0 and len(values) == len(asked):
            return dict(zip(asked, values, strict=True))
        text = (answer.stdout + answer.stderr).strip()[-300:]
    return {"nvidia-smi": text}


def _from_nvml(uuid: str) -> dict[str, Any]:
    if not uuid:
        return {}
    import pynvml

    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())
        values = pynvml.nvmlDeviceGetFieldValues(handle, list(_THROTTLE_FIELDS.values()))
        read = zip(_THROTTLE_FIELDS, values, strict=True)
        throttled_ns = {name: int(v.value.ullVal) for name, v in read if v.nvmlReturn == 0}
        return {"at_ns": time.monotonic_ns(), "throttled_ns": throttled_ns}
    finally:
        pynvml.nvmlShutdown()


def _torch() -> dict[str, Any]:
    try:
        import torch
    except ImportError:
        return {}
    return {"version": torch.__version__, "cuda": torch.version.cuda}
