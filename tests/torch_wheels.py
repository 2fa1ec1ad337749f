"""Files of other versions of torch, read in their wheels: those for macOS, which are a tenth of the
size of those with CUDA and have the same Python files and stubs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

FOLDER = "OTEL_STRAGGLER_TORCH_WHEELS"
"""The variable with a folder of wheels, which is used before anything is downloaded, and kept."""
VERSIONS = (
    "2.4.1", "2.5.1", "2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0",
    "2.14.1",
)  # fmt: skip
_PLATFORMS = ("macosx_14_0_arm64", "macosx_12_0_arm64", "macosx_11_0_arm64")
_LONGEST_S = 280


def wheel_of(version: str, folder: Path) -> ZipFile:
    """From the folder that the variable names, else from the package index; skips without both."""
    kept = Path(os.environ.get(FOLDER, folder))
    if not list(kept.glob(f"torch-{version}*.whl")):
        _download(version, kept)
    (path, *_) = sorted(kept.glob(f"torch-{version}*.whl"))
    wheel = ZipFile(path)
    if FOLDER not in os.environ:
        path.unlink()  # it is open
    return wheel


def _download(version: str, folder: Path) -> None:
    platforms = [part for name in _PLATFORMS for part in ("--platform", name)]
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--only-binary", ":all:", "--python-version", "3.11", *platforms),
        *("--dest", str(folder), f"torch=={version}"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_S, check=False)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        pytest.skip(
            f"no wheel of torch {version}: {why}. It would show that what this package uses of "
            f"torch is there in {version}. Name a folder with the wheel by {FOLDER}."
        )
