"""Which step was the n-th that was observed."""

from __future__ import annotations

from bisect import bisect_right

from otel_straggler.model.observation import Ints

MOST_STRETCHES = 10_000


class StepNumbers:
    """Step numbers in the order in which they were observed, from 0 on.

    State: two numbers for each stretch of steps that follow each other, of which a whole run is
    usually one. Beyond 10,000 stretches the oldest are forgotten.

    >>> import numpy as np
    >>> steps = StepNumbers()
    >>> steps.add(np.array([7, 8, 9])), steps.add(np.array([20, 21]))
    (None, None)
    >>> len(steps), steps[0], steps[2], steps[3], steps[4]
    (5, 7, 9, 20, 21)
    """

    def __init__(self) -> None:
        self._length = 0
        self._begins: list[int] = []  # of each stretch: its place,
        self._first: list[int] = []  # and its step

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: int) -> int:
        """The step at ``place``, or the one next to it of those that are known.

        Raises:
            IndexError: nothing was observed.
        """
        place = min(max(place, self._begins[0]), self._length - 1)
        stretch = bisect_right(self._begins, place) - 1
        return self._first[stretch] + place - self._begins[stretch]

    def add(self, steps: Ints) -> None:
        """The next steps."""
        for step in steps.tolist():
            if not self._first or step != self._first[-1] + self._length - self._begins[-1]:
                self._begins.append(self._length)
                self._first.append(step)
            self._length += 1
        if len(self._first) > MOST_STRETCHES:
            del self._begins[: -MOST_STRETCHES // 2], self._first[: -MOST_STRETCHES // 2]
