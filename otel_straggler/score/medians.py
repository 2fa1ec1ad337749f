"""Medians of many groups at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otel_straggler.model.observation import Floats, Ints


@dataclass(frozen=True, slots=True)
class GroupedTimes:
    """Per group: true median, sum and number of values; NaN, 0 and 0 for an empty group."""

    median_s: Floats
    total_s: Floats
    count: Ints


def group_times(group: Ints, values_s: Floats, n_groups: int) -> GroupedTimes:
    """Median, sum and count of ``values_s`` in every group.

    The median of an even number of values is the mean of the middle two (a *true* median, unlike
    ``torch.median``, which takes the lower one).

    Args:
        group: (n,) group of each value, in [0, n_groups).
        values_s: (n,) seconds, finite.

    Returns:
        Arrays of length ``n_groups``.

    Cost: O(n log n).

    >>> group_times(np.array([0, 0, 2]), np.array([1.0, 3.0, 5.0]), 3).median_s.tolist()
    [2.0, nan, 5.0]
    """
    count = np.bincount(group, minlength=n_groups)
    median = np.full(n_groups, np.nan)
    ordered = values_s[np.lexsort((values_s, group))]
    filled = np.flatnonzero(count)
    ends = np.cumsum(count)[filled]
    starts = ends - count[filled]
    low = (starts + ends - 1) // 2
    high = (starts + ends) // 2
    # Halved before adding: the sum of two large times must not overflow, and equal ones stay equal.
    median[filled] = np.where(low == high, ordered[low], 0.5 * ordered[low] + 0.5 * ordered[high])
    total: Floats = np.bincount(group, values_s, n_groups).astype(np.float64)
    return GroupedTimes(median, total, count)


def median_of_peers(values: Floats, peers: Ints) -> Floats:
    """Replace every value by the median of its column among the rows of the same peer group.

    Args:
        values: (R, S), NaN where there is none.
        peers: (R,) peer group of each row.

    Returns:
        (R, S); NaN where no peer has a value. Cost: O(R * S * log R).
    """
    rows, columns = np.nonzero(~np.isnan(values))
    n_columns = values.shape[1]
    n_groups = (int(peers.max()) + 1 if len(peers) else 0) * n_columns
    grouped = group_times(peers[rows] * n_columns + columns, values[rows, columns], n_groups)
    cell = peers[:, None] * n_columns + np.arange(n_columns)[None, :]
    result: Floats = grouped.median_s[cell]
    return result


def minimum_of_peers(values: Floats, peers: Ints) -> Floats:
    """The same with the smallest value of the peer group. Cost: O(R * S)."""
    smallest = np.full((int(peers.max()) + 1 if len(peers) else 0, values.shape[1]), np.inf)
    np.minimum.at(smallest, peers, np.where(np.isnan(values), np.inf, values))
    smallest[np.isinf(smallest)] = np.nan
    return smallest[peers]
