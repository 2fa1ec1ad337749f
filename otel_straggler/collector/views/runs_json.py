"""The list of runs, as ``/v1/runs`` has it: those that need somebody first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from otel_straggler.collector.views.answer import answer_of
from otel_straggler.collector.views.answer_type import TONES
from otel_straggler.collector.views.numbers import number, seconds
from otel_straggler.collector.views.page_json import ResponseMeta
from otel_straggler.collector.views.run_json import slowest_own_s, state_of
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.model.verdict import CALLED_SLOW, WorldSummary
from otel_straggler.semconv import TRACKER_SCALARS

Json: TypeAlias = dict[str, Any]


def run_entry(groups: Sequence[WorldView]) -> Json:
    """A run of one or several worlds; the one that is worst off speaks for it.

    Args:
        groups: at least one, all of the same run.
    """
    answers = [answer_of(seen) for seen in groups]
    worst = min(range(len(groups)), key=lambda at: TONES.index(answers[at]["tone"]))
    seen, answer = groups[worst], answers[worst]
    slowdowns = [each.world.slowdown for each in groups if each.world is not None]
    ends = [each.finished_at_s for each in groups]
    has_ended = all(end is not None for end in ends)
    return {
        "run_id": seen.run_id,
        "job": seen.job or None,
        "is_live": any(each.is_live for each in groups),
        "state": state_of(seen),
        "began_at_s": seconds(_first(min, (each.began_at_s for each in groups))),
        "heard_at_s": seconds(_first(max, (each.heard_at_s for each in groups))),
        "finished_at_s": seconds(_first(max, ends)) if has_ended else None,
        "world_size": sum(each.expected for each in groups) or None,
        "ranks_reporting": sum(each.reporting for each in groups),
        "slowdown": number(max((s for s in slowdowns if s == s), default=None)),
        "tone": answer["tone"],
        "headline": answer["headline"],
        "alerts": len(seen.alerts) if seen.is_live else 0,
    }


def runs_json(
    entries: Iterable[Json],
    maker: ResponseMeta,
    now_s: float,
    history_problem: str | None = None,
    problems: Sequence[str] = (),
) -> Json:
    """All runs, in the order in which people want to see them.

    Args:
        history_problem: why those that only the history knows are not among them.
        problems: what is wrong with the runs as a whole, each with its remedy.
    """
    found = ordered(entries)
    return {
        **maker.head(now_s),
        "runs": found,
        "history_problem": history_problem,
        "problems": [*problems],
    }


def ordered(entries: Iterable[Json]) -> list[Json]:
    """Bad, to be watched, unknown, good, ended; within these those heard of last first."""
    return sorted(
        entries,
        key=lambda run: (TONES.index(run["tone"]), -(run["heard_at_s"] or 0.0), run["run_id"]),
    )


def dearest_group(groups: Sequence[WorldView]) -> WorldView:
    """The world that is shown if nobody asks for one: a hung one, else that which lost most."""

    def lost(seen: WorldView) -> tuple[bool, float]:
        is_hung = seen.found is not None and seen.found.is_hung
        return is_hung, 0.0 if seen.world is None else seen.world.gpu_seconds_lost

    return max(groups, key=lost)


def _first(choose: Any, values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    found: float | None = choose(known) if known else None
    return found


def scalars_json(seen: WorldView, maker: ResponseMeta, *, snapshot: str = "") -> Json:
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


def scalars_of(seen: WorldView) -> dict[str, float | int | None]:
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


def _worst(seen: WorldView) -> tuple[int | None, float | None]:
    """The rank whose own work takes longest against its role, and how many times as long."""
    if seen.table is None:
        return None, None
    slowdowns = seen.table.slowdowns.overall
    if not np.isfinite(slowdowns).any():
        return None, None
    at = int(np.nanargmax(slowdowns))
    return int(seen.table.ranks[at]), float(slowdowns[at])


def _called_slow(seen: WorldView) -> int:
    called = [verdict for verdict in seen.current if verdict.state in CALLED_SLOW]
    ranks = {verdict.rank for verdict in called if verdict.rank is not None}
    hosts = {verdict.node for verdict in called if verdict.scope == "host"}
    if hosts and seen.table is not None:
        nodes = zip(seen.table.ranks.tolist(), seen.table.nodes, strict=True)
        ranks.update(rank for rank, node in nodes if node in hosts)
    return len(ranks)
