"""Rows of some steps -> dense tables for verdicts, of top-level section runs: the time of kernels
and nested sections is in the section around them. Of nested ones DDP's timers say more about it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from otel_straggler.detect.scores.ddp_timers import are_timers, timer_of, with_ddp_times
from otel_straggler.detect.scores.medians import MAX_PADDING, number_densely, slices
from otel_straggler.model.observation import (
    COLLECTIVE,
    CUPTI,
    EVENTS,
    HOST,
    NO_KERNEL,
    NO_SEQ,
    NO_STEP,
    TELLS_WAITING,
    Bases,
    Bools,
    Floats,
    GpuTimes,
    Ints,
    ObservationBatch,
)
from otel_straggler.model.observation import ObservationBatch as Batch
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import GpuSeconds, StepTable

_LATEST = np.iinfo(np.int64).max
MIN_TIMED = 0.8
"""A step of a section has a time on the GPU if the GPU timed this part of its runs."""
EVEN = 0.45
"""Kernels, which tell more, are the clock of a step from this part of its runs on: of half of them
a few more or less must not decide."""
_ENOUGH_FOR_A_MEDIAN = 1_000
"""Starts of a section that are used to order it among the others."""


def build_step_table(
    rows: ObservationBatch, *, world_size: int = 0, interval_ns: int = 0
) -> StepTable | None:
    """Sum up the top-level section runs of one world; None if there are none. Duplicates and second
    sessions of a rank are left out. In intervals of time DDP's timers are, too.

    Args:
        world_size: ranks expected, 0 if unknown.
        interval_ns: length of an interval that stands for a step; 0: by steps, without rows that
            have none.

    Cost: O(rows + steps * ranks * sections); a sort if ``seq`` is widely spread or rows came twice.
    """
    summed = replace(_only(rows, is_summed(rows)), kernels=())
    kept = one_session_per_rank(without_duplicates(summed))
    if not interval_ns:
        kept = _only(kept, kept.step != NO_STEP)
    of_timers = are_timers(kept)
    timers, kept = kept.take(of_timers), _only(kept, ~of_timers)
    if len(kept) == 0:
        return None
    cells = _Cells.of(kept, kept.start_ns // interval_ns if interval_ns else kept.step)
    in_order, end_ns = cells.order_of_sections(), cells.end_ns()
    table = StepTable(
        steps=cells.steps,
        sources=tuple(kept.sources[code] for code in cells.source_codes),
        sections=tuple(kept.sections[cells.section_codes[s]] for s in in_order),
        seconds=np.where(cells.is_filled, cells.seconds, np.nan)[:, :, in_order],
        runs=cells.runs[:, :, in_order],
        run_cv=cells.run_cv()[:, in_order],
        tokens=cells.tokens(),
        start_ns=np.where(cells.begun_ns < _LATEST, cells.begun_ns, 0),
        end_ns=end_ns.max(axis=2),
        section_end_ns=end_ns[:, :, in_order],
        world_size=world_size,
        is_timed=bool(interval_ns),
        gpu=cells.gpu(in_order),
    )
    return table if interval_ns or not len(timers) else with_ddp_times(table, timers)


class StepEnds:
    """How long steps took: the one maker of step times. State: 16 bytes per rank.

    A step of a rank lasts from the end of the one before to its own end, so that what no section
    covers is a part of it, wherever it lies. Where the step before is unknown, as at a start or
    after lost rows, it is what lies between its own first start and last end.
    """

    def __init__(self) -> None:
        self._sources: tuple[Source, ...] = ()
        self._step: Ints = np.zeros(0, np.int64)
        self._end_ns: Ints = np.zeros(0, np.int64)

    def timed(self, table: StepTable) -> StepTable:
        """The next steps, with ``step_s``; intervals of time as they are. Cost: O(T R)."""
        if table.is_timed or table.step_s is not None or not len(table):
            return table
        if table.sources != self._sources:
            self._follow(table.sources)
        before_ns = np.concatenate([self._end_ns[None], table.end_ns[:-1]])
        before = np.concatenate([self._step[None], np.zeros_like(table.end_ns[:-1])])
        before[1:] = table.steps[:-1, None]
        inside_ns = table.end_ns - table.start_ns
        since_ns = table.end_ns - before_ns
        # A clock that was set back tells nothing of the step in which it was.
        is_next = (before == table.steps[:, None] - 1) & (before_ns > 0) & (since_ns > 0)
        step_ns = np.where(is_next, since_ns, inside_ns)
        is_known = (table.end_ns > 0) & (table.start_ns > 0) & (step_ns > 0)
        self._step = np.full(len(table.sources), table.steps[-1])
        self._end_ns = table.end_ns[-1]
        return replace(table, step_s=np.where(is_known, step_ns * 1e-9, np.nan))

    def _follow(self, sources: tuple[Source, ...]) -> None:
        """Other ranks than before, or others of their sessions: of those that go on, go on."""
        at = {_session(source): row for row, source in enumerate(self._sources)}
        rows = [at.get(_session(source), -1) for source in sources]
        self._step = np.array([-1 if row < 0 else self._step[row] for row in rows], np.int64)
        self._end_ns = np.array([0 if row < 0 else self._end_ns[row] for row in rows], np.int64)
        self._sources = sources


def _session(source: Source) -> tuple[int, int, str, str]:
    return source.attempt, source.rank, *source.session


def is_summed(rows: ObservationBatch) -> Bools:
    """Which rows are runs of top-level sections, or say more about them: DDP's timers."""
    is_top = np.array(
        [not section.parent or bool(timer_of(section)) for section in rows.sections], bool
    )
    is_run: Bools = rows.kernel == NO_KERNEL
    return is_run if is_top.all() else is_run & is_top[rows.section]


def _only(rows: ObservationBatch, wanted: Bools) -> ObservationBatch:
    return rows if wanted.all() else rows.take(wanted)


@dataclass(frozen=True, slots=True)
class _Cells:
    """Rows by step, rank, and section (T, R, S); ``cell`` is the index of each row."""

    rows: ObservationBatch
    steps: Ints
    source_codes: list[int]
    section_codes: list[int]
    cell: Ints
    n_rows: Ints
    seconds: Floats
    first_ns: Ints
    begun_ns: Ints

    @classmethod
    def of(cls, rows: ObservationBatch, step: Ints) -> _Cells:
        steps, step_code = number_densely(step)
        used = np.flatnonzero(rows_by_source(rows)).tolist()
        source_codes = sorted(used, key=lambda code: rows.sources[code].rank)
        section_codes = np.flatnonzero(np.bincount(rows.section)).tolist()
        shape = (len(steps), len(source_codes), len(section_codes))
        cell = step_code * shape[1] + _indexes(source_codes, len(rows.sources))[rows.source]
        cell *= shape[2]
        cell += _indexes(section_codes, len(rows.sections))[rows.section]
        size = math.prod(shape)
        n_rows = np.bincount(cell, minlength=size)
        first_ns = np.full(size, _LATEST)
        if n_rows.max() == 1:
            first_ns[cell] = rows.start_ns
        else:
            np.minimum.at(first_ns, cell, rows.start_ns)
        return cls(
            rows=rows,
            steps=steps,
            source_codes=source_codes,
            section_codes=section_codes,
            cell=cell,
            n_rows=n_rows.reshape(shape),
            seconds=_sums(cell, rows.duration_s, shape),
            first_ns=first_ns.reshape(shape),
            begun_ns=first_ns.reshape(shape).min(axis=2),
        )

    @property
    def is_filled(self) -> Bools:
        filled: Bools = self.n_rows > 0
        return filled

    @property
    def runs(self) -> npt.NDArray[np.int32]:
        runs = self.rows.runs
        if runs is None:
            return self.n_rows.astype(np.int32)
        return self._sums(runs.astype(np.float64)).astype(np.int32)

    def _sums(self, values: Floats) -> Floats:
        return _sums(self.cell, values, self.n_rows.shape)

    def order_of_sections(self) -> list[int]:
        """By the median of their first start in the step; ties by appearance."""
        n_sections = len(self.section_codes)
        first_ns = self.first_ns.reshape(-1, n_sections)
        begun_ns = self.begun_ns.ravel()
        offset_ns: list[int] = []
        for section in range(n_sections):
            lines = np.flatnonzero(first_ns[:, section] != _LATEST)
            lines = lines[:: 1 + len(lines) // _ENOUGH_FOR_A_MEDIAN]
            offsets_ns = np.sort(first_ns[lines, section] - begun_ns[lines])
            middle = offsets_ns[[(len(lines) - 1) // 2, len(lines) // 2]]
            offset_ns.append(int(middle.sum()))
        return sorted(range(n_sections), key=offset_ns.__getitem__)

    def end_ns(self) -> Ints:
        """(T, R, S) of the last row; 0 where the rank ran nothing."""
        if self.n_rows.max() == 1:
            return np.where(self.is_filled, self.first_ns + _nanoseconds(self.seconds), 0)
        last_ns = np.zeros(self.n_rows.size, np.int64)
        ends_ns = self.rows.start_ns + _nanoseconds(self.rows.duration_s)
        np.maximum.at(last_ns, self.cell, ends_ns)
        return last_ns.reshape(self.n_rows.shape)

    def tokens(self) -> Floats:
        """(T, R) of the section that reports most; NaN where none does."""
        tokens = self.rows.tokens
        if tokens is None:
            return np.full(self.n_rows.shape[:2], np.nan)
        is_known = ~np.isnan(tokens)
        sums = self._sums(np.where(is_known, tokens, 0.0))
        maximum: Floats = np.where(self._sums(is_known.astype(np.float64)) > 0, sums, -np.inf)
        maximum = maximum.max(axis=2)
        return np.where(np.isinf(maximum), np.nan, maximum)

    def gpu(self, in_order: list[int]) -> GpuSeconds | None:
        """(T, R, S) with the sections in this order. A cell is known if nearly all its rows are,
        by the clock that most rows of the step have on all ranks together: rows of the other one,
        and the few that are unknown, take the mean of those. Who reports waiting in collectives
        reports all of it: other rows of such a rank waited 0 s."""
        gpu = self.rows.gpu
        if gpu is None:
            return None
        if (gpu.basis == gpu.basis[0]).all() and gpu.basis[0] in (EVENTS, CUPTI):
            return self._of_one_clock(gpu).of_rows(np.s_[:, :, in_order])
        basis, times = self._timed(gpu)
        waited = self._sums((gpu.basis == COLLECTIVE).astype(np.float64))
        reports: Bools = np.any(waited > 0, axis=(0, 2))
        is_plain = self.is_filled & np.isnan(times)
        basis[is_plain & reports[:, None]] = COLLECTIVE
        times[is_plain] = 1.0
        is_used = gpu.basis == basis.ravel()[self.cell]
        nccl_s, own_s = (
            times * self._sums(np.where(is_used, np.nan_to_num(seconds), 0.0))
            for seconds in (gpu.nccl_s, gpu.own_s())
        )
        nccl_s = np.where(_tells_waiting(basis), nccl_s, np.nan)
        own_s = np.where(basis != HOST, own_s, np.nan)
        own_s = np.where(basis == COLLECTIVE, np.maximum(self.seconds - nccl_s, 0.0), own_s)
        return GpuSeconds(basis, own_s, nccl_s).of_rows(np.s_[:, :, in_order])

    def _of_one_clock(self, gpu: GpuTimes) -> GpuSeconds:
        """As most ranks report: all rows by the same."""
        basis = np.where(self.is_filled, gpu.basis[0], np.uint8(HOST))
        own_s = np.where(self.is_filled, self._sums(np.nan_to_num(gpu.own_s())), np.nan)
        nccl_s = (
            self._sums(np.nan_to_num(gpu.nccl_s))
            if gpu.basis[0] == CUPTI
            else np.full(basis.shape, np.nan)
        )
        return GpuSeconds(basis, own_s, np.where(self.is_filled, nccl_s, np.nan))

    def _timed(self, gpu: GpuTimes) -> tuple[Bases, Floats]:
        """(T, R, S) basis of what the GPU timed, and all runs / those timed so; NaN where it timed
        none."""
        given = self.rows.runs
        runs = np.ones(len(self.rows)) if given is None else given.astype(np.float64)
        by_events, by_kernels = (
            self._sums(np.where(gpu.basis == code, runs, 0.0)) for code in (EVENTS, CUPTI)
        )
        n_timed = by_events + by_kernels
        by_step = by_kernels.sum(axis=1) >= EVEN * n_timed.sum(axis=1)
        is_kernels = (by_kernels > 0.0) & (by_step[:, None] | (by_events == 0.0))
        n_used = np.where(is_kernels, by_kernels, by_events)
        n_runs = self.n_rows if given is None else self._sums(runs)
        basis = np.where(is_kernels, CUPTI, EVENTS).astype(np.uint8)
        basis[(n_timed == 0.0) | (n_timed < MIN_TIMED * n_runs)] = HOST
        with np.errstate(invalid="ignore", divide="ignore"):
            times: Floats = np.where(n_timed > 0.0, n_runs / n_used, np.nan)
        return basis, times

    def run_cv(self) -> Floats:
        """(R, S) spread of single runs around the mean of their step, pooled over the steps. A row
        of k runs has only their mean, and is weighted accordingly."""
        freedom = np.where(self.n_rows > 1, self.n_rows - 1, 0).sum(axis=0)
        if not freedom.any():
            return np.full(freedom.shape, np.nan)
        runs = np.ones(len(self.rows)) if self.rows.runs is None else self.rows.runs
        many = self.n_rows > 1
        n_runs = np.where(many, self.runs, 0)
        step_mean_s = self.seconds / np.maximum(self.runs, 1)
        apart_s = self.rows.duration_s / runs - step_mean_s.ravel()[self.cell]
        squares = np.where(many, self._sums(runs * apart_s**2), 0.0).sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean_s = np.where(many, self.seconds, 0.0).sum(axis=0) / n_runs.sum(axis=0)
            spread: Floats = np.sqrt(squares / freedom) / mean_s
        return np.where(freedom > 0, spread, np.nan)


def _tells_waiting(basis: Bases) -> Bools:
    return np.isin(basis, TELLS_WAITING)


def _sums(cell: Ints, values: Floats, shape: tuple[int, ...]) -> Floats:
    sums: Floats = np.bincount(cell, values, math.prod(shape)).astype(np.float64, copy=False)
    return sums.reshape(shape)


def _indexes(codes: list[int], n_codes: int) -> Ints:
    index = np.zeros(n_codes, np.int64)
    index[codes] = np.arange(len(codes))
    return index


def _nanoseconds(seconds: Floats) -> Ints:
    whole: Ints = np.rint(seconds * 1e9).astype(np.int64)
    return whole


def without_duplicates(rows: Batch) -> Batch:
    """Keep the first of rows with equal source, section, kernel, and seq (but ``NO_SEQ``)."""
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
    """Of several sessions of a rank, keep the one with most rows; of equals the newest, which is
    last in ``rows.sources``. Sessions are never merged into one median."""
    count = rows_by_source(rows)
    used = np.flatnonzero(count).tolist()
    kept: dict[int, int] = {}
    for code in used:
        rank = rows.sources[code].rank
        if rank not in kept or count[code] >= count[kept[rank]]:
            kept[rank] = code
    return rows if len(kept) == len(used) else rows.take(np.isin(rows.source, list(kept.values())))


def rows_by_source(rows: Batch) -> Ints:
    count = np.zeros(len(rows.sources), np.int64)
    for part in slices(len(rows)):
        count += np.bincount(rows.source[part], minlength=len(count))
    return count


def _delivery_order(rows: Batch) -> Ints | None:
    """An order that puts deliveries of one run side by side, the first one first; None if there
    plainly are none. One packed number per row is several times faster to sort."""
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
    """Source, section, kernel, and seq of each row, in one number."""
    key = rows.source[part].astype(np.int64)
    key *= len(rows.sections)
    key += rows.section[part]
    if rows.kernels:
        key *= len(rows.kernels) + 1
        key += rows.kernel[part] + 1
    key *= n_seq
    key += rows.seq[part] - lowest_seq
    return key
