"""Work that is dealt unevenly: it makes ranks slow in turn, and none of them is to blame."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from otel_straggler.model.observation import Floats
from otel_straggler.model.step_table import StepTable
from otel_straggler.score.medians import nan_median

LEAST_CORRELATION = 0.9
LEAST_MICROBATCH_CV = 0.10
MOST_M_W = 0.5
LEAST_STEPS = 8
SHORTEST_S = 1e-13
"""No run is shorter than 1e-12 s, on the wire or in a file."""
LEAST_SHARE = 0.1
"""A section takes part if it has this part of all compute time, ..."""
MOST_SECTIONS = 6
"""... and is among so many that take longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceImbalance:
    """Whether sequences of different lengths make the steps of a rank long and short.

    Attributes:
        correlation: of two compute sections over the steps of a rank, the median rank's; NaN if
            there are no two sections or fewer than 8 steps.
        microbatch_cv: standard deviation of a microbatch's time / its mean; NaN if not known.
        m_w: part of the loss that the worst workers have, as given.
        sections: the two, in the order in which they run; empty names if there are none.
        strength: 0 if it is none, to 1.
    """

    correlation: float
    microbatch_cv: float
    m_w: float
    sections: tuple[str, str]
    strength: float

    @property
    def is_present(self) -> bool:
        """All three signs agree."""
        return self.strength > 0.0


def sequence_imbalance(table: StepTable, m_w: float) -> SequenceImbalance:
    """Look for sequence-length imbalance.

    Long sequences take long in forward and in backward. So there must be two compute sections
    whose times rise and fall together on one rank from step to step (correlation >= 0.9, after
    what is common to all ranks is taken out), single microbatches must differ (coefficient of
    variation >= 0.10), and the loss must not be that of a few workers (``m_w`` < 0.5). The first
    sign alone misfires: a worker that is slowed and let go moves both sections, too. Which two
    sections is found out, names mean nothing.

    The variation of microbatches is ``run_cv`` of the table. Where a row holds a whole step it is
    sqrt(runs) x the part of the steps' variation that both sections share.

    Args:
        table: dozens of steps; kind compute counts.
        m_w: of :func:`~otel_straggler.score.verdicts.what_if.what_if`; NaN (nothing lost, or not
            known) does not speak against it.

    Cost: O(T R) for each of at most 15 pairs. Source: the correlation is from "Understanding
    Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025); the other two signs
    are ours.

    >>> strength_of_sequences(0.99, 0.22, 0.02) > 0.5
    True
    >>> strength_of_sequences(0.99, 0.02, 0.02)
    0.0
    """
    chosen = _main_sections(table)
    relative = {s: _tamed(relative_steps(table.seconds[:, :, s])) for s in chosen}
    best, pair = math.nan, (-1, -1)
    for i, first in enumerate(chosen):
        for second in chosen[i + 1 :]:
            found = _median_correlation(relative[first], relative[second])
            if not math.isnan(found) and not found <= best:
                best, pair = found, (first, second)
    if pair == (-1, -1):
        return SequenceImbalance(
            correlation=math.nan, microbatch_cv=math.nan, m_w=m_w, sections=("", ""), strength=0.0
        )
    cv = _least([_microbatch_cv(table, s, relative[s], best) for s in pair])
    return SequenceImbalance(
        correlation=best,
        microbatch_cv=cv,
        m_w=m_w,
        sections=(table.sections[pair[0]].name, table.sections[pair[1]].name),
        strength=strength_of_sequences(best, cv, m_w),
    )


def strength_of_sequences(correlation: float, microbatch_cv: float, m_w: float) -> float:
    """0 unless all three signs agree; else 0.5 at the thresholds, growing to 1."""
    if not (correlation >= LEAST_CORRELATION and microbatch_cv >= LEAST_MICROBATCH_CV):
        return 0.0
    if m_w >= MOST_M_W:
        return 0.0
    of_correlation = (correlation - LEAST_CORRELATION) / (1.0 - LEAST_CORRELATION)
    of_cv = min(1.0, microbatch_cv / LEAST_MICROBATCH_CV - 1.0)
    return 0.5 + 0.25 * of_correlation + 0.25 * of_cv


def relative_steps(seconds: Floats) -> Floats:
    """(T, R) how much longer a step is than the rank's own median, beyond what is common to all
    ranks in this step; NaN where a time is not known, or a rank's usual time not known or 0.

    >>> relative_steps(np.array([[1.0, 2.0], [1.5, 3.0]])).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
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
    longest = np.argsort(-total, kind="stable")[:MOST_SECTIONS]
    return sorted(compute[i] for i in longest if total[i] >= LEAST_SHARE * total.sum() > 0)


def _median_correlation(one: Floats, other: Floats) -> float:
    """Of each rank over its steps; the median over ranks, which a few faulty ranks do not move."""
    both = np.isfinite(one) & np.isfinite(other)
    enough = both.sum(axis=0) >= LEAST_STEPS
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
    most = 5.0 * 1.4826 * nan_median(np.abs(relative - middle), axis=0)
    most = np.where(most > 0, most, np.inf)
    result: Floats = np.clip(relative, middle - most, middle + most)
    return result


def _microbatch_cv(table: StepTable, section: int, relative: Floats, correlation: float) -> float:
    told = table.run_cv[:, section]
    if np.isfinite(told).any():
        return float(np.nanmedian(told))
    spread = 1.4826 * nan_median(np.abs(relative - nan_median(relative, axis=0)), axis=0)
    spread = spread[np.isfinite(spread)]
    if len(spread) == 0:
        return math.nan
    runs = table.runs[:, :, section]
    often = float(np.median(runs[runs > 0]))
    return float(np.median(spread)) * math.sqrt(often * max(0.0, correlation))


def _least(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return min(known, default=math.nan)
