"""Worlds made by hand, with something in every field."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from otel_straggler.collector.views.world_view import RankHeartbeats, RankTable, WorldView
from otel_straggler.detect.hangs.detector import HangStatus
from otel_straggler.detect.hangs.episodes import Hang
from otel_straggler.detect.hangs.states import LOST, STUCK, Blame
from otel_straggler.model.alert import Maintenance
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import (
    Decision,
    RankWaits,
    RunVerdicts,
    SectionCost,
    Verdict,
    WorldSummary,
    hang_subject,
)

NOW_S = 1_790_000_000.0


def seen_of(window: WindowScores, *verdicts: Verdict, **changes: Any) -> WorldView:
    """A world of two stages whose last rank is lost."""
    n_ranks = len(window.sources)
    parallels = [(("data", r // 2), ("pipeline", r % 2)) for r in range(n_ranks)]
    table = replace(RankTable.of_window(window), parallels=parallels)
    return replace(
        WorldView(
            run_id=window.run_id,
            job=window.job,
            group=window.group,
            groups=(window.group,),
            attempt=3,
            now_s=NOW_S,
            began_at_s=NOW_S - 3600.0,
            received_at_s=NOW_S - 1.5,
            world_size=n_ranks,
            table=table,
            heartbeats=heartbeats_of(table),
            hang=result_of(n_ranks),
            run_verdicts=run_verdicts_of(window, verdicts),
            alerts=[{"name": "A", "since_ns": 5, "labels": {"x": "y"}, "annotations": {}}],
            maintenance=[
                Maintenance(node="node-0", reason="fan", by="me", at_ns=1, until_ns=2 * 10**18)
            ],
            is_acknowledged=True,
            mode="page",
        ),
        **changes,
    )


def heartbeats_of(table: RankTable) -> RankHeartbeats:
    n_ranks = len(table.ranks)
    return RankHeartbeats(
        ranks=table.ranks,
        nodes=table.nodes,
        roles=table.roles,
        devices=table.devices,
        parallels=table.parallels,
        heartbeat_age_s=np.linspace(0.5, 9.5, n_ranks),
        progress_age_s=np.where(np.arange(n_ranks) == 1, np.nan, 2.0),
        step=np.where(np.arange(n_ranks) == 2, -1, 40),
        open_section=["forward", *[""] * (n_ranks - 1)],
        gpu_tier=["events"] * n_ranks,
        gpu_reason=["", *["no_cupti"] * (n_ranks - 1)],
        models=["H100"] * n_ranks,
        outcomes=[""] * n_ranks,
        ended_age_s=np.full(n_ranks, np.nan),
        dropped=[{"queue_full": 3}, *({} for _ in range(n_ranks - 1))],
    )


def result_of(n_ranks: int) -> HangStatus:
    is_last = np.arange(n_ranks) == n_ranks - 1
    return HangStatus(
        state="partly_lost",
        since_s=NOW_S - 60.0,
        hung_since_s=NOW_S - 70.0,
        ranks=np.arange(n_ranks),
        rank_states=np.where(is_last, LOST, STUCK).astype(np.int32),
        rank_since_s=np.full(n_ranks, NOW_S - 60.0),
        timeout_s=np.full(n_ranks, 30.0),
        blame=Blame("lost", is_last, ~is_last),
        before=(Hang(since_s=5.0, detected_s=25.0, seen_s=64.0, until_s=65.0, end="went_on"),),
        before_left_out=2,
    )


def run_verdicts_of(window: WindowScores, verdicts: tuple[Verdict, ...]) -> RunVerdicts:
    run_id, group = window.run_id, window.group
    world = WorldSummary(
        run_id=run_id,
        group=group,
        attempt=3,
        slowdown=1.2,
        waste=1 - 1 / 1.2,
        m_w=float("nan"),
        m_s=0.9,
        cause="slow_gpu",
        resolvable_slowdown=1.03,
        coverage=1.0,
        gpu_seconds_lost=77.0,
        step_s=0.4,
        heat=((0, 0, 1.0), (0, 1, 1.1), (1, 0, 1.0), (1, 1, float("nan"))),
        ledger=(
            SectionCost(section="forward", exposed_s=0.2, typical_s=0.1, leader_rank=3),
            SectionCost(section="data", exposed_s=0.1, typical_s=0.1, leader_rank=None),
        ),
        waits=(RankWaits(rank=3, node="n", role="r", group=group, caused_s=9.0, suffered_s=1.0),),
    )
    decision = Decision(
        action="dismiss", run_id=run_id, subject_id=hang_subject(group), reason="known",
        by="me", at_ns=9, verdict_at_ns=8,
    )  # fmt: skip
    return RunVerdicts(
        changes=verdicts,
        worlds=(world,),
        decisions=(decision,),
        silenced=frozenset({hang_subject(group)}),
    )
