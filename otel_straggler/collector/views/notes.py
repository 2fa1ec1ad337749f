"""Notes on a run next to its answer: what makes all that is shown of it less certain."""

from __future__ import annotations

import datetime as dt
from typing import Any, TypeAlias

from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.model.failure import Failure
from otel_straggler.model.rank import sharing_a_gpu
from otel_straggler.model.rank_names import ranks_text

Json: TypeAlias = dict[str, Any]


def notes_json(view: WorldView) -> list[Json]:
    """Each with its kind, a text for people, and since when, if that is known. Cost: O(R)."""
    notes: list[Json] = []
    if view.failure is not None:
        notes.append(
            {
                "kind": "scoring_failed",
                "text": f"{failure_text(view.failure)}.",
                "since_s": round(view.failure.since_s, 3),
                "count": view.failure.count,
                "error": view.failure.error,
                "where": view.failure.where,
            }
        )
    shared = shared_gpus(view)
    if shared:
        notes.append({"kind": "shared_gpu", "text": _shared_text(shared), "since_s": None})
    return notes


def failure_text(failure: Failure) -> str:
    """
    >>> failure_text(Failure(stage="verdicts", since_s=1.79e9, count=3, error="KeyError: 'x'",
    ...     where="detect/verdicts/log.py:80 (record)"))
    "Scoring has failed since 2026-09-21 14:13:20 UTC, 3 times: KeyError: 'x' in \
detect/verdicts/log.py:80 (record)"
    """
    since = dt.datetime.fromtimestamp(failure.since_s, dt.timezone.utc)
    times = f", {failure.count:,} times" if failure.count > 1 else ""
    where = f" in {failure.where}" if failure.where else ""
    return f"Scoring has failed since {since:%Y-%m-%d %H:%M:%S} UTC{times}: {failure.error}{where}"


def shared_gpus(view: WorldView) -> list[list[int]]:
    """Ranks that share a GPU, GPU by GPU."""
    part = view.heartbeats or view.table
    if part is None:
        return []
    ranks: list[int] = part.ranks.tolist()
    rows = sharing_a_gpu(part.devices, part.nodes)
    return [[ranks[row] for row in of_gpu] for of_gpu in rows]


def _shared_text(shared: list[list[int]]) -> str:
    who = ranks_text(shared[0])
    text = f"{who[0].upper()}{who[1:]} share a GPU"
    if len(shared) > 1:
        n_ranks = sum(map(len, shared))
        text = f"{n_ranks:,} ranks share {len(shared):,} GPUs, such as {who}"
    return (
        f"{text}. Their kernels slow one another down, so their GPU times are not comparable: "
        "verdicts on them rest on host times and waiting in collectives."
    )
