"""Timing of sections on the GPU: which tier is on, why, and for how long.

Tiers are ``off < events < cupti``. What can be had is found out once CUDA is in use, never before;
what cannot be had steps down with a reason. See docs/recipes/gpu-timing.md.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from otel_straggler.native import NATIVE

CURRENT: Any = SimpleNamespace(timer=None, is_every_step=False)
"""The timer that recorder and exporter use; there is one at most in a process. is_every_step: it
times kernels in each step, if it times kernels."""


def current_timer() -> Any:
    """The ``_native.KernelTimer`` that times kernels, or has timed them until now; None: none.

    It may be paused. It is valid for ever: what it has counted can still be taken.
    """
    timer = CURRENT.timer
    return timer if hasattr(timer, "take_kernels") else None


def times_all_kernels() -> bool:
    """Whether the kernels of every step are timed."""
    return bool(CURRENT.is_every_step) and current_timer() is not None


def use_timer(timer: Any) -> None:
    """Have recorder and exporter use this one from the next boundary on; None: none."""
    CURRENT.timer = timer
    if NATIVE is not None:
        NATIVE.set_gpu_timer(timer)


def mark_complete() -> None:
    """The GPU has ended all that was launched, and all of it was read: nothing more is awaited."""
    if NATIVE is not None:
        NATIVE.set_gpu_complete(True)
