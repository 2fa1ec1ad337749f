"""Attempts of a run: where its processes live, and what the time between steps is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from otel_straggler.goodput.activities import ALL_RANKS, ATTEMPT, NO_END, RUN, STEP, Activities
from otel_straggler.model.observation import Bools, Ints
from otel_straggler.semconv import EXCLUDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """A attempts of a run in the order of their starts, over all ranks; no two overlap.

    Attributes:
        start_ns, end_ns: of the run; the latter is greater.
        numbers: (A,) restart counts.
        starts_ns, ends_ns: (A,) of the attempts.
        first_steps: (A,) smallest step of any rank, or the largest number there is without steps.
    """

    start_ns: int
    end_ns: int
    numbers: Ints
    starts_ns: Ints
    ends_ns: Ints
    first_steps: Ints

    def index_of(self, numbers: Ints) -> Ints:
        """(n,) index of attempts by number; every number must be one."""
        order = np.argsort(self.numbers, kind="stable")
        found: Ints = order[np.searchsorted(self.numbers[order], numbers)]
        return found

    def floors(self) -> Ints:
        """(A,) the smallest step of any later attempt: what it has at or above is done again."""
        later = np.concatenate([self.first_steps[1:], [_NEVER]])
        floors: Ints = np.minimum.accumulate(later[::-1])[::-1]
        return floors


_NEVER = np.iinfo(np.int64).max


def known_end_ns(activities: Activities) -> Ints:
    """(n,) ends; the start where the end is not known."""
    has_end = activities.end_ns != NO_END
    return np.where(
        has_end, np.maximum(activities.end_ns, activities.start_ns), activities.start_ns
    )


def attempts_of(activities: Activities, is_step: Bools) -> Attempts | None:
    """Attempts and extent of a run; None if it has no extent.

    Args:
        is_step: (n,) whether a row is a step.
    """
    ends_ns = known_end_ns(activities)
    counts = ~activities.is_a(EXCLUDED)
    if not counts.any():
        return None
    start_ns, end_ns = int(activities.start_ns[counts].min()), int(ends_ns[counts].max())
    if end_ns <= start_ns:
        return None
    lives = counts & ~activities.is_a(RUN, "scheduling")
    lives &= (activities.rank != ALL_RANKS) | activities.is_a(ATTEMPT, STEP)
    numbers, index = np.unique(activities.attempt[lives], return_inverse=True)
    starts = np.full(len(numbers), _NEVER)
    stops = np.full(len(numbers), np.iinfo(np.int64).min)
    first_steps = np.full(len(numbers), _NEVER)
    np.minimum.at(starts, index, activities.start_ns[lives])
    np.maximum.at(stops, index, ends_ns[lives])
    steps = np.where(is_step & (activities.step >= 0), activities.step, _NEVER)[lives]
    np.minimum.at(first_steps, index, steps)
    order = np.lexsort((numbers, starts))
    starts, stops = starts[order], stops[order]
    if len(order):
        stops = np.minimum(stops, np.append(starts[1:], end_ns))
    return Attempts(
        start_ns=start_ns,
        end_ns=end_ns,
        numbers=numbers[order],
        starts_ns=starts,
        ends_ns=stops,
        first_steps=first_steps[order],
    )


def time_without_activity(
    attempts: Attempts, is_in: Bools, step_starts_ns: Ints, step_ends_ns: Ints
) -> Iterator[tuple[str, int, int]]:
    """Category, start and end of what the time of a rank is where it reports nothing.

    Args:
        is_in: (A,) whether the rank is in an attempt.
        step_starts_ns, step_ends_ns: (A,) start of its first step in each, and end of its last; the
            start of the attempt where it has none.
    """
    if not len(attempts.numbers):
        yield "other", attempts.start_ns, attempts.end_ns
        return
    yield "scheduling", attempts.start_ns, int(attempts.starts_ns[0])
    for at in range(len(attempts.numbers)):
        start_ns, end_ns = int(attempts.starts_ns[at]), int(attempts.ends_ns[at])
        if not is_in[at]:
            yield "replica_down", start_ns, end_ns
            continue
        starting = "reinitialization" if at else "start_up"
        is_last = at == len(attempts.numbers) - 1
        first_ns, last_ns = int(step_starts_ns[at]), int(step_ends_ns[at])
        if last_ns <= start_ns:
            yield starting, start_ns, end_ns
            continue
        yield starting, start_ns, first_ns
        yield "other", first_ns, last_ns
        yield "shutdown" if is_last else "hang", last_ns, end_ns
    yield "shutdown", int(attempts.ends_ns[-1]), attempts.end_ns
