"""How many steps share one with kernel records is found out from steps."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from otel_straggler.client.gpu.governor import Sample
from otel_straggler.client.gpu.overhead import StepWatch
from otel_straggler.client.gpu.sampling import (
    COST_PER_LAUNCH_S,
    FIRST_INTERVAL,
    INTERVALS,
    SamplingInterval,
)
from otel_straggler.client.recorder import Context

KERNELS = 500.0


def steps(
    sampling: SamplingInterval, count: int, *, added_s: float, seed: int = 1
) -> Iterator[Sample]:
    """Steps of 20 ms with 3 % of noise; kernel records add so much to a step that has them."""
    rng = random.Random(seed)
    for step in range(count):
        is_sampled = step % sampling.value == 0
        duration_s = 0.020 * (1 + rng.gauss(0, 0.03)) + added_s * is_sampled
        yield Sample(step, duration_s, True, is_sampled)


@pytest.mark.parametrize(
    ("added_s", "wanted"),
    [
        (0.0, {2, 10}),  # the GPU is the limit: what launches cost more is hidden
        (0.000_4, {10}),  # 2 % of a step
        (0.003, {50}),  # 15 %, as was seen of a launch-bound step
        (0.008, {200}),
    ],
)
def test_the_interval_follows_from_what_was_measured(added_s: float, wanted: set[int]) -> None:
    """Half a percent of a step on average, and no more often than that."""
    for seed in range(20):
        sampling = SamplingInterval(0.005)
        for _ in range(10):
            sampling.observe(steps(sampling, 700, added_s=added_s, seed=seed))
            sampling.choose(KERNELS)
        assert sampling.value in wanted, sampling.text
        assert sampling.too_much(KERNELS) == ""
        assert "us a launch" in sampling.text


def test_before_that_the_number_of_kernels_decides() -> None:
    """By the most that a launch was seen to cost."""
    sampling = SamplingInterval(0.005)
    assert not sampling.choose(KERNELS)
    assert sampling.value == FIRST_INTERVAL
    sampling.observe(steps(sampling, 25, added_s=0.0))
    assert sampling.choose(10_000)
    assert sampling.value == INTERVALS[-1]  # 38 ms of 20
    assert sampling.choose(KERNELS)
    assert KERNELS * COST_PER_LAUNCH_S / 0.020 / 0.005 < sampling.value == 50
    assert "not measured yet" in sampling.text


def test_every_interval_divides_the_next_one() -> None:
    """So ranks that have different ones share the steps of the largest."""
    assert [b % a for a, b in itertools.pairwise(INTERVALS)] == [0, 0, 0]
    assert FIRST_INTERVAL in INTERVALS
    assert 1 <= INTERVALS[0] <= INTERVALS[-1] <= 200


def test_a_cost_that_no_interval_allows_is_said() -> None:
    """Twice a step, in one of 200."""
    sampling = SamplingInterval(0.005)
    for _ in range(12):
        sampling.observe(steps(sampling, 1000, added_s=0.040))
        sampling.choose(KERNELS)
    why = sampling.too_much(KERNELS)
    assert "even in one step of 200 kernel records cost at least" in why
    assert "more than 0.50%" in why


def test_steps_that_are_not_alike_are_not_compared() -> None:
    """Gaps, phases, and pauses of the timer; a target of 0 asks for nothing."""
    sampling = SamplingInterval(0.005)
    sampling.observe([Sample(9, 1.0, True), Sample(10, 2.0, True, True), Sample(12, 1.0, True)])
    sampling.observe([Sample(19, 0.0, True), Sample(20, 2.0, True, True), Sample(21, 1.0, True)])
    sampling.observe([Sample(29, 1.0, False), Sample(30, 2.0, True, True), Sample(31, 1.0, True)])
    assert sampling.cost(KERNELS) is None
    free = SamplingInterval(0.0)
    free.observe(steps(free, 700, added_s=0.008))
    assert not free.choose(KERNELS)


def test_only_steps_around_a_sample_are_noted_between_rounds() -> None:
    """Beginning and end of it, of the one before, and of the one after."""
    watch = StepWatch(lambda: 0, lambda: None)
    watch.interval = 50
    for step in range(1, 200):
        watch(Context(None, step, step, ""))  # type: ignore[arg-type]
    samples = watch.drain()
    timed = [sample.step for sample in samples if sample.duration_s > 0]
    assert timed == [1, 49, 50, 51, 99, 100, 101, 149, 150, 151]
    assert [s.step for s in samples if s.is_sampled and s.duration_s > 0] == [50, 100, 150]
    sampling = SamplingInterval(0.005)
    sampling.observe(samples)
    cost = sampling.cost(KERNELS)
    assert cost is not None
    assert cost.count == 0  # three are too few: by the number of kernels
