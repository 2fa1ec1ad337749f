"""Whether times grow with tokens: sums over blocks of steps, and how sure they make it."""

from __future__ import annotations

import numpy as np

from otel_straggler.model.observation import Floats, Ints
from otel_straggler.score.verdicts.comparison import SIGMA_OF_MAD
from otel_straggler.score.verdicts.findings import Flags

EVIDENCE = ("seen", "full", "seen_seen", "seen_full", "full_full")
"""Sums over pieces of evidence: ``seen``, what a piece shows; ``full``, what it would show if all
of the time grew with tokens; and of their products."""
CUT = 6.0
"""A time counts for so many deviations at most: pauses are noise like other noise."""


def evidence_of_block(longer: Floats, more: Floats, known: Flags, peers: Ints, n: int) -> Floats:
    """What a block says of n groups of peers.

    A piece of evidence is one rank in one block: the sum over its steps of (tokens more than its
    usual) x (time longer than its usual, in deviations of the section), over the root of the sum
    of squares of the former, so that pieces scatter alike. What is common to all peers in a step
    is taken out of both before: a data centre that warms up while sequences grow is no evidence,
    nor is a slow network in a step in which all had long sequences. Steps of a rank are not taken
    as independent of each other, only ranks and blocks: times come in waves, and so do lengths
    where they are sorted.

    Args:
        longer, more: (T, R) time and tokens / the rank's usual, less 1.
        known: (T, R) whether both are told; 0 elsewhere.
        peers: (R,) group of each rank.

    Returns:
        (5, n) sums, by ``EVIDENCE``; 0 for a group with fewer than two ranks.

    Cost: O(T R).
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
    told = [np.bincount(peers, values, n) * (counts >= 2) for values in (seen, full)]
    pairs = ((seen, seen), (seen, full), (full, full))
    told += [np.bincount(peers, one * other, n) * spread for one, other in pairs]
    return np.array(told)


def sureness(sums: Floats, *, of_all: bool = False) -> Floats:
    """How many standard deviations of a normal distribution the sum lies above 0.

    Pieces of evidence scatter around what they have in common; their sum over its standard error
    has Student's distribution with (effective number of pieces - 1) degrees of freedom. Few pieces
    are much less sure than their ratio says: for 4 deviations, that of 9 must be 7.6, of many 4.
    Pieces that say more count for more, so the effective number is (sum of full)^2 / (sum of
    full^2).

    Args:
        sums: (5, ...) by ``EVIDENCE``.
        of_all: what it would be if all of the time grew with tokens: whether a share could have
            been seen.

    Returns:
        (...); 0 where nothing is known, and for fewer than two pieces.

    Source: Student's t as a normal deviate by Wallace (1959); 6 % too careful at 2 degrees of
    freedom, 1 % at 8.
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


def _own(values: Floats, known: Flags, peers: Ints, n: int) -> Floats:
    """Without what all peers have in common in a step, nor a rank in all steps."""
    place = (np.arange(len(values))[:, None] * n + peers[None, :]).ravel()
    size = len(values) * n
    count = np.bincount(place, known.ravel(), size)
    total = np.bincount(place, np.where(known, values, 0.0).ravel(), size)
    common = (total / np.maximum(count, 1.0))[place].reshape(values.shape)
    values = np.where(known, values - common, 0.0)
    mean = values.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return np.where(known, values - mean, 0.0)
