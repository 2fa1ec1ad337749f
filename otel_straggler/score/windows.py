"""Which steps are scored together, and when a window can be closed.

A step belongs to the window that was open when the first of its rows was seen, on any rank; so
ranks that run ahead or lag cannot split a step. A window takes so many steps, or fewer if they are
long: the ranks' clocks say when it is full, so a file and a live run have the same windows. Times
without a step are handled as "steps" of their own: the number of the interval they start in, one
interval a window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from otel_straggler.model.observation import NO_STEP, ObservationBatch

REMEMBERED_CLOSED_WINDOWS = 256
LEAST_STEPS = 5
"""Of a window, however long they are: a median of fewer says little, and is no rank's own best."""


@dataclass(slots=True)
class OpenWindow:
    """A window that still takes rows.

    ``began_ns`` is the start of its first row, by the clock of a rank; ``opened_at_ns`` when that
    row came.
    """

    number: int
    began_ns: int
    opened_at_ns: int
    steps: list[int] = field(default_factory=list)
    last_step: int = NO_STEP
    passed_at_ns: int | None = None
    rows: list[ObservationBatch] = field(default_factory=list)


class Windows:
    """The windows of one stream, in the order in which they were opened.

    Args:
        steps_per_window: None puts all steps into one.
        longest_s: a window that began so long before a new step takes no further ones, if it has
            :data:`LEAST_STEPS`.
    """

    def __init__(self, steps_per_window: int | None, longest_s: float = math.inf) -> None:
        self._steps_per_window = steps_per_window
        self._longest_s = longest_s
        self._window_of_step: dict[int, int] = {}
        self._closed_steps: list[list[int]] = []
        self._oldest_known_step: int | None = None
        self._opened = 0
        self.open: dict[int, OpenWindow] = {}
        self.n_closed = 0

    def number_of(self, step: int, start_ns: int, now_ns: int) -> int:
        """Number of the step's window, opened if it is new; -1 if it is closed (late rows).

        Args:
            start_ns: of the step, or of any section of it.
        """
        number = self._window_of_step.get(step)
        if number is not None:
            return number if number in self.open else -1
        if self.is_late(step):
            return -1
        window = self._newest_with_room(start_ns) or self._open_one(start_ns, now_ns)
        window.steps.append(step)
        window.last_step = max(window.last_step, step)
        self._window_of_step[step] = window.number
        return window.number

    def is_late(self, step: int) -> bool:
        """Whether the step lies in a closed window."""
        known = self._window_of_step.get(step)
        if known is None:
            return self._oldest_known_step is not None and step < self._oldest_known_step
        return known not in self.open

    def close(self, number: int) -> OpenWindow:
        """Take the window out; later rows of its steps are late."""
        self.n_closed += 1
        window = self.open.pop(number)
        self._closed_steps.append(window.steps)
        if len(self._closed_steps) > REMEMBERED_CLOSED_WINDOWS:
            for step in self._closed_steps.pop(0):
                del self._window_of_step[step]
            self._oldest_known_step = min(self._window_of_step, default=None)
        return window

    def _newest_with_room(self, start_ns: int) -> OpenWindow | None:
        newest = self.open.get(self._opened - 1)
        if newest is None or self._steps_per_window is None:
            return newest
        is_long = start_ns - newest.began_ns >= self._longest_s * 1e9
        most = min(LEAST_STEPS, self._steps_per_window) if is_long else self._steps_per_window
        return newest if len(newest.steps) < most else None

    def _open_one(self, start_ns: int, now_ns: int) -> OpenWindow:
        window = OpenWindow(self._opened, start_ns, now_ns)
        self.open[window.number] = window
        self._opened += 1
        return window
