"""Why ranks of a run have no GPU score, as one line."""

from __future__ import annotations

from otel_straggler.collector.views.ranks import row_of
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.model.missing_gpu_scores import (
    MISSING_GPU_SCORES,
    missing_text,
    why_missing_in_window,
)


def missing_scores_text(view: WorldView) -> str:
    """Of the ranks in the newest window; empty if none is missing, or the run has no GPU. Cost:
    O(R)."""
    table = view.table
    if table is None or not view.on_gpu:
        return ""
    missing: tuple[dict[int, str], dict[int, str]] = {}, {}
    scores = zip(
        table.ranks.tolist(),
        table.gpu_relative.tolist(),
        table.gpu_individual.tolist(),
        strict=True,
    )
    for rank, *own in scores:
        for by_rank, code in zip(missing, why_missing_in_window(*own), strict=True):
            if code:
                by_rank[rank] = _timing_reason(view, rank) or code
    return missing_text(*missing)


def _timing_reason(view: WorldView, rank: int) -> str:
    """Why the rank says that it times no kernels; empty if it does, or does not say."""
    heartbeats = view.heartbeats
    row = row_of(heartbeats, rank)
    if heartbeats is None or row is None or heartbeats.gpu_tier[row] == "cupti":
        return ""
    reason = heartbeats.gpu_reason[row]
    return reason if reason in MISSING_GPU_SCORES else ""
