"""Details of one rank, as in ``/v1/rank``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from otel_straggler.collector.views import gpu_times
from otel_straggler.collector.views.answer_type import command, pid_of, stacks_commands
from otel_straggler.collector.views.numbers import from_bytes, number, peers_of, rounded
from otel_straggler.collector.views.page_json import ResponseMeta
from otel_straggler.collector.views.ranks import MISSING, UNKNOWN, reported, row_of
from otel_straggler.collector.views.timeline import Column, spread
from otel_straggler.collector.views.verdict_json import (
    decisions_json,
    run_verdicts_part,
    verdicts_json,
)
from otel_straggler.collector.views.world_view import RankTable, WorldView
from otel_straggler.detect.scores.medians import median_of_peers
from otel_straggler.model.observation import NO_STEP

Json: TypeAlias = dict[str, Any]
_AGES: Final = ("heartbeat_age_s", "progress_age_s")


def is_known(view: WorldView, rank: int) -> bool:
    """True if the rank has reported, was scored, or is expected."""
    return any(row_of(part, rank) is not None for part in (view.heartbeats, view.table, view.hang))


def rank_json(
    view: WorldView,
    rank: int,
    columns: Sequence[Column],
    meta: ResponseMeta,
    *,
    now_s: float | None = None,
) -> Json:
    """Cost: O(R S) for the medians of its peers, and O(columns)."""
    node = str(reported(view, rank, "nodes") or "")
    run_verdicts = run_verdicts_part(
        view.run_verdicts, group=view.group, rank=rank, is_its_node=node.__eq__
    )
    now_s = view.now_s if now_s is None else now_s
    shown, _ = verdicts_json(
        run_verdicts, is_over=view.has_ended, attempt=view.attempt, clock_s=view.clock_s
    )
    return {
        **meta.head(now_s),
        "run_id": view.run_id,
        "group": view.group,
        "rank": rank,
        "node": node or None,
        "role": reported(view, rank, "roles") or None,
        "parallel": dict(reported(view, rank, "parallels") or ()),
        **_heartbeats(view, rank, max(now_s - view.now_s, 0.0)),
        **_scores(view.table, rank),
        "waits": _waits(view, rank),
        "verdicts": shown,
        "decisions": decisions_json(run_verdicts),
        "history": _history(columns, rank),
        "commands": _commands(view, rank),
    }


def _history(columns: Sequence[Column], rank: int) -> Json:
    """Slowdowns over time; the first section, without a name, is all sections together."""
    names = list(dict.fromkeys(name for column in reversed(columns) for name in column.sections))
    only = np.array([rank], np.int32)
    return {
        "columns": [column.as_json() for column in columns],
        "sections": ["", *names],
        "slowdowns": [
            rounded(from_bytes(spread(columns, name, only)[:, 0])) for name in ("", *names)
        ],
    }


def _heartbeats(view: WorldView, rank: int, later_s: float) -> Json:
    heartbeats, hang = view.heartbeats, view.hang
    row = row_of(heartbeats, rank)
    state = UNKNOWN
    if hang is not None and row_of(hang, rank) is not None:
        state = MISSING if row is None else hang.state_of(rank)

    def of(name: str, default: Any = None) -> Any:
        return default if heartbeats is None or row is None else getattr(heartbeats, name)[row]

    step = int(of("step", NO_STEP))
    ages_s = {name: float(of(name, np.nan)) + later_s for name in _AGES}
    return {
        "state": state,
        "step": step if step >= 0 else None,
        **{name: number(age_s, 4) for name, age_s in ages_s.items()},
        "pid": pid_of(view, rank),
        "open_section": of("open_section") or None,
        "gpu": {
            "tier": of("gpu_tier") or None,
            "reason": of("gpu_reason") or None,
            "uuid": reported(view, rank, "devices") or None,
            "model": of("models") or None,
            **gpu_times.of_rank(of("dropped", {})),
        },
        "dropped": dict(of("dropped", {})),
    }


def _scores(table: RankTable | None, rank: int) -> Json:
    row = row_of(table, rank)
    if table is None or row is None:
        return {"sections": [], **dict.fromkeys(("gpu_relative", "gpu_individual", "gpu_age_s"))}
    peers_step_s = median_of_peers(table.step_s, peers_of(table.roles))
    is_peer = np.array(table.roles) == table.roles[row]
    is_peer[row] = False
    n_peers: list[int] = np.isfinite(table.step_s[is_peer]).sum(axis=0).tolist()
    by_section = table.slowdowns.by_section
    of_gpu = table.gpu_section_relative, table.gpu_section_individual
    sections = [
        {
            "name": section.name,
            "kind": section.kind,
            "median_s": number(float(table.median_s[row, at])),
            "step_s": number(float(table.step_s[row, at])),
            "peers_step_s": number(float(peers_step_s[row, at])),
            "n_peers": n_peers[at],
            "slowdown": number(float(by_section[row, at])),
            "relative_score": number(float(table.relative[row, at])),
            "individual_score": number(float(table.individual[row, at])),
            "gpu_relative": None if of_gpu[0] is None else number(float(of_gpu[0][row, at])),
            "gpu_individual": None if of_gpu[1] is None else number(float(of_gpu[1][row, at])),
            "count": int(table.count[row, at]),
        }
        for at, section in enumerate(table.sections)
    ]
    return {
        "sections": sections,
        "gpu_relative": number(float(table.gpu_relative[row])),
        "gpu_individual": number(float(table.gpu_individual[row])),
        "gpu_age_s": number(table.gpu_age_s),
    }


def _waits(view: WorldView, rank: int) -> Json | None:
    waits = () if view.world is None else view.world.waits
    own = next((each for each in waits if each.rank == rank), None)
    if own is None:
        return None
    return {"caused_s": number(own.caused_s), "suffered_s": number(own.suffered_s)}


def _commands(view: WorldView, rank: int) -> list[str]:
    group = ("--group", view.group) if view.group else ()
    lines = []
    if any(verdict.rank == rank for verdict in view.current):
        lines.append(command("verdict", "explain", str(rank), view=view))
    if view.is_live:
        lines += stacks_commands(view, [rank], group)
    return lines
