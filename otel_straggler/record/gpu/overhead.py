"""What timing costs, watched while it is on: the governor fed with steps, and a guard beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from otel_straggler.record.active import RECORDER
from otel_straggler.record.gpu.governor import ROUND_STEPS, Decision, Governor
from otel_straggler.record.gpu.reasons import Refusal
from otel_straggler.record.gpu.step_watch import StepWatch
from otel_straggler.record.gpu.watch import CpuGuard

_READER = "otel-stragg-gpu"
"""Name of the thread in C++ that reads what CUPTI gives back."""


class Overhead:
    """Watches one tier after the other.

    Args:
        target: the part of a step that timing may cost; 0: no limit.
        wake: called when steps are to be timed from now on, or no longer.

    Attributes:
        words: what was decided last.
    """

    def __init__(self, target: float, wake: Callable[[], None]) -> None:
        self._target = target
        self._governor = Governor(target)
        self._steps = StepWatch(lambda: getattr(RECORDER, "phase_changes", 0), wake)
        self._guard = CpuGuard()
        self._last_step = 0
        self.words = ""

    @property
    def wants_pause(self) -> bool:
        """Whether this step is to run without timing."""
        return self._steps.wants_pause

    def begin(self) -> None:
        """Timing has begun."""
        self._guard = CpuGuard()
        if self._target > 0 and RECORDER.on_step is None:
            RECORDER.on_step = self._steps
        self._begin_anew()

    def end(self) -> None:
        """There is no timing any more."""
        if RECORDER.on_step == self._steps:
            RECORDER.on_step = None
        self._governor.round_start = self._steps.round_start = -1
        self._steps.wants_pause = False
        self._steps.forget()

    def disturb(self) -> None:
        """Steps were not comparable for a while: what is known of this round is worth nothing."""
        self._begin_anew()

    def note_working(self, is_on: bool) -> None:
        """The timer has been switched."""
        self._steps.is_on = is_on

    def trouble(self, now_s: float) -> Refusal | None:
        """Why timing costs too much; None: it does not, or nobody can tell yet."""
        if self._target <= 0:
            return None
        decision = self._governor.take(self._steps.take())
        if decision is not None:
            return self._follow(decision)
        last_step = self._steps.last_step
        is_past = last_step > self._steps.round_start + ROUND_STEPS + 1
        if is_past or last_step < self._last_step:
            self._begin_anew()
        self._last_step = last_step
        return self._guard.trouble(now_s, cpu_of_thread_s(_READER))

    def _follow(self, decision: Decision) -> Refusal | None:
        self.words = decision.words
        if decision.verdict == "over":
            told = f"timing costs {decision.low:.2%} to {decision.high:.2%} of a step, more than"
            return Refusal("governor", f"{told} {self._target:.2%} ({decision.steps} steps)")
        self._governor.begin_later(self._steps.last_step, self._governor.typical_step_s())
        self._steps.round_start = self._governor.round_start
        self._steps.forget()
        return None

    def _begin_anew(self) -> None:
        self._steps.forget()
        self._governor.begin(self._steps.last_step or RECORDER.progress().step or 0)
        self._steps.round_start = self._governor.round_start


def cpu_of_thread_s(name: str) -> float | None:
    """Processor time of a thread of this process so far; None: it is not to be found."""
    try:
        for task in Path("/proc/self/task").iterdir():
            if (task / "comm").read_text().strip() == name:
                fields = (task / "stat").read_text().rpartition(")")[2].split()
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):  # it has ended while we looked
        return None
    return None
