"""Whether a timer that works still does: pure, from its counts. And what its thread costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from otel_straggler.record.gpu.reasons import Refusal

SILENT_FLUSHES = 60
"""So many flushes in a row, half a minute, that gave nothing back although there was work: somebody
else got it. A GPU that is never idle gives a buffer back only when it is full, after 1,200 kernels,
which a step of few long kernels takes many seconds for."""
SILENT_FLUSHES_WITH_DAEMON = 3
"""The same where a profiler that needs no Python is to be expected."""
MOST_CPU = 0.05
"""Of one core, for the thread that reads what CUPTI gives back; 50,000 kernels/s take 0.004."""
_LOOK_S = 60.0


def trouble_of(counts: Mapping[str, int], *, has_daemon: bool) -> Refusal | None:
    """Why a timer with these counts must stop; None: it is well.

    Args:
        has_daemon: Kineto may be asked by dynolog to take CUPTI (``KINETO_USE_DAEMON``).

    >>> trouble_of({"silent_flushes": 3}, has_daemon=True)
    Refusal(code='takeover', detail='')
    """
    if counts.get("is_invalid_too_often"):
        seen, invalid = counts.get("events", 0), counts.get("invalid", 0)
        return Refusal(
            "invalid_timestamps",
            f"more than 1 % of the last kernels had no valid timestamps ({invalid} of {seen} so "
            "far), as on some versions of CUPTI after millions of kernels",
        )
    most = SILENT_FLUSHES_WITH_DAEMON if has_daemon else SILENT_FLUSHES
    if counts.get("silent_flushes", 0) >= most:
        return Refusal("takeover")
    return None


@dataclass(slots=True)
class CpuGuard:
    """Watches the processor time of the thread that reads records."""

    at_s: float = -1.0
    cpu_s: float = 0.0

    def trouble(self, now_s: float, cpu_s: float | None) -> Refusal | None:
        """Look once a minute. cpu_s: of the thread so far; None: it cannot be told."""
        if cpu_s is None:
            self.at_s = -1.0
            return None
        if cpu_s < self.cpu_s or self.at_s < 0:
            self.at_s, self.cpu_s = now_s, cpu_s
            return None
        if now_s - self.at_s < _LOOK_S:
            return None
        share = (cpu_s - self.cpu_s) / (now_s - self.at_s)
        self.at_s, self.cpu_s = now_s, cpu_s
        if share <= MOST_CPU:
            return None
        told = f"reading kernel records took {share:.0%} of a core, more than {MOST_CPU:.0%}"
        return Refusal("governor", told)
