"""Times for equal work: what more tokens explain is taken out, what a rank does slowly is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from otel_straggler.detect.scores.medians import Groups, nan_median
from otel_straggler.detect.verdicts.history import Destination, KeyedTables
from otel_straggler.detect.verdicts.significance import SIGMA_OF_MAD
from otel_straggler.detect.verdicts.unequal_work import for_equal_classes
from otel_straggler.model.observation import Bools, Floats, Ints

EVIDENCE = ("seen", "full", "seen_seen", "seen_full", "full_full")
"""Sums over pieces of evidence: ``seen``, what a piece shows; ``full``, what it would show if all
time grew with tokens; and of their products."""
CUT = 6.0
"""A time counts for so many deviations at most: pauses are noise too."""


def evidence_of_block(longer: Floats, more: Floats, known: Bools, peers: Ints, n: int) -> Floats:
    """(5, n) sums of evidence of a block, by ``EVIDENCE``; 0 for a group with fewer than two ranks.

    A piece of evidence is one rank in one block: the sum over steps of (tokens above usual) x (time
    above usual, in deviations), over the root of the sum of squares of the former, so that pieces
    scatter alike. What peers have in common in a step is removed first. Only ranks and blocks count
    as independent, not steps: times come in waves.

    Args:
        longer, more: (T, R) time and tokens / the rank's usual, less 1; 0 where not ``known``.
        peers: (R,) group of each rank, below ``n``.
    """
    deviation = SIGMA_OF_MAD * float(np.median(np.abs(longer[known]))) if known.any() else 0.0
    if deviation > 0.0:
        longer = np.clip(longer / deviation, -CUT, CUT)
    more, longer = (_own(values, known, peers, n) for values in (more, longer))
    full = np.sqrt((more * more).sum(axis=0))
    seen = np.zeros_like(full)
    np.divide((more * longer).sum(axis=0), full, out=seen, where=full > 0.0)
    if deviation > 0.0:
        full = full / deviation
    counts = np.bincount(peers, known.any(axis=0), n)
    # The ranks' shares of the noise add up to 0 once what is common is out.
    spread = np.where(counts >= 2, counts / np.maximum(counts - 1, 1), 0.0)
    sums = [np.bincount(peers, values, n) * (counts >= 2) for values in (seen, full)]
    pairs = ((seen, seen), (seen, full), (full, full))
    sums += [np.bincount(peers, one * other, n) * spread for one, other in pairs]
    return np.array(sums)


def sureness(sums: Floats, *, of_all: bool = False) -> Floats:
    """Standard deviations of a normal distribution by which the sum lies above 0, from (5, ...)
    sums.

    The sum over its standard error has Student's distribution with (effective pieces - 1) degrees
    of freedom; the effective number is (sum of full)^2 / (sum of full^2). 0 for fewer than two
    pieces. With ``of_all``: if all of the time grew with tokens, i.e. whether a share could have
    been seen. Source: Student's t as a normal deviate, Wallace (1959).
    """
    seen, full, seen_seen, seen_full, full_full = sums
    some = full > 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(some, seen / full, 0.0)
        pieces = np.where(some, full * full / full_full, 0.0)
        rest = seen_seen - 2.0 * share * seen_full + share * share * full_full
        rest = np.maximum(rest, 1e-12 * full_full)  # times without any noise
        free = np.maximum(pieces - 1.0, 0.0)
        ratio = (full if of_all else seen) / np.sqrt(rest * pieces / free)
        deviates = np.sqrt(free * np.log1p(ratio * ratio / free))
        deviates *= np.sign(ratio) * (8.0 * free + 1.0) / (8.0 * free + 3.0)
    return np.where(some & (free > 1e-9), deviates, 0.0)


def _own(values: Floats, known: Bools, peers: Ints, n: int) -> Floats:
    """Without what all peers have in common in a step, or a rank in all steps."""
    index = (np.arange(len(values))[:, None] * n + peers[None, :]).ravel()
    size = len(values) * n
    count = np.bincount(index, known.ravel(), size)
    total = np.bincount(index, np.where(known, values, 0.0).ravel(), size)
    common = (total / np.maximum(count, 1.0))[index].reshape(values.shape)
    values = np.where(known, values - common, 0.0)
    mean = values.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return np.where(known, values - mean, 0.0)


HALF_LIFE_BLOCKS = 50
MIN_Z = 4.265
"""A share less surely above 0 is taken as 0; chance reaches it once in 100,000 times."""
SEEN_Z = 6.0
"""A share that would be so sure would have been seen."""
HUBER = 1.345
MIN_FACTOR = 0.25
MAX_GROUPS = 10_000
MAX_SECTIONS = 1_000
_SLOPE = ("zy", "zz")
_SUMS = (*_SLOPE, *EVIDENCE)
_TOKENS = "tokens"


class WorkNormaliser(KeyedTables):
    """Learns, per peer group and section, how time grows with tokens, and divides it out.

    With e, the part of the time that grows with tokens at the usual number n0 (the group's median
    in its first block), the time for n0 tokens is x / (1 + e (n / n0 - 1)); the result is that for
    the group's median in this block. e is the slope of x / median(x) over n / median(n) within a
    rank over the steps of a block, so a slow rank with more tokens does not teach that tokens are
    slow. Huber weights keep pauses out; sums of earlier blocks halve in 50 blocks. As 0 <= e <= 1,
    the result lies between x and the time per token. e is 0 until it is surely above 0; until then,
    ranks that lastingly have more tokens are compared by ``unequal_work``. Squares of sequence
    lengths are not on the wire, and stay in the times.

    State: 64 bytes per group and section, at most 10,000 groups. Source: ours, after ResiHP (arXiv
    2605.06374).

    >>> tokens = np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]] * 4) * 1000
    >>> seconds = (0.1 + tokens / 10_000)[:, :, None]
    >>> work, peers = WorkNormaliser(), Groups.of(["dp", "dp"])
    >>> for _ in range(3):
    ...     result = work.normalise(seconds, tokens, peers, ["dp"], ["forward"])
    >>> result.round(6)[:2, :, 0].tolist()
    [[0.3, 0.3], [0.3, 0.3]]
    """

    def __init__(self) -> None:
        super().__init__((*_SUMS, _TOKENS), MAX_GROUPS, MAX_SECTIONS)

    def normalise(
        self,
        seconds: Floats,
        tokens: Floats,
        peers: Groups,
        groups: Sequence[str],
        sections: Sequence[str],
    ) -> Floats:
        """Learn from a block, then return its times for equal work.

        Args:
            seconds: (T, R, S), NaN where there are none.
            tokens: (T, R); NaN or 0 where not reported.
            groups: G names of peer groups; sections: S names.

        Returns: (T, R, S); unchanged where tokens are not reported or explain nothing. Divisors are
        at least 0.25. Cost: O(T R S).
        """
        tokens = _reported(tokens)
        if not np.isfinite(tokens).any():
            return seconds
        index = self.index(groups, sections)
        now = self._of_usual(index, tokens, peers)
        self._learn(index, seconds, tokens, peers.code, now)
        share = self._share(index)
        now = np.where(np.isfinite(now), now, 1.0)[peers.code]
        of_first = tokens[:, :, None] / self.get(_TOKENS, index)[peers.code]
        of_first = np.where(np.isfinite(of_first), of_first, now[None])
        unseen = np.where(share > 0.0, 0.0, self._max_share(index))
        share = share[peers.code]
        factor = (1.0 + share * (of_first - 1.0)) / (1.0 + share * (now - 1.0))
        equal: Floats = seconds / np.maximum(factor, MIN_FACTOR)
        return for_equal_classes(equal, tokens, peers, unseen)

    def share(self, groups: Sequence[str], sections: Sequence[str]) -> Floats:
        """(G, S) part of the time that grows with tokens, 0 to 1."""
        return self._share(self.index(groups, sections))

    def longer_by_work(
        self, tokens: Floats, peers: Groups, groups: Sequence[str], sections: Sequence[str]
    ) -> tuple[Floats, Floats]:
        """(G, S) time / time with the tokens of the first block, and (G,) tokens / those.

        If no share is seen, more tokens explain as much as they may (a longer sequence is no
        slowdown), and fewer nothing.
        """
        index = self.index(groups, sections)
        now = np.nan_to_num(self._of_usual(index, _reported(tokens), peers), nan=1.0)
        share = np.where(now > 1.0, self._max_share(index), self._share(index))
        longer: Floats = np.maximum(1.0 + share * (now - 1.0), MIN_FACTOR)
        return longer, now.max(axis=1)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state`; start over if it lacks sums, as in an older version."""
        if all(name in state for name in (*_SUMS, _TOKENS)):
            super().restore(state)

    def _share(self, index: Destination) -> Floats:
        zy, zz = (self.get(name, index) for name in _SLOPE)
        is_clear = (sureness(self._evidence(index)) >= MIN_Z) & (zz > 0)
        slope = np.zeros(zy.shape)
        np.divide(zy, zz, out=slope, where=is_clear)
        return np.clip(slope, 0.0, 1.0)

    def _max_share(self, index: Destination) -> Floats:
        """The share where it is seen, else the largest that would not have been."""
        share, of_all = self._share(index), sureness(self._evidence(index), of_all=True)
        unseen = SEEN_Z / np.maximum(of_all, SEEN_Z)
        return np.where(share > 0.0, share, unseen)

    def _evidence(self, index: Destination) -> Floats:
        return np.array([self.get(name, index) for name in EVIDENCE])

    def _of_usual(self, index: Destination, tokens: Floats, peers: Groups) -> Floats:
        """(G, S) the group's median tokens / those of its first block; NaN if not reported."""
        now = np.broadcast_to(
            peers.medians(nan_median(tokens, axis=0))[:, None], (index[0].size, index[1].size)
        )
        first = self.get(_TOKENS, index)
        first = np.where((first == 0.0) & np.isfinite(now), now, first)
        self.put(_TOKENS, index, first)
        of_usual = np.full(first.shape, np.nan)
        np.divide(now, first, out=of_usual, where=first > 0.0)
        return of_usual

    def _learn(
        self, index: Destination, seconds: Floats, tokens: Floats, peers: Ints, now: Floats
    ) -> None:
        new = {name: np.zeros((index[0].size, index[1].size)) for name in _SUMS}
        share = self._share(index)
        # The part that grows with tokens is larger where there are more of them.
        now = np.where(np.isfinite(now), now, 1.0)
        stretch = (now / (1.0 + share * (now - 1.0)))[peers]
        for s in range(seconds.shape[2]):
            result = _block_sums(seconds[:, :, s], tokens, peers, index[0].size, stretch[:, s])
            for name, values in zip(_SUMS, result, strict=True):
                new[name][:, s] = values
        keep = np.where(new["zz"] > 0, 0.5 ** (1.0 / HALF_LIFE_BLOCKS), 1.0)
        for name in _SUMS:
            kept = keep * keep if name in EVIDENCE[2:] else keep
            self.put(name, index, kept * self.get(name, index) + new[name])


def _reported(tokens: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(tokens) & (tokens > 0), tokens, np.nan)


def _block_sums(
    seconds: Floats, tokens: Floats, peers: Ints, n_groups: int, stretch: Floats
) -> list[Floats]:
    """Weighted sums of z y and z z of each group, and its evidence."""
    known = np.isfinite(seconds) & (seconds > 0) & np.isfinite(tokens)
    y = np.where(known, _relative(np.where(known, seconds, np.nan)), 0.0)
    z = np.where(known, stretch * _relative(np.where(known, tokens, np.nan)), 0.0)
    evidence = evidence_of_block(y, z, known, peers, n_groups)
    used = known & (z != 0.0)
    weight = used.astype(np.float64)
    for _ in range(3):
        zy, zz = (_by_group(weight * z * v, peers, n_groups) for v in (y, z))
        slope = np.zeros(n_groups)
        np.divide(zy, zz, out=slope, where=zz > 0)
        rest = y - np.clip(slope, 0.0, 1.0)[peers][None, :] * z
        offset = nan_median(np.where(known, rest, np.nan), axis=0)[None, :]
        y, rest = (np.where(known, v - offset, 0.0) for v in (y, rest))
        weight = _huber(rest, used)
    return [*(_by_group(weight * z * v, peers, n_groups) for v in (y, z)), *evidence]


def _relative(values: Floats) -> Floats:
    """(T, R) value / median of the rank - 1."""
    usual = nan_median(values, axis=0)
    ratio = np.full(values.shape, np.nan)
    np.divide(values, usual[None, :], out=ratio, where=(usual > 0)[None, :])
    return ratio - 1.0


def _huber(rest: Floats, used: Bools) -> Floats:
    off = np.abs(rest)
    scale = SIGMA_OF_MAD * float(np.median(off[used])) if used.any() else 0.0
    weight = np.where(used, 1.0, 0.0)
    np.divide(HUBER * scale, off, out=weight, where=used & (off > HUBER * scale) & (scale > 0))
    return weight


def _by_group(values: Floats, peers: Ints, n_groups: int) -> Floats:
    return np.bincount(peers, values.sum(axis=0), n_groups).astype(np.float64)
