"""The cost of timing, watched while it is on: the governor fed with steps, and a CPU guard."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import NamedTuple

from otel_straggler.client.gpu.governor import ROUND_STEPS, Decision, Governor, Sample, is_on_at
from otel_straggler.client.gpu.reasons import Refusal
from otel_straggler.client.gpu.sampling import SamplingInterval
from otel_straggler.client.recorder import Context
from otel_straggler.client.recording import RECORDER

_READER = "otel-stragg-gpu"
"""Name of the thread in C++ that reads what CUPTI gives back."""


class Overhead:
    """Watches one tier after the other.

    Attributes:
        text: the last decision of the governor.
        sampling: how many steps share one with kernel records.
    """

    def __init__(self, target: float, wake: Callable[[], None]) -> None:
        self._target = target
        self._governor = Governor(target)
        self._steps = StepWatch(lambda: getattr(RECORDER, "phase_changes", 0), wake)
        self._guard = CpuGuard()
        self._last_step = 0
        self._is_watching = False
        self.text = ""
        self.sampling = SamplingInterval(target)

    @property
    def wants_pause(self) -> bool:
        return self._steps.wants_pause

    def begin(self) -> None:
        """A tier has begun that may cost something."""
        self._guard = CpuGuard()
        self._is_watching = True
        if self._target > 0 and RECORDER.on_step is None:
            RECORDER.on_step = self._steps
        self._restart()

    def end(self) -> None:
        self._is_watching = False
        if RECORDER.on_step == self._steps:
            RECORDER.on_step = None
        self._governor.round_start = self._steps.round_start = -1
        self._steps.wants_pause = False
        self._steps.reset()

    def watch_samples(self, interval: int) -> None:
        """One step in so many has kernel records from now on; 0: unknown which."""
        self._steps.interval = interval

    def disturb(self) -> None:
        """Steps were not comparable for a while: begin the round again."""
        self._restart()

    def mark_working(self, is_on: bool) -> None:
        self._steps.is_on = is_on

    def trouble(self, now_s: float) -> Refusal | None:
        """Why timing costs too much; None: it does not, or it is not known yet."""
        if self._target <= 0 or not self._is_watching:
            return None
        samples = self._steps.drain()
        self.sampling.observe(samples)
        decision = self._governor.observe(samples)
        if decision is not None:
            return self._follow(decision)
        last_step = self._steps.last_step
        is_past = last_step > self._steps.round_start + ROUND_STEPS + 1
        if is_past or last_step < self._last_step:
            self._restart()
        self._last_step = last_step
        return self._guard.trouble(now_s, cpu_of_thread_s(_READER))

    def _follow(self, decision: Decision) -> Refusal | None:
        self.text = decision.text
        if decision.verdict == "over":
            cost = f"timing costs {decision.low:.2%} to {decision.high:.2%} of a step, more than"
            return Refusal("governor", f"{cost} {self._target:.2%} ({decision.steps} steps)")
        self._governor.begin_later(self._steps.last_step, self._governor.typical_step_s())
        self._steps.round_start = self._governor.round_start
        self._steps.reset()
        return None

    def _restart(self) -> None:
        self._steps.reset()
        self._governor.begin(self._steps.last_step or RECORDER.progress().step or 0)
        self._steps.round_start = self._governor.round_start


def cpu_of_thread_s(name: str) -> float | None:
    """Processor time of a thread of this process so far; None: not found."""
    try:
        for task in Path("/proc/self/task").iterdir():
            if (task / "comm").read_text().strip() == name:
                fields = (task / "stat").read_text().rpartition(")")[2].split()
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):  # it has ended while we looked
        return None
    return None


_MAX_NOTES = 4 * ROUND_STEPS


class _Note(NamedTuple):
    step: int
    at_ns: int
    is_on: bool
    phases: int  # how often phases have changed so far; -1: in one
    interval: int


class StepWatch:
    """Watches steps as the recorder begins them.

    Attributes:
        round_start: of the governor.
        is_on: whether the timer works at this moment.
        wants_pause: whether this step is to run without it.
        interval: one step in so many has kernel records; 0 or 1: none, or each.
    """

    def __init__(self, phases: Callable[[], int], wake: Callable[[], None]) -> None:
        self._phases = phases
        self._wake = wake
        self.round_start = -1
        self.is_on = False
        self.wants_pause = False
        self.interval = 0
        self.last_step = 0
        self._notes: deque[_Note] = deque(maxlen=_MAX_NOTES)
        self._open: _Note | None = None

    def __call__(self, context: Context) -> None:
        """A step begins, on the training thread."""
        step = context.step or 0
        position = step - self.round_start
        self.last_step = step
        is_of_round = self.round_start >= 0 and 0 <= position <= ROUND_STEPS
        # Of a step with kernel records, and those before and after it, beginning and end.
        is_near_sample = self.interval > 1 and (step + 1) % self.interval <= 3
        if is_of_round or is_near_sample:
            phases = -1 if context.phase else self._phases()
            self._notes.append(_Note(step, perf_counter_ns(), self.is_on, phases, self.interval))
        if not is_of_round:
            if self.wants_pause:
                self._want_pause(False)
            return
        wants_pause = position < ROUND_STEPS and not is_on_at(position)
        if wants_pause != self.wants_pause:
            self._want_pause(wants_pause)

    def drain(self) -> list[Sample]:
        """Steps that have ended since the last call; duration 0 where a phase was declared or the
        timer was switched."""
        samples = []
        while self._notes:
            note, before = self._notes.popleft(), self._open
            self._open = note
            if before is None:
                continue
            is_next = note.step == before.step + 1
            is_plain = is_next and note.is_on == before.is_on
            is_plain = is_plain and note.phases == before.phases >= 0
            duration_s = (note.at_ns - before.at_ns) / 1e9 if is_plain else 0.0  # it has passed
            is_sampled = before.interval > 1 and before.step % before.interval == 0
            samples.append(Sample(before.step, duration_s, before.is_on, is_sampled))
        return samples

    def reset(self) -> None:
        self._notes.clear()
        self._open = None

    def _want_pause(self, wants_pause: bool) -> None:
        self.wants_pause = wants_pause
        self._wake()


MAX_CPU = 0.05
"""Of one core, for the thread that reads what CUPTI gives back; 50,000 kernels/s take 0.004."""
_CHECK_S = 60.0


@dataclass(slots=True)
class CpuGuard:
    at_s: float = -1.0
    cpu_s: float = 0.0

    def trouble(self, now_s: float, cpu_s: float | None) -> Refusal | None:
        """Checks once a minute. cpu_s: of the thread so far; None: not known."""
        if cpu_s is None:
            self.at_s = -1.0
            return None
        if cpu_s < self.cpu_s or self.at_s < 0:
            self.at_s, self.cpu_s = now_s, cpu_s
            return None
        if now_s - self.at_s < _CHECK_S:
            return None
        share = (cpu_s - self.cpu_s) / (now_s - self.at_s)
        self.at_s, self.cpu_s = now_s, cpu_s
        if share <= MAX_CPU:
            return None
        cost = f"reading kernel records took {share:.0%} of a core, more than {MAX_CPU:.0%}"
        return Refusal("governor", cost)
