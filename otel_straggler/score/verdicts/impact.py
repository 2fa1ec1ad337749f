"""What a slow subject costs the run: two honest numbers, and GPU time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otel_straggler.model.observation import Floats, Ints

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Excess:
    """Seconds per step that a subject adds.

    Attributes:
        lost_s: beyond its peers: what it costs once all others that are slow are mended.
        won_s: beyond the next slowest that the run waits for: what is won at once if this subject
            alone is mended; 0 if somebody else is slower.
    """

    lost_s: float
    won_s: float


def find_excess(
    times_s: Floats, peers_s: Floats, subject: npt.NDArray[np.bool_], waits_for: Ints
) -> Excess:
    """Excess of a subject of one or more ranks (a rank, a host).

    Only what the run waits for counts: the slowest rank of the subject, not their sum.

    Args:
        times_s: (R,) usual seconds per step of each rank; NaN if not known.
        peers_s: (R,) the same of its peers (their median).
        subject: (R,) which ranks it is made of.
        waits_for: (R,) ranks that wait for each other have the same number; all the same if that
            is not known. Ranks of a longer pipeline stage belong in: a slow rank hides in them.

    Returns:
        NaN for both if no rank of the subject has a time and peers; else >= 0.

    Cost: O(R) and one group at a time.

    >>> last, all_wait = np.arange(3) == 2, np.zeros(3, int)
    >>> find_excess(np.array([1.0, 1.0, 1.5]), np.ones(3), last, all_wait)
    Excess(lost_s=0.5, won_s=0.5)
    >>> two = np.array([1.0, 1.4, 1.5])
    >>> round(find_excess(two, np.ones(3), last, all_wait).won_s, 3)
    0.1
    """
    is_known = np.isfinite(times_s) & np.isfinite(peers_s)
    ours = subject & is_known
    if not ours.any():
        return Excess(math.nan, math.nan)
    lost = float(np.maximum(0.0, times_s[ours] - peers_s[ours]).max())
    mended = np.where(ours, np.minimum(times_s, peers_s), times_s)
    won = 0.0
    for group in np.unique(waits_for[ours]):
        members = (waits_for == group) & np.isfinite(times_s)
        won = max(won, float(times_s[members].max() - mended[members].max()))
    return Excess(lost, min(won, lost))


def excess_of_ranks(times_s: Floats, peers_s: Floats, waits_for: Ints) -> tuple[Floats, Floats]:
    """(R,) lost and won seconds per step of every rank by itself.

    The same as :func:`find_excess` with each rank as subject. NaN where a rank has no time or no
    peers. Cost: O(R log R).

    >>> lost, won = excess_of_ranks(np.array([1.0, 1.4, 1.5]), np.ones(3), np.zeros(3, int))
    >>> lost.round(3).tolist(), won.round(3).tolist()
    ([0.0, 0.4, 0.5], [0.0, 0.0, 0.1])
    """
    lost = np.maximum(0.0, times_s - peers_s)
    known = np.flatnonzero(np.isfinite(times_s))
    won = np.where(np.isfinite(lost), 0.0, np.nan)
    order = known[np.lexsort((-times_s[known], waits_for[known]))]
    is_first = np.ones(len(order), bool)
    is_first[1:] = waits_for[order][1:] != waits_for[order][:-1]
    first = np.flatnonzero(is_first)
    has_next = (first + 1 < len(order)) & ~np.append(is_first, True)[first + 1]
    after = order[np.minimum(first + 1, len(order) - 1)]
    next_s = np.where(has_next, times_s[after], -np.inf)
    leader = order[first]
    won[leader] = np.maximum(0.0, times_s[leader] - np.fmax(next_s, peers_s[leader]))
    won[np.isnan(lost)] = np.nan
    return lost, won


def gpu_seconds_per_hour(excess_s: float, step_s: float, n_ranks: int) -> float:
    """GPU time that all ranks wait, per hour of training.

    excess_s / step_s x n_ranks x 3600. The excess is part of ``step_s``, so it is never more than
    all of it.

    Returns:
        Seconds; NaN if the excess or the time of a step is not known.

    >>> gpu_seconds_per_hour(0.1, 1.0, 8)
    2880.0
    """
    if not step_s > 0.0 or math.isnan(excess_s):
        return math.nan
    return min(1.0, max(0.0, excess_s) / step_s) * n_ranks * SECONDS_PER_HOUR
