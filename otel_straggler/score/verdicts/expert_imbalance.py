"""Experts that get more tokens than others: their ranks are slow together, and not broken."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from otel_straggler.model.observation import Floats, Ints
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable
from otel_straggler.score.medians import nan_median

LEAST_SLOWDOWN = 1.05
LEAST_CONTRAST = 3.0
ROTATES_BELOW = 0.5
LEAST_SHARE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertImbalance:
    """Whether the ranks of an expert take longer than those of the others.

    Attributes:
        section: the compute section where it shows most; empty if nothing can be said.
        slowdown: the worst expert's ranks / the median expert's, in a usual step; NaN if not known.
        contrast: this difference / what noise within experts would make of it; NaN if not known.
        worst_expert: the expert rank that is worst most often; -1 if none.
        worst_share: part of the steps in which it is.
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
        """The difference is large, and far beyond the noise."""
        return self.strength > 0.0

    @property
    def is_rotating(self) -> bool:
        """The worst expert changes from step to step: routing, not placement."""
        return self.worst_share < ROTATES_BELOW


def expert_imbalance(table: StepTable) -> ExpertImbalance:
    """Look for expert imbalance: the section that shows it most.

    Ranks of one stage are compared, by log time less the stage's median in the same step. The
    worst expert's median rank must lie 5 % beyond the median expert's, by three times as much as
    the spread within experts explains (1.2533 sigma / sqrt(ranks of an expert) x sqrt(2 ln
    experts)). That it is the expert, and not a rank or a host, must show: three quarters of its
    ranks are slow, and they stand on two hosts at least, if the job does.

    One rank per expert is not enough: nothing tells the expert from the rank. Experts with fewer
    than two ranks in a stage are left out.

    Args:
        table: ranks that tell an expert rank; kind compute counts.

    Returns:
        An empty answer if no stage has two experts of two ranks each. Steps that not most ranks of
        each expert told are left out.

    Cost: O(T R log R) a section. Source: ours.
    """
    return max(_in_sections(table), key=lambda found: found.strength, default=ExpertImbalance())


def which_expert(found: ExpertImbalance) -> str:
    """Whether it is always the same one, which can be placed otherwise, or the routing of each
    step; empty if nobody knows.

    >>> which_expert(ExpertImbalance(worst_expert=3, worst_share=0.92))
    'expert 3 the longest in 92 % of the steps'
    """
    if found.worst_expert < 0:
        return ""
    if found.is_rotating:
        return "another one the longest from step to step"
    return (
        f"expert {found.worst_expert} the longest in {100 * found.worst_share:.0f} % of the steps"
    )


def _in_sections(table: StepTable) -> Iterator[ExpertImbalance]:
    stages = _experts_by_stage(table.sources)
    compute = [i for i, section in enumerate(table.sections) if section.kind == "compute"]
    total = float(np.nansum(table.seconds[:, :, compute])) if compute else 0.0
    for s in compute:
        seconds = table.seconds[:, :, s]
        if np.nansum(seconds) < LEAST_SHARE * total:
            continue
        log_s = np.full(seconds.shape, np.nan)
        np.log(seconds, out=log_s, where=np.isfinite(seconds) & (seconds > 0))
        for experts in stages:
            yield _in_stage(log_s, experts, table, table.sections[s].name)


def _experts_by_stage(sources: tuple[Source, ...]) -> list[dict[int, Ints]]:
    """Per stage: positions of the ranks of each expert that has two."""
    stages: dict[tuple[object, ...], dict[int, list[int]]] = {}
    for i, source in enumerate(sources):
        told = dict(source.parallel)
        if "expert" in told:
            stage = (source.role, told.get("pipeline"), told.get("virtual_pipeline"))
            stages.setdefault(stage, {}).setdefault(told["expert"], []).append(i)
    usable = [
        {expert: np.array(ranks) for expert, ranks in experts.items() if len(ranks) >= 2}
        for experts in stages.values()
    ]
    return [experts for experts in usable if len(experts) >= 2]


def _in_stage(
    log_s: Floats, experts: dict[int, Ints], table: StepTable, section: str
) -> ExpertImbalance:
    numbers = list(experts)
    is_told = np.isfinite(log_s)
    told = np.stack([2 * is_told[:, r].sum(axis=1) > len(r) for r in experts.values()]).all(axis=0)
    if not told.any():
        return ExpertImbalance()
    log_s = log_s[told]
    middle = np.stack([nan_median(log_s[:, r], axis=1) for r in experts.values()], axis=1)
    low = np.stack(
        [np.nanquantile(log_s[:, r], 0.25, axis=1, method="lower") for r in experts.values()],
        axis=1,
    )
    usual = np.sort(middle, axis=1)[:, (len(numbers) - 1) // 2]
    worst = middle.argmax(axis=1)
    steps = np.arange(len(worst))
    gap = float(np.median(middle[steps, worst] - usual))
    of_most = float(np.median(low[steps, worst] - usual))
    commonest = int(np.bincount(worst, minlength=len(numbers)).argmax())
    contrast = gap / _luck(log_s, experts, middle)
    is_theirs = of_most >= 0.5 * gap and _spans_hosts(experts, worst, numbers, table)
    return ExpertImbalance(
        section=section,
        slowdown=math.exp(gap),
        contrast=contrast,
        worst_expert=numbers[commonest],
        worst_share=float((worst == commonest).mean()),
        strength=_strength(gap, contrast) if is_theirs else 0.0,
    )


def _luck(log_s: Floats, experts: dict[int, Ints], middle: Floats) -> float:
    """How far noise alone would take the worst of so many experts; never 0."""
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
    """False if the ranks of every expert that is worst stand on one host of several: then it may
    be the host."""
    if len({source.node for source in table.sources}) < 2:
        return True
    return any(
        len({table.sources[r].node for r in experts[numbers[k]]}) > 1 for k in np.unique(worst)
    )


def _strength(gap: float, contrast: float) -> float:
    if gap < math.log(LEAST_SLOWDOWN) or contrast < LEAST_CONTRAST:
        return 0.0
    return min(1.0, 0.5 * contrast / LEAST_CONTRAST)
