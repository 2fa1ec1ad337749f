"""Ranks that lastingly have more tokens than their peers, where the cost of tokens is unknown.

That cost is learned from steps in which a rank has more tokens than in others. Where they never
change, a rank with half as many again that takes half as long again may be slow, or have more work.
So ranks with the same tokens are compared with each other, and classes only beyond what tokens can
explain.
"""

from __future__ import annotations

import math

import numpy as np

from otel_straggler.detect.scores.medians import Groups, median_of, nan_median
from otel_straggler.detect.verdicts.excess import MIN_PRESENCE, Excesses
from otel_straggler.detect.verdicts.world import World
from otel_straggler.model.observation import Bools, Floats, Ints

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

    >>> seconds, tokens = np.ones((5, 8, 1)), np.ones((5, 8))
    >>> seconds[:, 4:] = 1.5
    >>> tokens[:, 4:] = 1.5
    >>> for_equal_classes(seconds, tokens, Groups.of([0] * 8), np.ones((1, 1)))[0, :, 0].tolist()
    [1.25, 1.25, 1.25, 1.25, 1.25, 1.25, 1.25, 1.25]
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
    """A rank's lasting tokens / those of its usual peer; 1.0 where they overlap, NaN if not
    reported."""
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
    """Text if most of ``lost_s`` (seconds per step) lies in a local section that most peers do not
    run; else empty."""
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
