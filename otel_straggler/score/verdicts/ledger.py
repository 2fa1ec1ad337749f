"""Where the time of a step goes: by how much each section moves the slowest path."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from otel_straggler.model.observation import Floats, Ints
from otel_straggler.model.step_table import StepTable
from otel_straggler.model.verdict import SectionCost
from otel_straggler.score.verdicts.resolvable import MEDIAN_ERROR

Mask: TypeAlias = npt.NDArray[np.bool_]
RESIDUAL = "(residual)"
"""Time of a step in none of its sections."""
LEADER_Z = 3.0
"""A leader must be ahead by so many standard errors, or nobody is named."""
LEADER_GAP = 0.001
"""And by this part of the way so far."""
LEAST_STEPS = 3


def exposed_ledger(table: StepTable) -> tuple[SectionCost, ...]:
    """Say for each section what it adds to the step.

    With C[r, s] the time of rank r from the begin of its step to the end of section s (the sum of
    its sections so far) and F[s] = max over r of C[r, s], the section adds F[s] - F[s-1]. These
    add up to the slowest rank's step exactly. What a rank spends in no section stands in a last
    line of its own, ``(residual)``, if there is any.

    It asks for sections that follow each other and ranks that meet at least once a step; where
    they meet, the time of the late rank is charged to the section that made it late, and the
    waiting of the others to nobody. Work that runs beside (asynchronous communication) hides in
    the section that waits for it: read "exposed in", not "caused by".

    Args:
        table: (T, R, S). A section that a rank did not run took 0 s; a rank of whom nothing is
            known in a step takes no part in it.

    Returns:
        One line per section in order. ``leader_rank`` is the rank that was last at its end most
        often; None if it is not clearly later than the next one, or there are less than 3 steps.
        ``typical_s`` is NaN for a section that nobody ran. Empty without a step that was told.

    Cost: O(T R S). Source: StageFrontier (arXiv 2606.06751).
    """
    is_finite: Mask = np.isfinite(table.seconds)
    told: Mask = np.logical_or.reduce(is_finite, axis=(1, 2))
    if not told.any():
        return ()
    is_known: Mask = np.logical_or.reduce(is_finite[told], axis=2)
    own_s = np.where(is_finite, table.seconds, 0.0)[told]
    names = [section.name for section in table.sections]
    ran: Mask = np.logical_or.reduce(is_finite[told], axis=0)
    residual_s = _residual(table, told, own_s)
    if residual_s.any():
        own_s = np.concatenate([own_s, residual_s[:, :, None]], axis=2)
        ran = np.concatenate([ran, np.logical_or.reduce(is_known, axis=0)[:, None]], axis=1)
        names.append(RESIDUAL)
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
    """(T, S) what each section adds to each step, from (T, R, S) sums of a rank's sections so far;
    all that a step has of them together is the largest sum of a rank.

    >>> _steps_of_frontier(np.cumsum(np.array([[[1.0, 3.0], [2.0, 2.0]]]), axis=2)).tolist()
    [[2.0, 2.0]]
    """
    frontier = prefix_s.max(axis=1)
    steps: Floats = np.diff(frontier, axis=1, prepend=0.0)
    return steps


def _residual(table: StepTable, told: Mask, own_s: Floats) -> Floats:
    """(T, R) wall time of a step - its sections; 0 where sections overlap or nothing is known."""
    start_ns, end_ns = table.start_ns[told], table.end_ns[told]
    wall_s = np.where((start_ns > 0) & (end_ns > start_ns), (end_ns - start_ns) / 1e9, 0.0)
    left_s: Floats = wall_s - own_s.sum(axis=2)
    left_s[left_s < 1e-6 * wall_s] = 0.0  # rounding to nanoseconds is no time of its own
    return left_s


def _typical(own_s: Floats, is_known: Mask, ran: Mask) -> Floats:
    """(S,) median over the ranks that ran a section of their mean seconds per step."""
    steps = np.maximum(1, is_known.sum(axis=0))
    mean_s = own_s.sum(axis=0) / steps[:, None]
    return np.array(
        [
            np.median(mean_s[ran[:, s], s]) if ran[:, s].any() else np.nan
            for s in range(ran.shape[1])
        ]
    )


def _leader(prefix_s: Floats, table: StepTable) -> int | None:
    """The rank that comes last most often, if the next one is clearly before it."""
    n_steps, n_ranks = prefix_s.shape
    if n_steps < LEAST_STEPS or n_ranks < 2:
        return None
    times_last: Ints = np.bincount(prefix_s.argmax(axis=1), minlength=n_ranks)
    first = int(times_last.argmax())
    second = _next_to(first, prefix_s)
    met = np.isfinite(prefix_s[:, first]) & np.isfinite(prefix_s[:, second])
    ahead_s = prefix_s[met, first] - prefix_s[met, second]
    if len(ahead_s) < LEAST_STEPS:
        return None
    lead_s = float(np.median(ahead_s))
    spread_s = 1.4826 * float(np.median(np.abs(ahead_s - lead_s)))
    error_s = MEDIAN_ERROR * spread_s / np.sqrt(len(ahead_s))
    least_s = LEADER_GAP * float(np.median(prefix_s[met, first]))
    return table.sources[first].rank if lead_s > max(LEADER_Z * error_s, least_s) else None


def _next_to(first: int, prefix_s: Floats) -> int:
    """The rank that is latest on average beside ``first``."""
    known = np.isfinite(prefix_s)
    mean_s = np.where(known, prefix_s, 0.0).sum(axis=0) / np.maximum(1, known.sum(axis=0))
    mean_s[first] = -np.inf
    return int(mean_s.argmax())
