"""Rows of open blocks in the order that layer 2 wants: world after world, step after step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from otel_straggler.model.observation import NO_STEP, Ints, ObservationBatch
from otel_straggler.score.medians import number_densely
from otel_straggler.score.windows import OpenWindow


def are_in_order(windows: Sequence[OpenWindow]) -> bool:
    """Whether each window's steps all lie behind those of the one before."""
    pairs = itertools.pairwise(windows)
    return all(earlier.last_step < min(later.steps) for earlier, later in pairs)


def split_incarnations(rows: ObservationBatch) -> Iterator[ObservationBatch]:
    """The rows of every incarnation, oldest first.

    Sessions are met in the order of their first starts; one of a known rank that begins at a step
    which the rank has done before begins a new incarnation, as in a stream that is read live.

    Cost: O(rows) if there is one, else O(rows * incarnations).
    """
    incarnation = _incarnations(rows)
    for number in range(int(incarnation.max(initial=0)) + 1):
        of_rows = incarnation[rows.source] == number
        if of_rows.any():
            yield rows if of_rows.all() else rows.take(of_rows)


def _incarnations(rows: ObservationBatch) -> Ints:
    """By source code."""
    n_sources = len(rows.sources)
    begun_ns = np.full(n_sources, np.iinfo(np.int64).max)
    np.minimum.at(begun_ns, rows.source, rows.start_ns)
    first = np.full(n_sources, np.iinfo(np.int64).max)
    np.minimum.at(first, rows.source, rows.step)
    last = np.full(n_sources, NO_STEP, np.int64)
    np.maximum.at(last, rows.source, rows.step)
    incarnation = np.zeros(n_sources, np.int64)
    newest = 0
    done: dict[int, int] = {}
    for code in np.lexsort((np.arange(n_sources), begun_ns)).tolist():
        rank = rows.sources[code].rank
        if NO_STEP < first[code] <= done.get(rank, NO_STEP):
            newest += 1
            done.clear()
        incarnation[code] = newest
        done[rank] = max(int(last[code]), done.get(rank, NO_STEP))
    return incarnation


def split_steps(
    rows: ObservationBatch, steps_at_once: int, interval_ns: int
) -> Iterator[ObservationBatch]:
    """The rows of every ``steps_at_once`` distinct steps, ascending; rows keep their order.

    Args:
        interval_ns: length of an interval that stands for a step; 0: by steps.

    Cost: O(n log n).
    """
    steps = rows.start_ns // interval_ns if interval_ns else rows.step
    _, number = number_densely(steps)
    block = number // steps_at_once
    order = np.argsort(block, kind="stable")
    ends = np.cumsum(np.bincount(block)).tolist()
    for begin, end in itertools.pairwise([0, *ends]):
        yield rows.take(order[begin:end])
