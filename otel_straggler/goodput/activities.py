"""What the ranks of a run did, and when: the input of all accounting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from otel_straggler.model.observation import NO_STEP, Bools, Codes, Ints
from otel_straggler.semconv import BADPUT, CUSTOM_PREFIX, EXCLUDED

STEP: Final = "step"
ATTEMPT: Final = "attempt"
RUN: Final = "run"
NO_END: Final = np.iinfo(np.int64).max
"""End of an activity whose end is not known."""
ALL_RANKS: Final = -1
"""Rank of an activity that is of the run as a whole: every rank is in it."""
STRUCTURAL: Final = frozenset({STEP, ATTEMPT, RUN})
"""Activities that are no category by themselves."""


class Activity(NamedTuple):
    """One row of :class:`Activities`; see there."""

    what: str
    start_ns: int
    end_ns: int = NO_END
    rank: int = ALL_RANKS
    attempt: int = 0
    step: int = NO_STEP
    steps: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Activities:
    """Activities of the ranks of one run. All columns have length n, in any order.

    Attributes:
        names: ``step``, ``attempt`` (from the start of a process to its end), ``run`` (all of it),
            ``excluded``, a category of ``semconv.BADPUT``, or ``custom:`` and any name.
        what: (n,) index in ``names``.
        rank: (n,) global rank, or ``ALL_RANKS``.
        attempt: (n,) restart count, from 0.
        step: (n,) first optimizer step of the row, or ``NO_STEP``.
        steps: (n,) steps that a row of ``step`` stands for, >= 1.
        start_ns: (n,) since 1970.
        end_ns: (n,) or ``NO_END``: a step then ends where the next one of the rank begins, anything
            else at the end of what is known of the attempt.
    """

    names: tuple[str, ...]
    what: Codes
    rank: Ints
    attempt: Ints
    step: Ints
    steps: Ints
    start_ns: Ints
    end_ns: Ints

    def __len__(self) -> int:
        return len(self.what)

    @classmethod
    def of(cls, rows: Iterable[Activity]) -> Activities:
        """Columns of rows; for a million rows, build the columns instead."""
        columns = list(zip(*rows, strict=True)) or [()] * len(Activity._fields)
        names = tuple(dict.fromkeys(columns[0]))
        codes = {name: code for code, name in enumerate(names)}
        numbers = (np.array(column, np.int64) for column in columns[1:])
        start_ns, end_ns, rank, attempt, step, steps = numbers
        return cls(
            names=names,
            what=np.array([codes[name] for name in columns[0]], np.int32),
            rank=rank,
            attempt=attempt,
            step=step,
            steps=steps,
            start_ns=start_ns,
            end_ns=end_ns,
        )

    def rows(self) -> list[Activity]:
        """The inverse of :meth:`of`."""
        columns = (self.start_ns, self.end_ns, self.rank, self.attempt, self.step, self.steps)
        numbers = zip(*(column.tolist() for column in columns), strict=True)
        names = [self.names[code] for code in self.what.tolist()]
        return [Activity(name, *row) for name, row in zip(names, numbers, strict=True)]

    def take(self, rows: Bools | Ints) -> Activities:
        return replace(self, **{name: getattr(self, name)[rows] for name in _COLUMNS})

    def is_a(self, *names: str) -> Bools:
        """(n,) whether a row has one of these names."""
        codes = [code for code, name in enumerate(self.names) if name in names]
        return np.isin(self.what, codes)

    @property
    def ranks(self) -> Ints:
        """Ranks that occur, ascending; ``[0]`` if all rows are of the run as a whole."""
        known = np.unique(self.rank[self.rank != ALL_RANKS])
        return known if len(known) else np.zeros(1, np.int64)


_COLUMNS = ("what", "rank", "attempt", "step", "steps", "start_ns", "end_ns")


def joined(parts: Sequence[Activities]) -> Activities:
    """All rows of all parts."""
    names = tuple(dict.fromkeys(name for part in parts for name in part.names))
    codes = {name: code for code, name in enumerate(names)}
    recoded = [
        replace(part, what=np.array([codes[name] for name in part.names], np.int32)[part.what])
        if len(part)
        else part
        for part in parts
    ]
    columns = {
        name: np.concatenate([getattr(part, name) for part in recoded] or [np.empty(0, np.int64)])
        for name in _COLUMNS
    }
    columns["what"] = columns["what"].astype(np.int32)
    return Activities(names=names, **columns)


def category_of(name: str) -> str:
    """The category under which an activity with any name is accounted.

    >>> category_of("eval"), category_of("cache warm-up")
    ('eval', 'custom:cache warm-up')
    """
    is_known = name in BADPUT or name == EXCLUDED or name.startswith(CUSTOM_PREFIX)
    return name if is_known else f"{CUSTOM_PREFIX}{name}"


def steps_between(steps: Sequence[Activity], low_ns: int, high_ns: int) -> tuple[int, int] | None:
    """First step, and the one after the last, in a stretch of time: those of a row are evenly
    spaced."""
    bounds = []
    for row in steps:
        low, high = max(low_ns, row.start_ns), min(high_ns, row.end_ns)
        if high > low:
            length_ns = row.end_ns - row.start_ns
            bounds.append(row.step + row.steps * (low - row.start_ns) // length_ns)
            bounds.append(row.step - (-row.steps * (high - row.start_ns) // length_ns))
    return (min(bounds), max(bounds)) if bounds else None
