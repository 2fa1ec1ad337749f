"""Kernels for tests, as a timer gives them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from otel_straggler import semconv
from otel_straggler.model.kernels import KernelCell, KernelTally, TimedKernel
from otel_straggler.model.observation import Kernel, kernel_class_of

FINEST_SCALE = 7
MAX_BUCKETS = 512


def taken(name: str, section: int, times_ns: Sequence[int]) -> TimedKernel:
    """One entry of ``KernelTimer.take_kernels()``: what histogram.hpp makes of these times."""
    timed = [t for t in times_ns if t > 0]
    scale, index = (
        FINEST_SCALE,
        [math.ceil(math.log2(t / 1e9) * 2**FINEST_SCALE) - 1 for t in timed],
    )
    while timed and max(index) - min(index) + 1 > MAX_BUCKETS:
        scale, index = scale - 1, [i >> 1 for i in index]
    first = min(index, default=0) - 2  # there is room at the ends
    buckets = np.bincount(np.array(index, np.int64) - first, minlength=4).astype(np.uint32)
    number = semconv.KERNEL_CLASSES.index(kernel_class_of(name))
    sums = len(times_ns), sum(times_ns), min(times_ns), max(times_ns)
    return (name, number, section, *sums, scale, first, buckets.tobytes())


class Script:
    """A timer that has counted what it is told."""

    def __init__(self) -> None:
        self.counted: list[TimedKernel] = []

    def count(self, name: str, section: int, times_ns: Sequence[int]) -> None:
        self.counted.append(taken(name, section, times_ns))

    def take_kernels(self) -> list[TimedKernel]:
        counted, self.counted = self.counted, []
        return counted


def cell(name: str, section: str = "forward") -> KernelCell:
    return KernelCell(section, Kernel(name, kernel_class_of(name)))


def tally(*kernels: tuple[str, str, Sequence[int]]) -> KernelTally:
    """Of (kernel, section, times in ns)."""
    made = KernelTally()
    made.add((cell(name, section), taken(name, 0, times)) for name, section, times in kernels)
    return made
