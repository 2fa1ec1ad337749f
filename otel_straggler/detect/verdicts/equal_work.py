"""Times for equal work: what more tokens explain is taken out, what a rank does slowly is not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from otel_straggler.detect.scores.medians import Groups, median_of, nan_median
from otel_straggler.detect.verdicts.excess import MIN_PRESENCE, Excesses
from otel_straggler.detect.verdicts.history import Destination, KeyedTables
from otel_straggler.detect.verdicts.significance import SIGMA_OF_MAD
from otel_straggler.detect.verdicts.world import World
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
    sums. The sum over its standard error has Student's distribution with (effective pieces - 1)
    degrees of freedom; the effective number is (sum of full)^2 / (sum of full^2). 0 for fewer than
    two pieces. With ``of_all``: if all of the time grew with tokens, i.e. whether a share could
    have been seen. Source: Student's t as a normal deviate, Wallace (1959)."""
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
    ranks that lastingly have more tokens are compared by class. Squares of sequence
    lengths are not on the wire, and stay in the times.

    State: 64 bytes per group and section, at most 10,000 groups. Source: ours, after ResiHP (arXiv
    2605.06374).
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
        """(G, S) time / time with the tokens of the first block, and (G,) tokens / those. If no
        share is seen, more tokens explain as much as they may (a longer sequence is no slowdown),
        and fewer nothing."""
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


# --- lasting differences ------------------------------------------------------------------------
# Where a rank's tokens never change, one with half as many again that takes half as long again may
# be slow, or have more work. So ranks with the same tokens are compared with each other, and
# classes only beyond what tokens can explain.

LASTING = 0.05
"""Ranks are of two classes if one has so many more tokens in nearly every step."""
MIN_ALIKE = 3
"""So many ranks with more tokens that take longer have more work; fewer only while the cost of
tokens is entirely unknown: slow ranks come singly."""


def for_equal_classes(seconds: Floats, tokens: Floats, peers: Groups, maximum: Floats) -> Floats:
    """Times with what more tokens may explain removed, class by class.

    A class that takes c times as long as the lightest one of its peers with n times the tokens is
    divided by c, within 1 and 1 + maximum (n - 1); all are multiplied by the median divisor, so
    that a run compares with its own past as before. For a class of fewer than three ranks, a
    ``maximum`` below 1 counts as 0.

    Args:
        seconds: (T, R, S); tokens: (T, R), NaN where there are none.
        maximum: (G, S) the largest part of the time, 0 to 1, that may grow with tokens and is not
            removed yet.

    Returns: (T, R, S); the same array where the tokens of peers are alike or overlap. Source: ours.
    """
    low, high = _usual_range(tokens)
    with np.errstate(invalid="ignore"):
        apart = -peers.minima(-low) >= (1.0 + LASTING) * peers.minima(high)
    result = seconds
    for group in np.flatnonzero(apart & (maximum > 0.0).any(axis=1)).tolist():
        rows = np.flatnonzero((peers.code == group) & np.isfinite(low))
        classes = _classes(low[rows], high[rows])
        if not classes.any():
            continue
        result = seconds.copy() if result is seconds else result
        usual = nan_median(tokens[:, rows], axis=0)
        factors = _factors(seconds[:, rows], usual, classes, maximum[group])
        per_token = (median_of(usual) / tokens[:, rows])[..., None]
        per_token = np.where(np.isnan(per_token), 1.0, per_token)
        low_end, high_end = np.minimum(1.0, per_token), np.maximum(1.0, per_token)
        result[:, rows] = seconds[:, rows] * np.clip(factors, low_end, high_end)
    return result


def tokens_of_peers(tokens: Floats, peers: Groups, row: int) -> float:
    """A rank's lasting tokens / its usual peer's; 1.0 where they overlap, NaN if not reported."""
    low, high = _usual_range(tokens)
    others = np.flatnonzero((peers.code == peers.code[row]) & np.isfinite(low))
    others = others[others != row]
    usual = nan_median(tokens[:, others], axis=0)
    theirs = _median_of_known(usual)
    mine = _median_of_known(tokens[:, row])
    is_apart = low[row] >= (1.0 + LASTING) * theirs or high[row] * (1.0 + LASTING) <= theirs
    if math.isnan(mine) or math.isnan(theirs):
        return math.nan
    return mine / theirs if is_apart else 1.0


def _usual_range(tokens: Floats) -> tuple[Floats, Floats]:
    """(R,) and (R,) fewest and most tokens of a rank, without one outlier at either end."""
    ordered = np.sort(tokens, axis=0)  # NaN stand last
    count = np.isfinite(tokens).sum(axis=0)
    odd = (count >= 3).astype(np.int64)
    rows = np.arange(tokens.shape[1])
    return ordered[odd, rows], ordered[np.maximum(count - 1 - odd, 0), rows]


def _classes(low: Floats, high: Floats) -> Ints:
    """(n,) class of each rank, 0 the lightest; classes do not overlap."""
    order = np.argsort(low, kind="stable")
    max_below = np.maximum.accumulate(high[order])[:-1]
    is_cut = low[order][1:] >= (1.0 + LASTING) * max_below
    classes = np.zeros(len(low), np.int64)
    classes[order[1:]] = np.cumsum(is_cut)
    return classes


def _factors(seconds: Floats, tokens: Floats, classes: Ints, maximum: Floats) -> Floats:
    """(n, S) factors of one group's times."""
    usual_s = nan_median(seconds, axis=0)
    divisor = np.ones(usual_s.shape)
    for s, share in enumerate(maximum.tolist()):
        lightest_s = _median_of_known(usual_s[classes == 0, s])
        for one in range(1, int(classes.max()) + 1):
            mine = classes == one
            times = median_of(tokens[mine]) / median_of(tokens[classes == 0])
            own_s = _median_of_known(usual_s[mine, s])
            longer = own_s / lightest_s if own_s > lightest_s > 0.0 else 1.0
            believed = share if share == 1.0 or mine.sum() >= MIN_ALIKE else 0.0
            divisor[mine, s] = min(longer, 1.0 + believed * (times - 1.0))
    middle = np.array([median_of(column) for column in divisor.T])
    return np.asarray(middle / divisor)


def _median_of_known(values: Floats) -> float:
    return median_of(values[np.isfinite(values)])


MIN_SHARE_OF_LOSS = 0.75
"""Part of the loss that must lie in such a section."""


def extra_work(excess: Excesses, world: World, local: Bools, row: int, lost_s: float) -> str:
    """Text if a section that most peers do not run holds most of ``lost_s``; else empty."""
    peers = np.flatnonzero(world.peers.code == world.peers.code[row])
    others = peers[peers != row]
    if len(others) == 0:
        return ""
    own_s = excess.late_s[:, row] + excess.peers_s[:, world.peers.code[row]]
    is_mine = 2 * np.isfinite(own_s).sum(axis=0) > len(own_s)
    is_theirs = np.isfinite(excess.late_s[:, others]).mean(axis=(0, 1)) >= MIN_PRESENCE
    usual_s = np.where(local & is_mine & ~is_theirs, np.nan_to_num(nan_median(own_s, axis=0)), 0.0)
    section = int(np.argmax(usual_s))
    if not usual_s[section] > 0.0 or usual_s[section] < MIN_SHARE_OF_LOSS * lost_s:
        return ""
    name = world.sections[section].name
    return f"{usual_s[section]:.2g} s of each step in {name}, which most of its peers do not run"
