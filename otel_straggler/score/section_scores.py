"""Section scores: how fast a rank runs a section, against its peers and against itself."""

from __future__ import annotations

import numpy as np

from otel_straggler.model.observation import Floats, Ints
from otel_straggler.score.medians import median_of_peers, minimum_of_peers


def relative_scores(median_s: Floats, peers: Ints) -> Floats:
    """Score every rank against its fastest peer, section by section.

    score[r, s] = min over the peers of r of median[:, s] / median[r, s]

    A section that only some ranks ran is scored among those that did (NVRx gives NaN to all).
    A rank without a peer scores 1.0.

    Args:
        median_s: (R, S) window medians in seconds, > 0; NaN where a rank ran nothing.
        peers: (R,) peer group of each rank (its role).

    Returns:
        (R, S) in (0, 1]; NaN exactly where ``median_s`` is NaN.

    Cost: O(R * S). Source: NVRx straggler detection, "relative performance score".

    >>> relative_scores(np.array([[1.0], [2.0], [np.nan]]), np.zeros(3, int)).ravel().tolist()
    [1.0, 0.5, nan]
    """
    return minimum_of_peers(median_s, peers) / median_s


def individual_scores(median_s: Floats, reference_s: Floats) -> Floats:
    """Score every rank against its own best, section by section.

    score[r, s] = min(1, reference[r, s] / median[r, s]); without a reference the window's own
    median is its best, so the score is 1.

    Args:
        median_s: (R, S) window medians in seconds, > 0; NaN where a rank ran nothing.
        reference_s: (R, S) own best medians so far; NaN where there is none yet.

    Returns:
        (R, S) in (0, 1]; NaN exactly where ``median_s`` is NaN.

    Cost: O(R * S). Source: NVRx straggler detection, "individual performance score".
    """
    reference = np.where(np.isnan(reference_s), median_s, reference_s)
    return np.minimum(1.0, reference / median_s)


def slowdowns(median_s: Floats, peers: Ints) -> Floats:
    """Own median / median of the role (the rank itself included): 1.0 is ordinary, 2.0 is twice
    as slow.

    Returns:
        (R, S), > 0; NaN exactly where ``median_s`` is NaN. Cost: O(R * S * log R).
    """
    return median_s / median_of_peers(median_s, peers)
