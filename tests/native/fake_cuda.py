"""The fake CUDA driver of the C++ tests, built and driven from Python. It stands in for a GPU."""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path

import pytest

from .compiling import compiled
from .fake_cupti import FakeGpu

SOURCE = Path(__file__).parents[2] / "cuda_ext" / "fake" / "fake_cuda_driver.cpp"


def build(folder: Path) -> Path:
    """Compile the fake into ``folder``; skips, or fails under CI, where nothing compiles."""
    if not SOURCE.exists():
        pytest.skip("no sources here: it would show that sections are timed by CUDA events")
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        why = "no C++ compiler: it would show that sections are timed by CUDA events"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    path = folder / "libfake_cuda.so.1"
    options = f"-std=c++17 -O1 -fPIC -shared -pthread -Wl,-soname,{path.name}".split()
    return compiled(compiler, options, SOURCE, path)


class FakeCuda:
    """A GPU with one context and one stream, current in the thread that makes it.

    Attributes:
        stream: the handle that ``current_stream`` gives: what torch would say.
        asked: the devices that it was asked about.
    """

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._library = ctypes.CDLL(self.path)
        for name in ("context", "stream"):
            getattr(self._library, f"fake_cuda_{name}").restype = ctypes.c_void_p
        self._library.fake_cuda_get.restype = ctypes.c_uint64
        self.begin()

    def begin(self) -> None:
        """As in a fresh process."""
        self._library.fake_cuda_reset()
        self.asked: list[int] = []
        self.context = self.make_context(0)
        self.use(self.context)
        self.stream = self.make_stream(self.context)

    def current_stream(self, device: int) -> int:
        self.asked.append(device)
        return self.stream

    def make_context(self, device: int) -> int:
        return int(self._library.fake_cuda_context(device))

    def use(self, context: int | None) -> None:
        """Make it current in this thread."""
        self._library.fake_cuda_set_current(ctypes.c_void_p(context))

    def make_stream(self, context: int) -> int:
        return int(self._library.fake_cuda_stream(ctypes.c_void_p(context), 0))

    def launch(self, duration_ns: int) -> None:
        """Work on the current stream."""
        self._library.fake_cuda_launch(ctypes.c_void_p(self.stream), ctypes.c_uint64(duration_ns))

    def advance(self, ns: int) -> None:
        """Let time pass on the GPU."""
        self._library.fake_cuda_advance(ctypes.c_uint64(ns))

    def capture(self, is_on: bool) -> None:
        """Of the current stream, into a graph."""
        self._library.fake_cuda_capture(ctypes.c_void_p(self.stream), int(is_on))

    def fail(self, function: str, code: int) -> None:
        """Let a function of the driver fail; code 0: no longer."""
        self._library.fake_cuda_fail(function.encode(), code)

    def break_down(self, code: int) -> None:
        """A kernel has failed; the GPU is lost to this process."""
        self._library.fake_cuda_break(code)

    def traced_by(self, cupti: FakeGpu) -> None:
        """A libcupti sees the calls that its clients have it record."""
        call = ctypes.cast(ctypes.CDLL(cupti.path).cuDriverGetVersion, ctypes.c_void_p)
        self._library.fake_cuda_trace_version(call)

    def traced_by_nobody(self) -> None:
        self._library.fake_cuda_trace_version(None)

    def set(self, setting: str, value: int) -> None:
        """See ``fake_cuda_driver.hpp``."""
        self._library.fake_cuda_set(setting.encode(), ctypes.c_uint64(value))

    def get(self, count: str) -> int:
        """See ``fake_cuda_driver.hpp``."""
        return int(self._library.fake_cuda_get(count.encode()))
