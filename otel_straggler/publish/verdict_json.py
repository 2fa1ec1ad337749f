"""Layer 2 in the report: every change of a verdict, and what a run loses.

Keys are those that scripts rely on; what is not known is null.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from otel_straggler.model.verdict import (
    RankWaits,
    RunVerdicts,
    SectionCost,
    Verdict,
    WorldSummary,
    cause_text,
)

Json: TypeAlias = dict[str, Any]


def verdict_json(verdict: Verdict) -> Json:
    """One change of state."""
    return {
        "subject_id": verdict.subject_id,
        "scope": verdict.scope,
        "rank": verdict.rank,
        "node": verdict.node or None,
        "role": verdict.role or None,
        "section": verdict.section or None,
        "cause": verdict.cause,
        "state": verdict.state,
        "evidence": verdict.evidence,
        "slowdown": _nullable(verdict.slowdown),
        "since_step": verdict.since_step,
        "confirmed_step": verdict.confirmed_step,
        "confidence": _nullable(verdict.confidence),
        "gpu_seconds_lost_per_hour": _nullable(verdict.gpu_seconds_lost_per_hour),
        "sentence": verdict.sentence,
        "group": verdict.group,
        "attempt": verdict.attempt,
        "at_step": verdict.at_step,
        "at_ns": verdict.at_ns,
        "began": verdict.began,
        "n_peers": verdict.n_peers,
        "own_s": _nullable(verdict.own_s),
        "peers_s": _nullable(verdict.peers_s),
        "pages": verdict.pages,
        "is_localised": verdict.is_localised,
        "cause_text": cause_text(verdict.cause, on_gpu=verdict.is_on_gpu),
        "on_gpu": verdict.is_on_gpu,
        "detail": verdict.detail or None,
    }


def decisions_json(judged: RunVerdicts) -> list[Json]:
    """What people have decided, oldest first; ``is_in_force`` on the newest of a subject that
    is silenced by it."""
    newest = {decision.subject_id: decision for decision in judged.decisions}
    return [
        {
            "action": decision.action,
            "subject_id": decision.subject_id,
            "reason": decision.reason,
            "by": decision.by or None,
            "at_ns": decision.at_ns,
            "until_ns": decision.until_ns,
            "cause": decision.cause,
            "is_in_force": decision.subject_id in judged.silenced
            and newest[decision.subject_id] is decision,
        }
        for decision in judged.decisions
    ]


def run_json(worlds: Sequence[WorldSummary], coverage: float | None) -> Json:
    """The block ``run``: the world that loses most, and under ``worlds`` every world by group.

    Args:
        worlds: one summary per group; empty while layer 2 has said nothing.
        coverage: of the newest window, where layer 2 does not know it; None if nobody does.
    """
    dearest = dearest_world(worlds)
    shown = _world(dearest or WorldSummary(run_id=""))
    if dearest is None:
        shown["gpu_seconds_lost"] = None
    if shown["coverage"] is None:
        shown["coverage"] = coverage
    shown["worlds"] = {world.group: _world(world) for world in worlds}
    return shown


def dearest_world(worlds: Sequence[WorldSummary]) -> WorldSummary | None:
    """The world that has lost most time of its ranks; None if there is none."""
    return max(worlds, key=lambda world: _nullable(world.gpu_seconds_lost) or 0.0, default=None)


def judged_part(
    judged: RunVerdicts, *, group: str | None, rank: int | None, is_its_node: Callable[[str], bool]
) -> RunVerdicts:
    """What concerns one group, or one rank of it. Cost: O(changes).

    A rank is concerned by verdicts on itself, on its node and on the whole run; of the worlds it
    keeps the figures and its own waits.

    Args:
        judged: all of a run.
        group, rank: None = all.
        is_its_node: whether the rank runs on a node.
    """

    def concerns(verdict: Verdict) -> bool:
        if group not in (None, verdict.group):
            return False
        if rank is None or verdict.scope == "run":
            return True
        if verdict.scope == "host":
            return is_its_node(verdict.node)
        return verdict.rank == rank

    worlds = (world for world in judged.worlds if group in (None, world.group))
    changes = tuple(verdict for verdict in judged.changes if concerns(verdict))
    concerned = {verdict.subject_id for verdict in changes}
    return RunVerdicts(
        changes=changes,
        worlds=tuple(world if rank is None else _of_one_rank(world, rank) for world in worlds),
        decisions=tuple(each for each in judged.decisions if each.subject_id in concerned),
        silenced=judged.silenced & concerned,
    )


def _of_one_rank(world: WorldSummary, rank: int) -> WorldSummary:
    waits = tuple(waits for waits in world.waits if waits.rank == rank)
    return replace(world, heat=(), waits=waits)


def _world(world: WorldSummary) -> Json:
    return {
        "slowdown": _nullable(world.slowdown),
        "waste": _nullable(world.waste),
        "m_w": _nullable(world.m_w),
        "m_s": _nullable(world.m_s),
        "cause": world.cause or None,
        "resolvable_slowdown": _nullable(world.resolvable_slowdown),
        "coverage": _nullable(world.coverage),
        "group": world.group,
        "attempt": world.attempt,
        "gpu_seconds_lost": _nullable(world.gpu_seconds_lost),
        "on_gpu": world.on_gpu,
        "waits_inside": world.waits_inside or None,
        "step_s": _nullable(world.step_s),
        "heat": [[stage, data, _nullable(slowdown)] for stage, data, slowdown in world.heat],
        "ledger": [_cost(cost) for cost in world.ledger],
        "waits": [_waits(waits) for waits in world.waits],
    }


def _cost(cost: SectionCost) -> Json:
    return {
        "section": cost.section,
        "exposed_s": _nullable(cost.exposed_s),
        "typical_s": _nullable(cost.typical_s),
        "leader_rank": cost.leader_rank,
    }


def _waits(waits: RankWaits) -> Json:
    return {
        "rank": waits.rank,
        "node": waits.node or None,
        "role": waits.role or None,
        "group": waits.group,
        "caused_s": _nullable(waits.caused_s),
        "suffered_s": _nullable(waits.suffered_s),
    }


def _nullable(value: float) -> float | None:
    return value if math.isfinite(value) else None
