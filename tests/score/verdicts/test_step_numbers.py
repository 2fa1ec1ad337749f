"""Which step was the n-th that was observed, however long the run is."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.detect.verdicts.memory import MAX_STRETCHES, StepNumbers


@given(st.lists(st.lists(st.integers(0, 2**62), max_size=6), max_size=20))
def test_every_step_stands_at_its_place(blocks: list[list[int]]) -> None:
    """Also steps that go back, are missing, or come twice."""
    numbers, reported = StepNumbers(), []
    for block in blocks:
        numbers.add(np.array(block, np.int64))
        reported += block
    assert len(numbers) == len(reported)
    assert [numbers[index] for index in range(len(reported))] == reported


def test_a_million_steps_are_known_to_the_first() -> None:
    """A verdict after weeks names the step at which it began."""
    numbers = StepNumbers()
    for begin in range(1_000, 1_001_000, 1_000):
        numbers.add(np.arange(begin, begin + 1_000))
    assert (numbers[0], numbers[123_456], numbers[999_999]) == (1_000, 124_456, 1_000_999)
    assert sum(map(sys.getsizeof, vars(numbers).values())) < 1_000


def test_a_place_outside_is_the_nearest_known() -> None:
    """Nobody is told a step that never was."""
    numbers = StepNumbers()
    numbers.add(np.array([5, 6, 7]))
    assert (numbers[-1], numbers[3]) == (5, 7)
    with pytest.raises(IndexError):
        StepNumbers()[0]


def test_steps_with_holes_everywhere_cost_bounded_memory() -> None:
    """Lost telemetry: the oldest are forgotten, the newest are right."""
    numbers = StepNumbers()
    numbers.add(np.arange(0, 6 * MAX_STRETCHES, 2))
    assert sys.getsizeof(numbers._begins) < 16 * MAX_STRETCHES
    last = len(numbers) - 1
    assert numbers[last] == 6 * MAX_STRETCHES - 2
    assert numbers[last - 100] == 6 * MAX_STRETCHES - 202
