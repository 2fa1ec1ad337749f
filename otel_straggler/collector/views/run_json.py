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


def run_json(view: WorldView) -> Json:
    """Cost: O(R S)."""
    world = as_reported(view)
    waste = world.waste
    expected = view.expected
    lost_s = None if view.world is None else world.gpu_seconds_lost
    stands = standstill_of(view)
    is_idle = stands is not None and stands.how == "idle"
    if is_idle:
        # What was measured before says nothing of a run in which nothing gets on.
        waste = 1.0
        world = replace(world, slowdown=math.nan, m_w=math.nan, m_s=math.nan, cause="")
    return {
        "run_id": view.run_id,
        "job": view.job or None,
        "group": view.group,
        "groups": list(view.groups),
        "attempt": view.attempt,
        "state": state_of(view),
        "is_live": view.is_live,
        "seen_at_s": seconds(view.now_s),
        "awaited_since_s": None if view.awaited is None else seconds(view.awaited.since_s),
        "began_at_s": seconds(view.began_at_s),
        "received_at_s": seconds(view.received_at_s),
        "finished_at_s": seconds(view.finished_at_s),
        "outcome": view.outcome,
        "world_size": expected or None,
        "ranks_reporting": view.reporting,
        "coverage": _coverage(view, world),
        "step": _newest_step(view),
        "step_s": number(world.step_s),
        "slowest_step_s": slowest_own_s(view.table),
        "slowdown": number(world.slowdown),
        "waste": number(waste),
        "m_w": number(world.m_w),
        "m_s": number(world.m_s),
        "cause": world.cause or None,
        "resolvable_slowdown": number(world.resolvable_slowdown),
        "on_gpu": view.on_gpu,
        "gpu_seconds_lost": number(lost_s),
        "gpu_seconds_lost_per_hour": None
        if view.has_ended or view.silent_s is not None
        else number(waste * 3600.0 * max(expected, 1)),
        "time_basis": time_basis(view),
        "mode": view.mode,
    }


def as_reported(view: WorldView) -> WorldSummary:
    """What layer 2 says of the whole; where somebody who is called slow costs more than that, by
    him: the balance of the work leaves out what is no work, such as the loading of data."""
    world = view.world or WorldSummary(run_id=view.run_id)
    if not view.has_verdicts:  # of the attempt before only what was lost counts
        lost_s = world.gpu_seconds_lost
        return WorldSummary(run_id=view.run_id, gpu_seconds_lost=lost_s, on_gpu=world.on_gpu)
    called = (verdict for verdict in view.current if verdict.state in CALLED_SLOW)
    costliest = max(map(cost_of, called), default=0.0)
    share = min(costliest / 3600.0 / max(view.expected, 1), 0.99)
    if not share > (world.waste if math.isfinite(world.waste) else 0.0):
        return world
    return replace(world, waste=share, slowdown=1.0 / (1.0 - share))


def state_of(view: WorldView) -> str:
    """As the hang judge calls it; without signs of life "ended", "training" while data come, and
    else "unknown"."""
    if view.awaited is not None:
        return "lost" if view.awaited.is_overdue else "unknown"
    if view.hang is not None:
        return view.hang.state
    if view.finished_at_s is not None or not view.is_live:
        return "ended"
    return "training" if view.table is not None and view.silent_s is None else "unknown"


def slowest_own_s(table: RankTable | None) -> float | None:
    """The longest own work per step of a rank in the newest window, without what is waiting; None
    without a window."""
    if table is None:
        return None
    own = own_step_s(table.step_s, table.sections)
    own = own[np.isfinite(own)]
    return number(float(own.max())) if len(own) and own.max() > 0 else None


def time_basis(view: WorldView) -> TimeBasis | None:
    """What sections are timed with on the ranks' GPUs, or else by the host; None if no rank has
    told anything."""
    if view.heartbeats is None or not view.heartbeats.gpu_tier:
        return None if view.table is None else "host"
    result = {_BASIS.get(tier, "host") for tier in view.heartbeats.gpu_tier}
    return result.pop() if len(result) == 1 else "mixed"


def _coverage(view: WorldView, world: WorldSummary) -> float | None:
    if math.isfinite(world.coverage):
        return number(world.coverage)
    return number(view.reporting / view.expected) if view.expected else None


def _newest_step(view: WorldView) -> int | None:
    """The furthest that any rank has told of."""
    steps = []
    if view.heartbeats is not None and len(view.heartbeats.step):
        steps.append(int(view.heartbeats.step.max()))
    if view.table is not None and view.table.last_step is not None:
        steps.append(view.table.last_step)
    newest = max(steps, default=-1)
    return newest if newest >= 0 else None
