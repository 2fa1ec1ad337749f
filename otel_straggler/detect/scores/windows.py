"""Which steps are scored together, and when a window can be closed.

A step belongs to one window, whichever rank sends it first; so ranks that run ahead or lag cannot
split a step. A window takes a number of steps, or fewer if they are long by the ranks' clocks, so a
file and a live run have the same windows. Steps that were skipped (a queue delivers them later) get
windows of their own, cut where they would have been cut in order; windows close in the order of
their steps, and what comes for a closed one is late. Times without a step belong to the interval
they start in, one interval a window.

A window also closes when for some time rows have come for later ones only: one far step among its
own, which no rank passes, does not keep it open.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from otel_straggler.model.observation import (
    NO_STEP,
    ObservationBatch,
    restored_rows,
    rows_state,
)

REMEMBERED_CLOSED_WINDOWS = 256
MIN_STEPS = 5
"""Of a window, however long they are: a median of fewer says little."""
MAX_SKIPPED_WINDOWS = 32
"""Open windows that were opened by a jump: of steps in random order, later ones share windows."""
MAX_AWAITED_STEPS = 10_000
"""Of a gap: a job that goes on elsewhere in its data is not waited for."""
_RECENT_STEPS = 12
"""New steps that say how far steps are apart."""


@dataclass(slots=True)
class OpenWindow:
    """A window that takes rows; ``began_ns`` by the rank's clock, ``opened_at_ns`` and
    ``last_row_at_ns`` on arrival.

    Attributes:
        first: the lowest step it may take.
        limit: the lowest step of its successor; None while the distance of steps is unknown.
        is_full: takes no step behind its last one: it has enough, or they are long.
        follows_jump: steps between it and the window before it have not come.
        senders: the ranks that have sent a step, by step.
    """

    number: int
    began_ns: int
    opened_at_ns: int
    first: int = NO_STEP
    limit: int | None = None
    is_full: bool = False
    follows_jump: bool = False
    steps: list[int] = field(default_factory=list)
    last_step: int = NO_STEP
    passed_at_ns: int | None = None
    last_row_at_ns: int = 0
    n_rows: int = 0
    rows: list[ObservationBatch] = field(default_factory=list)
    senders: dict[int, set[int]] = field(default_factory=dict)

    def add(self, rows: ObservationBatch, now_ns: int) -> None:
        self.rows.append(rows)
        self.n_rows += len(rows)
        self.last_row_at_ns = max(self.last_row_at_ns, now_ns)


def typical_gap(steps: Iterable[int]) -> tuple[int, bool]:
    """How far steps are apart, and whether regularly: the median of the gaps if it divides all of
    them, else the longest gap; 0 for fewer than three steps.

    >>> typical_gap([76, 77, 199, 78]), typical_gap([10, 20, 40]), typical_gap([3, 17, 22])
    ((1, True), (10, True), (14, False))
    """
    ordered = sorted(set(steps))
    gaps = sorted(later - earlier for earlier, later in itertools.pairwise(ordered))
    if len(gaps) < 2:
        return 0, False
    median = gaps[(len(gaps) - 1) // 2]
    is_regular = all(gap % median == 0 for gap in gaps)
    return (median if is_regular else gaps[-1]), is_regular


class WindowTrack:
    """One division of a stream into windows, in the order in which they were opened.

    Args:
        newest: progress by rank; tracks that count the same may share it.
        steps_per_window: None puts all steps into one.
        longest_s: after so long a window with :data:`MIN_STEPS` takes no further steps.
        interval_s: length of an interval that stands for a step; 0: by steps.
    """

    def __init__(
        self,
        newest: dict[int, int],
        steps_per_window: int | None = 1,
        longest_s: float = math.inf,
        interval_s: float = 0.0,
    ) -> None:
        self.newest = newest
        self.interval_ns = int(interval_s * 1e9)
        self._steps_per_window = steps_per_window
        self._longest_s = longest_s
        self._window_of_step: dict[int, int] = {}
        self._closed_steps: list[list[int]] = []
        self._oldest_known_step: int | None = None
        self._opened = 0
        self._order: list[tuple[int, int]] = []
        self._recent: deque[int] = deque(maxlen=_RECENT_STEPS)
        self._furthest = NO_STEP
        self._n_jumps = 0
        self._closed_through: int | None = None
        self.gap, self.is_regular = 0, False
        self._in_a_row = 0
        self.open: dict[int, OpenWindow] = {}
        self.n_closed = self.n_cut_again = 0

    def numbers_of(self, steps: Sequence[tuple[int, int]], now_ns: int) -> dict[int, int]:
        """:meth:`number_of` by step, for steps and their starts."""
        before = self.n_cut_again
        numbers = {step: self.number_of(step, start_ns, now_ns) for step, start_ns in steps}
        if self.n_cut_again > before:
            of_step = self._window_of_step
            numbers = {step: -1 if n < 0 else of_step[step] for step, n in numbers.items()}
        return numbers

    def number_of(self, step: int, start_ns: int, now_ns: int) -> int:
        """Number of the step's window, opened if it is new; -1 if it is closed (late rows).
        ``start_ns`` is that of any section of the step."""
        number = self._window_of_step.get(step)
        if number is not None:
            return number if number in self.open else -1
        if self._oldest_known_step is not None and step < self._oldest_known_step:
            return -1
        if self._closed_through is not None and step <= self._closed_through:
            return -1
        self._learn_gap(step)
        window = self._window_with_room(step, start_ns) or self._opened_for(step, start_ns, now_ns)
        window.steps.append(step)
        window.last_step = max(window.last_step, step)
        self._window_of_step[step] = window.number
        return window.number

    def in_order(self) -> list[OpenWindow]:
        """Open windows in the order in which they close: by their steps, intervals by arrival."""
        return [self.open[number] for _, number in self._order]

    def close(self, number: int) -> OpenWindow:
        """Remove the window; later rows of its steps are late."""
        self.n_closed += 1
        window = self.open.pop(number)
        self._n_jumps -= window.follows_jump
        self._order.remove((self._rank_of(window), number))
        if not self.interval_ns and self._was_reached(window):
            self._closed_through = max(window.last_step, self._closed_through or window.last_step)
        self._closed_steps.append(window.steps)
        if len(self._closed_steps) > REMEMBERED_CLOSED_WINDOWS:
            for step in self._closed_steps.pop(0):
                del self._window_of_step[step]
            self._oldest_known_step = min(self._window_of_step, default=None)
        return window

    def is_last(self, window: OpenWindow) -> bool:
        """Whether no open window is behind it."""
        return self._order[-1][1] == window.number

    def _was_reached(self, window: OpenWindow) -> bool:
        """By at least half of the ranks: one that counts in another unit makes nobody late."""
        reached = sum(step >= window.first for step in self.newest.values())
        return 2 * reached >= len(self.newest)

    def lacks_steps(self, window: OpenWindow) -> bool:
        """Whether steps are missing before, in, or right behind the window, the first in order: a
        step beyond them has come, and steps come at regular distances."""
        if self.interval_ns or not self.is_regular or self._steps_per_window is None:
            return False
        through = min(window.steps) if self._closed_through is None else self._closed_through
        expected = (window.last_step - through) // self.gap + (self._closed_through is None)
        if (missing := expected - len(window.steps)) > 0:
            return missing <= MAX_AWAITED_STEPS
        if window.is_full or len(self._order) < 2:
            return False
        successor = self.open[self._order[1][1]]
        missing = (min(successor.steps) - window.last_step) // self.gap - 1
        return 0 < missing <= MAX_AWAITED_STEPS

    def _learn_gap(self, step: int) -> None:
        is_next = self.gap > 0 and len(self._recent) > 0 and step == self._recent[-1] + self.gap
        self._recent.append(step)
        self._in_a_row = self._in_a_row + 1 if is_next or self._is_settled else 0
        if is_next and self.is_regular:
            return
        before = self.gap if self.is_regular else 0
        self.gap, self.is_regular = typical_gap(self._recent)
        is_better_known = self.is_regular and self.gap != before and not self._is_settled
        if is_better_known and self._steps_per_window is not None:
            self._cut_again()

    @property
    def _is_settled(self) -> bool:
        """Whether so many steps have come in a row that another distance is the job's change."""
        return self._in_a_row >= _RECENT_STEPS

    def _cut_again(self) -> None:
        """Divide open windows that took steps too far apart: the distance of steps was unknown, as
        when the first to arrive are those that a queue delivers in any order."""
        for window in [] if self.interval_ns else list(self.open.values()):
            begin = min(window.steps)
            if window.last_step < begin + self._width:
                continue
            window.limit = begin + self._width
            self.n_cut_again += 1
            by_window: dict[int, list[int]] = {}
            for step in sorted(window.steps):
                by_window.setdefault((step - begin) // self._width, []).append(step)
            for number, steps in list(by_window.items())[1:]:
                self._move(window, begin + number * self._width, steps)

    def _move(self, window: OpenWindow, first: int, steps: list[int]) -> None:
        """Give steps of an open window to a new one behind it."""
        new = OpenWindow(
            self._opened,
            window.began_ns,
            window.opened_at_ns,
            first,
            first + self._width,
            steps=steps,
            last_step=steps[-1],
            passed_at_ns=window.passed_at_ns if self._furthest > steps[-1] else None,
            senders={step: window.senders.pop(step) for step in steps if step in window.senders},
        )
        self._opened += 1
        all_rows, window.rows, window.n_rows = window.rows, [], 0
        for rows in all_rows:
            is_moved = np.isin(rows.step, steps)
            for part, to in ((rows.take(~is_moved), window), (rows.take(is_moved), new)):
                if len(part):
                    to.add(part, window.last_row_at_ns)
        if new.rows:
            new.began_ns = min(int(rows.start_ns.min()) for rows in new.rows)
        moved = set(steps)
        window.steps = [step for step in window.steps if step not in moved]
        window.last_step = max(window.steps, default=NO_STEP)
        self._window_of_step.update(dict.fromkeys(steps, new.number))
        self.open[new.number] = new
        insort(self._order, (new.first, new.number))

    def _rank_of(self, window: OpenWindow) -> int:
        return window.number if self.interval_ns else window.first

    def _neighbors(self, step: int) -> tuple[OpenWindow | None, OpenWindow | None]:
        """The open windows that begin at or before the step, and behind it."""
        at = bisect_right(self._order, (step, self._opened))
        before = self.open[self._order[at - 1][1]] if at else None
        after = self.open[self._order[at][1]] if at < len(self._order) else None
        return before, after

    def _window_with_room(self, step: int, start_ns: int) -> OpenWindow | None:
        if self.interval_ns:
            return None
        before, after = self._neighbors(step)
        if self._steps_per_window is None:
            return before or after
        if before is None:
            return after if after is not None and self._starts_earlier(after, step) else None
        if step <= before.last_step:
            return before
        if before.limit is None and self.gap:
            before.limit = before.first + self._width
        is_long = start_ns - before.began_ns >= self._longest_s * 1e9
        maximum = min(MIN_STEPS, self._steps_per_window) if is_long else self._steps_per_window
        before.is_full = len(before.steps) >= maximum
        has_room = not before.is_full and (before.limit is None or step < before.limit)
        return before if has_room else None

    @property
    def _width(self) -> int:
        """Of a window, in steps; 0 if unknown."""
        return self.gap * (self._steps_per_window or 0)

    def _starts_earlier(self, window: OpenWindow, step: int) -> bool:
        """Whether the first window of all begins with an earlier step: ranks report out of step."""
        is_first = self.n_closed == 0 and self._order[0][1] == window.number
        if (
            not is_first
            or window.is_full
            or self._opened > 1
            or window.last_step - step >= max(self._width, self._steps_per_window or 0)
        ):
            return False
        self._order[0] = (step, window.number)
        window.first, window.limit = step, None
        return True

    def _opened_for(self, step: int, start_ns: int, now_ns: int) -> OpenWindow:
        before, after = (None, None) if self.interval_ns else self._neighbors(step)
        first = self._first_step_of(step, before, after)
        is_jump = after is not None or (
            before is not None and not before.is_full and step > before.last_step + self.gap
        )
        if is_jump and self._n_jumps >= MAX_SKIPPED_WINDOWS:
            newest = self.open[max(self.open)]
            if len(newest.steps) < (self._steps_per_window or 0):
                return newest
        self._n_jumps += is_jump
        window = OpenWindow(self._opened, start_ns, now_ns, first, follows_jump=is_jump)
        window.last_row_at_ns = now_ns
        window.limit = first + self._width if self._width else None
        if self._furthest > step and not self.interval_ns:
            window.passed_at_ns = now_ns
        self.open[window.number] = window
        self._opened += 1
        insort(self._order, (self._rank_of(window), window.number))
        return window

    def _first_step_of(self, step: int, before: OpenWindow | None, after: OpenWindow | None) -> int:
        """Where the step's new window begins: cut as if no step had been skipped."""
        width = self._width
        if not width or not self.is_regular:
            return step
        if before is not None:
            begin = step if before.limit is None or step < before.limit else before.limit
            return begin + (step - begin) // width * width
        if after is None:
            return step
        first = after.first - -(-(after.first - step) // width) * width
        return first if self._closed_through is None else max(first, self._closed_through + 1)

    def advance(self, newest: Mapping[int, int], now_ns: int) -> None:
        """Record the progress of ranks, and which windows somebody has passed."""
        for rank, step in newest.items():
            if step > self.newest.get(rank, NO_STEP):
                self.newest[rank] = step
        self._furthest = max(self._furthest, *newest.values(), NO_STEP)
        for window in self.open.values():
            if window.passed_at_ns is None and self._furthest > window.last_step:
                window.passed_at_ns = now_ns

    def pass_all(self, now_ns: int) -> None:
        """Somebody has ended, and so has passed every window."""
        for window in self.open.values():
            if window.passed_at_ns is None:
                window.passed_at_ns = now_ns

    def close_all(self) -> Iterator[OpenWindow]:
        for window in self.in_order():
            yield self.close(window.number)

    def state(self) -> dict[str, Any]:
        """State for a restart: JSON types and arrays. Cost: a copy of the rows of open windows."""
        closed = [step for steps in self._closed_steps for step in steps]
        return {
            "steps": np.array(list(self._window_of_step), np.int64),
            "numbers": np.array(list(self._window_of_step.values()), np.int64),
            "closed_steps": np.array(closed, np.int64),
            "closed_sizes": [len(steps) for steps in self._closed_steps],
            "oldest_known_step": self._oldest_known_step,
            "opened": self._opened,
            "n_closed": self.n_closed,
            "closed_through": self._closed_through,
            "recent": list(self._recent),
            "in_a_row": self._in_a_row,
            "furthest": self._furthest,
            "newest": [[rank, step] for rank, step in self.newest.items()],
            "open": [_window_state(window) for window in self.open.values()],
        }

    def restore(self, state: Mapping[str, Any], now_ns: int) -> None:
        """Go on from :meth:`state`; windows wait from ``now_ns`` on."""
        steps, numbers = state["steps"].tolist(), state["numbers"].tolist()
        self._window_of_step = dict(zip(steps, numbers, strict=True))
        closed = iter(state["closed_steps"].tolist())
        sizes = state["closed_sizes"]
        self._closed_steps = [list(itertools.islice(closed, size)) for size in sizes]
        self._oldest_known_step = state["oldest_known_step"]
        self._opened, self.n_closed = state["opened"], state["n_closed"]
        self._closed_through, self._furthest = state["closed_through"], state["furthest"]
        self._recent.extend(state["recent"])
        self._in_a_row = state["in_a_row"]
        self.gap, self.is_regular = typical_gap(self._recent)
        self.newest.update((rank, step) for rank, step in state["newest"])
        windows = (_restored_window(each, now_ns) for each in state["open"])
        self.open = {window.number: window for window in windows}
        self._order = sorted((self._rank_of(w), w.number) for w in self.open.values())
        self._n_jumps = sum(window.follows_jump for window in self.open.values())


def _window_state(window: OpenWindow) -> dict[str, Any]:
    return {
        "number": window.number,
        "began_ns": window.began_ns,
        "steps": np.array(window.steps, np.int64),
        "first": window.first,
        "limit": window.limit,
        "is_full": window.is_full,
        "follows_jump": window.follows_jump,
        "senders": [[step, sorted(ranks)] for step, ranks in window.senders.items()],
        "is_passed": window.passed_at_ns is not None,
        "rows": rows_state(window.rows),
    }


def _restored_window(state: Mapping[str, Any], now_ns: int) -> OpenWindow:
    steps, rows = state["steps"].tolist(), restored_rows(state["rows"])
    return OpenWindow(
        number=state["number"],
        began_ns=state["began_ns"],
        opened_at_ns=now_ns,
        first=state["first"],
        limit=state["limit"],
        is_full=state["is_full"],
        follows_jump=state["follows_jump"],
        senders={step: set(ranks) for step, ranks in state["senders"]},
        steps=steps,
        last_step=max(steps, default=NO_STEP),
        passed_at_ns=now_ns if state["is_passed"] else None,
        last_row_at_ns=now_ns,
        n_rows=sum(map(len, rows)),
        rows=rows,
    )


def are_in_order(windows: Sequence[OpenWindow]) -> bool:
    """Whether each window's steps all lie behind those of the one before, and came so."""
    if any(window.follows_jump for window in windows):
        return False
    pairs = itertools.pairwise(windows)
    return all(earlier.last_step < min(later.steps) for earlier, later in pairs)
