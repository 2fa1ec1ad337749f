"""A run as JSON: the block ``run`` of a view, an entry of the list of runs, and its scalars."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np

from otel_straggler.collector.views import gpu_times
from otel_straggler.collector.views.answer import answer_of
from otel_straggler.collector.views.answer_type import TONES, run_cost_per_hour
from otel_straggler.collector.views.attempts import launches_json
from otel_straggler.collector.views.missing_scores import missing_scores_text
from otel_straggler.collector.views.notes import shared_gpus
from otel_straggler.collector.views.numbers import number, own_step_s, seconds
from otel_straggler.collector.views.run_failure import failure_json
from otel_straggler.collector.views.world_view import RankTable, WorldView
from otel_straggler.goodput.report import goodput_json
from otel_straggler.model.verdict import CALLED_SLOW, WorldSummary
from otel_straggler.semconv import TRACKER_SCALARS

Json: TypeAlias = dict[str, Any]
TimeBasis = Literal["host", "events", "cupti", "collective", "mixed"]
_BASIS: dict[str, TimeBasis] = {
    "cupti": "cupti",
    "events": "events",
    "collective": "collective",
}
_TIMES = ("began_at_s", "received_at_s", "finished_at_s")


def run_json(view: WorldView) -> Json:
    """Cost: O(R S)."""
    world = _world_of(view)
    expected = view.expected
    lost_s = None if view.world is None else world.gpu_seconds_lost
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
        **{name: seconds(getattr(view, name)) for name in _TIMES},
        "outcome": view.outcome,
        "world_size": expected or None,
        "ranks_reporting": view.reporting,
        "coverage": _coverage(view, world),
        "step": _newest_step(view),
        "step_s": number(world.step_s),
        "slowest_step_s": _slowest_own_s(view.table, world),
        "slowdown": number(world.slowdown),
        "waste": number(world.waste),
        "m_w": number(world.m_w),
        "m_s": number(world.m_s),
        "cause": world.cause or None,
        "resolvable_slowdown": number(world.resolvable_slowdown),
        "on_gpu": view.on_gpu,
        "gpu_scores_missing": missing_scores_text(view) or None,
        "gpu_seconds_lost": number(lost_s),
        "gpu_seconds_lost_per_hour": None
        if view.has_ended or view.silent_s is not None
        else number(run_cost_per_hour(view, world)),
        "time_basis": _time_basis(view),
        "gpu_times": gpu_times.of_run(view.heartbeats),
        "mode": view.mode,
        "goodput": None if view.goodput is None else goodput_json(view.goodput),
        "failure": failure_json(view.run_failure, view.now_s),
        "launches": None if view.goodput is None else launches_json(view.goodput.launches),
    }


def _world_of(view: WorldView) -> WorldSummary:
    """Return the verdict summary; of an earlier attempt only the loss since the start counts."""
    world = view.world or WorldSummary(run_id=view.run_id)
    if not view.has_verdicts:
        lost_s = world.gpu_seconds_lost
        world = WorldSummary(run_id=view.run_id, gpu_seconds_lost=lost_s, on_gpu=world.on_gpu)
    return with_loss_of_now(world, view)


def with_loss_of_now(world: WorldSummary, view: WorldView) -> WorldSummary:
    """Earlier measurements say nothing about a run without progress, which loses all its time, or
    about a new attempt."""
    is_idle = view.standstill is not None and view.standstill.how == "idle"
    if view.has_verdicts and not is_idle:
        return world
    nan = math.nan
    return replace(world, slowdown=nan, waste=1.0 if is_idle else nan, m_w=nan, m_s=nan, cause="")


def state_of(view: WorldView) -> str:
    """Return the state of hang detection; without heartbeats "ended", "training" while data
    arrive, or "unknown"."""
    if view.awaited is not None:
        return "lost" if view.awaited.is_overdue else "unknown"
    if view.hang is not None:
        return view.hang.state
    if view.finished_at_s is not None or not view.is_live:
        return "ended"
    return "training" if view.table is not None and view.silent_s is None else "unknown"


def _slowest_own_s(table: RankTable | None, world: WorldSummary) -> float | None:
    """Own work in the newest window; a part of the step, also where newer steps are shorter."""
    if table is None:
        return None
    own = own_step_s(table.own_s, table.sections)
    own = own[np.isfinite(own)]
    if not len(own) or not own.max() > 0:
        return None
    return number(float(np.fmin(own.max(), np.fmax(world.step_s, world.slowest_step_s))))


def _time_basis(view: WorldView) -> TimeBasis | None:
    if view.heartbeats is None and view.table is None:
        return None
    tiers: dict[int, str] = {}
    if view.heartbeats is not None:
        ranks = view.heartbeats.ranks.tolist()
        tiers = dict(zip(ranks, view.heartbeats.gpu_tier, strict=True))
    tiers |= {rank: "off" for ranks in shared_gpus(view) for rank in ranks}
    result = {_BASIS.get(tier, "host") for tier in tiers.values()} or {"host"}
    if len(result) > 1:
        return "mixed"
    if view.has_verdicts and view.world is not None:
        # Collectives are measured in any tier, DDP has events of its own, times may be missing.
        return _BASIS.get(view.world.basis, "host")
    return result.pop()


def _coverage(view: WorldView, world: WorldSummary) -> float | None:
    if math.isfinite(world.coverage):
        return number(world.coverage)
    return number(view.reporting / view.expected) if view.expected else None


def _newest_step(view: WorldView) -> int | None:
    steps = [] if view.heartbeats is None else view.heartbeats.step.tolist()
    if view.table is not None and view.table.last_step is not None:
        steps.append(view.table.last_step)
    newest = max(steps, default=-1)
    return newest if newest >= 0 else None


# --- the list of runs ----------------------------------------------------------------------------


def run_entry(groups: Sequence[WorldView]) -> Json:
    """The entry of a run of one or several worlds; the worst one decides tone and headline."""
    answers = [answer_of(view) for view in groups]
    worst = min(range(len(groups)), key=lambda at: TONES.index(answers[at]["tone"]))
    view, answer = groups[worst], answers[worst]
    slowdowns = [_world_of(each).slowdown for each in groups]
    ends = [each.finished_at_s for each in groups]
    has_ended = all(end is not None for end in ends)
    return {
        "run_id": view.run_id,
        "job": view.job or None,
        "is_live": any(each.is_live for each in groups),
        "state": state_of(view),
        "began_at_s": seconds(min(_known(each.began_at_s for each in groups), default=None)),
        "received_at_s": seconds(max(_known(each.received_at_s for each in groups), default=None)),
        "finished_at_s": seconds(max(_known(ends))) if has_ended else None,
        "world_size": sum(each.expected for each in groups) or None,
        "ranks_reporting": sum(each.reporting for each in groups),
        "slowdown": number(max((s for s in slowdowns if s == s), default=None)),
        "tone": answer["tone"],
        "headline": answer["headline"],
        "alerts": len(view.alerts) if view.is_live else 0,
    }


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def ordered(entries: Iterable[Json]) -> list[Json]:
    """Sort by tone, worst first; within a tone, last received first."""
    return sorted(
        entries,
        key=lambda run: (TONES.index(run["tone"]), -(run["received_at_s"] or 0.0), run["run_id"]),
    )


def one_of(worlds: Sequence[WorldView], group: str | None) -> WorldView | None:
    """Select a group; by default a hung one, else the one that lost most. None if there is none."""

    def lost(view: WorldView) -> tuple[bool, float]:
        return view.is_hung, 0.0 if view.world is None else view.world.gpu_seconds_lost

    if group is None:
        return max(worlds, key=lost, default=None)
    return next((view for view in worlds if view.group == group), None)


# --- scalars -------------------------------------------------------------------------------------


def scalars_of(view: WorldView) -> dict[str, float | int | None]:
    """Every name of ``TRACKER_SCALARS``; None where unknown. Cost: O(R S)."""
    world = _world_of(view)
    worst_rank, slowdown = _worst(view)
    values = {
        "worst_score": None if slowdown is None else number(min(1.0, 1.0 / slowdown)),
        "worst_rank": worst_rank,
        "slowdown": number(world.slowdown),
        "gpu_seconds_lost": None if view.world is None else number(world.gpu_seconds_lost),
        "gpu_seconds_lost_per_hour": number(
            None if view.has_ended else run_cost_per_hour(view, world)
        ),
        "step_s": number(world.step_s),
        "slowest_step_s": _slowest_own_s(view.table, world),
        "ranks_called_slow": _called_slow(view),
        "ranks_reporting": None if view.table is None else view.reporting,
    }
    return {name: values[name] for name in TRACKER_SCALARS}


def _worst(view: WorldView) -> tuple[int | None, float | None]:
    """The rank whose own work takes longest compared with its role, and how many times as long."""
    if view.table is None or not np.isfinite(view.table.slowdowns.overall).any():
        return None, None
    slowdowns = view.table.slowdowns.overall
    at = int(np.nanargmax(slowdowns))
    return int(view.table.ranks[at]), float(slowdowns[at])


def _called_slow(view: WorldView) -> int:
    called = [verdict for verdict in view.current if verdict.state in CALLED_SLOW]
    ranks = {verdict.rank for verdict in called if verdict.rank is not None}
    hosts = {verdict.node for verdict in called if verdict.scope == "host"}
    if hosts and view.table is not None:
        nodes = zip(view.table.ranks.tolist(), view.table.nodes, strict=True)
        ranks.update(rank for rank, node in nodes if node in hosts)
    return len(ranks)
