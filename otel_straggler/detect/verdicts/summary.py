"""Summary of a world: its loss, who waits, and where the time of a step is exposed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from otel_straggler.detect.scores.medians import median_of, median_of_rows
from otel_straggler.detect.verdicts.losses import (
    HOUR_S,
    is_in_balance,
    is_theirs,
    together,
    with_costliest,
)
from otel_straggler.detect.verdicts.significance import MEDIAN_ERROR
from otel_straggler.detect.verdicts.structure import MIN_SLOWDOWN, Balance
from otel_straggler.detect.verdicts.waits import WaitDetector, WaitLedger
from otel_straggler.detect.verdicts.world import World
from otel_straggler.model.observation import Bools, Floats, Ints
from otel_straggler.model.step_table import StepTable
from otel_straggler.model.verdict import (
    CALLED_SLOW,
    Evidence,
    RankWaits,
    SectionCost,
    Verdict,
    WorldSummary,
)

MAX_WAITS = 100
_LONGEST_STEP = 10.0
"""A step this many times the usual has stood still."""


MAX_RECENT = 200
"""Blocks in which a loss is counted later: verdicts come so soon after the onset."""


@dataclass(slots=True)
class _BlockLoss:
    """First step of a block, seconds of all ranks in it, and of these what was counted as lost."""

    step: int
    seconds: float
    lost_s: float


@dataclass(slots=True)
class SummaryBuilder:
    """Accumulates a summary."""

    waits: WaitLedger = field(default_factory=WaitLedger)
    gpu_seconds_lost: float = 0.0
    _recent: deque[_BlockLoss] = field(default_factory=lambda: deque(maxlen=MAX_RECENT))
    _slow_at: dict[str, int] = field(default_factory=dict)
    _ledger: tuple[SectionCost, ...] = ()
    _newest_block: StepTable | None = None

    def observe(self, block: StepTable) -> None:
        """Take a block for the ledger of exposed time, which is made on request."""
        self._newest_block = block

    def add(
        self,
        step_s: Floats,
        steps: Ints,
        world: World,
        balance: Balance | None,
        slow: Sequence[Verdict],
    ) -> None:
        """Add the loss of a block: what equal work would save, or the costliest slow subject, if
        more. Of a subject that is new, also what it has cost since it became slow.

        Args:
            step_s: (T, R) seconds of the step.
            steps: (T,) their numbers.
            slow: verdicts on slow subjects, with GPU seconds per hour of the peers' usual step.
        """
        n_ranks = _ranks_of(world)
        waste = 0.0 if balance is None else float(np.nan_to_num(balance.estimate.waste))
        n_stages = 1
        if balance is not None and waste > 0.0:
            n_stages = balance.workers.shape[1]
            slow = [verdict for verdict in slow if not is_in_balance(verdict, n_stages)]
        shares = [
            max(0.0, float(np.nan_to_num(v.gpu_seconds_lost_per_hour))) / HOUR_S / n_ranks
            for v in slow
        ]
        share = together(slow, shares)
        of_step_s = median_of_rows(step_s.T)
        of_step_s = of_step_s[~np.isnan(of_step_s)]
        if not len(of_step_s):
            return
        usual_s = median_of(of_step_s)
        # A step in which the run hung is not long by inequality; who knows of hangs adds those.
        seconds = n_ranks * float(np.minimum(of_step_s, _LONGEST_STEP * usual_s).sum())
        slowest_s = float(np.fmax.reduce(median_of_rows(step_s)))
        times = slowest_s / usual_s if usual_s > 0.0 else 1.0
        if share >= 1.0:  # who waits longer than a step does so outside of the measured times
            share = max(1.0, times - 1.0)
        lost = share if is_theirs(share, waste * times, n_stages) else waste * times
        block = _BlockLoss(int(steps[0]), seconds, lost * seconds)
        self.gpu_seconds_lost += block.lost_s
        self._recent.append(block)
        self._date_back(slow, shares)

    def _date_back(self, slow: Sequence[Verdict], shares: Sequence[float]) -> None:
        """Count what subjects have cost from their onset to their verdict, once."""
        newest = self._recent[-1].step
        for verdict, share in zip(slow, shares, strict=True):
            if verdict.since_step is None:
                continue
            counted = max(self._slow_at.get(verdict.subject_id, -1), verdict.since_step - 1)
            self._slow_at[verdict.subject_id] = newest
            for block in reversed(self._recent):
                if block.step <= counted:
                    break
                more_s = max(0.0, min(share, 1.0) * block.seconds - block.lost_s)
                block.lost_s += more_s
                self.gpu_seconds_lost += more_s

    def summary(
        self,
        step_s: Floats,
        world: World,
        balance: Balance | None,
        resolvable: float,
        current: list[Verdict],
        waiting: WaitDetector,
        basis: Evidence,
    ) -> WorldSummary:
        """After a block whose steps took ``step_s`` (T, R). Cost: O(T R S)."""
        first = world.sources[0]
        reporting = int(np.isfinite(step_s).any(axis=0).sum())
        of_rank_s = median_of_rows(step_s)
        if self._newest_block is not None:
            self._ledger, self._newest_block = exposed_ledger(self._newest_block), None
        summary = WorldSummary(
            run_id=first.run_id,
            group=first.group,
            attempt=first.attempt,
            resolvable_slowdown=math.nan if waiting.inside or waiting.is_unseen else resolvable,
            coverage=reporting / _ranks_of(world),
            n_ranks=_ranks_of(world),
            gpu_seconds_lost=self.gpu_seconds_lost,
            on_gpu=world.on_gpu or any(verdict.is_on_gpu for verdict in current),
            step_s=float(median_of_rows(median_of_rows(step_s.T)[:, None])[0]),
            slowest_step_s=float(np.fmax.reduce(of_rank_s)) if reporting else math.nan,
            ledger=self._ledger,
            waits=self._rank_waits(world),
            waits_inside=waiting.inside,
            waits_unseen=waiting.is_unseen,
            basis=basis,
        )
        return self.revised(summary, balance, current)

    def revised(
        self, summary: WorldSummary, balance: Balance | None, current: list[Verdict]
    ) -> WorldSummary:
        """With the newest balance, cause, and loss."""
        world = _balanced(replace(summary, cause=_cause(current)), balance)
        return with_costliest(world, current)

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
            for row in rows[:MAX_WAITS]
        )

    def state(self) -> dict[str, Any]:
        return {"gpu_seconds_lost": self.gpu_seconds_lost, "waits": self.waits.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self.gpu_seconds_lost = float(state.get("gpu_seconds_lost", 0.0))
        self.waits.restore(state.get("waits", {}))


def _ranks_of(world: World) -> int:
    return max(world.expected, world.n_ranks, 1)


def _cause(current: list[Verdict]) -> str:
    """Of the costliest confirmed verdict; or empty."""
    active = (v for v in current if v.state in CALLED_SLOW)
    costliest = max(active, key=lambda v: v.gpu_seconds_lost_per_hour, default=None)
    return "" if costliest is None else costliest.cause


def _balanced(summary: WorldSummary, balance: Balance | None) -> WorldSummary:
    """The loss by the balance of work alone."""
    nan = math.nan
    if balance is None:
        return replace(summary, slowdown=nan, waste=nan, m_w=nan, m_s=nan)
    estimate = balance.estimate
    # Where all take equally long, equal work would look the same; what is seen besides, counts.
    is_equal = summary.waits_inside and summary.waits_unseen
    is_little = not estimate.slowdown >= MIN_SLOWDOWN
    if is_equal or (is_little and summary.hides_waiting):
        heat = _heat(balance)
        return replace(summary, slowdown=nan, waste=nan, m_w=nan, m_s=nan, heat=heat)
    return replace(
        summary,
        slowdown=estimate.slowdown,
        waste=estimate.waste,
        m_w=estimate.m_w,
        m_s=estimate.m_s,
        heat=_heat(balance),
    )


def _heat(balance: Balance) -> tuple[tuple[int, int, float], ...]:
    workers, values = balance.workers, balance.estimate.of_worker
    return tuple(
        (stage, data, float(values[d, p]))
        for p, stage in enumerate(workers.stages)
        for d, data in enumerate(workers.data_ranks)
    )


OUTSIDE = "(outside sections)"
"""Time of a step in none of its sections."""
LEADER_Z = 3.0
"""Standard errors by which a leader must be ahead, ..."""
LEADER_GAP = 0.001
"""... and part of the time so far."""
MIN_STEPS = 3


def exposed_ledger(table: StepTable) -> tuple[SectionCost, ...]:
    """What each section adds to the step, from a (T, R, S) table.

    With C[r, s] the time of rank r from the begin of its step to the end of section s (the sum of
    its sections so far) and F[s] = max over r of C[r, s], the section adds F[s] - F[s-1]; these add
    up to the slowest rank's step. Time in no section is a last line, ``(outside sections)``. It
    needs sections that follow each other and ranks that meet at least once a step; time of a late
    rank is charged to the section that made it late. Asynchronous work hides in the section that
    waits for it: read "exposed in", not "caused by".

    Returns: one line per section in order; empty without a reported step. ``leader_rank`` is the
    rank that was last most often; None if not clearly, or with fewer than 3 steps. ``typical_s`` is
    NaN for a section that nobody ran. Cost: O(T R S). Source: StageFrontier (arXiv 2606.06751).
    """
    is_finite: Bools = np.isfinite(table.seconds)
    reported: Bools = np.logical_or.reduce(is_finite, axis=(1, 2))
    if not reported.any():
        return ()
    is_known: Bools = np.logical_or.reduce(is_finite[reported], axis=2)
    own_s = np.where(is_finite, table.seconds, 0.0)[reported]
    names = [section.name for section in table.sections]
    ran: Bools = np.logical_or.reduce(is_finite[reported], axis=0)
    outside_s = _outside(table, reported, own_s)
    if outside_s.any():
        own_s = np.concatenate([own_s, outside_s[:, :, None]], axis=2)
        ran = np.concatenate([ran, np.logical_or.reduce(is_known, axis=0)[:, None]], axis=1)
        names.append(OUTSIDE)
    prefix_s = np.cumsum(own_s, axis=2)
    prefix_s[~is_known] = -np.inf
    exposed_s = _steps_of_frontier(prefix_s).mean(axis=0)
    typical_s = _typical(own_s, is_known, ran)
    return tuple(
        SectionCost(
            section=name,
            exposed_s=float(exposed_s[s]),
            typical_s=float(typical_s[s]),
            # Who is last where nothing is added was so before.
            leader_rank=_leader(prefix_s[:, :, s], table) if exposed_s[s] > 0.0 else None,
        )
        for s, name in enumerate(names)
    )


def _steps_of_frontier(prefix_s: Floats) -> Floats:
    """(T, S) from (T, R, S) prefix sums of each rank.

    >>> _steps_of_frontier(np.cumsum(np.array([[[1.0, 3.0], [2.0, 2.0]]]), axis=2)).tolist()
    [[2.0, 2.0]]
    """
    frontier = prefix_s.max(axis=1)
    steps: Floats = np.diff(frontier, axis=1, prepend=0.0)
    return steps


def _outside(table: StepTable, reported: Bools, own_s: Floats) -> Floats:
    """(T, R) time of a step - its sections; 0 where sections overlap or nothing is known."""
    start_ns, end_ns = table.start_ns[reported], table.end_ns[reported]
    wall_s = np.where((start_ns > 0) & (end_ns > start_ns), (end_ns - start_ns) / 1e9, 0.0)
    if table.step_s is not None:
        wall_s = np.nan_to_num(table.step_s[reported])
    left_s: Floats = wall_s - own_s.sum(axis=2)
    left_s[left_s < 1e-6 * wall_s] = 0.0  # rounding to nanoseconds is no time of its own
    return left_s


def _typical(own_s: Floats, is_known: Bools, ran: Bools) -> Floats:
    """(S,) median over the ranks that ran a section of their mean seconds per step."""
    steps = np.maximum(1, is_known.sum(axis=0))
    mean_s = own_s.sum(axis=0) / steps[:, None]
    return np.array(
        [
            median_of(mean_s[ran[:, s], s]) if ran[:, s].any() else np.nan
            for s in range(ran.shape[1])
        ]
    )


def _leader(prefix_s: Floats, table: StepTable) -> int | None:
    """The rank that comes last most often, if the next one is clearly before it."""
    n_steps, n_ranks = prefix_s.shape
    if n_steps < MIN_STEPS or n_ranks < 2:
        return None
    times_last: Ints = np.bincount(prefix_s.argmax(axis=1), minlength=n_ranks)
    first = int(times_last.argmax())
    second = _next_to(first, prefix_s)
    met = np.isfinite(prefix_s[:, first]) & np.isfinite(prefix_s[:, second])
    ahead_s = prefix_s[met, first] - prefix_s[met, second]
    if len(ahead_s) < MIN_STEPS:
        return None
    lead_s = median_of(ahead_s)
    spread_s = 1.4826 * median_of(np.abs(ahead_s - lead_s))
    error_s = MEDIAN_ERROR * spread_s / np.sqrt(len(ahead_s))
    min_s = LEADER_GAP * median_of(prefix_s[met, first])
    return table.sources[first].rank if lead_s > max(LEADER_Z * error_s, min_s) else None


def _next_to(first: int, prefix_s: Floats) -> int:
    known = np.isfinite(prefix_s)
    mean_s = np.where(known, prefix_s, 0.0).sum(axis=0) / np.maximum(1, known.sum(axis=0))
    mean_s[first] = -np.inf
    return int(mean_s.argmax())
