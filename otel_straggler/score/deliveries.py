"""Which rows of a window count: every run once, and one process for each rank."""

from __future__ import annotations

import numpy as np

from otel_straggler.model.observation import NO_SEQ, Ints
from otel_straggler.model.observation import ObservationBatch as Batch
from otel_straggler.score.medians import MAX_PADDING, slices


def without_duplicates(rows: Batch) -> Batch:
    """Keep the first delivery of every row; rows with ``NO_SEQ`` are all kept.

    Two rows are deliveries of one run if source, section, kernel and seq agree.
    Cost: O(n log n).
    """
    order = _delivery_order(rows)
    if order is None:
        return rows
    again = np.zeros(len(rows), bool)
    again[1:] = rows.seq[order[1:]] != NO_SEQ
    for column in (rows.source, rows.section, rows.kernel, rows.seq):
        ordered = column[order]
        again[1:] &= ordered[1:] == ordered[:-1]
    return rows.take(np.sort(order[~again])) if again.any() else rows


def one_session_per_rank(rows: Batch) -> Batch:
    """Keep, of several sources with one rank, the one with most rows; of equals the last in
    ``rows.sources``, which is the newest.

    Two sessions that claim one rank are never merged into one median. Cost: O(n).
    """
    count = rows_by_source(rows)
    used = np.flatnonzero(count).tolist()
    kept: dict[int, int] = {}
    for code in used:
        rank = rows.sources[code].rank
        if rank not in kept or count[code] >= count[kept[rank]]:
            kept[rank] = code
    return rows if len(kept) == len(used) else rows.take(np.isin(rows.source, list(kept.values())))


def rows_by_source(rows: Batch) -> Ints:
    """How many rows every source has."""
    count = np.zeros(len(rows.sources), np.int64)
    for part in slices(len(rows)):
        count += np.bincount(rows.source[part], minlength=len(count))
    return count


def _delivery_order(rows: Batch) -> Ints | None:
    """An order that puts deliveries of one run side by side, the first one first; None if it is
    plain that there are none. One packed number per row is several times faster to sort."""
    if len(rows) == 0 or (rows.seq == NO_SEQ).all():
        return None
    low, high = int(rows.seq.min()), int(rows.seq.max())
    n_seq, n_kernels = high - low + 1, len(rows.kernels) + 1
    if len(rows.sources) * len(rows.sections) * n_kernels * n_seq >= 2**62:
        return np.lexsort((rows.seq, rows.kernel, rows.section, rows.source))
    n_keys = len(rows.sources) * len(rows.sections) * n_kernels * n_seq
    if n_keys <= MAX_PADDING * len(rows):
        seen = np.zeros(n_keys, bool)
        for part in slices(len(rows)):
            seen[_delivery_key(rows, part, low, n_seq)] = True
        if np.count_nonzero(seen) == len(rows):
            return None
    key = _delivery_key(rows, slice(None), low, n_seq)
    ordered = np.sort(key)
    if not (ordered[1:] == ordered[:-1]).any():
        return None
    return np.argsort(key, kind="stable")


def _delivery_key(rows: Batch, part: slice, lowest_seq: int, n_seq: int) -> Ints:
    """Source, section, kernel and seq of each row of a part, in one number."""
    key = rows.source[part].astype(np.int64)
    key *= len(rows.sections)
    key += rows.section[part]
    if rows.kernels:
        key *= len(rows.kernels) + 1
        key += rows.kernel[part] + 1
    key *= n_seq
    key += rows.seq[part] - lowest_seq
    return key
