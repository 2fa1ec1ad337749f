"""Formulas of the scores: sections and GPUs against peers and own best, and who is listed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otel_straggler.detect.scores.medians import median_of_peers, minimum_of_peers
from otel_straggler.model.observation import Bools, Floats, Ints, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import Excess, KindOfScore, Straggler
from otel_straggler.semconv import LISTED_KINDS


def relative_scores(median_s: Floats, peers: Ints) -> Floats:
    """Score every rank against its fastest peer, section by section.

    score[r, s] = min over the peers of r of median[:, s] / median[r, s]. A section that only some
    ranks ran is scored among those (NVRx gives NaN to all). A rank without a peer scores 1.0.

    Args:
        median_s: (R, S) window medians, > 0; NaN where a rank ran nothing.
        peers: (R,) peer group of each rank (its role).

    Returns: (R, S) in (0, 1]; NaN where ``median_s`` is. Source: NVRx, "relative performance
    score".

    >>> relative_scores(np.array([[1.0], [2.0], [np.nan]]), np.zeros(3, int)).ravel().tolist()
    [1.0, 0.5, nan]
    """
    return minimum_of_peers(median_s, peers) / median_s


def individual_scores(median_s: Floats, reference_s: Floats) -> Floats:
    """Score every rank against its own best: min(1, reference / median), 1 without a reference.
    Both (R, S) seconds; NaN where a rank ran nothing, or has no reference yet. Returns (R, S) in
    (0, 1]; NaN where ``median_s`` is. Source: NVRx, "individual performance score"."""
    reference = np.where(np.isnan(reference_s), median_s, reference_s)
    return np.minimum(1.0, reference / median_s)


def slowdowns(median_s: Floats, peers: Ints) -> Floats:
    """(R, S) own median / median of the role, itself included: 2.0 is twice as slow."""
    return median_s / median_of_peers(median_s, peers)


def relative_gpu_scores(median_s: Floats, total_s: Floats, peers: Ints) -> Floats:
    """Score every rank's kernels against the fastest peer, weighted by the time spent in each.

    score[r] = sum_k w[r, k] * (best[k] / median[r, k]) / sum_k w[r, k], w = total_s, best[k] = min
    over the peers of median[:, k], k over the kernels that all peers with any kernel ran.

    Args:
        median_s: (R, K) median kernel time, > 0; NaN where a rank did not run it.
        total_s: (R, K) time spent in the kernel; 0 likewise.
        peers: (R,) peer group of each rank.

    Returns: (R,) in (0, 1]; NaN without kernels, or without one in common. Source: NVRx, GPU
    performance score.
    """
    ran = ~np.isnan(median_s)
    compared = ran.any(axis=1)
    common = np.zeros_like(ran)
    for group in np.unique(peers[compared]):
        members = (peers == group) & compared
        common[members] = ran[members].all(axis=0)
    return _weighted(minimum_of_peers(median_s, peers) / median_s, total_s, common)


def individual_gpu_scores(median_s: Floats, total_s: Floats, reference_s: Floats) -> Floats:
    """(R,) score of every rank's kernels against their own best medians (R, K), over all kernels it
    ran; NaN without kernels. A kernel without a reference scores 1."""
    reference = np.where(np.isnan(reference_s), median_s, reference_s)
    return _weighted(np.minimum(1.0, reference / median_s), total_s, ~np.isnan(median_s))


def _weighted(ratio: Floats, weight: Floats, used: Bools) -> Floats:
    weights = np.where(used, weight, 0.0)
    total = weights.sum(axis=1)
    scored = np.where(used, ratio, 0.0)
    result = np.full(len(total), np.nan)
    np.divide((weights * scored).sum(axis=1), total, out=result, where=total > 0)
    return result


_PEERS = np.zeros(2, np.int64)


def relative_to_best(median_s: Floats, best_s: Floats) -> Floats:
    """Section scores (S,) of one rank, from its medians and the smallest of the peers, itself
    included.

    >>> relative_to_best(np.array([2.0, np.nan]), np.array([1.0, 1.0])).tolist()
    [0.5, nan]
    """
    scores: Floats = relative_scores(np.stack([median_s, best_s]), _PEERS)[0]
    return scores


def gpu_relative_to_best(median_s: Floats, total_s: Floats, best_s: Floats) -> float:
    """The GPU score of one rank, from (K,) medians and times, and the smallest medians of the
    peers: NaN for a kernel that a compared peer lacks. NaN without a common kernel.

    >>> own, best = np.array([2.0, 1.0]), np.array([1.0, np.nan])
    >>> gpu_relative_to_best(own, own, best)
    0.5
    """
    if np.isnan(best_s).all():
        return float("nan")
    times = np.stack([median_s, best_s]), np.stack([total_s, np.zeros_like(best_s)])
    return float(relative_gpu_scores(*times, _PEERS)[0])


def find_stragglers(
    scores: Floats,
    kind_of_score: KindOfScore,
    sources: Sequence[Source],
    sections: Sequence[Section],
    threshold: float,
) -> list[Straggler]:
    """List every (rank, section) with a score strictly under the threshold; never NaN, nor sections
    of kind wait, checkpoint, and eval, where victims wait."""
    listed = np.array([s.kind in LISTED_KINDS for s in sections], bool)
    return [
        Straggler(
            source=sources[r],
            section=sections[s].name,
            kind_of_score=kind_of_score,
            score=float(scores[r, s]),
        )
        for r, s in np.argwhere((scores < threshold) & listed[None, :]).tolist()
    ]


def find_largest_excess(
    own_s: Floats, peers: Ints, sources: Sequence[Source], sections: Sequence[Section]
) -> Excess | None:
    """The rank and section with the most seconds per step beyond the median of its role, from (R,
    S) ``own_s`` (NaN where a rank ran nothing); None if nobody is slower."""
    role_s = median_of_peers(own_s, peers)
    listed = np.array([s.kind in LISTED_KINDS for s in sections], bool)
    excess = np.where(listed[None, :], own_s - role_s, np.nan)
    if not (excess > 0).any():
        return None
    r, s = divmod(int(np.nanargmax(excess)), excess.shape[1])
    return Excess(
        source=sources[r],
        section=sections[s].name,
        excess_s=float(excess[r, s]),
        own_s=float(own_s[r, s]),
        role_median_s=float(role_s[r, s]),
    )
