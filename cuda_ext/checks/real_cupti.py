"""Fetch NVIDIA's libcupti for tests: print the path of that of each wheel that is named.

    python3 checks/real_cupti.py nvidia-cuda-cupti==13.0.85

Wheels come by pip and are kept, unpacked, in the user's cache (XDG_CACHE_HOME); nothing of them
gets into the tree. One that cannot be had is named; under CI that is a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


def main(wheels: list[str]) -> int:
    """Print the paths; the exit code is 1 if one is missing under CI."""
    missing = 0
    for wheel in wheels:
        path = _cached(wheel) or _fetch(wheel)
        if path is not None:
            print(path)
            continue
        missing += 1
        print(
            f"{wheel}: no libcupti; it would show that our reading of its records is NVIDIA's",
            file=sys.stderr,
        )
    return 1 if missing and os.environ.get("CI") else 0


def _folder(wheel: str) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "otel-straggler" / "cupti" / wheel.replace("==", "-")


def _cached(wheel: str) -> Path | None:
    return next(iter(sorted(_folder(wheel).glob("libcupti.so.*"))), None)


def _fetch(wheel: str) -> Path | None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--only-binary", ":all:", "--dest", folder]
        answer = subprocess.run([*command, wheel], check=False, stdout=sys.stderr)
        found = list(Path(folder).glob("*.whl"))
        if answer.returncode != 0 or not found:
            return None
        with zipfile.ZipFile(found[0]) as archive:
            names = [name for name in archive.namelist() if "/libcupti.so." in name]
            return _unpack(archive, names[0], _folder(wheel)) if names else None


def _unpack(archive: zipfile.ZipFile, name: str, folder: Path) -> Path:
    """Whole or not at all: another process may check for it meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / Path(name).name
    unfinished = folder / f"unfinished-{os.getpid()}"
    unfinished.write_bytes(archive.read(name))
    return unfinished.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
