"""Distribution of work over the layout: what balance would save, long stages, and imbalance.
Evaluated every 20 steps over the newest 100; no rank is blamed here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from otel_straggler.detect.scores.medians import median_of_rows
from otel_straggler.detect.verdicts.blocks import joined
from otel_straggler.detect.verdicts.imbalance import (
    MAX_M_W,
    ExpertImbalance,
    expert_imbalance,
    sequence_imbalance,
    which_expert,
)
from otel_straggler.detect.verdicts.log import WELL, EvaluationTime, VerdictLog
from otel_straggler.detect.verdicts.pipeline import (
    WhatIf,
    Workers,
    filled,
    find_workers,
    microbatches_of,
    row_seconds,
    what_if,
    worker_seconds,
)
from otel_straggler.detect.verdicts.world import draft_of, run_subject
from otel_straggler.model.causes import Cause
from otel_straggler.model.observation import Bools, Floats, Ints
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable
from otel_straggler.model.verdict import Verdict

EVERY_STEPS = 20
WINDOW_STEPS = 100
MIN_STEPS = 5
MAX_RANKS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """Of the newest evaluation."""

    estimate: WhatIf
    workers: Workers


class Sample:
    """The newest 100 steps of at most 1,024 ranks."""

    def __init__(self) -> None:
        self._rows: npt.NDArray[np.intp] | None = None
        self._tables: list[StepTable] = []

    def add(self, block: StepTable, counts: Bools) -> None:
        """The next block. Ranks are drawn once, by a fixed seed, so that no axis is missed."""
        if self._rows is None:
            drawn = np.random.default_rng(0).permutation(len(block.sources))[:MAX_RANKS]
            self._rows = np.sort(drawn)
        block = replace(block, section_end_ns=None)
        is_whole = len(self._rows) == len(block.sources) and bool(counts.all())
        self._tables.append(block if is_whole else _part(block, counts, self._rows))
        while sum(map(len, self._tables)) - len(self._tables[0]) >= WINDOW_STEPS:
            self._tables.pop(0)

    def table(self) -> StepTable:
        """All steps in one; of the blocks with the sections of the newest."""
        newest = self._tables[-1]
        return joined([table for table in self._tables if table.sections == newest.sections])


def _usual_step_s(block: StepTable) -> Floats:
    """(T,) seconds of the step on the median rank; NaN if unknown."""
    if block.step_s is None:
        return np.full(len(block), np.nan)
    return median_of_rows(block.step_s.T)


def _part(block: StepTable, counts: Bools, rows: npt.NDArray[np.intp]) -> StepTable:
    return replace(
        block,
        steps=block.steps[counts],
        sources=tuple(block.sources[row] for row in rows.tolist()),
        seconds=block.seconds[counts][:, rows],
        runs=block.runs[counts][:, rows],
        run_cv=block.run_cv[rows],
        tokens=block.tokens[counts][:, rows],
        step_s=None if block.step_s is None else block.step_s[counts][:, rows],
        start_ns=block.start_ns[counts][:, rows],
        end_ns=block.end_ns[counts][:, rows],
    )


class Structure:
    """Evaluates the balance of one world."""

    def __init__(self, log: VerdictLog) -> None:
        self._log = log
        self.balance: Balance | None = None
        self.reset()

    def reset(self) -> None:
        self._workers: Workers | None = None
        self._is_laid_out = False
        self._seconds: list[Floats] = []
        self._step_s: list[Floats] = []
        self._steps: list[Ints] = []
        self._begins_ns: list[Ints] = []
        self._long_since: dict[int, tuple[int | None, int]] = {}
        self._sample = Sample()
        self._since_evaluation = 0
        self.balance = None

    def observe(self, block: StepTable, counts: Bools, now: EvaluationTime) -> list[Verdict]:
        """Changes of state from the next block. Cost: O(T R), and O(100 D P) every 20 steps."""
        if not self._is_laid_out:
            self._workers = find_workers(block.sources)
            self._is_laid_out = True
        if self._workers is None or not counts.any():
            return []
        seconds = worker_seconds(block, self._workers)[counts]
        self._seconds.append(seconds)
        self._step_s.append(_usual_step_s(block)[counts])
        self._steps.append(block.steps[counts])
        self._begins_ns.append(block.start_ns[counts].max(axis=1))  # by the foremost clock
        while sum(map(len, self._seconds)) - len(self._seconds[0]) >= WINDOW_STEPS:
            self._seconds.pop(0)
            self._step_s.pop(0)
            self._steps.pop(0)
            self._begins_ns.pop(0)
        self._sample.add(block, counts)
        self._newest, self._now = block, now
        self._since_evaluation += len(seconds)
        return self._evaluate() if self._since_evaluation >= EVERY_STEPS else []

    def finish(self) -> list[Verdict]:
        """A last evaluation, if there are new steps."""
        return self._evaluate() if self._since_evaluation >= MIN_STEPS else []

    def _evaluate(self) -> list[Verdict]:
        assert self._workers is not None
        self._since_evaluation = 0
        microbatches = microbatches_of(self._newest, self._workers)
        seconds = np.concatenate(self._seconds)
        estimate = what_if(seconds, microbatches, np.concatenate(self._step_s))
        self.balance = Balance(estimate=estimate, workers=self._workers)
        changes = self._stages(seconds, estimate, long_stages(seconds, microbatches, estimate))
        changes += [self._experts(estimate), self._sequences(estimate)]
        return [change for change in changes if change is not None]

    def _sequences(self, estimate: WhatIf) -> Verdict | None:
        may_be = estimate.slowdown >= MIN_SLOWDOWN and not estimate.m_w >= MAX_M_W
        subject = run_subject(self._newest.sources[0].group, "sequence_imbalance")
        if not may_be and self._log.state_of(subject).state in WELL:
            return None  # what it costs to be sure is most of a look
        result = sequence_imbalance(self._sample.table(), estimate.m_w)
        draft = self._draft(
            "sequence_imbalance",
            estimate.slowdown,
            result.strength,
            estimate.waste * self._n_ranks * 3600.0,
            section=result.sections[-1],
        )
        is_present = result.is_present and estimate.slowdown >= MIN_SLOWDOWN
        return self._record(draft, is_present=is_present)

    def _experts(self, estimate: WhatIf) -> Verdict | None:
        has_experts = any("expert" in dict(source.parallel) for source in self._newest.sources)
        result = expert_imbalance(self._sample.table()) if has_experts else ExpertImbalance()
        draft = self._draft(
            "expert_imbalance",
            result.slowdown,
            result.strength,
            estimate.waste * self._n_ranks * 3600.0,
            section=result.section,
            detail=which_expert(result),
        )
        return self._record(draft, is_present=result.is_present)

    def _stages(
        self, seconds: Floats, estimate: WhatIf, result: LongStages
    ) -> list[Verdict | None]:
        """Whether a stage has more work than the others."""
        n_stages = len(estimate.stages)
        if n_stages < 2:
            return []
        steps = np.concatenate(self._steps)
        for stage in range(n_stages):
            if stage not in result.stages:
                self._long_since.pop(stage, None)
            elif stage not in self._long_since and not self._newest.is_timed:
                since = became_long(seconds, steps, stage)
                begins_ns = np.concatenate(self._begins_ns)
                at_ns = 0 if since is None else int(begins_ns[steps == since][0])
                self._long_since[stage] = since, at_ns
        return [
            self._record(
                self._stage_draft(stage, estimate, result), is_present=stage in result.stages
            )
            for stage in range(n_stages)
        ]

    def _record(self, draft: Verdict, *, is_present: bool) -> Verdict | None:
        return self._log.record(draft, flagged=is_present, clear=not is_present, now=self._now)

    def _stage_draft(self, stage: int, estimate: WhatIf, result: LongStages) -> Verdict:
        assert self._workers is not None
        role = f"pipeline {self._workers.stages[stage]}"
        part = min(result.part, 1.0)
        since, since_ns = self._long_since.get(stage, (None, 0))
        lost = estimate.waste * part * self._n_ranks * 3600.0 / max(1, len(result.stages))
        return self._draft(
            "stage_imbalance",
            float(estimate.stages[stage]),
            min(0.95, 0.5 + 0.5 * part * estimate.waste / 0.1),
            lost,
            role=role,
            since_step=since,
            since_ns=since_ns,
            began="unknown" if since is None else "became",
            n_peers=len(estimate.stages) - 1,
            detail=self._detail(stage, result),
        )

    def _detail(self, stage: int, result: LongStages) -> str:
        """What balance saves, and what contradicts stages that were made unequal."""
        assert self._workers is not None
        if stage not in result.stages:
            return ""
        others = [str(self._workers.stages[s]) for s in sorted(result.stages) if s != stage]
        together = f" together with stage {' and '.join(others)}" if others else ""
        text = [f"to balance it{together} would save {result.saved_s:.2g} s of every step"]
        if self._long_since.get(stage, (None, 0))[0] is not None:
            text.append("it was balanced before: look at what its ranks share, not at its layers")
        text.append(who_else_it_may_be(stage, self._workers, self._newest.sources))
        return "; ".join(filter(None, text))

    @property
    def _n_ranks(self) -> int:
        return max(self._newest.world_size, len(self._newest.sources))

    def _draft(
        self,
        cause: Cause,
        slowdown: float,
        confidence: float,
        lost: float,
        role: str = "",
        **fields: Any,
    ) -> Verdict:
        """Of the role, or of the run, with ``lost`` GPU seconds per hour."""
        source = self._newest.sources[0]
        return draft_of(
            source,
            cause,
            role,
            slowdown=slowdown,
            confidence=round(confidence, 3),
            gpu_seconds_lost_per_hour=float(np.nan_to_num(lost)),
            on_gpu=any(source.reports_gpu for source in self._newest.sources),
            **fields,
        )


MIN_SLOWDOWN = 1.05
MIN_STAGE = 1.03
STAGE_PART = 0.5
"""Stages are to blame if fixing them saves this part of the loss."""
AGREEING = 0.75
"""In this part of the data ranks a long stage has at least half of its excess."""
GAP_PART = 0.5
"""Of several named stages each is longer than all others by this part of its excess."""
BLOCK_STEPS, MIN_BEFORE = 5, 2
"""Whether a stage was even before shows in medians of 5 steps, at least two of them."""
EVEN_PART = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class LongStages:
    """Stages that are too long, by index.

    Attributes:
        stages: longest first; empty if none is to blame.
        part: part of the loss that goes if they take the mean of all stages.
        saved_s: seconds per step that this saves, by the schedule of ``what_if``.
    """

    stages: tuple[int, ...] = ()
    part: float = 0.0
    saved_s: float = 0.0


def long_stages(seconds: Floats, microbatches: int, estimate: WhatIf) -> LongStages:
    """The fewest stages, fewer than the others, that hold half of the loss, from (T, D, P) seconds.
    Stages are never equal (embedding, head, loss), so one is named by its cost: the run takes 1.05
    times as long as it could, and half of that goes if these stages take the mean. Three quarters
    of the data ranks must agree, which one slow worker cannot bring about."""
    if not estimate.slowdown >= MIN_SLOWDOWN:
        return LongStages()
    a = filled(np.asarray(seconds, np.float64)) / max(1, microbatches)
    ideal = a.mean(axis=(1, 2))
    total = float(row_seconds(a, microbatches).max(axis=1).sum())
    loss = estimate.lost_s * len(a)
    order = np.argsort(-estimate.stages, kind="stable")
    for count in range(1, max(1, len(order) // 2) + 1):
        chosen = order[:count]
        if not estimate.stages[chosen[-1]] >= MIN_STAGE:
            break
        mended = a.copy()
        mended[:, :, chosen] = ideal[:, None, None]
        won = total - float(row_seconds(mended, microbatches).max(axis=1).sum())
        if won >= STAGE_PART * loss:
            if not (
                _stand_out(estimate.stages, order, count) and _agree(a, estimate.stages, chosen)
            ):
                break
            return LongStages(
                stages=tuple(chosen.tolist()), part=won / loss, saved_s=won / max(1, len(a))
            )
    return LongStages()


def became_long(seconds: Floats, steps: Ints, stage: int) -> int | None:
    """The step since when a stage is long that was even before; None if it always was. Layers do
    not move during a run: what becomes long has another cause.

    Args:
        seconds: (T, D, P) of the newest steps; steps: (T,) their numbers.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        of_mean = seconds[:, :, stage] / seconds.mean(axis=2)
    ratio = median_of_rows(of_mean.T)
    n_blocks = len(ratio) // BLOCK_STEPS
    if n_blocks <= MIN_BEFORE:
        return None
    first = len(ratio) - n_blocks * BLOCK_STEPS
    blocks = median_of_rows(ratio[first:].reshape(n_blocks, BLOCK_STEPS).T)
    excess = float(np.median(blocks[-2 * MIN_BEFORE :])) - 1.0
    is_even = ~(blocks - 1.0 >= 0.5 * excess)
    if not is_even.any() or not excess > 0.0:
        return None
    onset = int(np.flatnonzero(is_even)[-1]) + 1
    before = blocks[:onset]
    if onset < MIN_BEFORE or not np.median(before) - 1.0 < EVEN_PART * excess:
        return None
    return int(steps[first + min(onset, n_blocks - 1) * BLOCK_STEPS])


def who_else_it_may_be(stage: int, workers: Workers, sources: Sequence[Source]) -> str:
    """The node or rank that is all of a stage, so that no peer shows whether it is slow. Empty if
    there is none, or for the last stage, which is long by nature."""
    if stage == workers.shape[1] - 1:
        return ""
    here = [source for source, at in zip(sources, workers.stage, strict=True) if at == stage]
    if len(here) == 1:
        return f"or rank {here[0].rank} is slow, which has no peers"
    nodes = {source.node for source in here}
    others = {s.node for s, at in zip(sources, workers.stage, strict=True) if at != stage}
    if len(nodes) == 1 and "" not in nodes and not nodes & others:
        return f"or {nodes.pop()} is slow, which has all of its ranks and no others"
    return ""


def _stand_out(lengths: Floats, order: npt.NDArray[np.intp], count: int) -> bool:
    if count == 1:
        return True
    shortest, next_one = lengths[order[count - 1]], lengths[order[count]]
    return bool(shortest - next_one >= GAP_PART * (shortest - 1.0))


def _agree(a: Floats, lengths: Floats, chosen: npt.NDArray[np.intp]) -> bool:
    of_worker = a.mean(axis=0)
    of_mean = of_worker / of_worker.mean(axis=1, keepdims=True)
    is_long = of_mean[:, chosen] - 1.0 >= 0.5 * (lengths[chosen] - 1.0)
    return bool((is_long.mean(axis=0) >= AGREEING).all())
