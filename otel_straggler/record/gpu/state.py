"""What times sections now, and why nothing better does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from otel_straggler.record.gpu.reasons import Refusal
from otel_straggler.semconv import GpuTier


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
        overhead: what the overhead governor last decided.
        counts: of the timer: kernels seen, invalid ones, runs timed and missing, and so on.
    """

    tier: GpuTier
    wanted: GpuTier
    reason: str
    detail: str = ""
    since_s: float = 0.0
    overhead: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)


def _off(reason: str) -> GpuTimingState:
    refusal = Refusal(reason)
    return GpuTimingState(tier="off", wanted="off", reason=reason, detail=refusal.sentence)


NOT_CONFIGURED = _off("not_configured")
FORKED = _off("forked")
