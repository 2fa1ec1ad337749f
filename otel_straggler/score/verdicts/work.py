"""Times for equal work: what more tokens explain is taken out, what a rank does slowly is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from otel_straggler.model.observation import Floats, Ints
from otel_straggler.score.medians import nan_median
from otel_straggler.score.verdicts.keyed import KeyedTables, Place

Mask: TypeAlias = npt.NDArray[np.bool_]
HALF_LIFE_BLOCKS = 50
LEAST_Z = 4.0
"""A share that lies fewer standard errors above 0 is taken as 0: times stay as they are."""
HUBER = 1.345
LEAST_FACTOR = 0.25
MAX_GROUPS = 10_000
MAX_SECTIONS = 1_000
_SUMS = ("zy", "zz", "ee", "count")


class WorkNormaliser:
    """Learns, per peer group and section, how time grows with tokens, and divides it out.

    Time is taken as x = a n + b (n tokens). With e = a n0 / (a n0 + b), the part of the time that
    grows with tokens at the usual number n0 (the group's mean in the block), the time for equal
    work is

        x' = x / (1 + e (n / n0 - 1)).

    e is the slope of x / median(x) over n / mean(n), both within a rank over the steps of a block:
    how ranks differ among each other never enters, so a rank that is slow and happens to have more
    tokens does not teach that tokens make slow. Huber weights keep pauses out; sums of earlier
    blocks halve in 50 blocks. As 0 <= e <= 1, x' lies between x and the time per token
    (x n0 / n): a rank that is slow by both stays slow.

    Only tokens are on the wire; the squares of sequence lengths, with which attention grows, are
    not. What they do stays in the times, and in ``imbalance``.

    State: 32 bytes per group and section, at most 10,000 groups. Cost: O(T R S).
    Source: ours, after the workload model of ResiHP (arXiv 2605.06374).

    >>> tokens = np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]] * 4) * 1000
    >>> seconds = (0.1 + tokens / 10_000)[:, :, None]
    >>> found = WorkNormaliser().normalise(seconds, tokens, np.zeros(2, int), ["dp"], ["forward"])
    >>> found.round(6)[:2, :, 0].tolist()
    [[0.3, 0.3], [0.3, 0.3]]
    """

    def __init__(self) -> None:
        self._sums = KeyedTables(_SUMS, MAX_GROUPS, MAX_SECTIONS)

    def normalise(
        self,
        seconds: Floats,
        tokens: Floats,
        peers: Ints,
        groups: Sequence[str],
        sections: Sequence[str],
    ) -> Floats:
        """Learn from a block, then give its times for equal work.

        Args:
            seconds: (T, R, S), NaN where there is none.
            tokens: (T, R) work done in the step; NaN or 0 where it is not told.
            peers: (R,) index into ``groups`` of each rank.
            groups: G names of peer groups; sections: S names.

        Returns:
            (T, R, S); unchanged where tokens are not told, or explain nothing. A time is divided
            by 0.25 at least: a step with next to no tokens says little.
        """
        is_told = np.isfinite(tokens) & (tokens > 0)
        if not is_told.any():
            return seconds
        tokens = np.where(is_told, tokens, np.nan)
        place = self._sums.place(groups, sections)
        self._learn(place, seconds, tokens, peers)
        share = self._share(place)[peers]
        usual = _group_mean(tokens, peers, len(groups))[peers]
        more = np.where(is_told, tokens / usual[None, :] - 1.0, 0.0)
        factor = 1.0 + share[None, :, :] * more[:, :, None]
        result: Floats = seconds / np.maximum(factor, LEAST_FACTOR)
        return result

    def share(self, groups: Sequence[str], sections: Sequence[str]) -> Floats:
        """(G, S) part of the time that grows with tokens, 0 to 1; 0 where none is seen."""
        return self._share(self._sums.place(groups, sections))

    def state(self) -> dict[str, Any]:
        """Lists and arrays, for a restart."""
        return self._sums.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state`."""
        self._sums.restore(state)

    def _share(self, place: Place) -> Floats:
        zy, zz, ee, count = (self._sums.get(name, place) for name in _SUMS)
        error = np.sqrt(ee * zz / np.maximum(count, 1.0))
        is_clear = (zy > LEAST_Z * error) & (zz > 0)
        slope = np.zeros(zy.shape)
        np.divide(zy, zz, out=slope, where=is_clear)
        return np.clip(slope, 0.0, 1.0)

    def _learn(self, place: Place, seconds: Floats, tokens: Floats, peers: Ints) -> None:
        new = {name: np.zeros((place[0].size, place[1].size)) for name in _SUMS}
        for s in range(seconds.shape[2]):
            found = _block_sums(seconds[:, :, s], tokens, peers, place[0].size)
            for name, values in zip(_SUMS, found, strict=True):
                new[name][:, s] = values
        keep = np.where(new["count"] > 0, 0.5 ** (1.0 / HALF_LIFE_BLOCKS), 1.0)
        for name in _SUMS:
            self._sums.put(name, place, keep * self._sums.get(name, place) + new[name])


def _block_sums(seconds: Floats, tokens: Floats, peers: Ints, n_groups: int) -> list[Floats]:
    """Weighted sums of z y, z z, residual squares and weights of each group."""
    known = np.isfinite(seconds) & (seconds > 0) & np.isfinite(tokens)
    seconds = np.where(known, seconds, np.nan)
    y = np.where(known, _relative_to(nan_median(seconds, axis=0), seconds), 0.0)
    z = np.where(known, _relative_to(_mean_of_rank(tokens, known), tokens), 0.0)
    used = known & (z != 0.0)
    weight, rest = used.astype(np.float64), y
    for _ in range(3):
        zy, zz = (_by_group(weight * z * v, peers, n_groups) for v in (y, z))
        slope = np.zeros(n_groups)
        np.divide(zy, zz, out=slope, where=zz > 0)
        rest = y - np.clip(slope, 0.0, 1.0)[peers][None, :] * z
        offset = nan_median(np.where(known, rest, np.nan), axis=0)[None, :]
        y, rest = (np.where(known, v - offset, 0.0) for v in (y, rest))
        weight = _huber(rest, used)
    return [
        _by_group(weight * v, peers, n_groups) for v in (z * y, z * z, rest * rest, np.ones_like(z))
    ]


def _mean_of_rank(values: Floats, known: Mask) -> Floats:
    total: Floats = np.where(known, values, 0.0).sum(axis=0)
    mean: Floats = total / np.maximum(1, known.sum(axis=0))
    return mean


def _relative_to(usual: Floats, values: Floats) -> Floats:
    """values / usual - 1, (T, R) over (R,); NaN where there is no usual value."""
    ratio = np.full(values.shape, np.nan)
    np.divide(values, usual[None, :], out=ratio, where=(usual > 0)[None, :])
    return ratio - 1.0


def _huber(rest: Floats, used: Mask) -> Floats:
    off = np.abs(rest)
    scale = 1.4826 * float(np.median(off[used])) if used.any() else 0.0
    weight = np.where(used, 1.0, 0.0)
    np.divide(HUBER * scale, off, out=weight, where=used & (off > HUBER * scale) & (scale > 0))
    return weight


def _by_group(values: Floats, peers: Ints, n_groups: int) -> Floats:
    return np.bincount(peers, values.sum(axis=0), n_groups).astype(np.float64)


def _group_mean(tokens: Floats, peers: Ints, n_groups: int) -> Floats:
    known = np.isfinite(tokens)
    total = _by_group(np.where(known, tokens, 0.0), peers, n_groups)
    count = _by_group(known.astype(np.float64), peers, n_groups)
    mean = np.ones(n_groups)
    np.divide(total, count, out=mean, where=count > 0)
    return mean
