"""The collector's process, under the names of Prometheus' client libraries. From Linux' /proc;
elsewhere its CPU time alone."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from otel_straggler import semconv
from otel_straggler.collector.metrics.families import Families

_PROC: Final = Path("/proc/self")
_START, _VIRTUAL, _RESIDENT = 19, 20, 21
"""Places in ``/proc/self/stat`` after the name of the program, which may have blanks in it."""


def process_families(constant_labels: str) -> Families:
    """CPU, memory, file descriptors and start of this process; what cannot be read is left out."""
    families = Families()
    families.add(semconv.PROCESS_CPU, constant_labels, time.process_time())
    try:
        stat = (_PROC / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2]
        fields = stat.split()
        families.add(semconv.PROCESS_VIRTUAL_MEMORY, constant_labels, int(fields[_VIRTUAL]))
        resident = int(fields[_RESIDENT]) * os.sysconf("SC_PAGE_SIZE")
        families.add(semconv.PROCESS_RESIDENT_MEMORY, constant_labels, resident)
        started_s = _booted_at_s() + int(fields[_START]) / os.sysconf("SC_CLK_TCK")
        families.add(semconv.PROCESS_START, constant_labels, started_s)
        families.add(semconv.PROCESS_OPEN_FDS, constant_labels, len([*(_PROC / "fd").iterdir()]))
        families.add(semconv.PROCESS_MAX_FDS, constant_labels, _max_fds())
    except (OSError, ValueError, IndexError, ImportError):
        return families
    return families


def _booted_at_s() -> float:
    for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    raise ValueError("/proc/stat has no btime")


def _max_fds() -> int:
    import resource  # Windows has none

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
