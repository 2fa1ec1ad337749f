"""What a figure must be read with: the command, the machine and the versions."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from otel_straggler.native import NATIVE, REASON


def about(*packages: str) -> dict[str, Any]:
    """The first keys of a result.

    Args:
        packages: whose versions matter, besides ours; those that are absent are left out.
    """
    return {
        "command": " ".join(["python -m", _module(), *sys.argv[1:]]),
        "commit": _commit(),
        "machine": {
            "python": platform.python_version(),
            "processor": platform.machine(),
            "cpus": os.cpu_count(),
            "load": round(os.getloadavg()[0], 2),
            "nice": [os.getpriority(os.PRIO_PROCESS, 0), _nice_of_group()],
        },
        "versions": {name: result for name in packages if (result := _version(name))},
        "native": True if NATIVE is not None else REASON,
    }


def _module() -> str:
    """As it was started: ``benchmarks/scan.py`` or ``benchmarks/ingest/__main__.py``."""
    path = Path(sys.argv[0])
    return f"benchmarks.{path.parent.name if path.stem == '__main__' else path.stem}"


def _nice_of_group() -> int:
    """Of all processes of this session together, where Linux groups them so."""
    try:
        return int(Path("/proc/self/autogroup").read_text().rpartition(" ")[2])
    except (OSError, ValueError):
        return 0


def _commit() -> str:
    """What was measured, of this checkout; "+" if its code has been changed since."""
    commit = _git("rev-parse", "--short", "HEAD")
    changes = _git("status", "--short", "--", "otel_straggler", "cuda_ext", "benchmarks")
    return (commit or "unknown") + ("+" if changes else "")


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parents[2]), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # there is no git
        return ""


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
