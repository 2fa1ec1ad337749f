"""How section runs are recorded, and by what clock."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from otel_straggler.config import Endpoint
from otel_straggler.doctor.findings import Finding, info, ok

_LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/extras/CUPTI/lib64",
)


def check_recording(env: Mapping[str, str]) -> Iterator[Finding]:
    """The recorder of this installation, and what its times stand for."""
    yield check_recorder()
    yield check_gpu_timing(driver_version(Path("/")), find_cupti(library_folders(env)))


def check_recorder() -> Finding:
    """Which form ``record/active.py`` has chosen."""
    from otel_straggler.record.active import FORM, WHY_PYTHON

    if FORM == "native":
        return ok("recording.recorder", "Sections are recorded natively.", FORM)
    sentence = f"Sections are recorded in Python: {WHY_PYTHON}."
    return info("recording.recorder", sentence, FORM)


def check_exporter(endpoints: Iterable[Endpoint]) -> Finding:
    """Which form ``record/exporting.py`` would choose for a program without a provider."""
    from otel_straggler.record.active import WHY_PYTHON
    from otel_straggler.transport.native_address import why_not_native

    reason = WHY_PYTHON or next(filter(None, map(why_not_native, endpoints)), "")
    if not reason:
        sentence = "Heartbeats and spans go out also while a library holds the GIL."
        return ok("settings.exporter", sentence, "native")
    sentence = (
        f"Nothing is sent while a library holds the GIL: the exporter is in Python ({reason})."
    )
    return info("settings.exporter", sentence, "python")


def check_gpu_timing(driver: str, cupti: str) -> Finding:
    """Off in this version. What a GPU tier would need is only looked for, never loaded."""
    seen = f"driver {driver}" if driver else "no NVIDIA driver"
    seen += f", CUPTI at {cupti}" if cupti else ", no CUPTI"
    return info(
        "recording.gpu_timing",
        "GPU timing is off: this version measures host time, so a section that only launches "
        f"kernels looks fast. Seen here: {seen}.",
        {"tier": "off", "driver": driver or None, "cupti": cupti or None},
    )


def driver_version(root: Path) -> str:
    """Of the NVIDIA kernel module, as it says itself; "unknown" if only its device is there."""
    try:
        text = (root / "proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "unknown" if any((root / "dev").glob("nvidia[0-9]*")) else ""
    words = text.splitlines()[0].split() if text else []
    numbers = [word for word in words if word[:1].isdigit() and "." in word]
    return numbers[0] if numbers else "unknown"


def library_folders(env: Mapping[str, str]) -> Iterator[Path]:
    """Where the loader, and torch, would find libraries of CUDA."""
    yield from (Path(p) for p in env.get("LD_LIBRARY_PATH", "").split(os.pathsep) if p)
    if env.get("CUDA_HOME"):
        yield Path(env["CUDA_HOME"], "extras", "CUPTI", "lib64")
    for folder in sys.path:
        yield from sorted(Path(folder or ".", "nvidia").glob("*/lib"))
    yield from map(Path, _LIBRARY_FOLDERS)


def find_cupti(folders: Iterable[Path]) -> str:
    """The first library found; empty if there is none."""
    for folder in folders:
        found = sorted(folder.glob("libcupti.so*"))
        if found:
            return str(found[0])
    return ""
