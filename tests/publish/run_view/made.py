"""Worlds made by hand: some ranks, a window of theirs, signs of life, verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from otel_straggler.collector.views.world_view import RankHeartbeats, RankTable, WorldView
from otel_straggler.detect.hangs.detector import HangStatus
from otel_straggler.detect.hangs.states import LOST, OK, STUCK, Blame, HangKind, RunState
from otel_straggler.model.observation import Section
from otel_straggler.model.verdict import RunVerdicts, Verdict, WorldSummary

NOW_S = 1_790_000_000.0
SECTIONS = (
    Section("data_loading", "data"),
    Section("forward"),
    Section("attention", "compute", "forward"),
    Section("gradient_sync", "wait"),
)
SECONDS = (0.02, 0.1, 0.06, 0.05)


def table_of(
    n_ranks: int = 8,
    stages: int = 1,
    slow: dict[int, float] | None = None,
    *,
    with_layout: bool = True,
    sections: Sequence[Section] = SECTIONS,
) -> RankTable:
    """Ranks that are alike but for those in ``slow``, whose own work takes so many times longer."""
    step_s = np.tile(np.array(SECONDS[: len(sections)]), (n_ranks, 1))
    for rank, factor in (slow or {}).items():
        step_s[rank, : len(sections) - 1] *= factor
    per_stage = n_ranks // stages
    parallels = [
        (("data", rank % per_stage), ("pipeline", rank // per_stage)) if with_layout else ()
        for rank in range(n_ranks)
    ]
    return RankTable(
        ranks=np.arange(n_ranks),
        nodes=[f"node-{rank // 8}" for rank in range(n_ranks)],
        roles=["default"] * n_ranks,
        devices=[f"GPU-{rank}" for rank in range(n_ranks)],
        parallels=parallels,
        sections=sections,
        median_s=step_s,
        step_s=step_s,
        own_s=step_s,
        relative=step_s.min(axis=0) / step_s,
        individual=np.ones_like(step_s),
        count=np.full(step_s.shape, 20),
        gpu_relative=np.full(n_ranks, np.nan),
        gpu_individual=np.full(n_ranks, np.nan),
        first_step=40,
        last_step=59,
        n_steps=20,
        end_ns=int((NOW_S - 5) * 1e9),
    )


def heartbeats_of(table: RankTable, **changes: Any) -> RankHeartbeats:
    n_ranks = len(table.ranks)
    values: dict[str, Any] = {
        "ranks": table.ranks,
        "nodes": table.nodes,
        "roles": table.roles,
        "devices": table.devices,
        "parallels": table.parallels,
        "heartbeat_age_s": np.full(n_ranks, 1.25),
        "progress_age_s": np.full(n_ranks, 0.5),
        "step": np.full(n_ranks, 61),
        "open_section": ["forward"] * n_ranks,
        "models": ["NVIDIA H200"] * n_ranks,
        "gpu_tier": ["off"] * n_ranks,
        "gpu_reason": ["asked"] * n_ranks,
        "dropped": [{} for _ in range(n_ranks)],
        "outcomes": [""] * n_ranks,
        "ended_age_s": np.full(n_ranks, np.nan),
        **changes,
    }
    return RankHeartbeats(**values)


def without_gpus(seen: WorldView) -> WorldView:
    """The same of ranks that have told of no GPU."""
    nothing = [""] * seen.reporting
    table = None if seen.table is None else replace(seen.table, devices=nothing)
    heartbeats = seen.heartbeats and replace(seen.heartbeats, devices=nothing, models=nothing)
    return replace(seen, table=table, heartbeats=heartbeats)


def result_of(
    n_ranks: int = 8,
    state: RunState = "training",
    kind: HangKind | None = None,
    culprits: Sequence[int] = (),
) -> HangStatus:
    is_culprit = np.isin(np.arange(n_ranks), culprits)
    states = np.full(n_ranks, OK if kind is None else STUCK, np.int32)
    if kind == "lost":
        states[is_culprit] = LOST
    return HangStatus(
        state=state,
        since_s=NOW_S - 90.0,
        ranks=np.arange(n_ranks),
        rank_states=states,
        rank_since_s=np.full(n_ranks, NOW_S - 90.0),
        timeout_s=np.full(n_ranks, 30.0),
        blame=None if kind is None else Blame(kind, is_culprit, ~is_culprit),
        hung_since_s=float("nan") if kind is None else NOW_S - 90.0,
    )


def summary(**changes: Any) -> WorldSummary:
    values: dict[str, Any] = {
        "run_id": "run",
        "slowdown": 1.01,
        "waste": 0.0099,
        "resolvable_slowdown": 1.017,
        "coverage": 1.0,
        "gpu_seconds_lost": 3.0,
        "step_s": 0.2,
        **changes,
    }
    return WorldSummary(**values)


def verdict(**changes: Any) -> Verdict:
    values: dict[str, Any] = {
        "run_id": "run",
        "subject_id": "rank/node-0/5",
        "scope": "rank",
        "rank": 5,
        "node": "node-0",
        "section": "forward",
        "cause": "slow_gpu",
        "on_gpu": True,
        "state": "confirmed",
        "slowdown": 1.3,
        "since_step": 40,
        "since_ns": int((NOW_S - 60) * 1e9),
        "at_ns": int((NOW_S - 60) * 1e9),
        "gpu_seconds_lost_per_hour": 4000.0,
        "n_peers": 7,
        "own_s": 0.13,
        "peers_s": 0.1,
        "confidence": 0.9,
        "pages": True,
        "sentence": "rank 5 on node-0 takes 1.30x as long as its 7 peers in forward: slow GPU.",
        **changes,
    }
    return Verdict(**values)


def run_verdicts(
    *verdicts: Verdict, world: WorldSummary | None = None, **changes: Any
) -> RunVerdicts:
    """Layer 2 of a run of one world."""
    return RunVerdicts(changes=verdicts, worlds=(world or summary(),), **changes)


def seen(*verdicts: Verdict, world: WorldSummary | None = None, **changes: Any) -> WorldView:
    """A run of 8 ranks in training, judged; ``changes`` replaces fields."""
    table = changes.pop("table", table_of())
    values: dict[str, Any] = {
        "run_id": "run",
        "job": "job",
        "now_s": NOW_S,
        "began_at_s": NOW_S - 600,
        "received_at_s": NOW_S - 1,
        "world_size": 0 if table is None else len(table.ranks),
        "table": table,
        "heartbeats": None if table is None else heartbeats_of(table),
        "hang": None if table is None else result_of(len(table.ranks)),
        "run_verdicts": run_verdicts(*verdicts, world=world),
        **changes,
    }
    return WorldView(**values)
