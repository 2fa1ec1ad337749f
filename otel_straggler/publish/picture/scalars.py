"""The few numbers of a run that an experiment tracker shows beside the loss."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from otel_straggler.model.verdict import WorldSummary
from otel_straggler.publish.picture.picture import Maker
from otel_straggler.publish.picture.rounding import number
from otel_straggler.publish.picture.seen import Seen
from otel_straggler.publish.picture.verdicts import CALLED
from otel_straggler.publish.picture.whole_run import slowest_own_s
from otel_straggler.semconv import TRACKER_SCALARS

Json: TypeAlias = dict[str, Any]


def scalars_json(seen: Seen, maker: Maker, *, snapshot: str = "") -> Json:
    """What ``/v1/scalars`` answers: some hundred bytes, whatever the number of ranks.

    Args:
        snapshot: changes when the picture does.
    """
    return {
        **maker.head(seen.now_s),
        "snapshot": snapshot,
        "run_id": seen.run_id,
        "group": seen.group,
        "scalars": scalars_of(seen),
    }


def scalars_of(seen: Seen) -> dict[str, float | int | None]:
    """Every name of ``TRACKER_SCALARS``; None where it is not known. Cost: O(R S)."""
    world = seen.world or WorldSummary(run_id=seen.run_id)
    worst_rank, slowdown = _worst(seen)
    lost = None if seen.world is None else number(world.gpu_seconds_lost)
    told = {
        "worst_score": None if slowdown is None else number(min(1.0, 1.0 / slowdown)),
        "worst_rank": worst_rank,
        "slowdown": number(world.slowdown),
        "gpu_seconds_lost": lost,
        "gpu_seconds_lost_per_hour": None
        if seen.has_ended
        else number(world.waste * 3600.0 * max(seen.expected, 1)),
        "step_s": number(world.step_s),
        "slowest_step_s": slowest_own_s(seen.table),
        "ranks_called_slow": _called_slow(seen),
        "ranks_reporting": None if seen.table is None else seen.reporting,
    }
    return {name: told[name] for name in TRACKER_SCALARS}


def _worst(seen: Seen) -> tuple[int | None, float | None]:
    """The rank whose own work takes longest against its role, and how many times as long."""
    if seen.table is None:
        return None, None
    slowdowns = seen.table.slowdowns.overall
    if not np.isfinite(slowdowns).any():
        return None, None
    at = int(np.nanargmax(slowdowns))
    return int(seen.table.ranks[at]), float(slowdowns[at])


def _called_slow(seen: Seen) -> int:
    called = [verdict for verdict in seen.current if verdict.state in CALLED]
    ranks = {verdict.rank for verdict in called if verdict.rank is not None}
    hosts = {verdict.node for verdict in called if verdict.scope == "host"}
    if hosts and seen.table is not None:
        nodes = zip(seen.table.ranks.tolist(), seen.table.nodes, strict=True)
        ranks.update(rank for rank, node in nodes if node in hosts)
    return len(ranks)
