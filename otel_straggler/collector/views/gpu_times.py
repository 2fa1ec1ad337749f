"""GPU times that are missing, of one rank and of a run, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from otel_straggler.collector.views.world_view import RankHeartbeats
from otel_straggler.semconv import GPU_LOSSES, GPU_MISSING

Json: TypeAlias = dict[str, Any]
_WHY: Final = {
    "gpu_dropped": "the driver had no room for",
    "gpu_invalid": "without times",
    "gpu_lost": "in no known section",
    "gpu_late": "that came too late",
}
_MAX_REASONS: Final = 20


def of_rank(dropped: Mapping[str, int]) -> Json:
    """``missing``: executions without their GPU time, which have the host's; ``lost``: kernels
    that are in no section, by reason. Since the rank's process began."""
    lost = {name: dropped[name] for name in GPU_LOSSES if dropped.get(name)}
    return {"missing": dropped.get(GPU_MISSING, 0), "lost": lost}


def of_run(heartbeats: RankHeartbeats | None) -> Json | None:
    """The same over all ranks, how many ranks each tier times, and for what reasons no higher one
    does; None where no rank reports a tier or such counts."""
    if heartbeats is None:
        return None
    of_ranks = [of_rank(dropped) for dropped in heartbeats.dropped]
    missing = [each["missing"] for each in of_ranks]
    lost: Counter[str] = Counter()
    for each in of_ranks:
        lost.update(each["lost"])
    tiers = Counter(filter(None, heartbeats.gpu_tier))
    if not (tiers or lost or any(missing)):
        return None
    reasons = Counter(filter(None, heartbeats.gpu_reason)).most_common(_MAX_REASONS)
    return {
        "tiers": dict(sorted(tiers.items())),
        "reasons": dict(reasons),
        "missing": sum(missing),
        "ranks_missing": sum(1 for each in missing if each),
        "lost": {name: lost[name] for name in GPU_LOSSES if lost[name]},
        "text": _text(missing, lost) or None,
    }


def _text(missing: Sequence[int], lost: Mapping[str, int]) -> str:
    """One sentence; empty if nothing is missing.

    >>> _text([3, 0, 1200], {"gpu_late": 2, "gpu_lost": 9000})
    '1,203 GPU times are missing (2 of 3 ranks); not counted: 9,000 kernels in no known section, 2 that came too late'
    >>> _text([0, 1], {})
    '1 GPU time is missing (1 of 2 ranks)'
    """  # noqa: E501
    parts = []
    if total := sum(missing):
        of = f"{sum(1 for each in missing if each):,} of {len(missing):,} ranks"
        are = "GPU time is" if total == 1 else "GPU times are"
        parts.append(f"{total:,} {are} missing ({of})")
    kernels = [f"{lost[name]:,}{{}} {why}" for name, why in _WHY.items() if lost.get(name)]
    if kernels:
        whose = [each.format("" if at else " kernels") for at, each in enumerate(kernels)]
        parts.append(f"not counted: {', '.join(whose)}")
    return "; ".join(parts)
