"""Pictures of runs made by hand, in the shape that the collector answers with.

Every scenario is a set of answers: the list of runs, the picture, timelines, and ranks in detail.
Numbers are drawn with fixed seeds, so a screenshot of today looks like one of yesterday.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Json: TypeAlias = dict[str, Any]
Floats: TypeAlias = npt.NDArray[np.float64]

NOW_S = 1_790_000_000.0
SECTIONS = (
    ("data", "data", 0.012),
    ("forward", "compute", 0.110),
    ("backward", "compute", 0.205),
    ("gradient_sync", "wait", 0.034),
    ("optimizer", "compute", 0.021),
)
STATES = ("starting", "ok", "late", "stuck", "lost", "finished")
N_COLUMNS = 120


@dataclass
class World:
    """What a scenario consists of; the server and the tests read it.

    Attributes:
        slow: how many times as long ``rank`` takes in ``section``, by ``(rank, section)``.
        state: of a rank that is not well.
    """

    run_id: str = "llama-7b-0412"
    job: str = "llama-7b"
    ranks: int = 64
    stages: int = 4
    slow: dict[tuple[int, str], float] = field(default_factory=dict)
    state: dict[int, str] = field(default_factory=dict)
    answer: Json = field(default_factory=dict)
    run: Json = field(default_factory=dict)
    pattern: tuple[str, str] = ("even", "All workers are alike.")
    verdicts: list[Json] = field(default_factory=list)
    hangs: list[Json] = field(default_factory=list)
    alerts: list[Json] = field(default_factory=list)
    decisions: list[Json] = field(default_factory=list)
    maintenance: list[Json] = field(default_factory=list)
    node: Callable[[int], str] = lambda rank: f"node-{rank // 8}"
    sections: tuple[tuple[str, str, float], ...] = SECTIONS
    is_silent: bool = False
    _drawn: dict[str, Floats] = field(default_factory=dict)

    def slowdowns(self, section: str) -> Floats:
        """(windows, ranks) of one section; slow ranks are slow in the last third of the windows."""
        if section not in self._drawn:
            drawn = np.random.default_rng(len(self._drawn)).normal(1.0, 0.006, self._shape)
            for (rank, name), factor in self.slow.items():
                if name == section:
                    drawn[N_COLUMNS * 2 // 3 :, rank] *= factor
            self._drawn[section] = drawn
        return self._drawn[section]

    def overall(self) -> Floats:
        """(windows, ranks) over compute and data sections, weighted by what they take."""
        own = [(s, name) for name, kind, s in self.sections if kind in ("compute", "data")]
        if not own:
            return np.full(self._shape, np.nan)
        whole = sum(s for s, _ in own)
        return sum((s / whole * self.slowdowns(name) for s, name in own), np.zeros(self._shape))

    @property
    def _shape(self) -> tuple[int, int]:
        return N_COLUMNS, self.ranks


def run_view(world: World, group: str = "") -> Json:
    """The answer of ``/v1/run``."""
    run = {
        "run_id": world.run_id,
        "job": world.job,
        "group": group,
        "groups": [""],
        "attempt": 0,
        "state": "training",
        "is_live": True,
        "seen_at_s": NOW_S,
        "awaited_since_s": None,
        "began_at_s": NOW_S - 8040,
        "received_at_s": NOW_S - 1.2,
        "finished_at_s": None,
        "outcome": None,
        "world_size": world.ranks,
        "ranks_reporting": world.ranks,
        "coverage": 1.0,
        "step": 18_240,
        "step_s": 0.382,
        "slowest_step_s": 0.391,
        "slowdown": 1.012,
        "waste": 0.012,
        "m_w": None,
        "m_s": None,
        "cause": None,
        "resolvable_slowdown": 1.017,
        "on_gpu": True,
        "gpu_seconds_lost": 6100.0,
        "gpu_seconds_lost_per_hour": 2760.0,
        "time_basis": "host",
        "mode": "page",
        **world.run,
    }
    return {
        "schema_version": 1,
        "collector": "trainer-0:9464",
        "version": "0.1.0",
        "started_at_s": NOW_S - 9000,
        "now_s": NOW_S,
        "snapshot": f"{world.run_id}-1",
        "next_look_s": 1.0,
        "run": run,
        "answer": {**_healthy_answer(world), **world.answer},
        "verdicts": world.verdicts,
        "verdicts_left_out": 0,
        "hangs": world.hangs,
        "alerts": world.alerts,
        "decisions": world.decisions,
        "maintenance": world.maintenance,
        "ranks": _ranks(world),
        "sections": [{"name": name, "kind": kind} for name, kind, _ in world.sections],
        "slowdowns": {
            "overall": _listed(world.overall()[-1]),
            "by_section": [_listed(world.slowdowns(name)[-1]) for name, _, _ in world.sections],
        },
        "heat": _heat(world),
        "ledger": _ledger(world),
        "waits": _waits(world),
        "timeline": {"first": 1, "last": N_COLUMNS, "n_columns": N_COLUMNS},
    }


def runs_of(run_views: list[Json]) -> Json:
    """The answer of ``/v1/runs``."""
    first = run_views[0] if run_views else None
    return {
        "schema_version": 1,
        "collector": "trainer-0:9464",
        "version": "0.1.0",
        "started_at_s": first["started_at_s"] if first else NOW_S - 9000,
        "now_s": NOW_S,
        "runs": [_run_line(each) for each in run_views],
    }


def timeline(world: World, section: str = "", after: int = 0) -> Json:
    """The answer of ``/v1/timeline``; columns with a larger number than ``after``."""
    columns = [n for n in range(1, N_COLUMNS + 1) if n > after]
    slowdowns = (world.slowdowns(section) if section else world.overall())[after:]
    return {
        "schema_version": 1,
        "run_id": world.run_id,
        "group": "",
        "section": section,
        "first": columns[0] if columns else None,
        "last": N_COLUMNS,
        "ranks": list(range(world.ranks)),
        "columns": [
            {
                "seq": number,
                "at_s": NOW_S - (N_COLUMNS - number) * 7.6,
                "first_step": 15_840 + number * 20,
                "last_step": 15_859 + number * 20,
                "n_steps": 20,
            }
            for number in columns
        ],
        "encoding": "uint8-log2",
        "values": base64.b64encode(_bytes(slowdowns)).decode(),
    }


def rank_detail(world: World, rank: int) -> Json:
    """The answer of ``/v1/rank``."""
    return {
        "schema_version": 1,
        "run_id": world.run_id,
        "group": "",
        "rank": rank,
        "node": world.node(rank),
        "role": "trainer",
        "parallel": {"pp": rank // _per_stage(world), "dp": rank % _per_stage(world)},
        "state": world.state.get(rank, "ok"),
        "step": 18_240,
        "heartbeat_age_s": 0.8,
        "progress_age_s": 0.3,
        "open_section": "backward",
        "gpu": {"tier": "events", "reason": "", "uuid": f"GPU-4f1c-{rank:04d}", "model": "H200"},
        "sections": [_section_detail(world, rank, *section) for section in world.sections],
        "gpu_relative": 0.98,
        "gpu_individual": 0.99,
        "waits": {"caused_s": 3.2, "suffered_s": 41.0},
        "verdicts": [each for each in world.verdicts if each["rank"] == rank],
        "decisions": [],
        "history": {
            "columns": timeline(World(ranks=0))["columns"][-40:],
            "sections": [name for name, _, _ in world.sections],
            "slowdowns": [_listed(world.slowdowns(s)[-40:, rank]) for s, _, _ in world.sections],
        },
        "dropped": {},
        "commands": [f"otel-straggler verdict explain {rank} --run {world.run_id}"],
    }


def verdict(rank: int | None, **changes: Any) -> Json:
    """A verdict of the picture; on a rank unless told otherwise."""
    return {
        "subject_id": f"rank/node-2/{rank}",
        "scope": "rank",
        "rank": rank,
        "node": "node-2",
        "role": "trainer",
        "section": "forward",
        "cause": "slow_gpu",
        "state": "confirmed",
        "evidence": "events",
        "slowdown": 1.5,
        "since_step": 17_440,
        "confirmed_step": 17_520,
        "confidence": 0.97,
        "gpu_seconds_lost_per_hour": 33_120.0,
        "sentence": f"rank {rank} on node-2 takes 1.50x as long as its 15 peers in forward since"
        " step 17440: slow GPU. The job loses 9.2 h of GPU time per hour.",
        "group": "",
        "attempt": 0,
        "at_step": 18_220,
        "at_ns": round((NOW_S - 5) * 1e9),
        "began": "became",
        "n_peers": 15,
        "own_s": 0.165,
        "peers_s": 0.110,
        "pages": True,
        "is_localised": True,
        "stands": True,
        "since_s": NOW_S - 306,
        "silenced": False,
        **changes,
    }


def alert(name: str, summary: str, severity: str = "critical", **labels: str) -> Json:
    """An alert as reports have it."""
    return {
        "name": name,
        "since_ns": round((NOW_S - 240) * 1e9),
        "labels": {"alertname": name, "severity": severity, "run_id": "llama-7b-0412", **labels},
        "annotations": {"summary": summary},
    }


# --- parts ---------------------------------------------------------------------------------------


def _healthy_answer(world: World) -> Json:
    return {
        "tone": "good",
        "headline": f"All {world.ranks:,} ranks are alike",
        "sentence": f"All {world.ranks:,} ranks are alike; the smallest slowdown that would show"
        " is 1.7 %.",
        "kind": "healthy",
        "scope": None,
        "rank": None,
        "node": None,
        "section": None,
        "since_step": None,
        "since_s": None,
        "cause": None,
        "cause_text": None,
        "cost": {"gpu_seconds_lost_per_hour": 2760.0, "gpu_seconds_lost": 6100.0},
        "peers": None,
        "evidence": None,
        "confidence": None,
        "is_localised": None,
        "advice": [],
        "commands": [],
    }


def _ranks(world: World) -> Json:
    nodes = sorted({world.node(rank) for rank in range(world.ranks)}, key=lambda name: name)
    per_stage = _per_stage(world)
    state = [STATES.index(world.state.get(rank, "ok")) for rank in range(world.ranks)]
    silent = {"lost": 74.0, "stuck": 1.1, "late": 0.9}
    return {
        "rank": list(range(world.ranks)),
        "node": [nodes.index(world.node(rank)) for rank in range(world.ranks)],
        "nodes": nodes,
        "role": [0] * world.ranks,
        "roles": ["trainer"],
        "dp": [rank % per_stage for rank in range(world.ranks)],
        "pp": [rank // per_stage for rank in range(world.ranks)],
        "tp": None,
        "cp": None,
        "ep": None,
        "state": state,
        "states": list(STATES),
        "heartbeat_age_s": [
            silent.get(world.state.get(rank, ""), 0.4 + rank % 9 / 10)
            for rank in range(world.ranks)
        ],
        "progress_age_s": [
            212.0 if rank in world.state or world.is_silent else 0.3 for rank in range(world.ranks)
        ],
        "step": [18_240] * world.ranks,
        "open_section": [
            None if world.state.get(rank) == "finished" else 3 for rank in range(world.ranks)
        ],
        "open_sections": [name for name, _, _ in world.sections],
    }


def _per_stage(world: World) -> int:
    return max(1, world.ranks // world.stages)


def _heat(world: World) -> Json:
    per_stage = _per_stage(world)
    ranks = range(per_stage * world.stages)
    overall = _listed(world.overall()[-1])
    cells = [[r // per_stage, r % per_stage, overall[r]] for r in ranks]
    name, text = world.pattern
    return {
        "stages": list(range(world.stages)),
        "data_ranks": list(range(per_stage)),
        "cells": cells,
        "silent": [[r // per_stage, r % per_stage] for r, s in world.state.items() if s == "lost"],
        "pattern": name,
        "pattern_text": text,
    }


def _ledger(world: World) -> list[Json]:
    lines = []
    for name, _, typical in world.sections:
        slow = max(
            ((world.slow.get((r, name), 1.0), r) for r in range(world.ranks)), default=(1, 0)
        )
        lines.append(
            {
                "section": name,
                "exposed_s": _short(typical * slow[0]),
                "typical_s": typical,
                "leader_rank": slow[1] if slow[0] > 1.05 else None,
            }
        )
    return lines


def _waits(world: World) -> list[Json]:
    slow = {rank for rank, _ in world.slow} | {r for r, s in world.state.items() if s == "lost"}
    waits = []
    for rank in range(min(world.ranks, 24)):
        noise = rank * 0.618 % 1
        waits.append(
            {
                "rank": rank,
                "node": world.node(rank),
                "role": "trainer",
                "group": "",
                "caused_s": _short(95.0 + noise) if rank in slow else _short(2 * noise),
                "suffered_s": _short(1.4 * noise) if rank in slow else _short(38 + 8 * noise),
            }
        )
    return sorted(waits, key=lambda each: -each["caused_s"])


def _section_detail(world: World, rank: int, name: str, kind: str, typical: float) -> Json:
    slowdown = float(world.slowdowns(name)[-1, rank])
    return {
        "name": name,
        "kind": kind,
        "median_s": _short(typical * slowdown / 2),
        "step_s": _short(typical * slowdown),
        "peers_step_s": typical,
        "slowdown": _short(slowdown),
        "relative_score": _short(min(1.0, 1 / slowdown)),
        "individual_score": _short(min(1.0, 1 / slowdown)),
        "gpu_relative": None,
        "gpu_individual": None,
        "count": 40,
    }


def _run_line(each: Json) -> Json:
    run, answer = each["run"], each["answer"]
    kept = ("run_id", "job", "is_live", "state", "began_at_s", "received_at_s", "finished_at_s")
    kept += ("world_size", "ranks_reporting", "slowdown")
    reported = {
        "tone": answer["tone"],
        "headline": answer["headline"],
        "alerts": len(each["alerts"]),
    }
    return {**{key: run[key] for key in kept}, **reported}


def _bytes(slowdowns: Floats) -> bytes:
    """Column after column; 0 = no data."""
    codes = np.clip(np.round(128 + 64 * np.log2(slowdowns)), 1, 255)
    return bytes(np.where(np.isnan(codes), 0, codes).astype(np.uint8).tobytes())


def _listed(values: Floats) -> list[float | None]:
    return [None if np.isnan(value) else _short(value) for value in values.tolist()]


def _short(value: float) -> float:
    return float(f"{value:.4g}")
