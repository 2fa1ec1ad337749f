"""The scores of one rank that knows only the best of its peers: layer 1 without a table of ranks.

The best peer stands for all of them as a second line beside the rank's own, so that the functions
which score a whole window score here too.
"""

from __future__ import annotations

import numpy as np

from otel_straggler.model.observation import Floats
from otel_straggler.score.gpu_scores import relative_gpu_scores
from otel_straggler.score.section_scores import relative_scores

_PEERS = np.zeros(2, np.int64)


def relative_to_best(median_s: Floats, best_s: Floats) -> Floats:
    """Section scores of one rank.

    Args:
        median_s: (S,) own medians in seconds; NaN where the rank ran nothing.
        best_s: (S,) smallest medians of the peers, itself included.

    Returns:
        (S,) in (0, 1]; NaN exactly where ``median_s`` is NaN. Cost: O(S).

    >>> relative_to_best(np.array([2.0, np.nan]), np.array([1.0, 1.0])).tolist()
    [0.5, nan]
    """
    scores: Floats = relative_scores(np.stack([median_s, best_s]), _PEERS)[0]
    return scores


def gpu_relative_to_best(median_s: Floats, total_s: Floats, best_s: Floats) -> float:
    """The GPU score of one rank.

    Args:
        median_s, total_s: (K,) own kernel medians (NaN where not run) and time spent, seconds.
        best_s: (K,) smallest medians of the peers; NaN for a kernel that a compared peer lacks.

    Returns:
        In (0, 1]; NaN without a kernel that all compared ranks ran. Cost: O(K).

    >>> own, best = np.array([2.0, 1.0]), np.array([1.0, np.nan])
    >>> gpu_relative_to_best(own, own, best)
    0.5
    """
    if np.isnan(best_s).all():
        return float("nan")
    times = np.stack([median_s, best_s]), np.stack([total_s, np.zeros_like(best_s)])
    return float(relative_gpu_scores(*times, _PEERS)[0])
