"""Work that is unequal by nature: sequences that slow down ranks in turn, popular experts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from otel_straggler.detect.scores.medians import nan_median
from otel_straggler.model.observation import Floats, Ints
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable

MIN_CORRELATION = 0.9
MIN_MICROBATCH_CV = 0.10
MAX_M_W = 0.5
MIN_STEPS = 8
SHORTEST_S = 1e-13
"""No execution is shorter than 1e-12 s, on the wire or in a file."""
MIN_SECTION_SHARE = 0.1
"""A section takes part with at least this part of all compute time, ..."""
MAX_SECTIONS = 6
"""... if it is among this many longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceImbalance:
    """Evidence that sequences of different lengths make steps of a rank long and short.

    Attributes:
        correlation: of two compute sections over the steps of a rank, the median rank's; NaN
            without two sections or 8 steps.
        microbatch_cv: standard deviation of a microbatch's time / its mean; NaN if unknown.
        m_w: part of the loss that the worst workers have, as given.
        sections: the two, in the order in which they run; or empty names.
        strength: 0 if there is none, to 1.
    """

    correlation: float = math.nan
    microbatch_cv: float = math.nan
    m_w: float
    sections: tuple[str, str] = ("", "")
    strength: float = 0.0

    @property
    def is_present(self) -> bool:
        return self.strength > 0.0


def sequence_imbalance(table: StepTable, m_w: float) -> SequenceImbalance:
    """Look for sequence-length imbalance in dozens of steps.

    Two compute sections (any) must rise and fall together on one rank from step to step
    (correlation >= 0.9, without what is common to all ranks), microbatches must differ (coefficient
    of variation >= 0.10), and the loss must not be that of a few workers (``m_w`` < 0.5; NaN does
    not count against it). The first sign alone misfires: a worker that is slow for a while moves
    both sections. Without single microbatches their variation is sqrt(runs) x what both sections
    share.

    Cost: O(T R) for each of at most 15 pairs. Source: the correlation is from "Understanding
    Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025); the rest is ours.
    """
    chosen = _main_sections(table)
    relative = {s: _tamed(relative_steps(table.seconds[:, :, s])) for s in chosen}
    best, pair = math.nan, (-1, -1)
    for i, first in enumerate(chosen):
        for second in chosen[i + 1 :]:
            result = _median_correlation(relative[first], relative[second])
            if not math.isnan(result) and not result <= best:
                best, pair = result, (first, second)
    if pair == (-1, -1):
        return SequenceImbalance(m_w=m_w)
    cvs = (_microbatch_cv(table, s, relative[s], best) for s in pair)
    cv = min((cv for cv in cvs if not math.isnan(cv)), default=math.nan)
    return SequenceImbalance(
        correlation=best,
        microbatch_cv=cv,
        m_w=m_w,
        sections=(table.sections[pair[0]].name, table.sections[pair[1]].name),
        strength=strength_of_sequences(best, cv, m_w),
    )


def strength_of_sequences(correlation: float, microbatch_cv: float, m_w: float) -> float:
    """0 unless all three signs agree; else 0.5 at the thresholds, to 1."""
    if not (correlation >= MIN_CORRELATION and microbatch_cv >= MIN_MICROBATCH_CV):
        return 0.0
    if m_w >= MAX_M_W:
        return 0.0
    of_correlation = (correlation - MIN_CORRELATION) / (1.0 - MIN_CORRELATION)
    of_cv = min(1.0, microbatch_cv / MIN_MICROBATCH_CV - 1.0)
    return 0.5 + 0.25 * of_correlation + 0.25 * of_cv


def relative_steps(seconds: Floats) -> Floats:
    """(T, R) step / the rank's median, less the median of all ranks in the step; or NaN."""
    known = np.isfinite(seconds)
    usual = nan_median(np.where(known, seconds, np.nan), axis=0)
    ratio = np.full(seconds.shape, np.nan)
    np.divide(seconds, usual[None, :], out=ratio, where=known & (usual > SHORTEST_S)[None, :])
    common = nan_median(ratio, axis=1)
    result: Floats = ratio - common[:, None]
    return result


# --- parts ------------------------------------------------------------------------------------


def _main_sections(table: StepTable) -> list[int]:
    """Compute sections that matter, in the order in which they run."""
    compute = [i for i, section in enumerate(table.sections) if section.kind == "compute"]
    total = np.nansum(table.seconds[:, :, compute], axis=(0, 1)) if compute else np.zeros(0)
    longest = np.argsort(-total, kind="stable")[:MAX_SECTIONS]
    return sorted(compute[i] for i in longest if total[i] >= MIN_SECTION_SHARE * total.sum() > 0)


def _median_correlation(one: Floats, other: Floats) -> float:
    """The median rank's correlation over its steps."""
    both = np.isfinite(one) & np.isfinite(other)
    enough = both.sum(axis=0) >= MIN_STEPS
    if not enough.any():
        return math.nan
    both, x, y = both[:, enough], one[:, enough], other[:, enough]
    count = both.sum(axis=0)
    x = np.where(both, x, np.nan)
    y = np.where(both, y, np.nan)
    x = np.where(both, x - np.nansum(x, axis=0) / count, 0.0)
    y = np.where(both, y - np.nansum(y, axis=0) / count, 0.0)
    scale = np.sqrt((x * x).sum(axis=0) * (y * y).sum(axis=0))
    moves = scale > 1e-18
    if not moves.any():
        return math.nan
    return float(np.median((x * y).sum(axis=0)[moves] / scale[moves]))


def _tamed(relative: Floats) -> Floats:
    """A pause in one step is cut back to 5 robust deviations."""
    middle = nan_median(relative, axis=0)
    maximum = 5.0 * 1.4826 * nan_median(np.abs(relative - middle), axis=0)
    maximum = np.where(maximum > 0, maximum, np.inf)
    result: Floats = np.clip(relative, middle - maximum, middle + maximum)
    return result


def _microbatch_cv(table: StepTable, section: int, relative: Floats, correlation: float) -> float:
    reported = table.run_cv[:, section]
    if np.isfinite(reported).any():
        return float(np.nanmedian(reported))
    spread = 1.4826 * nan_median(np.abs(relative - nan_median(relative, axis=0)), axis=0)
    spread = spread[np.isfinite(spread)]
    if len(spread) == 0:
        return math.nan
    runs = table.runs[:, :, section]
    often = float(np.median(runs[runs > 0]))
    return float(np.median(spread)) * math.sqrt(often * max(0.0, correlation))


MIN_SLOWDOWN = 1.05
MIN_CONTRAST = 3.0
ROTATES_BELOW = 0.5
MIN_EXPERT_SHARE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertImbalance:
    """Evidence that the ranks of an expert take longer than the others'. NaN if unknown.

    Attributes:
        section: where it shows most; empty if nothing can be said.
        slowdown: the worst expert's ranks / the median expert's, in a usual step.
        contrast: this difference / the noise within experts.
        worst_expert: the expert rank that is worst most often, -1 if none; worst_share: how often.
        strength: 0 if there is none, to 1.
    """

    section: str = ""
    slowdown: float = math.nan
    contrast: float = math.nan
    worst_expert: int = -1
    worst_share: float = math.nan
    strength: float = 0.0

    @property
    def is_present(self) -> bool:
        return self.strength > 0.0

    @property
    def is_rotating(self) -> bool:
        """The worst expert changes from step to step: routing, not placement."""
        return self.worst_share < ROTATES_BELOW


def expert_imbalance(table: StepTable) -> ExpertImbalance:
    """Look for expert imbalance; empty if no stage has two experts of two ranks each.

    Ranks of a stage are compared by log time less the stage's median in the step. The worst
    expert's median rank must lie 5 % beyond the median expert's, and by three times the spread
    within experts (1.2533 sigma / sqrt(ranks of an expert) x sqrt(2 ln experts)). Three quarters of
    its ranks must be slow, on at least two hosts if the job has them: else it may be a rank or
    host.

    Cost: O(T R log R) per section. Source: ours.
    """
    return max(_in_sections(table), key=lambda result: result.strength, default=ExpertImbalance())


def which_expert(result: ExpertImbalance) -> str:
    """Whether it is always the same expert or changes with the routing; empty if unknown.

    >>> which_expert(ExpertImbalance(worst_expert=3, worst_share=0.92))
    'expert 3 the longest in 92 % of the steps'
    """
    if result.worst_expert < 0:
        return ""
    if result.is_rotating:
        return "the longest expert changes from step to step"
    return (
        f"expert {result.worst_expert} the longest in {100 * result.worst_share:.0f} % of the steps"
    )


def _in_sections(table: StepTable) -> Iterator[ExpertImbalance]:
    stages = _experts_by_stage(table.sources)
    compute = [i for i, section in enumerate(table.sections) if section.kind == "compute"]
    total = float(np.nansum(table.seconds[:, :, compute])) if compute else 0.0
    for s in compute:
        seconds = table.seconds[:, :, s]
        if np.nansum(seconds) < MIN_EXPERT_SHARE * total:
            continue
        log_s = np.full(seconds.shape, np.nan)
        np.log(seconds, out=log_s, where=np.isfinite(seconds) & (seconds > 0))
        for experts in stages:
            yield _in_stage(log_s, experts, table, table.sections[s].name)


def _experts_by_stage(sources: tuple[Source, ...]) -> list[dict[int, Ints]]:
    """Per stage: positions of the ranks of each expert that has two."""
    stages: dict[tuple[object, ...], dict[int, list[int]]] = {}
    for i, source in enumerate(sources):
        index = dict(source.parallel)
        if "expert" in index:
            stage = (source.role, index.get("pipeline"), index.get("virtual_pipeline"))
            stages.setdefault(stage, {}).setdefault(index["expert"], []).append(i)
    usable = [
        {expert: np.array(ranks) for expert, ranks in experts.items() if len(ranks) >= 2}
        for experts in stages.values()
    ]
    return [experts for experts in usable if len(experts) >= 2]


def _in_stage(
    log_s: Floats, experts: dict[int, Ints], table: StepTable, section: str
) -> ExpertImbalance:
    numbers = list(experts)
    is_known = np.isfinite(log_s)
    reported = np.stack([2 * is_known[:, r].sum(axis=1) > len(r) for r in experts.values()]).all(
        axis=0
    )
    if not reported.any():
        return ExpertImbalance()
    log_s = log_s[reported]
    middle = np.stack([nan_median(log_s[:, r], axis=1) for r in experts.values()], axis=1)
    low = np.stack(
        [np.nanquantile(log_s[:, r], 0.25, axis=1, method="lower") for r in experts.values()],
        axis=1,
    )
    usual = np.sort(middle, axis=1)[:, (len(numbers) - 1) // 2]
    worst = middle.argmax(axis=1)
    steps = np.arange(len(worst))
    gap = float(np.median(middle[steps, worst] - usual))
    of_majority = float(np.median(low[steps, worst] - usual))
    commonest = int(np.bincount(worst, minlength=len(numbers)).argmax())
    contrast = gap / _luck(log_s, experts, middle)
    is_theirs = of_majority >= 0.5 * gap and _spans_hosts(experts, worst, numbers, table)
    return ExpertImbalance(
        section=section,
        slowdown=math.exp(gap),
        contrast=contrast,
        worst_expert=numbers[commonest],
        worst_share=float((worst == commonest).mean()),
        strength=_strength(gap, contrast) if is_theirs else 0.0,
    )


def _luck(log_s: Floats, experts: dict[int, Ints], middle: Floats) -> float:
    """Noise of the worst of so many experts; never 0."""
    off = [
        np.abs(log_s[:, ranks] - middle[:, k : k + 1]).ravel()
        for k, ranks in enumerate(experts.values())
    ]
    sigma = 1.4826 * float(np.nanmedian(np.concatenate(off)))
    ranks_each = float(np.median([len(ranks) for ranks in experts.values()]))
    error = 1.2533 * max(sigma, 1e-4) / math.sqrt(ranks_each)
    return error * math.sqrt(2.0 * math.log(max(2, len(experts))))


def _spans_hosts(
    experts: dict[int, Ints], worst: Ints, numbers: list[int], table: StepTable
) -> bool:
    """Whether the ranks of some worst expert span hosts; else it may be the host."""
    if len({source.node for source in table.sources}) < 2:
        return True
    return any(
        len({table.sources[r].node for r in experts[numbers[k]]}) > 1 for k in np.unique(worst)
    )


def _strength(gap: float, contrast: float) -> float:
    if gap < math.log(MIN_SLOWDOWN) or contrast < MIN_CONTRAST:
        return 0.0
    return min(1.0, 0.5 * contrast / MIN_CONTRAST)
