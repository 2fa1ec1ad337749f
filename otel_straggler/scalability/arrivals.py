"""Who arrives last at each collective, from the traces of several ranks.

All ranks leave a collective together, so the median difference of their ends is that of their
clocks. A rank is late if its arrivals, summed over the trace, come later than those of the earlier
ranks by more than :data:`MIN_SHARE` of the time and than chance explains, and if it is behind the
others in nearly every step: of at least :data:`MIN_COLLECTIVES`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from otel_straggler.model.observation import Bools, Floats, Ints
from otel_straggler.model.traced_collective import Collective

MIN_SHARE = 0.02
"""Of the time of the trace."""
MIN_SIGMAS, MIN_STEP_SIGMAS = 6.0, 4.0
MIN_COLLECTIVES = 10
"""Fewer say too little of chance, and nobody is late."""
_MAX_ROUNDS = 20
_POINT_TO_POINT = re.compile(r"send|recv", re.IGNORECASE)
_MAD_TO_SIGMA = 1.4826
_NORMAL = NormalDist()
_MIN_RANKS = 8
"""From where on noise is known from the spread of ranks, too."""
_MIN_GROUPS, _CHANCE = 7, 0.01
_EXACT_US = 1.0
"""Clocks in a trace are not finer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arrivals:
    """Arrivals of R ranks at K collectives; seconds.

    Attributes:
        ranks: (R,); names: (K,) of the collectives, in order.
        late_by_s: (R,) later than the earlier ranks, over all collectives.
        waited_s: (R,) for the last rank, over all collectives.
        times_last: (R,) collectives at which the rank is the last.
        clock_s: (R,) what the clock of the rank is ahead of the others'.
        end_spread_s: median difference between the first and the last end, clocks corrected.
        threshold_s: from where on a rank is late; late: these ranks, the latest first.
        span_s: time of the trace.
    """

    ranks: Ints
    names: tuple[str, ...]
    late_by_s: Floats
    waited_s: Floats
    times_last: Ints
    clock_s: Floats
    end_spread_s: float
    threshold_s: float
    late: tuple[int, ...]
    span_s: float


def find_arrivals(
    collectives: Mapping[int, Sequence[Collective]], span_s: float = 0.0, steps: int = 0
) -> Arrivals | None:
    """Compare arrivals; None if no two ranks have a collective in common.

    Args:
        collectives: of each rank, by their begins.
        span_s: time of the trace; 0: from the first arrival to the last end.
        steps: whole ones in it; 0: not known.

    Cost: O(ranks * collectives).
    """
    ranks = np.array(sorted(collectives), np.int64)
    begin, end, names = _matched([collectives[rank] for rank in ranks.tolist()])
    if not len(names):
        return None
    clock = _clocks(end)
    begin, end = (begin - clock) / 1e6, (end - clock) / 1e6
    is_there = ~np.isnan(begin)
    last = np.nanmax(begin, axis=1, keepdims=True)
    after = begin - np.nanquantile(begin, 0.25, axis=1, keepdims=True, method="lower")
    late_by = np.nansum(after, axis=0)
    present = is_there.any(axis=0)
    late_by -= np.quantile(late_by[present], 0.25, method="lower")
    span_s = span_s or float(np.nanmax(end) - np.nanmin(begin))
    behind = _behind(begin[:, present], steps)
    threshold_s = max(MIN_SHARE * span_s, _noise(behind, late_by[present]))
    is_late: Bools = present & (late_by > threshold_s) & (len(names) >= MIN_COLLECTIVES)
    is_late[present] &= are_usually_behind(behind)
    order = np.argsort(-late_by, kind="stable")
    return Arrivals(
        ranks=ranks,
        names=names,
        late_by_s=np.where(present, late_by, np.nan),
        waited_s=np.nansum(last - begin, axis=0),
        times_last=(is_there & (begin >= last)).sum(axis=0),
        clock_s=clock / 1e6,
        end_spread_s=float(np.median(np.nanmax(end, axis=1) - np.nanmin(end, axis=1))),
        threshold_s=threshold_s,
        late=tuple(int(ranks[index]) for index in order.tolist() if is_late[index]),
        span_s=span_s,
    )


def _matched(each: Sequence[Sequence[Collective]]) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Begins and ends (K, R) in us of collectives that two ranks or more have; NaN without."""
    known: dict[tuple[str, str, int, int], dict[int, Collective]] = {}
    for index, collectives in enumerate(each):
        counts: dict[tuple[str, str, int], int] = {}
        for one in collectives:
            if _POINT_TO_POINT.search(one.name):
                continue
            # With sequence numbers the same one may come again: parts of a coalesced collective.
            which = one.group, "" if one.seq >= 0 else one.name, one.seq
            counts[which] = count = counts.get(which, -1) + 1
            known.setdefault((*which, count), {})[index] = one
    shared = [ranks for ranks in known.values() if len(ranks) > 1]
    begin = np.full((len(shared), len(each)), np.nan)
    end = begin.copy()
    names = []
    for row, ranks in enumerate(shared):
        for index, one in ranks.items():
            begin[row, index], end[row, index] = one.begin, one.end
        names.append(next(iter(ranks.values())).name)
    return begin, end, tuple(names)


def _clocks(end: Floats) -> Floats:
    """(R,) what each clock is ahead, us: it makes the ends of collectives agree."""
    clock = np.zeros(end.shape[1])
    present = ~np.isnan(end).all(axis=0)
    for _ in range(_MAX_ROUNDS):
        left = end[:, present] - clock[present]
        change = np.nanmedian(left - np.nanmedian(left, axis=1, keepdims=True), axis=0)
        clock[present] += change
        if np.abs(change).max() < _EXACT_US:
            break
    return clock


def _behind(begin: Floats, steps: int) -> Floats:
    """(G, R) how much later each rank is than the median of the others, by step; of few steps, or
    of unknown ones, by as many parts of the trace. In a step a rank may be late at the first
    collective only: there the others wait for it. NaN: it met nobody."""
    begin = begin[np.argsort(np.nanmin(begin, axis=1), kind="stable")]
    groups = min(max(steps, _MIN_GROUPS), len(begin))
    group = np.arange(len(begin)) * groups // len(begin)
    behind = np.full((groups, begin.shape[1]), np.nan)
    for rank in range(begin.shape[1]):
        others = np.delete(begin, rank, axis=1)
        is_met = ~np.isnan(begin[:, rank]) & ~np.isnan(others).all(axis=1)
        later = begin[is_met, rank] - np.nanmedian(others[is_met], axis=1)
        for each in np.unique(group[is_met]):
            behind[each, rank] = later[group[is_met] == each].sum()
    return behind


def are_usually_behind(behind: Floats) -> Bools:
    """(R,) whether a rank is behind in more of G steps than one of equal ranks is in 1 % of all
    cases: of seven in each, of twenty in sixteen; of fewer than seven that cannot be said.

    Args:
        behind: (G, R, ...) by how much; NaN: not known.
    """
    known = (~np.isnan(behind)).sum(axis=0)
    needed = np.array([_needed(steps) for steps in range(len(behind) + 1)])
    usually: Bools = (behind > 0.0).sum(axis=0) >= needed[known]
    return usually


def _needed(steps: int) -> int:
    """
    >>> [_needed(steps) for steps in (6, 7, 10, 20)]
    [7, 7, 10, 16]
    """
    chance, needed = 0.0, steps + 1
    while needed and (chance := chance + math.comb(steps, needed - 1) / 2.0**steps) <= _CHANCE:
        needed -= 1
    return needed


def noise_of_sum(behind: Floats) -> Floats:
    """(R, ...) what the sum over G steps varies by, to judge by how (G, R, ...) does from step to
    step; NaN where nothing is known."""
    middle = np.nanmedian(behind, axis=0)
    spread: Floats = np.nanmedian(np.abs(behind - middle), axis=0)
    noise: Floats = _MAD_TO_SIGMA * spread * np.sqrt((~np.isnan(behind)).sum(axis=0))
    return noise


def _noise(behind: Floats, late_by: Floats) -> float:
    """What chance adds to the sum of a rank: from one step to the next, and where there are many
    ranks, between the earlier half of them."""
    behind = behind[:, ~np.isnan(behind).all(axis=0)]
    estimates = [MIN_STEP_SIGMAS * float(np.median(noise_of_sum(behind)))]
    if (ranks := len(late_by)) >= _MIN_RANKS:
        ordered = np.sort(late_by)
        middle = (ranks - 1) // 2
        usual = [_NORMAL.inv_cdf((at + 0.625) / (ranks + 0.25)) for at in (0, middle)]
        spread = float(ordered[middle] - ordered[0]) / (usual[1] - usual[0])
        estimates.append(MIN_SIGMAS * spread)
    return max(estimates)
