"""How sections are recorded, and by which clock."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_straggler.client.gpu.owner import AUTO_TIER
from otel_straggler.client.gpu.surroundings import cupti_folder_of
from otel_straggler.client.heartbeats import BYTES_PER_SPAN
from otel_straggler.config import Endpoint
from otel_straggler.doctor.findings import Finding, info, ok, warning
from otel_straggler.doctor.versions import NOT_TRIED, WORKS, Probed, cuda_of_torch, probe
from otel_straggler.native import VARIABLE
from otel_straggler.semconv import GPU_TIERS, GPU_TIMING_REASONS

_LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/extras/CUPTI/lib64",
)


def check_recording(env: Mapping[str, str]) -> Iterator[Finding]:
    yield check_recorder()
    named = env.get("OTEL_STRAGGLER_CUPTI", "").strip()
    cupti = named or find_cupti(library_folders(env, cuda_of_torch()))
    yield check_gpu_timing(env, driver_version(Path("/")), cupti)


def check_recorder() -> Finding:
    """The form that ``client/recording.py`` has chosen."""
    from otel_straggler.client.recording import FORM, WHY_PYTHON

    if FORM == "native":
        return ok("recording.recorder", "Sections are recorded natively.", FORM)
    sentence = f"Sections are recorded in Python: {WHY_PYTHON}."
    return info("recording.recorder", sentence, FORM, _native_remedy(WHY_PYTHON))


def _native_remedy(reason: str) -> str:
    """How to get the compiled part, by why it is not used."""
    if reason.startswith(VARIABLE):
        return f"unset {VARIABLE}"
    install = "pip install --force-reinstall --no-deps --no-cache-dir ."
    where = "in the source folder; or a wheel for this platform"
    if shutil.which("c++") or shutil.which("g++"):
        return f"{install}   # {where}; with -v it shows why compiling fails"
    return f"apt install g++ && {install}   # {where}"


def check_exporter(endpoints: Iterable[Endpoint]) -> Finding:
    """The form that ``client/session.py`` would choose for a program without a provider."""
    from otel_straggler.client.recording import WHY_PYTHON
    from otel_straggler.otlp.clients.addresses import why_not_native

    reason = WHY_PYTHON or next(filter(None, map(why_not_native, endpoints)), "")
    if not reason:
        sentence = "Heartbeats and spans go out also while a library holds the GIL."
        return ok("settings.exporter", sentence, "native")
    sentence = (
        f"Nothing is sent while a library holds the GIL: the exporter is in Python ({reason})."
    )
    return info("settings.exporter", sentence, "python")


def check_gpu_timing(env: Mapping[str, str], driver: str, cupti: str) -> Finding:
    """Requested GPU timing, and what this machine supports.

    Args:
        driver: its version; empty: there is none, and nothing is tried.
        cupti: path of the library; empty: none.
    """
    requested = env.get("OTEL_STRAGGLER_GPU_TIMING", "").strip().lower() or "auto"
    seen = f"driver {driver}" if driver else "no NVIDIA driver"
    seen += f", CUPTI at {cupti}" if cupti else ", no CUPTI"
    value: dict[str, Any] = {
        "wish": requested,
        "driver": driver or None,
        "cupti": cupti or None,
    }
    if not driver:
        return _without_driver(requested, seen, value)
    named = env.get("OTEL_STRAGGLER_CUPTI", "").strip()
    probed = probe(named, str(Path(cupti).parent) if cupti else "", env)
    could = "cupti" if not probed.cupti else "off" if probed.events else "events"
    value |= {
        "could": could,
        "reason": probed.cupti or None,
        "library": probed.library or None,
        "interface": probed.version or None,
        "attribution": probed.attribution,
        "default": AUTO_TIER,
    }
    return _with_driver(requested, seen, could, probed, value)


def _without_driver(requested: str, seen: str, value: dict[str, Any]) -> Finding:
    sentence = f"Sections would be timed by the host only. Seen here: {seen}."
    if requested in {"auto", "off"}:
        return info("recording.gpu_timing", sentence, {**value, "could": "off"})
    remedy = "unset OTEL_STRAGGLER_GPU_TIMING   # or run the doctor where the GPU is"
    sentence = f"OTEL_STRAGGLER_GPU_TIMING is {requested}, but {sentence[0].lower()}{sentence[1:]}"
    return warning("recording.gpu_timing", sentence, remedy, {**value, "could": "off"})


def _with_driver(
    requested: str, seen: str, could: str, probed: Probed, value: dict[str, Any]
) -> Finding:
    able = f"This machine could time {_GIVES[could]}{_library_text(probed)}. Seen here: {seen}."
    if could != "cupti":
        able = (
            f"{able} Kernels cannot be timed: {probed.cupti_reported.partition(' What to do')[0]}."
        )
    able += _attribution_text(could, probed.attribution)
    if requested == "auto" and AUTO_TIER != "off":
        return _by_default(able, could, probed, value)
    if requested in {"auto", "off"}:
        remedy = "" if could == "off" else f"export OTEL_STRAGGLER_GPU_TIMING={could}"
        by_default = "auto, the default" if requested == "auto" else requested
        off = (
            f"GPU timing is off ({by_default}), so a section that only launches kernels looks fast."
        )
        return info("recording.gpu_timing", f"{off} {able}", value, remedy)
    if could == "cupti" or (could == requested):
        return ok("recording.gpu_timing", f"GPU timing is {requested}. {able}", value)
    remedy = GPU_TIMING_REASONS[probed.cupti].remedy
    sentence = f"GPU timing {requested} is wanted. {able}"
    return warning("recording.gpu_timing", sentence, remedy, value)


def _by_default(able: str, could: str, probed: Probed, value: dict[str, Any]) -> Finding:
    """Where ``auto`` times a GPU, once CUDA is in use."""
    is_had = GPU_TIERS.index(could) >= GPU_TIERS.index(AUTO_TIER)
    if is_had:
        sentence = f"GPU timing is {AUTO_TIER} (auto, the default) once CUDA is in use. {able}"
        return ok("recording.gpu_timing", sentence, value)
    sentence = f"GPU timing would be {AUTO_TIER} (auto, the default), but is {could}. {able}"
    return warning("recording.gpu_timing", sentence, _remedy_of(probed), value)


def _remedy_of(probed: Probed) -> str:
    return GPU_TIMING_REASONS[probed.events or probed.cupti].remedy


def _library_text(probed: Probed) -> str:
    """Which libcupti, and the version of its interface, as in 130001 for CUPTI 13.0.1."""
    if not probed.library:
        return ""
    return f" (tried: {probed.library}, interface {probed.version})"


def _attribution_text(could: str, attribution: str) -> str:
    """Whether it says in which section a kernel was launched."""
    if could != "cupti":
        return ""
    if attribution == WORKS:
        return " It shows which section a kernel was launched in."
    if attribution == NOT_TRIED:
        return (
            " Only training shows whether it finds the section that a kernel was launched in: "
            "gpu_timing() says so."
        )
    cause = GPU_TIMING_REASONS[attribution].cause
    return f" Kernels would have no section: {cause} ({attribution})."


_GIVES = {
    "off": "nothing on its GPU",
    "events": "sections by CUDA events",
    "cupti": "kernels by CUPTI",
}


def driver_version(root: Path) -> str:
    """Of the NVIDIA kernel module; "unknown" if only its device is there."""
    try:
        text = (root / "proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "unknown" if any((root / "dev").glob("nvidia[0-9]*")) else ""
    fields = text.splitlines()[0].split() if text else []
    numbers = [word for word in fields if word[:1].isdigit() and "." in word]
    return numbers[0] if numbers else "unknown"


def library_folders(env: Mapping[str, str], cuda: str = "") -> Iterator[Path]:
    """Where torch, which was built for this version of CUDA and is not loaded yet, and the loader
    find CUDA libraries: the wheels of that version first, as in training."""
    of_torch = cupti_folder_of(cuda)
    if of_torch:
        yield Path(of_torch)
    yield from (Path(p) for p in env.get("LD_LIBRARY_PATH", "").split(os.pathsep) if p)
    if env.get("CUDA_HOME"):
        yield Path(env["CUDA_HOME"], "extras", "CUPTI", "lib64")
    for folder in sys.path:
        yield from sorted(Path(folder or ".", "nvidia").glob("*/lib"))
    yield from map(Path, _LIBRARY_FOLDERS)


def find_cupti(folders: Iterable[Path]) -> str:
    """The first library; empty if there is none."""
    for folder in folders:
        result = sorted(folder.glob("libcupti.so*"))
        if result:
            return str(result[0])
    return ""


SPAN_BUDGET = 200.0
"""Spans per second of one rank."""
HEARTBEAT_BYTES_PER_S = 1_000 / 5.0
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Volume:
    """Load of the busiest rank, number of ranks, and how this is known."""

    spans_per_s: float
    ranks: int
    basis: str

    @property
    def bytes_per_day(self) -> float:
        """Of one rank, uncompressed, heartbeats included."""
        return (self.spans_per_s * BYTES_PER_SPAN + HEARTBEAT_BYTES_PER_S) * _DAY_S


def measured(window: dict[str, Any]) -> Volume | None:
    """From a window of the report; None if it has too little data."""
    rows: Counter[str] = Counter()
    for column in window.get("section_counts", {}).values():
        rows.update({rank: count or 0 for rank, count in column.items()})
    seconds = ((window.get("end_ns") or 0) - (window.get("start_ns") or 0)) / 1e9
    if not rows or seconds <= 0:
        return None
    spans = max(rows.values()) + (window.get("n_steps") or 0)
    ranks = max(window.get("world_size") or 0, len(rows))
    return Volume(spans / seconds, ranks, f"measured over the newest window, {seconds:.1f} s")


def assumed(sections_per_step: float, step_s: float, ranks: int) -> Volume:
    """From the options; each step has a span of its own."""
    basis = f"assuming {sections_per_step:g} sections a step and steps of {step_s:g} s"
    return Volume((sections_per_step + 1) / step_s, ranks, basis)


def check_volume(volume: Volume) -> Finding:
    total = volume.bytes_per_day * volume.ranks
    sentence = (
        f"{volume.spans_per_s:.1f} spans/s and {readable(volume.bytes_per_day)} a day from one "
        f"rank, {readable(total)} a day from {volume.ranks} ({volume.basis})."
    )
    value = {
        "spans_per_second_per_rank": round(volume.spans_per_s, 3),
        "bytes_per_day_per_rank": round(volume.bytes_per_day),
        "bytes_per_day": round(total),
        "ranks": volume.ranks,
        "basis": volume.basis,
    }
    if volume.spans_per_s > SPAN_BUDGET:
        remedy = "Mark fewer, larger sections: a loop in one section, not a section in the loop."
        more = f"{sentence} The budget is {SPAN_BUDGET:.0f} spans/s of a rank."
        return warning("volume.spans", more, remedy, value)
    if volume.basis.startswith("assuming"):
        hint = "otel-straggler doctor --sections-per-step N --step-seconds S"
        return info("volume.spans", sentence, value, hint)
    return ok("volume.spans", sentence, value)


def readable(count: float) -> str:
    """
    >>> readable(25_920_000), readable(3e13)
    ('25.9 MB', '30.0 TB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
