"""Speedups, efficiencies and projections of runs of several sizes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from otel_straggler.scalability.energy import counter_wh, probed_wh, sampled_wh
from otel_straggler.scalability.output import projection_lines
from otel_straggler.scalability.projection import project
from otel_straggler.scalability.runs import Key, ScalingRun
from otel_straggler.scalability.scaling import EPOCH, SAMPLES, STEP, ScalingPoint, scaling_report

EPOCH_S = {
    "deepspeed": (59.01, 31.37, 17.86, 9.48),
    "horovod": (59.77, 34.91, 21.95, 16.75),
    "torch-ddp": (72.92, 48.62, 19.26, 10.30),
}
"""The example of itwinai's documentation, for 1, 2, 4 and 8 nodes."""
SPEEDUPS = {
    "deepspeed": (1.881, 3.304, 6.225),
    "horovod": (1.712, 2.723, 3.568),
    "torch-ddp": (1.500, 3.786, 7.080),
}


def run(size: int, *epochs_s: float, strategy: str = "ddp", **more: float) -> ScalingRun:
    name = f"{strategy}-{size}"
    return ScalingRun(name=name, strategy=strategy, size=size, epochs_s=epochs_s, **more)


def points(*runs: ScalingRun) -> dict[int, ScalingPoint]:
    return {point.key.size: point for point in scaling_report(runs).points}


@pytest.mark.parametrize("strategy", EPOCH_S)
def test_the_speedups_of_itwinais_example_are_as_published(strategy: str) -> None:
    """Average epoch time of the smallest size / that of each."""
    times = zip((1, 2, 4, 8), EPOCH_S[strategy], strict=True)
    result = points(*(run(size, epoch_s, strategy=strategy) for size, epoch_s in times))
    speedups = [result[size].speedup.mean for size in (2, 4, 8)]
    assert [round(each, 3) for each in speedups] == list(SPEEDUPS[strategy])
    assert result[1].speedup.mean == 1.0
    assert result[8].efficiency == pytest.approx(SPEEDUPS[strategy][2] / 8, abs=1e-4)
    assert result[8].basis == EPOCH


def test_strategies_are_compared_with_their_own_smallest_size() -> None:
    """One was not run on a single rank."""
    report = scaling_report([run(1, 8.0), run(2, 4.0), run(2, 6.0, strategy="fsdp"),
                             run(4, 3.0, strategy="fsdp")])  # fmt: skip
    result = {point.key: point.speedup.mean for point in report.points}
    assert result[Key("fsdp", "ranks", 2)] == 1.0
    assert result[Key("fsdp", "ranks", 4)] == 2.0
    assert {p.key.size: p.efficiency for p in report.points if p.key.strategy == "fsdp"}[4] == 1.0


def test_repeats_give_a_mean_and_its_spread() -> None:
    """All epochs count alike; the spread is that between runs."""
    result = points(run(1, 8.0, 12.0), run(2, 4.0, 6.0), run(2, 7.0, 7.0))
    assert result[2].epoch_s.mean == pytest.approx(6.0)
    assert result[2].epoch_s.deviation == pytest.approx(math.sqrt(2.0))
    assert result[2].speedup.mean == pytest.approx(10.0 / 6.0)
    assert result[2].speedup.deviation == pytest.approx(10.0 / 6.0 * math.sqrt(2.0) / 6.0)
    assert math.isnan(result[1].epoch_s.deviation)
    assert result[2].epochs == 4


def test_without_epochs_throughput_counts_and_then_steps() -> None:
    """A speedup says what it rests on."""
    by_samples = points(run(1, samples_per_s=100.0, step_s=1.0), run(2, samples_per_s=150.0))
    assert (by_samples[2].speedup.mean, by_samples[2].basis) == (pytest.approx(1.5), SAMPLES)
    by_steps = points(run(1, step_s=1.0), run(2, step_s=0.8))
    assert (by_steps[2].speedup.mean, by_steps[2].basis) == (pytest.approx(1.25), STEP)


def test_a_size_without_a_time_has_no_speedup() -> None:
    """The others do."""
    result = points(run(1, 8.0), run(2, 4.0), run(4, utilization=0.5))
    assert math.isnan(result[4].speedup.mean)
    assert result[4].basis == ""
    assert result[2].speedup.mean == 2.0


def test_two_seconds_at_360_watts_are_a_fifth_of_a_watt_hour() -> None:
    """By a counter, by samples with times, and by itwinai's samples of an interval each."""
    at_s = np.array([0.0, 1.0, 2.0])
    assert sampled_wh(at_s, np.full(3, 360.0)) == pytest.approx(0.2)
    assert counter_wh(np.array([1_000.0, 1_720.0])) == pytest.approx(0.2)
    assert probed_wh(np.full(2, 360.0), np.ones(2)) == pytest.approx(0.2)


def test_power_that_changes_is_integrated_by_trapezoids() -> None:
    """Also of samples at uneven times that come out of order."""
    at_s, power_w = np.array([3.0, 0.0, 1.0]), np.array([300.0, 0.0, 100.0])
    assert sampled_wh(at_s, power_w) == pytest.approx((50.0 + 400.0) / 3_600.0)


def test_an_hour_without_samples_has_no_energy() -> None:
    """Nobody knows what the GPU did between two attempts."""
    at_s = np.array([0.0, 1.0, 2.0, 3_602.0, 3_603.0])
    assert sampled_wh(at_s, np.full(5, 360.0)) == pytest.approx(0.3)


def test_unknown_energy_is_not_zero() -> None:
    """One reading says nothing."""
    for result in (
        counter_wh(np.array([5.0])),
        sampled_wh(np.array([0.0]), np.array([360.0])),
        probed_wh(np.array([]), np.array([])),
    ):
        assert math.isnan(result)


def test_a_counter_that_begins_again_loses_nothing() -> None:
    """The driver was loaded again between the readings."""
    assert counter_wh(np.array([100.0, 460.0, 100.0, 360.0])) == pytest.approx(0.2)


def test_a_projection_is_exact_where_the_model_is() -> None:
    """2 s serial and 8 s parallel; without noise the interval has no width."""
    sizes = [1, 2, 4]
    result = project(sizes, [2.0 + 8.0 / size for size in sizes])
    assert result is not None
    assert (result.size, result.serial) == (8, pytest.approx(0.2))
    assert [result.time_s, result.low_s, result.high_s] == pytest.approx([3.0] * 3, abs=1e-6)


def test_a_projection_covers_what_comes_in_nineteen_of_twenty_cases() -> None:
    """Over noise of 5 %: between 90 and 99 of 100."""
    rng = np.random.default_rng(0)
    sizes = [1, 1, 2, 2, 4, 4]
    covered = 0
    for _ in range(400):
        noise = rng.normal(1.0, 0.05, len(sizes) + 1)
        times_s = [(2.0 + 8.0 / n) * f for n, f in zip(sizes, noise, strict=False)]
        result = project(sizes, times_s)
        assert result is not None
        assert result.low_s is not None
        assert result.high_s is not None
        covered += result.low_s <= 3.0 * noise[-1] <= result.high_s
    assert 0.90 <= covered / 400 <= 0.99


def test_a_projection_states_no_uncertainty_where_it_cannot_know_any() -> None:
    """Two sizes fit two unknowns always."""
    result = project([1, 2], [10.0, 6.0])
    assert result is not None
    assert (result.time_s, result.low_s) == (pytest.approx(4.0), None)
    assert project([2, 2], [1.0, 1.1]) is None


def test_more_than_linear_speedup_is_projected_as_linear() -> None:
    """There is no negative serial part."""
    result = project([1, 2], [10.0, 4.0])
    assert result is not None
    assert result.serial == 0.0
    assert result.time_s > 0.0
    slower = project([1, 2], [1.0, 2.0])
    assert slower is not None
    assert slower.serial == 1.0


def test_a_projection_says_where_more_ranks_were_slower() -> None:
    """Amdahl's law has no term for it."""
    lines = list(projection_lines(scaling_report([run(1, 8.0), run(2, 5.0), run(4, 6.0)])))
    assert lines[1].startswith("ddp: 4 ranks are slower than 2 by their epoch time")
    assert len(list(projection_lines(scaling_report([run(1, 8.0), run(2, 5.0)])))) == 1
