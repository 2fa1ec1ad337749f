"""GPU scores: how fast a rank's GPU runs kernels, against its peers and against itself."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otel_straggler.model.observation import Floats, Ints
from otel_straggler.score.medians import minimum_of_peers


def relative_gpu_scores(median_s: Floats, total_s: Floats, peers: Ints) -> Floats:
    """Score every rank's kernels against the fastest peer, weighted by the time spent in each.

    score[r] = sum_k w[r, k] * (best[k] / median[r, k]) / sum_k w[r, k],  w = total_s,
    best[k] = min over the peers of median[:, k], k over the kernels that all compared ranks ran.
    Compared are the peers that ran any kernel: a rank without GPU work does not silence the rest.

    Args:
        median_s: (R, K) median kernel time in seconds, > 0; NaN where a rank did not run it.
        total_s: (R, K) time spent in the kernel, seconds; 0 where a rank did not run it.
        peers: (R,) peer group of each rank.

    Returns:
        (R,) in (0, 1]; NaN for a rank without kernels, and for every compared rank if they have
        no kernel in common.

    Cost: O(R * K). Source: NVRx straggler detection, GPU performance score.
    """
    ran = ~np.isnan(median_s)
    compared = ran.any(axis=1)
    common = np.zeros_like(ran)
    for group in np.unique(peers[compared]):
        members = (peers == group) & compared
        common[members] = ran[members].all(axis=0)
    return _weighted(minimum_of_peers(median_s, peers) / median_s, total_s, common)


def individual_gpu_scores(median_s: Floats, total_s: Floats, reference_s: Floats) -> Floats:
    """Score every rank's kernels against their own best medians, over all kernels it ran.

    Args:
        median_s, total_s: as for :func:`relative_gpu_scores`.
        reference_s: (R, K) own best medians so far; NaN where there is none yet (scores 1).

    Returns:
        (R,) in (0, 1]; NaN for a rank without kernels. Cost: O(R * K).
    """
    reference = np.where(np.isnan(reference_s), median_s, reference_s)
    return _weighted(np.minimum(1.0, reference / median_s), total_s, ~np.isnan(median_s))


def _weighted(ratio: Floats, weight: Floats, used: npt.NDArray[np.bool_]) -> Floats:
    weights = np.where(used, weight, 0.0)
    total = weights.sum(axis=1)
    scored = np.where(used, ratio, 0.0)
    result = np.full(len(total), np.nan)
    np.divide((weights * scored).sum(axis=1), total, out=result, where=total > 0)
    return result
