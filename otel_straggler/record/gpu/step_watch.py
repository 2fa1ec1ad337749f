"""How long steps take, seen at their beginnings, and whether they are to be timed.

On the training thread a step costs a comparison, and during a round of the governor a note.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import NamedTuple

from otel_straggler.record.gpu.governor import ROUND_STEPS, Sample, is_on_at
from otel_straggler.record.recorder import Context

_MOST_NOTES = 4 * ROUND_STEPS


class _Note(NamedTuple):
    """A step has begun."""

    step: int
    at_ns: int
    is_on: bool
    phases: int  # how often phases have changed so far; -1: in one


class StepWatch:
    """Hears of each step from the recorder.

    Args:
        phases: how often phases have changed so far.
        wake: called when steps are to be timed from now on, or no longer.

    Attributes:
        round_start: of the governor.
        is_on: whether the timer works at this moment; whoever switches it says so here.
        wants_pause: whether this step is to run without it.
    """

    def __init__(self, phases: Callable[[], int], wake: Callable[[], None]) -> None:
        self._phases = phases
        self._wake = wake
        self.round_start = -1
        self.is_on = False
        self.wants_pause = False
        self.last_step = 0
        self._notes: deque[_Note] = deque(maxlen=_MOST_NOTES)
        self._open: _Note | None = None

    def __call__(self, context: Context) -> None:
        """A step begins, on the training thread."""
        step = context.step or 0
        position = step - self.round_start
        self.last_step = step
        if self.round_start < 0 or not 0 <= position <= ROUND_STEPS:
            if self.wants_pause:
                self._want_pause(False)
            return
        phases = -1 if context.phase else self._phases()
        self._notes.append(_Note(step, perf_counter_ns(), self.is_on, phases))
        wants_pause = position < ROUND_STEPS and not is_on_at(position)
        if wants_pause != self.wants_pause:
            self._want_pause(wants_pause)

    def take(self) -> list[Sample]:
        """Steps that have ended since the last time, without those in which a phase was declared
        or the timer was switched."""
        samples = []
        while self._notes:
            note, before = self._notes.popleft(), self._open
            self._open = note
            if before is not None and _is_plain(before, note):
                duration_s = (note.at_ns - before.at_ns) / 1e9
                samples.append(Sample(before.step, duration_s, before.is_on))
            elif before is not None:
                samples.append(Sample(before.step, 0.0, before.is_on))  # it has passed
        return samples

    def forget(self) -> None:
        """What is known of the round is worth nothing."""
        self._notes.clear()
        self._open = None

    def _want_pause(self, wants_pause: bool) -> None:
        self.wants_pause = wants_pause
        self._wake()


def _is_plain(before: _Note, note: _Note) -> bool:
    is_next = note.step == before.step + 1
    return is_next and note.is_on == before.is_on and note.phases == before.phases >= 0
