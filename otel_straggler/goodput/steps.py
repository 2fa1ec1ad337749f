"""Steps of one rank: which count, and what of each is badput."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from otel_straggler.goodput.activities import NO_END, Activities
from otel_straggler.goodput.attempts import Attempts
from otel_straggler.model.observation import Bools, Floats, Ints

_NEVER: Final = np.iinfo(np.int64).max
_DEVIATIONS: Final = 3.0
_RECENT, _PAST = 100, 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Rows of steps of one rank, n in the order of time; no two overlap.

    Attributes:
        first, count: (n,) number of the first step of a row, and steps in it.
        attempt: (n,) index of the attempt.
        start_ns, end_ns: (n,) the latter is greater.
        begins: (n,) whether a row begins an attempt, or follows a step that was later than it.
        redone: (n,) steps of the row that were done again later, 0 to ``count``.
    """

    first: Ints
    count: Ints
    attempt: Ints
    start_ns: Ints
    end_ns: Ints
    begins: Bools
    redone: Ints

    def __len__(self) -> int:
        return len(self.first)


def steps_of(rows: Activities, attempts: Attempts) -> Steps:
    """Clean the steps of one rank: rows delivered twice count once, a row ends where the next one
    begins, and the last of an attempt that has no end is none unless the run ends with it."""
    rows = rows.take(np.lexsort((rows.steps, rows.step, rows.end_ns, rows.start_ns)))
    attempt = attempts.index_of(rows.attempt)
    next_ns = np.append(rows.start_ns[1:], _NEVER)
    end_ns = np.minimum(_closed(rows, attempt, attempts), next_ns)
    kept = (end_ns > rows.start_ns) & (rows.step >= 0)
    first, count, attempt = rows.step[kept], np.maximum(rows.steps[kept], 1), attempt[kept]
    begins = np.ones(len(first), bool)
    begins[1:] = (attempt[1:] != attempt[:-1]) | (first[1:] <= first[:-1])
    floor = attempts.floors()[attempt]
    if len(first):
        later = np.append(first[1:], _NEVER)
        floor = np.minimum(floor, np.minimum.accumulate(later[::-1])[::-1])
    redone = np.clip(first + count - np.maximum(floor, first), 0, count)
    return Steps(
        first=first,
        count=count,
        attempt=attempt,
        start_ns=rows.start_ns[kept],
        end_ns=end_ns[kept],
        begins=begins,
        redone=redone,
    )


def _closed(rows: Activities, attempt: Ints, attempts: Attempts) -> Ints:
    """(n,) ends of rows in the order of time; the start where a row has none and is no step."""
    if not len(rows):
        return rows.end_ns
    is_same = np.append(attempt[1:] == attempt[:-1], False)
    next_ns = np.append(rows.start_ns[1:], 0)
    is_last = attempt == len(attempts.numbers) - 1
    end_of_run = np.where(is_last, attempts.ends_ns[-1], rows.start_ns)
    return np.where(rows.end_ns != NO_END, rows.end_ns, np.where(is_same, next_ns, end_of_run))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLosses:
    """What of the own time of each row of steps is badput; (n,) nanoseconds, together at most the
    row's own time. In this order they lie at the start of the row (``starting``) and its end."""

    starting: Ints
    slow: Ints
    stragglers: Ints
    redone: Ints

    @classmethod
    def none(cls, n: int) -> StepLosses:
        zeros = np.zeros(n, np.int64)
        return cls(starting=zeros, slow=zeros, stragglers=zeros, redone=zeros)


def step_losses(
    steps: Steps, own_ns: Ints, straggler_share: Floats, reference_step_ns: float | None
) -> StepLosses:
    """Split the own time of steps.

    Args:
        own_ns: (n,) time of the row without what has a category of its own.
        straggler_share: (n,) part of it that the row waits for stragglers, 0 to 1.
        reference_step_ns: of one step; None: no step is too slow.
    """
    part = steps.redone / steps.count
    redone = np.where(steps.redone == steps.count, own_ns, np.floor(own_ns * part)).astype(np.int64)
    left = own_ns - redone
    starting = np.minimum(_starting_ns(steps, left), left)
    left = left - starting
    stragglers = np.minimum(np.floor(left * straggler_share).astype(np.int64), left)
    left = left - stragglers
    slow = np.zeros(len(steps), np.int64)
    if reference_step_ns is not None:
        wanted = np.ceil((steps.count - steps.redone) * reference_step_ns)
        slow = np.maximum(left - np.minimum(wanted, left).astype(np.int64), 0)
    return StepLosses(starting=starting, slow=slow, stragglers=stragglers, redone=redone)


def _starting_ns(steps: Steps, left_ns: Ints) -> Ints:
    """(n,) what the first step of an attempt takes longer than the mean of the others that count;
    0 where it is part of a row of several, or there are no others."""
    counted = steps.count - steps.redone
    starting = np.zeros(len(steps), np.int64)
    starts = np.flatnonzero(steps.begins)
    if not len(starts):
        return starting
    n_steps = np.add.reduceat(counted, starts)
    total_ns = np.add.reduceat(left_ns, starts)
    is_first = (steps.count[starts] == 1) & (counted[starts] == 1) & (n_steps > 1)
    others_ns = (total_ns - left_ns[starts]) / np.maximum(n_steps - 1, 1)
    more_ns = np.floor(left_ns[starts] - others_ns)
    starting[starts] = np.where(is_first, np.maximum(more_ns, 0), 0).astype(np.int64)
    return starting


def ideal_step_s(step_s: Floats) -> float:
    """The step time of a run that nothing disturbs: the mean of all up to the median and three
    median absolute deviations.

    Args:
        step_s: (n,) seconds; of any size, also far below a second.

    Returns:
        NaN without steps.

    Source: ml-goodput-measurement 0.2.3, which leaves out steps below one second.

    >>> ideal_step_s(np.array([0.2, 0.2, 0.2, 0.2, 9.0]))
    0.2
    """
    if not len(step_s):
        return float("nan")
    median = np.median(step_s)
    limit = median + _DEVIATIONS * np.median(np.abs(step_s - median))
    return float(step_s[step_s <= limit].mean())


def step_deviation_s(step_s: Floats, ideal_s: float) -> float:
    """How far the newest steps are from the ideal one, beyond what is usual in the run.

    With d = abs(step - ideal): the 90th percentile of the last 100 d, less the median of the 1,000
    before; the percentile alone if there are fewer than 1,100; the mean below 100.

    Args:
        step_s: (n,) seconds, in the order of time.

    Returns:
        Seconds; NaN without steps. Source: ml-goodput-measurement 0.2.3.

    >>> step_deviation_s(np.array([1.0, 1.2]), 1.0)
    0.1
    """
    if not len(step_s):
        return float("nan")
    deviations = np.abs(step_s - ideal_s)
    if len(step_s) < _RECENT:
        return round(float(deviations.mean()), 9)
    recent = float(np.percentile(deviations[-_RECENT:], 90))
    if len(step_s) < _RECENT + _PAST:
        return recent
    return recent - float(np.median(deviations[-_RECENT - _PAST : -_RECENT]))
