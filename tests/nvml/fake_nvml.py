"""The fake libnvidia-ml, built and scripted from Python. It stands in for a driver."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ..native.compiling import compiled

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "cuda_ext" / "fake" / "fake_nvml.c"
H200 = {
    "uuid": "GPU-1234",
    "model": "NVIDIA H200",
    "pci": "00000000:3B:00.0",
    "clock.1": 1980,
    "clock.2": 3201,
    "temperature": 55,
    "reasons": 4,
    "events": 8 + 2,
    **{f"field.{n}": 1000 + n for n in (3, 4, 74, 75, 76, 77, 79, 82, 94, 142, 143, 144, 145)},
    "field.83": 5_000_000,
    "field.185": 690_000,
    "field.186": 700_000,
}
"""What a healthy one says."""


def build(folder: Path) -> Path:
    """Compile the fake into ``folder``; skips, or fails under CI, where nothing compiles."""
    compiler = shutil.which(os.environ.get("CC", "gcc"))
    if compiler is None or not SOURCE.exists():
        why = "no C compiler or no sources: it would show what is read of a GPU"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    path = folder / "libnvidia-ml.so.1"
    options = f"-std=gnu11 -O1 -fPIC -shared -Wl,-soname,{path.name}".split()
    return compiled(compiler, options, SOURCE, path)


class FakeDriver:
    """Programs run beside it, with what it says in a file that they may rewrite.

    Args:
        library: of ``build()``; None: there is none.
        folder: for its files.
    """

    def __init__(self, library: Path | None, folder: Path) -> None:
        self._library, self._script = library, folder / "script"
        self._log = folder / "log"

    def run(self, program: str, **printed: object) -> str:
        """Standard output of a program; ``printed`` changes what a healthy GPU says, None: no more.
        In names "__" stands for a dot."""
        values = {**H200, **{name.replace("__", "."): value for name, value in printed.items()}}
        self._script.write_text(_lines(values))
        environment = {**os.environ, "FAKE_NVML": str(self._script), "PYTHONPATH": str(ROOT)}
        environment |= {"FAKE_NVML_LOG": str(self._log)}
        if self._library is not None:
            environment["LD_LIBRARY_PATH"] = str(self._library.parent)
        paths = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", _PRELUDE + program],
            env={**environment, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def calls(self) -> list[str]:
        """Functions that were called so far, in order."""
        return self._log.read_text().split() if self._log.exists() else []


def _lines(values: dict[str, object]) -> str:
    return "".join(f"{name} {value}\n" for name, value in values.items() if value is not None)


_PRELUDE = "from otel_straggler.client.gpu.surroundings import pci_id_of_driver\n"
