"""Why ranks of a run have no GPU score, as one line."""

from __future__ import annotations

import numpy as np

from otel_straggler.collector.views.world_view import RankTable, WorldView
from otel_straggler.model.missing_gpu_scores import (
    MISSING_GPU_SCORES,
    Codes,
    missing_text,
    why_missing_in_window,
)


def missing_scores_text(view: WorldView) -> str:
    """Of the ranks in the newest window; empty if none is missing, or the run has no GPU. Cost:
    O(R), some 0.5 µs a rank that has none."""
    if view.table is None or not view.on_gpu:
        return ""
    timing = _timing_reasons(view)
    ranks: dict[Codes, list[int]] = {}
    for codes, missing in _missing(view.table).items():
        for rank in missing:
            reason = timing.get(rank)
            of_rank = (
                codes
                if reason is None
                else (reason if codes[0] else "", reason if codes[1] else "")
            )
            ranks.setdefault(of_rank, []).append(rank)
    return missing_text(ranks)


def _missing(table: RankTable) -> dict[Codes, list[int]]:
    """Ranks without a score, by what the scores show of why."""
    relative, individual = np.isnan(table.gpu_relative), np.isnan(table.gpu_individual)
    cases = {
        why_missing_in_window(np.nan, np.nan): relative & individual,
        why_missing_in_window(np.nan, 1.0): relative & ~individual,
        why_missing_in_window(1.0, np.nan): ~relative & individual,
    }
    return {codes: table.ranks[mask].tolist() for codes, mask in cases.items() if mask.any()}


def _timing_reasons(view: WorldView) -> dict[int, str]:
    """By rank that says that it times no kernels, why."""
    heartbeats = view.heartbeats
    if heartbeats is None:
        return {}
    reported = zip(
        heartbeats.ranks.tolist(), heartbeats.gpu_tier, heartbeats.gpu_reason, strict=True
    )
    return {
        rank: reason
        for rank, tier, reason in reported
        if tier != "cupti" and reason in MISSING_GPU_SCORES
    }
