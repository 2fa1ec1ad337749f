"""The probe of C++ from Python: CUPTI itself, and launches without PyTorch's cost."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).parent / "probe"
KERNELS = SOURCES / "kernels.ptx"
NO_COMPILER = (218, 221, 222)
"""The driver's answers where it cannot compile PTX, or not this version of it."""
BUILD = ROOT / "build" / "gpu-probe"
FAKE_SOURCE = ROOT / "cuda_ext" / "fake" / "fake_cupti.cpp"
KERNEL, DRIVER, RUNTIME, MEMCPY, MEMSET, EXTERNAL, GRAPH = 10, 4, 5, 1, 2, 39, 51
"""Kinds of records."""
CUSTOM2 = 5
"""The kind of external correlation that is ours."""
COUNT, KEEP, BY_TEXT = 0, 1, 2
"""What the probe does with records: counts, keeps them for ``take()``, or counts as NVRx does."""
CALLS = ("enable_disable", "flush", "push_pop", "driver_call", "mark", "subscribe", "clock")
"""What ``time()`` can time."""
SEEN = np.dtype(
    [
        ("kind", "u4"),
        ("call", "u4"),
        ("start", "u8"),
        ("end", "u8"),
        ("external", "u8"),
        ("device", "u4"),
        ("stream", "u4"),
        ("correlation", "u4"),
        ("thread", "u4"),
        ("graph", "u4"),
        ("name", "u4"),
    ]
)
_COUNTS = (
    "kernels",
    "kernel_ns",
    "invalid",
    "other",
    "dropped",
    "requested",
    "completed",
    "bytes",
    "broken",
)


class NoProbeError(Exception):
    """The probe cannot be built, or finds no CUPTI; the message says why."""


def build() -> Path:
    """Compile the probe if its sources are newer than what is there.

    Raises:
        NoProbeError: there is no compiler, or it refuses.
    """
    sources = sorted(SOURCES.glob("*.cpp"))
    return _compile(BUILD / "libgpu_probe.so", sources, ["-I", str(ROOT / "cuda_ext" / "include")])


def build_fake() -> Path:
    """Compile the fake libcupti, for a run without a GPU."""
    return _compile(
        BUILD / "libcupti.so.13", [FAKE_SOURCE], ["-Wl,-soname,libcupti.so.13", "-Wno-conversion"]
    )


def _compile(made: Path, sources: list[Path], options: list[str]) -> Path:
    if made.exists() and made.stat().st_mtime > max(s.stat().st_mtime for s in sources):
        return made
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise NoProbeError("no C++ compiler (g++): the probe of benchmarks.gpu cannot be built")
    made.parent.mkdir(parents=True, exist_ok=True)
    new = made.with_suffix(f".{os.getpid()}")
    flags = ["-std=c++17", "-O2", "-fPIC", "-shared", "-pthread"]
    command = [compiler, *flags, *options, *map(str, sources), "-o", str(new), "-ldl"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise NoProbeError(f"the probe does not compile: {answer.stderr.strip()[-500:]}")
    new.replace(made)  # several processes may build at once
    return made


class Probe:
    """One per process. Functions that return an ``int`` give CUPTI's result, 0 = done.

    Args:
        path, folder, driver: as of ``KernelTimer``.

    Raises:
        NoProbeError: it cannot be built, or there is no usable libcupti.
    """

    def __init__(self, path: str = "", folder: str = "", driver: str = "") -> None:
        self._c: Any = ctypes.CDLL(str(build()))
        _declare(self._c)
        reason = self._c.probe_open(path.encode(), folder.encode(), driver.encode()).decode()
        if reason:
            raise NoProbeError(reason)
        self.path: str = self._c.probe_path().decode()
        self.version: int = self._c.probe_version()

    def __getattr__(self, name: str) -> Any:
        """``enable(kind)``, ``flush(flag)``, ``launch(times, ticks, stream)`` and so on."""
        for prefix in ("probe_", "launcher_"):
            if hasattr(self._c, prefix + name):
                return getattr(self._c, prefix + name)
        raise AttributeError(name)

    def cupti(self) -> Any:
        """libcupti itself, by ctypes."""
        return ctypes.CDLL(self.path)

    def open_launcher(self, driver: str) -> None:
        """Load our two kernels; a CUDA context must be current.

        Raises:
            NoProbeError: the driver refuses.
        """
        code = self._c.launcher_open(driver.encode(), KERNELS.read_bytes())
        if code in NO_COMPILER:
            code = self._c.launcher_open(driver.encode(), assembled(_architecture()))
        if code:
            raise NoProbeError(
                f"the driver refused our kernels with {code} (-1: a function is missing)"
            )

    def counts(self) -> dict[str, int]:
        """Of records and buffers so far."""
        out = (ctypes.c_uint64 * len(_COUNTS))()
        self._c.probe_counts(out)
        return dict(zip(_COUNTS, map(int, out), strict=True))

    def take(self) -> npt.NDArray[Any]:
        """The records that were kept since the last time."""
        result = np.zeros(self._c.probe_kept(), SEEN)
        self._c.probe_take(result.ctypes.data_as(ctypes.c_void_p), len(result))
        return result

    def name(self, number: int) -> str:
        """Of a kernel, as its module has it (mangled)."""
        text: bytes = self._c.probe_name(int(number))
        return text.decode("utf-8", "replace")

    def ns_per_call(self, call: str, times: int) -> float:
        """Of one of ``CALLS``, on the wall clock."""
        return float(self._c.probe_time(CALLS.index(call), times)) / times

    def time_events(self, times: int, stream: int) -> tuple[float, float]:
        """ns of a ``cuEventRecord``, and of a ``cuEventQuery``."""
        out = (ctypes.c_int64 * 2)()
        if code := self._c.launcher_time_events(times, ctypes.c_void_p(stream), out):
            raise NoProbeError(f"the driver refused events with {code}")
        return out[0] / times, out[1] / times


def assembled(architecture: str) -> bytes:
    """Our kernels for a GPU such as ``sm_90``, by the ``ptxas`` of CUDA or of Triton.

    Raises:
        NoProbeError: there is none, or it refuses.
    """
    triton = find_spec("triton")
    folders = (triton.submodule_search_locations or ()) if triton else ()
    indexes = [shutil.which("ptxas"), "/usr/local/cuda/bin/ptxas"]
    indexes += [f"{folder}/backends/nvidia/bin/ptxas" for folder in folders]
    result = next((index for index in indexes if index and Path(index).exists()), None)
    if result is None:
        raise NoProbeError("the driver compiles no PTX, and there is no ptxas to do it")
    made = BUILD / f"kernels.{architecture}.{os.getpid()}"
    made.parent.mkdir(parents=True, exist_ok=True)
    command = [result, f"-arch={architecture}", str(KERNELS), "-o", str(made)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise NoProbeError(f"{result} refused our kernels: {answer.stderr.strip()[-300:]}")
    kernels = made.read_bytes()
    made.unlink()
    return kernels


def _architecture() -> str:
    import torch

    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


def _declare(c: Any) -> None:
    text, number, long_number = ctypes.c_char_p, ctypes.c_int, ctypes.c_int64
    wide, index = ctypes.c_uint64, ctypes.c_void_p
    faces: dict[str, tuple[Any, list[Any]]] = {
        "probe_open": (text, [text, text, text]),
        "probe_path": (text, []),
        "probe_version": (ctypes.c_uint32, []),
        "probe_reading": (None, [number]),
        "probe_register": (number, []),
        "probe_enable": (number, [ctypes.c_uint32]),
        "probe_disable": (number, [ctypes.c_uint32]),
        "probe_push": (number, [ctypes.c_uint32, wide]),
        "probe_pop": (number, [ctypes.c_uint32]),
        "probe_driver_call": (number, [ctypes.c_uint32, number]),
        "probe_launch_calls": (number, [number]),
        "probe_subscribe": (number, [number]),
        "probe_unsubscribe": (number, []),
        "probe_mark": (None, [wide]),
        "probe_flush": (number, [ctypes.c_uint32]),
        "probe_start_thread": (None, []),
        "probe_stop_thread": (None, []),
        "probe_take": (ctypes.c_size_t, [index, ctypes.c_size_t]),
        "probe_kept": (ctypes.c_size_t, []),
        "probe_name": (text, [ctypes.c_uint32]),
        "probe_counts": (None, [ctypes.POINTER(wide)]),
        "probe_time": (long_number, [number, number]),
        "launcher_open": (number, [text, text]),
        "launcher_launch": (long_number, [number, wide, index]),
        "launcher_occupy": (number, [wide, number, number, number, index]),
        "launcher_order": (number, [number, number, number, wide]),
        "launcher_time_events": (number, [number, index, ctypes.POINTER(long_number)]),
    }
    for name, (result, arguments) in faces.items():
        function = getattr(c, name)
        function.restype, function.argtypes = result, arguments
