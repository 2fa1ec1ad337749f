"""The GPU as experiments see it: PyTorch's, or a pretence on the CPU that finds typing errors.

The pretence runs the same PyTorch code on the CPU and launches a kernel of the fake libcupti for
every operation. Its figures mean nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu import native
from benchmarks.gpu.presence import FAKE

_NO_KERNELS = (
    "Memcpy",
    "Memset",
    "ProfilerStep",
    *("Context Sync", "Stream ", "Event Sync"),
    *("Activity Buffer", "Buffer Flush", "Command Buffer", "Lazy Function", "Instrumentation"),
    *("Resource", "Unknown"),
)
"""How names of what a profiler puts on the GPU's side begin, besides kernels."""


def cuda() -> Any:
    """A :class:`Cuda`, or a :class:`FakeCuda` where the environment says so."""
    return FakeCuda() if os.environ.get(FAKE) else Cuda()


class Cuda:
    """One device, the first; one process."""

    is_fake = False
    device = "cuda"
    dtype = "bfloat16"
    timer_paths: tuple[str, str, str]
    events_driver: str | None = ""
    """As ``EventTimer`` wants it; None: it cannot work here."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.timer_paths = ("", _folder_of_cupti(str(torch.version.cuda)), "")
        self.driver = "libcuda.so.1"

    def begin(self) -> None:
        """Make the CUDA context."""
        self.torch.cuda.init()
        self.torch.zeros(1, device=self.device)
        self.torch.cuda.synchronize()

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()

    def event(self) -> Any:
        """With ``record()``, ``query()`` and ``elapsed_time(later)`` in ms."""
        return self.torch.cuda.Event(enable_timing=True)

    def stream(self) -> Any:
        return self.torch.cuda.Stream()

    def on(self, stream: Any) -> contextlib.AbstractContextManager[Any]:
        """What is launched inside goes to that stream."""
        used: contextlib.AbstractContextManager[Any] = self.torch.cuda.stream(stream)
        return used

    def pointer(self, stream: Any = None) -> int:
        """Of a stream, the current one by default, as the driver knows it."""
        return int((stream or self.torch.cuda.current_stream()).cuda_stream)

    def launches(self) -> contextlib.AbstractContextManager[Any]:
        """Around work whose kernels are to be seen: here nothing is to do."""
        return contextlib.nullcontext()

    def memory_used(self) -> int:
        """Bytes of the device in use, by all processes."""
        free, total = self.torch.cuda.mem_get_info()
        return int(total - free)

    def memory_free(self) -> int:
        return int(self.torch.cuda.mem_get_info()[0])

    def session(self, *, has_cpu: bool = False) -> Session:
        """Of torch.profiler, not begun."""
        return Session(self.torch, has_cpu=has_cpu)

    def probe(self) -> native.Probe:
        """The probe, on the libcupti that torch has loaded."""
        return native.Probe(*self.timer_paths)


class Session:
    """One of torch.profiler."""

    def __init__(self, torch: Any, *, has_cpu: bool) -> None:
        activity = torch.profiler.ProfilerActivity
        chosen = [activity.CPU, activity.CUDA] if has_cpu else [activity.CUDA]
        self._profiler = torch.profiler.profile(activities=chosen)

    def start(self) -> None:
        self._profiler.start()

    def stop(self) -> None:
        self._profiler.stop()

    def kernels(self) -> int:
        """How many it saw, after it has stopped; copies and fills are none."""
        return sum(map(_is_kernel, self._profiler.profiler.kineto_results.events()))


def _is_kernel(event: Any) -> bool:
    if hasattr(event, "activity_type"):  # not in older versions of PyTorch
        return bool(event.activity_type() == "kernel")
    is_on_gpu = str(event.device_type()).endswith("CUDA")
    return is_on_gpu and not event.name().startswith(_NO_KERNELS)


class FakeCuda(Cuda):
    """On the CPU, with the fake libcupti for a driver."""

    is_fake = True
    events_driver = os.environ.get("OTEL_STRAGGLER_GPU_CHECK_DRIVER")
    device = "cpu"
    dtype = "float32"

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.driver = str(native.build_fake())
        self.timer_paths = (self.driver, "", self.driver)
        self._gpu = ctypes.CDLL(self.driver)
        self._names: dict[str, Any] = {}
        self.launched = 0

    def begin(self) -> None:
        """There is no context."""

    def synchronize(self) -> None:
        """Kernels of the fake have ended when they are launched."""

    def event(self) -> Any:
        return _FakeEvent()

    def stream(self) -> Any:
        return None

    def on(self, stream: Any) -> contextlib.AbstractContextManager[Any]:
        del stream
        return contextlib.nullcontext()

    def pointer(self, stream: Any = None) -> int:
        del stream
        return 0

    def session(self, *, has_cpu: bool = False) -> Session:
        return _FakeSession(self, has_cpu=has_cpu)

    def memory_used(self) -> int:
        return 0

    def memory_free(self) -> int:
        return 2**36

    def launch(self, name: str, duration_ns: int = 1_000) -> None:
        """A kernel of the fake."""
        self.launched += 1
        kept = self._names.setdefault(name, ctypes.create_string_buffer(name.encode()))
        self._gpu.fake_launch(
            ctypes.cast(kept, ctypes.c_char_p), ctypes.c_uint64(duration_ns), 0, 7
        )

    @contextlib.contextmanager
    def launches(self) -> Iterator[None]:
        """Every operation of PyTorch inside launches a kernel."""
        from torch.utils._python_dispatch import TorchDispatchMode

        gpu = self

        class Launching(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
                del types
                gpu.launch(str(func))
                return func(*args, **(kwargs or {}))

        with Launching():
            yield


class _FakeSession(Session):
    """Of the CPU; its kernels are those that the fake was asked to launch meanwhile."""

    def __init__(self, cuda: FakeCuda, *, has_cpu: bool) -> None:
        del has_cpu
        activity = cuda.torch.profiler.ProfilerActivity.CPU
        self._profiler = cuda.torch.profiler.profile(activities=[activity])
        self._cuda, self._before = cuda, cuda.launched

    def start(self) -> None:
        self._profiler.start()
        self._before = self._cuda.launched

    def kernels(self) -> int:
        return self._cuda.launched - self._before


class _FakeEvent:
    def record(self, stream: Any = None) -> None:
        del stream
        self.at_ns = time.perf_counter_ns()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """It has happened."""

    def elapsed_time(self, later: _FakeEvent) -> float:
        return max(later.at_ns - self.at_ns, 1) / 1e6


def _folder_of_cupti(cuda_version: str) -> str:
    """Of the wheel that torch brings; empty if there is none."""
    inside = {"13": "nvidia/cu13/lib"}.get(
        cuda_version.split(".", maxsplit=1)[0], "nvidia/cuda_cupti/lib"
    )
    for folder in map(Path, sys.path):
        if (folder / inside).is_dir():
            return str(folder / inside)
    return ""
