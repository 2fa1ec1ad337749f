"""The block ``run`` of a picture: its state and the figures of the whole world."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from otel_straggler.collector.views.first_failure import standstill_of
from otel_straggler.collector.views.numbers import number, own_step_s, seconds
from otel_straggler.collector.views.verdict_json import cost_of
from otel_straggler.collector.views.world_view import RankTable, TimeBasis, WorldView
from otel_straggler.model.verdict import CALLED_SLOW, WorldSummary

Json: TypeAlias = dict[str, Any]
_BASIS: dict[str, TimeBasis] = {"cupti": "cupti", "events": "events", "off": "host", "": "host"}


def run_json(seen: WorldView) -> Json:
    """Cost: O(R S)."""
    world = as_told(seen)
    waste = world.waste
    expected = seen.expected
    lost_s = None if seen.world is None else world.gpu_seconds_lost
    stands = standstill_of(seen)
    is_idle = stands is not None and stands.how == "idle"
    if is_idle:
        # What was measured before says nothing of a run in which nothing gets on.
        waste = 1.0
        world = replace(world, slowdown=math.nan, m_w=math.nan, m_s=math.nan, cause="")
    return {
        "run_id": seen.run_id,
        "job": seen.job or None,
        "group": seen.group,
        "groups": list(seen.groups),
        "attempt": seen.attempt,
        "state": state_of(seen),
        "is_live": seen.is_live,
        "seen_at_s": seconds(seen.now_s),
        "awaited_since_s": None if seen.awaited is None else seconds(seen.awaited.since_s),
        "began_at_s": seconds(seen.began_at_s),
        "heard_at_s": seconds(seen.heard_at_s),
        "finished_at_s": seconds(seen.finished_at_s),
        "outcome": seen.outcome,
        "world_size": expected or None,
        "ranks_reporting": seen.reporting,
        "coverage": _coverage(seen, world),
        "step": _newest_step(seen),
        "step_s": number(world.step_s),
        "slowest_step_s": slowest_own_s(seen.table),
        "slowdown": number(world.slowdown),
        "waste": number(waste),
        "m_w": number(world.m_w),
        "m_s": number(world.m_s),
        "cause": world.cause or None,
        "resolvable_slowdown": number(world.resolvable_slowdown),
        "on_gpu": seen.on_gpu,
        "gpu_seconds_lost": number(lost_s),
        "gpu_seconds_lost_per_hour": None
        if seen.has_ended or seen.silent_s is not None
        else number(waste * 3600.0 * max(expected, 1)),
        "time_basis": time_basis(seen),
        "mode": seen.mode,
    }


def as_told(seen: WorldView) -> WorldSummary:
    """What layer 2 says of the whole; where somebody who is called slow costs more than that, by
    him: the balance of the work leaves out what is no work, such as the loading of data."""
    world = seen.world or WorldSummary(run_id=seen.run_id)
    if not seen.has_verdicts:  # of the attempt before only what was lost counts
        lost_s = world.gpu_seconds_lost
        return WorldSummary(run_id=seen.run_id, gpu_seconds_lost=lost_s, on_gpu=world.on_gpu)
    called = (verdict for verdict in seen.current if verdict.state in CALLED_SLOW)
    dearest = max(map(cost_of, called), default=0.0)
    share = min(dearest / 3600.0 / max(seen.expected, 1), 0.99)
    if not share > (world.waste if math.isfinite(world.waste) else 0.0):
        return world
    return replace(world, waste=share, slowdown=1.0 / (1.0 - share))


def state_of(seen: WorldView) -> str:
    """As the hang judge calls it; without signs of life "ended", "training" while data come, and
    else "unknown"."""
    if seen.awaited is not None:
        return "lost" if seen.awaited.is_overdue else "unknown"
    if seen.found is not None:
        return seen.found.state
    if seen.finished_at_s is not None or not seen.is_live:
        return "ended"
    return "training" if seen.table is not None and seen.silent_s is None else "unknown"


def slowest_own_s(table: RankTable | None) -> float | None:
    """The longest own work per step of a rank in the newest window, without what is waiting; None
    without a window."""
    if table is None:
        return None
    own = own_step_s(table.step_s, table.sections)
    own = own[np.isfinite(own)]
    return number(float(own.max())) if len(own) and own.max() > 0 else None


def time_basis(seen: WorldView) -> TimeBasis | None:
    """What sections are timed with on the ranks' GPUs, or else by the host; None if no rank has
    told anything."""
    if seen.signs is None or not seen.signs.gpu_tier:
        return None if seen.table is None else "host"
    found = {_BASIS.get(tier, "host") for tier in seen.signs.gpu_tier}
    return found.pop() if len(found) == 1 else "mixed"


def _coverage(seen: WorldView, world: WorldSummary) -> float | None:
    if math.isfinite(world.coverage):
        return number(world.coverage)
    return number(seen.reporting / seen.expected) if seen.expected else None


def _newest_step(seen: WorldView) -> int | None:
    """The furthest that any rank has told of."""
    steps = []
    if seen.signs is not None and len(seen.signs.step):
        steps.append(int(seen.signs.step.max()))
    if seen.table is not None and seen.table.last_step is not None:
        steps.append(seen.table.last_step)
    newest = max(steps, default=-1)
    return newest if newest >= 0 else None
