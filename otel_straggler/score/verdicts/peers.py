"""Who is compared with whom.

Peers do the same work: same role, pipeline stage, virtual stage, context, tensor and expert index;
they differ in the data-parallel index only. A last pipeline stage that is half as long again as
the others is then no reason to call its ranks slow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otel_straggler.model.observation import Floats, Ints
from otel_straggler.model.rank import Source
from otel_straggler.score.verdicts.grouping import Groups, median_of_rows
from otel_straggler.semconv import DEFAULT_ROLE

LEAST_GAP = 0.10
"""Roles that nobody told must lie so far apart (10 %) to be told apart."""
LEAST_CLUSTER = 3
INNER = ("tensor", "context")


def peer_groups(sources: Sequence[Source]) -> Groups:
    """Groups of ranks with the same role and the same indices but the data-parallel one."""
    return Groups.of([peer_key(source) for source in sources])


def peer_key(source: Source) -> tuple[str, tuple[tuple[str, int], ...]]:
    """What peers have in common.

    >>> peer_key(Source(run_id="r", rank=9, parallel=(("data", 1), ("pipeline", 3))))
    ('default', (('pipeline', 3),))
    """
    return source.role, tuple(sorted([pair for pair in source.parallel if pair[0] != "data"]))


def inner_key(source: Source) -> tuple[object, ...]:
    """What ranks have in common that split the same layers among them: all but the tensor and the
    context index. Ranks that tell neither share nothing.

    >>> inner_key(Source(run_id="r", rank=9, parallel=(("data", 1), ("tensor", 3))))
    ('default', (('data', 1),))
    >>> inner_key(Source(run_id="r", rank=9, parallel=(("data", 1),)))
    ('rank', 9)
    """
    outer = [pair for pair in source.parallel if pair[0] not in INNER]
    if len(outer) == len(source.parallel):
        return "rank", source.rank
    return source.role, tuple(sorted(outer))


def describe_peers(key: tuple[str, tuple[tuple[str, int], ...]]) -> str:
    """A peer group in words.

    >>> describe_peers(("default", (("pipeline", 3),))), describe_peers(("actor", ()))
    ('pipeline 3', 'actor')
    """
    role, indices = key
    words = [f"{name} {index}" for name, index in indices]
    return ", ".join(words if role == DEFAULT_ROLE and words else [role, *words])


def is_told(sources: Sequence[Source]) -> bool:
    """Whether anybody said what the ranks do."""
    return any(source.parallel or source.role != DEFAULT_ROLE for source in sources)


def inferred_groups(log_seconds: Floats, noise: float) -> Groups:
    """Roles by clustering, where nobody told them.

    A section splits the ranks where their sorted times leave a gap of at least 10 % and 6 times
    the noise, and both sides have 3 ranks or more; a rank or two that stand apart are suspects and
    no role. Ranks are peers if no section splits them.

    Args:
        log_seconds: (R, C) log of the median time per step; not finite where a rank ran nothing.
        noise: standard error of ``log_seconds``.

    Cost: O(C R log R).

    >>> times = np.log([[1.0], [1.01], [0.99], [1.5], [1.51], [1.49], [9.0]])
    >>> inferred_groups(times, 0.01).code.tolist()
    [0, 0, 0, 1, 1, 1, 1]
    """
    gap = max(LEAST_GAP, 6.0 * noise)
    log_seconds = np.where(np.isfinite(log_seconds), log_seconds, np.nan)
    label = np.zeros(len(log_seconds), np.int64)
    for column in log_seconds.T:
        part = _parts(column, gap)
        label = np.unique(label * (int(part.max(initial=0)) + 1) + part, return_inverse=True)[1]
    return _without_small(label, log_seconds)


def _parts(column: Floats, gap: float) -> Ints:
    """(R,) number of the part between gaps; NaN goes with the lowest part."""
    order = np.argsort(np.where(np.isnan(column), -np.inf, column), kind="stable")
    ordered = column[order]
    part = np.zeros(len(column), np.int64)
    cuts = np.flatnonzero(np.diff(ordered) >= gap) + 1
    bounds, last = [], 0
    for cut in cuts.tolist():
        if cut - last >= LEAST_CLUSTER and len(column) - cut >= LEAST_CLUSTER:
            bounds.append(cut)
            last = cut
    for number, cut in enumerate(bounds, 1):
        part[order[cut:]] = number
    return part


def _without_small(label: Ints, log_seconds: Floats) -> Groups:
    """Ranks of clusters that are too small go to the cluster whose times are nearest."""
    size = np.bincount(label)
    large = np.flatnonzero(size >= LEAST_CLUSTER)
    if len(large) == 0:
        return Groups.of([(DEFAULT_ROLE, ())] * len(label))
    centre = np.array([median_of_rows(log_seconds[label == code]) for code in large])
    for row in np.flatnonzero(size[label] < LEAST_CLUSTER).tolist():
        apart = np.nan_to_num(np.abs(centre - log_seconds[row]), nan=0.0).sum(axis=1)
        label[row] = large[int(np.argmin(apart))]
    names = {int(code): f"inferred {n}" for n, code in enumerate(large, 1)}
    if len(names) == 1:
        names = dict.fromkeys(names, DEFAULT_ROLE)
    return Groups.of([(names[code], ()) for code in label.tolist()])
