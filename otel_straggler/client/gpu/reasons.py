"""Why a tier cannot be had, as one of a closed list; and when it is worth another try."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from otel_straggler.semconv import GPU_TIMING_REASONS, GpuTier

_CODES = {
    14: "not_compatible",
    15: "not_initialized",
    27: "not_supported",
    33: "virtualized",
    35: "insufficient_privileges",
    39: "multiple_subscribers",
    40: "virtualized",
    41: "confidential",
    42: "not_supported",
    43: "not_supported",
    999: "cupti_unknown",
}
"""By result code of CUPTI."""
_TEXTS = (
    ("no CUDA driver is loaded", "no_driver"),
    ("names a library that cannot be loaded", "broken_cupti"),
    ("no libcupti was found", "no_cupti"),
    ("libcupti has no ", "broken_cupti"),
    ("interface version", "old_cupti"),
    ("forked child", "forked"),
    ("address space", "no_memory"),
)
"""By what the extension says where it has no result code."""
_RETRY_S = {
    "kineto_active": 1.0,
    "no_torch": 1.0,
    "cuda_unused": 1.0,
    "no_driver": 1.0,
    "not_initialized": 60.0,
    "multiple_subscribers": 60.0,
    "takeover": 60.0,
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A tier cannot be had.

    Attributes:
        code: one of ``semconv.GPU_TIMING_REASONS``.
        detail: the reason as it was given; empty where the code says it all.
    """

    code: str
    detail: str = ""

    @property
    def message(self) -> str:
        """Cause and remedy, for a log."""
        known = GPU_TIMING_REASONS[self.code]
        return f"{self.detail or known.cause}. What to do: {known.remedy}"

    @property
    def retry_s(self) -> float | None:
        """Seconds after which another try is worth it; None: not unless asked for."""
        return _RETRY_S.get(self.code)


def refusal_of(text: str) -> Refusal:
    """The reason behind an error text of the extension.

    >>> refusal_of("cuptiSubscribe gave 39: another profiler ...").code
    'multiple_subscribers'
    """
    given = re.search(r" gave (\d+)\b", text)
    if given is not None:
        return Refusal(_CODES.get(int(given[1]), "cupti_failed"), text)
    code = next((code for mark, code in _TEXTS if mark in text), "cupti_failed")
    return Refusal(code, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTimingState:
    """GPU timing of this process at one moment.

    Attributes:
        tier: what times sections now: "off", "events" or "cupti".
        wanted: the highest tier that is wanted.
        reason: why the tier is below "cupti", one of ``semconv.GPU_TIMING_REASONS``; empty for
            "cupti".
        detail: the same in a sentence, with what to do.
        since_s: Unix time of the last change.
        overhead: what the overhead governor last decided, and what kernel records cost.
        interval: with "cupti", kernels are timed in one step of so many; 0: not by steps.
        counts: of the timer: kernels seen, invalid ones, runs timed and missing, and so on.
    """

    tier: GpuTier
    wanted: GpuTier
    reason: str
    detail: str = ""
    since_s: float = 0.0
    overhead: str = ""
    interval: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def uses_cupti(self) -> bool:
        """Whether CUPTI is ours now, be it before a kernel was attributed."""
        return self.tier == "cupti" or self.reason == "unproven"


def _off(reason: str) -> GpuTimingState:
    refusal = Refusal(reason)
    return GpuTimingState(tier="off", wanted="off", reason=reason, detail=refusal.message)


NOT_CONFIGURED = _off("not_configured")
FORKED = _off("forked")
SWITCHED_OFF = _off("asked")

WITHOUT_GPU = frozenset({"no_torch", "no_cuda", "cuda_unused", "no_driver"})
"""Of a program that uses no GPU, or none so far: no news where nobody asked for a tier."""
_SILENT = frozenset({"asked", "auto"})
_EXPECTED = frozenset({"kineto_active", "cuda_unused", "no_torch", "no_driver", "unproven"})
_LOG = logging.getLogger("otel_straggler")


class TierStatus:
    """The tier in charge, and why no higher one is."""

    def __init__(self, refusal: Refusal) -> None:
        self.tier: GpuTier = "off"
        self.refusal: Refusal | None = refusal
        self.since_s = time.time()
        self.refusals: dict[GpuTier, Refusal | None] = {}
        self.logged: set[tuple[GpuTier, str]] = set()

    @property
    def reason(self) -> str:
        return "" if self.refusal is None else self.refusal.code

    def update(
        self, tier: GpuTier, refusal: Refusal | None, about: str = "", *, is_silent: bool = False
    ) -> None:
        """This tier is in charge, for this reason no higher one, and works with ``about``."""
        if (tier, refusal) == (self.tier, self.refusal):
            return
        self.tier, self.refusal, self.since_s = tier, refusal, time.time()
        key = (tier, self.reason)
        if not is_silent and key not in self.logged:
            self.logged.add(key)
            _log(tier, refusal, about)


def _log(tier: GpuTier, refusal: Refusal | None, about: str) -> None:
    """What the user asked for, and what passes by itself, is no warning."""
    if refusal is None or refusal.code in _SILENT:
        _LOG.info("GPU timing is %s: %s", tier, f"by {about}" if about else "host times only")
        return
    level = logging.INFO if refusal.code in _EXPECTED else logging.WARNING
    _LOG.log(level, "GPU timing is %s (%s): %s", tier, refusal.code, refusal.message)
