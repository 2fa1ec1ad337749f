"""Which steps may be compared."""

from __future__ import annotations

import pytest

from otel_straggler.client.gpu import overhead
from otel_straggler.client.gpu.governor import BLOCK_STEPS, ROUND_STEPS
from otel_straggler.client.gpu.overhead import StepWatch
from otel_straggler.client.recorder import Context, RecordingSession

FIRST = ROUND_STEPS


class Steps:
    """A watch in a round; each step begins a second after the one before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        self.phases = 0
        self.woken = 0
        monkeypatch.setattr(overhead, "perf_counter_ns", lambda: self.now_ns)
        self.watch = StepWatch(lambda: self.phases, self.wake)
        self.watch.round_start = FIRST
        self.watch.is_on = True

    def wake(self) -> None:
        self.woken += 1

    def begin(self, step: int, phase: str = "") -> None:
        self.watch(Context(RecordingSession("s", 1), step, step + 1, phase))
        self.now_ns += 1_000_000_000

    def compared(self) -> list[int]:
        """Steps that count, since the last time."""
        return [s.step - FIRST for s in self.watch.drain() if s.duration_s > 0]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


def test_a_step_lasts_until_the_next_begins(steps: Steps) -> None:
    """The newest is not over yet; it counts the next time."""
    for n in range(3):
        steps.begin(FIRST + n)
    assert [(s.duration_s, s.is_on) for s in steps.watch.drain()] == [(1.0, True)] * 2
    steps.begin(FIRST + 3)
    assert steps.compared() == [2]


def test_a_step_with_a_phase_does_not_count(steps: Steps) -> None:
    """Whether it was declared within the step, or around it."""
    steps.begin(FIRST)
    steps.phases += 2  # begun and ended
    steps.begin(FIRST + 1)
    steps.begin(FIRST + 2, "eval")
    steps.begin(FIRST + 3)
    steps.begin(FIRST + 4)
    assert steps.compared() == [3]


def test_a_step_in_which_the_timer_was_switched_does_not_count(steps: Steps) -> None:
    """It is neither with it nor without."""
    steps.begin(FIRST)
    steps.watch.is_on = False
    steps.begin(FIRST + 1)
    steps.begin(FIRST + 2)
    assert steps.compared() == [1]


def test_steps_that_were_left_out_do_not_count(steps: Steps) -> None:
    """Numbers that jump: nobody knows what was between."""
    for n in (0, 1, 5, 6):
        steps.begin(FIRST + n)
    assert steps.compared() == [0, 5]


def test_outside_of_a_round_nothing_is_kept(steps: Steps) -> None:
    """And whoever is paused when it ends is not paused any more."""
    steps.begin(FIRST - 1)
    steps.begin(FIRST + BLOCK_STEPS)
    assert (steps.watch.wants_pause, steps.woken) == (True, 1)
    steps.begin(FIRST + BLOCK_STEPS + 1)
    assert steps.woken == 1
    steps.begin(FIRST + ROUND_STEPS + 5)
    assert (steps.watch.wants_pause, steps.woken) == (False, 2)
    assert steps.compared() == [BLOCK_STEPS]
