"""Why ranks of a run have no GPU score, as one line."""

from __future__ import annotations

import numpy as np

from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.model.missing_gpu_scores import (
    MISSING_GPU_SCORES,
    missing_text,
    why_missing_in_window,
)


def missing_scores_text(view: WorldView) -> str:
    """Of the ranks in the newest window; empty if none is missing, or the run has no GPU. Cost:
    O(R), some 0.5 µs a rank that has none."""
    table = view.table
    if table is None or not view.on_gpu:
        return ""
    scores = np.stack([table.gpu_relative, table.gpu_individual], axis=1)
    is_missing = np.isnan(scores).any(axis=1)
    if not is_missing.any():
        return ""
    timing = _timing_reasons(view)
    missing: tuple[dict[int, str], dict[int, str]] = {}, {}
    for rank, own in zip(
        table.ranks[is_missing].tolist(), scores[is_missing].tolist(), strict=True
    ):
        for by_rank, code in zip(missing, why_missing_in_window(*own), strict=True):
            if code:
                by_rank[rank] = timing.get(rank, code)
    return missing_text(*missing)


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
