"""Rows taken apart by step, by incarnation of their ranks, and by window."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from otel_straggler.detect.scores.medians import MAX_PADDING, number_densely
from otel_straggler.model.observation import NO_STEP, Codes, Ints, ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable

_NEVER = np.iinfo(np.int64).max
WindowIndex = tuple[int, int]
"""Numbers of a step's window of scores and block of verdicts; -1 if closed."""


def newest_by_rank(sources: tuple[Source, ...], source: Codes, steps: Ints) -> dict[int, int]:
    """The newest step of each rank that has one."""
    newest = np.full(len(sources), NO_STEP, np.int64)
    np.maximum.at(newest, source, steps)
    result: dict[int, int] = {}
    for code in np.flatnonzero(newest > NO_STEP).tolist():
        rank = sources[code].rank
        result[rank] = max(int(newest[code]), result.get(rank, NO_STEP))
    return result


def lowest_steps(batch: ObservationBatch) -> Ints:
    """Per source code: the lowest step of its rows; ``NO_STEP`` if they have none."""
    has_step = batch.step != NO_STEP
    lowest = np.full(len(batch.sources), _NEVER, np.int64)
    np.minimum.at(lowest, batch.source[has_step], batch.step[has_step])
    return np.where(lowest == _NEVER, NO_STEP, lowest)


@dataclass(frozen=True, slots=True)
class Split:
    """Distinct steps in the order of their first rows, those rows, and each row's step."""

    steps: list[int]
    first_rows: Ints
    step_of_row: Ints

    @classmethod
    def of(cls, steps: Ints) -> Split:
        distinct, position = number_densely(steps)
        if len(distinct) == 1:
            return cls(distinct.tolist(), np.zeros(1, np.int64), position)
        first_seen = np.empty(len(distinct), np.int64)
        first_seen[position[::-1]] = np.arange(len(steps) - 1, -1, -1)  # the first is written last
        order = np.argsort(first_seen)
        number = np.empty(len(order), np.int64)
        number[order] = np.arange(len(order))
        return cls(distinct[order].tolist(), first_seen[order], number[position])

    def codes_by_step(self, source: Codes, n_sources: int) -> list[list[int]]:
        """Codes of the sources that sent each step; cost: O(rows), a sort if they are few."""
        key = self.step_of_row * n_sources + source
        n_keys = len(self.steps) * n_sources
        if n_keys <= MAX_PADDING * len(key):
            distinct = np.flatnonzero(np.bincount(key, minlength=n_keys))
        else:
            distinct = np.unique(key)
        step, code = np.divmod(distinct, n_sources)
        ends = np.searchsorted(step, np.arange(1, len(self.steps) + 1)).tolist()
        codes = code.tolist()
        return [codes[begin:end] for begin, end in itertools.pairwise([0, *ends])]

    def by_index(
        self, indices: list[WindowIndex]
    ) -> tuple[Ints | None, list[tuple[WindowIndex, slice]]]:
        """An order that groups rows by index, and the slices of it; None if they are grouped."""
        distinct = {index: number for number, index in enumerate(dict.fromkeys(indices))}
        if len(distinct) == 1:
            return None, [(indices[0], slice(None))]
        number_of_step = np.array([distinct[index] for index in indices], np.int64)
        number = number_of_step[self.step_of_row]
        order = None
        if (number[1:] < number[:-1]).any():
            order = np.argsort(number, kind="stable")
        ends = np.bincount(number, minlength=len(distinct)).cumsum().tolist()
        pieces = map(slice, [0, *ends], ends)
        return order, list(zip(distinct, pieces, strict=False))


def split_incarnations(rows: ObservationBatch) -> Iterator[ObservationBatch]:
    """Rows of every incarnation, oldest first: a session that repeats a step begins one."""
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
    """Rows of every ``steps_at_once`` distinct steps or intervals, ascending."""
    steps = rows.start_ns // interval_ns if interval_ns else rows.step
    _, number = number_densely(steps)
    block = number // steps_at_once
    order = np.argsort(block, kind="stable")
    ends = np.cumsum(np.bincount(block)).tolist()
    for begin, end in itertools.pairwise([0, *ends]):
        yield rows.take(order[begin:end])


MAX_BEGUN = 2
"""Steps that may be begun at once: ranks that wait for each other are at most one apart."""
_ENOUGH_STEPS = 3
_PRESENT_PART = 0.5


class UsualSections:
    """The sections that steps of a stream have, and on how many ranks: what shows that a step was
    begun and not worked in, as by the fetch that ends a loader, or not finished."""

    def __init__(self) -> None:
        self._n_ranks: dict[str, float] = {}

    def state(self) -> dict[str, float]:
        return self._n_ranks

    def restore(self, state: Mapping[str, float]) -> None:
        self._n_ranks = dict(state)

    def learn(self, table: StepTable) -> None:
        """The next steps; too few teach nothing."""
        if len(table) >= _ENOUGH_STEPS:
            n_ranks = np.median(np.isfinite(table.seconds).sum(axis=1), axis=0).tolist()
            names = (section.name for section in table.sections)
            self._n_ranks = {name: n for name, n in zip(names, n_ranks, strict=True) if n > 0.0}

    def n_begun(self, table: StepTable) -> int:
        """How many of its newest steps were only begun, at most ``MAX_BEGUN``: half of the ranks
        that usually run it lack some section."""
        column = {section.name: at for at, section in enumerate(table.sections)}
        n_ranks = np.isfinite(table.seconds).sum(axis=1)
        for newest in range(min(MAX_BEGUN, len(table))):
            step = n_ranks[len(table) - 1 - newest]
            if all(
                name in column and step[column[name]] >= _PRESENT_PART * usual
                for name, usual in self._n_ranks.items()
            ):
                return newest
        return min(MAX_BEGUN, len(table))
