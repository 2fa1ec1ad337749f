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
    answers = [answer_of(view) for view in groups]
    worst = min(range(len(groups)), key=lambda at: TONES.index(answers[at]["tone"]))
    view, answer = groups[worst], answers[worst]
    slowdowns = [each.world.slowdown for each in groups if each.world is not None]
    ends = [each.finished_at_s for each in groups]
    has_ended = all(end is not None for end in ends)
    return {
        "run_id": view.run_id,
        "job": view.job or None,
        "is_live": any(each.is_live for each in groups),
        "state": state_of(view),
        "began_at_s": seconds(_first(min, (each.began_at_s for each in groups))),
        "received_at_s": seconds(_first(max, (each.received_at_s for each in groups))),
        "finished_at_s": seconds(_first(max, ends)) if has_ended else None,
        "world_size": sum(each.expected for each in groups) or None,
        "ranks_reporting": sum(each.reporting for each in groups),
        "slowdown": number(max((s for s in slowdowns if s == s), default=None)),
        "tone": answer["tone"],
        "headline": answer["headline"],
        "alerts": len(view.alerts) if view.is_live else 0,
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
    result = ordered(entries)
    return {
        **maker.head(now_s),
        "runs": result,
        "history_problem": history_problem,
        "problems": [*problems],
    }


def ordered(entries: Iterable[Json]) -> list[Json]:
    """Bad, to be watched, unknown, good, ended; within these those heard of last first."""
    return sorted(
        entries,
        key=lambda run: (TONES.index(run["tone"]), -(run["received_at_s"] or 0.0), run["run_id"]),
    )


def costliest_group(groups: Sequence[WorldView]) -> WorldView:
    """The world that is shown if nobody asks for one: a hung one, else that which lost most."""

    def lost(view: WorldView) -> tuple[bool, float]:
        is_hung = view.hang is not None and view.hang.is_hung
        return is_hung, 0.0 if view.world is None else view.world.gpu_seconds_lost

    return max(groups, key=lost)


def _first(choose: Any, values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    result: float | None = choose(known) if known else None
    return result


def scalars_json(view: WorldView, maker: ResponseMeta, *, snapshot: str = "") -> Json:
    """What ``/v1/scalars`` answers: some hundred bytes, whatever the number of ranks.

    Args:
        snapshot: changes when the picture does.
    """
    return {
        **maker.head(view.now_s),
        "snapshot": snapshot,
        "run_id": view.run_id,
        "group": view.group,
        "scalars": scalars_of(view),
    }


def scalars_of(view: WorldView) -> dict[str, float | int | None]:
    """Every name of ``TRACKER_SCALARS``; None where it is not known. Cost: O(R S)."""
    world = view.world or WorldSummary(run_id=view.run_id)
    worst_rank, slowdown = _worst(view)
    lost = None if view.world is None else number(world.gpu_seconds_lost)
    reported = {
        "worst_score": None if slowdown is None else number(min(1.0, 1.0 / slowdown)),
        "worst_rank": worst_rank,
        "slowdown": number(world.slowdown),
        "gpu_seconds_lost": lost,
        "gpu_seconds_lost_per_hour": None
        if view.has_ended
        else number(world.waste * 3600.0 * max(view.expected, 1)),
        "step_s": number(world.step_s),
        "slowest_step_s": slowest_own_s(view.table),
        "ranks_called_slow": _called_slow(view),
        "ranks_reporting": None if view.table is None else view.reporting,
    }
    return {name: reported[name] for name in TRACKER_SCALARS}


def _worst(view: WorldView) -> tuple[int | None, float | None]:
    """The rank whose own work takes longest against its role, and how many times as long."""
    if view.table is None:
        return None, None
    slowdowns = view.table.slowdowns.overall
    if not np.isfinite(slowdowns).any():
        return None, None
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
