"""The command line of Nsight Systems around a training, and whether it is at work."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Final

NVTX_VARIABLE: Final = "OTEL_STRAGGLER_NVTX"
"""``on``: sections are mirrored as NVTX ranges; set by ``otel-straggler profile nsys`` alone."""
SESSION_VARIABLE: Final = "NSYS_PROFILING_SESSION_ID"
INJECTION_VARIABLE: Final = "CUDA_INJECTION64_PATH"
DEFAULT_REPORT: Final = "nsight_report.%h.%p"
"""nsys puts in host and process, so that reports of several nodes do not collide."""


def nsys_command(
    target: Sequence[str], report: str = DEFAULT_REPORT, options: Sequence[str] = ()
) -> list[str]:
    """The command that profiles ``target``; ``options`` of nsys come after ours, and win.

    >>> shlex.join(nsys_command(["torchrun", "train.py"], "out", ["--gpu-metrics-device=all"]))
    'nsys profile --trace=cuda,nvtx,osrt --cuda-memory-usage=true --output=out \
--gpu-metrics-device=all torchrun train.py'
    """
    ours = ["--trace=cuda,nvtx,osrt", "--cuda-memory-usage=true", f"--output={report}"]
    return ["nsys", "profile", *ours, *options, *target]


def shown_command(command: Sequence[str]) -> str:
    """As a person types it."""
    return f"{NVTX_VARIABLE}=on {shlex.join(command)}"


def why_cupti_is_taken(env: Mapping[str, str]) -> str:
    """Which other tool has CUPTI in a process with this environment; empty for none."""
    if env.get(SESSION_VARIABLE):
        return "Nsight Systems profiles this process"
    if env.get(INJECTION_VARIABLE):
        return f"another tool is injected into CUDA ({INJECTION_VARIABLE})"
    return ""
