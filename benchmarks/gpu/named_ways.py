"""Which way to time kernels has which name: the names of arms."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from benchmarks.gpu import native
from benchmarks.gpu.variants import ByCallback, ByLaunches, ByRecord, Sampled, events_way
from benchmarks.gpu.ways import Nvrx, Off, Probed, Profiled, Timed

VARIANTS = {"c": ByRecord, "g": ByCallback, "l": ByLaunches}
"""Of attribution, by the bare CUPTI: marks by records of one call, marks by a callback on that
call, callbacks on all calls that launch."""


def way_of(cuda: Any, name: str) -> Off:
    """By the name of an arm.

    Raises:
        KeyError: there is no such way.
    """
    ext, kernel = native.EXTERNAL, native.KERNEL
    makers = {
        "off": lambda: Off(cuda),
        "off_again": lambda: Off(cuda),
        "events": lambda: events_way(cuda),
        "kernels": lambda: Probed(cuda, (kernel,)),
        "m1": lambda: Timed(cuda),
        "m2": lambda: Timed(cuda, prefers_launches=True),
        "m3": lambda: Probed(cuda, (ext, kernel), has_launch_calls=True, pushes=True),
        "m4": lambda: Probed(cuda, (ext, native.DRIVER, kernel), pushes=True),
        "nvrx": lambda: _nvrx(cuda),
        "profiler_cuda": lambda: Profiled(cuda, has_cpu=False),
        "profiler_cpu_cuda": lambda: Profiled(cuda, has_cpu=True),
        **{variant: lambda kind=kind: kind(cuda) for variant, kind in VARIANTS.items()},
        **{f"1 in {every}": lambda every=every: Sampled(cuda, every) for every in (1, 10, 50)},
    }
    return makers[name]()


def _nvrx(cuda: Any) -> Off:
    if find_spec("nvrx_cupti_module") is not None and not cuda.is_fake:
        return Nvrx(cuda)
    return Probed(cuda, switches=True, reading=native.BY_TEXT)
