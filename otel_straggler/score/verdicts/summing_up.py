"""The summary of a world: numbers that are no verdicts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from otel_straggler.model.observation import Floats
from otel_straggler.model.step_table import StepTable
from otel_straggler.model.verdict import RankWaits, SectionCost, Verdict, WorldSummary
from otel_straggler.score.verdicts.grouping import median_of_rows
from otel_straggler.score.verdicts.ledger import exposed_ledger
from otel_straggler.score.verdicts.structure import Balance
from otel_straggler.score.verdicts.waits import WaitLedger
from otel_straggler.score.verdicts.world import World

MOST_WAITS = 100
_LONGEST_STEP = 10.0
"""Times the usual step of a block: what is longer has stood still."""


@dataclass(slots=True)
class SummingUp:
    """Keeps what a summary adds up."""

    waits: WaitLedger = field(default_factory=WaitLedger)
    gpu_seconds_lost: float = 0.0
    _ledger: tuple[SectionCost, ...] = ()
    _newest_look: StepTable | None = None

    def look(self, block: StepTable) -> None:
        """Take a block for the ledger of exposed time, which is made when it is asked for."""
        self._newest_look = block

    def add(
        self, step_s: Floats, world: World, balance: Balance | None, per_hour: list[float]
    ) -> None:
        """Add what a block has lost: what all would gain if they were equal, which is of work
        alone, or by whom that is called slow, if that is more, as with a loader of data.

        Args:
            step_s: (T, R) seconds of the step.
            per_hour: GPU seconds that each of those who are slow in this block costs.
        """
        n_ranks = _ranks_of(world)
        parts = [share for share in (each / 3600.0 / n_ranks for each in per_hour) if share > 0.0]
        if balance is not None and np.isfinite(balance.told.waste):
            parts.append(balance.told.waste)
        if parts:
            of_step_s = median_of_rows(step_s.T)
            # A step in which the run hung is not long by inequality; who knows of hangs adds those.
            longest_s = _LONGEST_STEP * float(np.nanmedian(of_step_s))
            seconds = float(np.nansum(np.minimum(of_step_s, longest_s)))
            self.gpu_seconds_lost += min(1.0, max(parts)) * n_ranks * seconds

    def summary(
        self,
        step_s: Floats,
        world: World,
        balance: Balance | None,
        resolvable: float,
        current: list[Verdict],
        waits_inside: str,
    ) -> WorldSummary:
        """After a block whose steps took ``step_s`` (T, R). Cost: O(T R S).

        Args:
            waits_inside: as :class:`WorldSummary` has it.
        """
        first = world.sources[0]
        reporting = int(np.isfinite(step_s).any(axis=0).sum())
        of_rank_s = median_of_rows(step_s)
        if self._newest_look is not None:
            self._ledger, self._newest_look = exposed_ledger(self._newest_look), None
        told = WorldSummary(
            run_id=first.run_id,
            group=first.group,
            attempt=first.attempt,
            resolvable_slowdown=math.nan if waits_inside else resolvable,
            coverage=reporting / _ranks_of(world),
            gpu_seconds_lost=self.gpu_seconds_lost,
            on_gpu=world.on_gpu or any(verdict.is_on_gpu for verdict in current),
            step_s=float(median_of_rows(median_of_rows(step_s.T)[:, None])[0]),
            slowest_step_s=float(np.nanmax(of_rank_s)) if reporting else math.nan,
            ledger=self._ledger,
            waits=self._rank_waits(world),
            waits_inside=waits_inside,
        )
        return self.revised(told, balance, current)

    def revised(
        self, summary: WorldSummary, balance: Balance | None, current: list[Verdict]
    ) -> WorldSummary:
        """The summary with the newest balance and cause."""
        summary = replace(summary, cause=_cause(current))
        if balance is None:
            return summary
        told = balance.told
        if summary.waits_inside:  # where all take equally long, equal work would look the same
            return replace(summary, heat=_heat(balance))
        return replace(
            summary,
            slowdown=told.slowdown,
            waste=told.waste,
            m_w=told.m_w,
            m_s=told.m_s,
            heat=_heat(balance),
        )

    def _rank_waits(self, world: World) -> tuple[RankWaits, ...]:
        caused, suffered = self.waits.caused_s, self.waits.suffered_s
        rows = [row for row, name in enumerate(world.rank_subjects) if name in caused]
        rows.sort(key=lambda row: -caused[world.rank_subjects[row]])
        return tuple(
            RankWaits(
                rank=world.sources[row].rank,
                node=world.sources[row].node,
                role=world.sources[row].role,
                group=world.sources[row].group,
                caused_s=caused[world.rank_subjects[row]],
                suffered_s=suffered.get(world.rank_subjects[row], 0.0),
            )
            for row in rows[:MOST_WAITS]
        )

    def state(self) -> dict[str, Any]:
        """JSON's types."""
        return {"gpu_seconds_lost": self.gpu_seconds_lost, "waits": self.waits.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self.gpu_seconds_lost = float(state.get("gpu_seconds_lost", 0.0))
        self.waits.restore(state.get("waits", {}))


def _ranks_of(world: World) -> int:
    return max(world.expected, world.n_ranks, 1)


def _cause(current: list[Verdict]) -> str:
    """Of the dearest verdict that is confirmed; empty if none is."""
    active = [v for v in current if v.state in ("confirmed", "flapping")]
    if not active:
        return ""
    return max(active, key=lambda verdict: verdict.gpu_seconds_lost_per_hour).cause


def _heat(balance: Balance) -> tuple[tuple[int, int, float], ...]:
    workers, values = balance.workers, balance.told.of_worker
    return tuple(
        (stage, data, float(values[d, p]))
        for p, stage in enumerate(workers.stages)
        for d, data in enumerate(workers.data_ranks)
    )
