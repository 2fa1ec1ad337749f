"""From ``KernelTimer.take_kernels()`` to what GPU scores are computed from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from otel_straggler.detect.scores.formulas import relative_gpu_scores

Kernels = dict[str, tuple[float, float]]
"""Median and total in seconds, by name."""
_NS = 1e-9


def kernels_of(taken: Iterable[Any], leave_out: str = "\0") -> Kernels:
    """Compute kernels, all sections together; less those whose name holds ``leave_out``."""
    buckets: dict[str, dict[tuple[int, int], int]] = {}
    totals: dict[str, float] = {}
    for name, kernel_class, _, _, sum_ns, _, _, scale, offset, counts in taken:
        if kernel_class != 0 or leave_out in name:
            continue
        totals[name] = totals.get(name, 0.0) + sum_ns * _NS
        own = buckets.setdefault(name, {})
        for at, count in enumerate(np.frombuffer(counts, np.uint32).tolist()):
            own[scale, offset + at] = own.get((scale, offset + at), 0) + count
    return {name: (median_of(own), totals[name]) for name, own in buckets.items()}


def median_of(buckets: Mapping[tuple[int, int], int]) -> float:
    """Of an exponential histogram: the middle of the bucket that holds it, in its unit (s).

    Args:
        buckets: counts by (scale, index); index i holds (2**(i / 2**scale), next].

    >>> round(median_of({(0, 0): 1, (0, 1): 3}), 3)
    2.828
    """
    counts = {at: count for at, count in buckets.items() if count}
    half, seen = (sum(counts.values()) + 1) // 2, 0
    for scale, index in sorted(counts, key=lambda at: at[1] / 2.0 ** at[0]):
        seen += counts[scale, index]
        if seen >= half:
            return float(2.0 ** ((index + 0.5) / 2.0**scale))
    return float("nan")


def score_beside(own: Kernels, peer: Kernels, peers: int = 3) -> float:
    """The relative GPU score of a rank among ``peers`` that are all like ``peer``."""
    names = sorted(set(own) | set(peer))
    ranks = [own, *[peer] * peers]
    nothing = (float("nan"), 0.0)
    table = np.array([[kernels.get(name, nothing) for name in names] for kernels in ranks])
    if not names:
        return float("nan")
    group = np.zeros(len(ranks), dtype=np.int64)
    return float(relative_gpu_scores(table[:, :, 0], table[:, :, 1], group)[0])
