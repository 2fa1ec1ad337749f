"""The fake libcupti of the C++ tests, built and driven from Python. It stands in for a GPU."""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path

import pytest

from .compiling import compiled

SOURCE = Path(__file__).parents[2] / "cuda_ext" / "fake" / "fake_cupti.cpp"


def build(folder: Path, name: str = "libcupti.so.13") -> Path:
    """Compile the fake into ``folder``, with ``name`` as the loader knows it; skips, or fails under
    CI, where nothing compiles."""
    if not SOURCE.exists():
        pytest.skip("no sources here: it would show that kernels are counted in their sections")
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        why = "no C++ compiler: it would show that kernels are counted in their sections"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    path = folder / name
    options = f"-std=c++17 -O1 -fPIC -shared -pthread -Wl,-soname,{path.name}".split()
    return compiled(compiler, options, SOURCE, path)


class FakeGpu:
    """What a training process does with its GPU, by the fake's own functions."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._library = ctypes.CDLL(self.path)
        launch = self._library.fake_launch
        launch.argtypes = (ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32)
        self._names: dict[str, ctypes.Array[ctypes.c_char]] = {}

    def launch(self, name: str, duration_ns: int, stream: int = 7) -> None:
        """A kernel on device 0. Its name stays where it is, as a module's does."""
        kept = self._names.setdefault(name, ctypes.create_string_buffer(name.encode()))
        self._library.fake_launch(ctypes.cast(kept, ctypes.c_char_p), duration_ns, 0, stream)

    def set(self, setting: str, value: int) -> None:
        """See ``fake_cupti.hpp``."""
        self._library.fake_set(setting.encode(), ctypes.c_uint64(value))

    def reset(self) -> None:
        """As in a fresh process."""
        self._library.fake_reset()

    def get(self, count: str) -> int:
        """Calls of a function, or what else ``fake_cupti.cpp`` counts."""
        self._library.fake_get.restype = ctypes.c_uint64
        return int(self._library.fake_get(count.encode()))

    def give_to_another(self) -> None:
        """Another profiler registers its callbacks, and gets what comes."""
        self._library.fake_foreign_takeover()

    def foreign_bytes(self) -> int:
        """What the other client got."""
        self._library.fake_foreign_bytes.restype = ctypes.c_uint64
        return int(self._library.fake_foreign_bytes())

    def enable_kernels(self) -> None:
        """What a client of CUPTI does, for everybody."""
        self._library.cuptiActivityEnable(10)

    def disable(self, kind: int) -> None:
        """What another client of CUPTI may do, for everybody."""
        self._library.cuptiActivityDisable(kind)

    def disable_kernels(self) -> None:
        self._library.cuptiActivityDisable(10)
        self.flush()

    def flush(self) -> None:
        self._library.cuptiActivityFlushAll(0)

    def fail(self, function: str, code: int) -> None:
        """Let a function of CUPTI fail; code 0: no longer."""
        self._library.fake_fail(function.encode(), code)
