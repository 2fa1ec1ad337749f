"""Whether timing costs too much is found out from steps, and not from their noise."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from otel_straggler.client.gpu.governor import (
    AGAIN_S,
    BLOCK_STEPS,
    ROUND_STEPS,
    Decision,
    Governor,
    Sample,
    is_on_at,
)

from .scripted import Rig

SEEDS = 200


def steps(
    seed: int, first: int, *, overhead: float, drift: float = 0.0, rare: float = 0.0
) -> Iterator[Sample]:
    """A round of steps of half a second with 2 % of noise. drift: how much slower they are in the
    end; rare: part of them that a checkpoint makes far longer."""
    rng = random.Random(seed)
    for position in range(ROUND_STEPS):
        is_on = is_on_at(position)
        time_s = 0.5 * (1 + rng.gauss(0, 0.02)) * (1 + drift * position / ROUND_STEPS)
        if rng.random() < rare:
            time_s *= rng.uniform(2, 20)
        yield Sample(first + position, time_s * (1 + overhead * is_on), is_on)


def verdict(seed: int, **course: float) -> Decision:
    governor = Governor(0.01)
    governor.begin(seed)
    decisions = [governor.observe([s]) for s in steps(seed, governor.round_start, **course)]
    return next(decision for decision in decisions if decision is not None)


@pytest.mark.parametrize(
    ("overhead", "right"),
    [
        (0.0, {"content"}),
        (0.005, {"content", "undecided"}),
        (0.02, {"over"}),
        (0.05, {"over"}),
    ],
)
def test_decisions_are_right_in_95_of_100_runs(overhead: float, right: set[str]) -> None:
    """With 2 % of noise and a target of 1 %; whoever is not sure stays."""
    result = Counter(verdict(seed, overhead=overhead).verdict for seed in range(SEEDS))
    assert sum(result[word] for word in right) >= 0.95 * SEEDS, result


def test_a_drift_and_checkpoints_change_no_decision() -> None:
    """5 % slower at the end of the round, and one step in fifty that is far longer."""
    for overhead, wrong in ((0.0, "over"), (0.005, "over"), (0.05, "content")):
        result = {verdict(s, overhead=overhead, drift=0.05, rare=0.02).verdict for s in range(100)}
        assert wrong not in result


def test_noise_alone_never_switches_timing_off() -> None:
    """Not in any of a thousand rounds at half the target, which is a year of half-hours."""
    result = Counter(verdict(seed, overhead=0.005).verdict for seed in range(1000, 2000))
    assert result["over"] == 0


def test_a_clear_overhead_is_found_before_the_round_ends() -> None:
    """After three or four cycles of 128 steps."""
    assert verdict(1, overhead=0.05).steps <= 4 * 4 * BLOCK_STEPS


def test_rounds_lie_at_the_same_steps_on_all_ranks() -> None:
    """Whoever begins a few steps later, or takes a little longer for a step, compares the same."""
    starts = set()
    for late in range(20):
        governor = Governor(0.01)
        governor.begin(100 + late)
        first = governor.round_start
        governor.begin_later(first + 512 + late, 0.5 + late / 1000)
        starts.add((first, governor.round_start))
    assert len(starts) == 1
    [(first, again)] = starts
    assert first % ROUND_STEPS == 0
    assert 0 < (again - first) * 0.5 <= 2.1 * AGAIN_S


def test_steps_that_were_not_as_planned_do_not_count() -> None:
    """The timer was switched late, or a profiler was at work."""
    governor = Governor(0.01)
    governor.begin(0)
    flipped = (Sample(s.step, s.duration_s, not s.is_on) for s in
               steps(1, governor.round_start, overhead=0.05))  # fmt: skip
    decision = governor.observe(flipped)
    assert decision is not None
    assert (decision.verdict, decision.steps) == ("undecided", 0)


def test_without_a_target_nothing_is_ever_paused() -> None:
    """A target of 0 means no limit."""
    governor = Governor(0.0)
    governor.begin(5)
    assert governor.round_start == -1
    assert governor.observe(steps(1, 0, overhead=1.0)) is None


def train(rig: Rig, overhead: float) -> Iterator[tuple[int, bool]]:
    """Steps through a round with a clock of their own; the tier thread looks after each."""
    from otel_straggler.client.gpu import overhead as module
    from otel_straggler.client.recorder import Context, RecordingSession

    watch = rig.timing._overhead._steps
    now_ns = 0
    rng = random.Random(3)
    for step in range(2 * ROUND_STEPS + 8):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "perf_counter_ns", lambda now_ns=now_ns: now_ns)
            watch(Context(RecordingSession("s", 1), step, step + 1, ""))
        rig.tick(0.001)
        is_working = rig.timing._ladder.is_working
        yield step, is_working
        now_ns += int(5e8 * (1 + rng.gauss(0, 0.02)) * (1 + overhead * is_working))


def test_a_tier_that_costs_too_much_is_left() -> None:
    """For the next one, which is then watched in its turn."""
    rig = Rig()
    rig.begin("cupti")
    paused = [step for step, is_working in train(rig, 0.05) if not is_working]
    assert rig.timing.described() == ("events", "governor")
    assert "timing costs" in rig.timing.state().detail
    assert paused[:1] == [ROUND_STEPS + BLOCK_STEPS]


def test_a_tier_that_costs_little_stays() -> None:
    """It was paused for half of the round, always to begin again."""
    rig = Rig()
    rig.begin("cupti")
    paused = [step for step, is_working in train(rig, -0.005) if not is_working]
    assert rig.timing.described() == ("cupti", "")
    assert rig.timing.state().overhead.startswith("content: ")
    assert 3 * 2 * BLOCK_STEPS <= len(paused) <= ROUND_STEPS // 2
    assert rig.timing._ladder.is_working
