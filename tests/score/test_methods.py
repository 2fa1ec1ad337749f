"""The small modules of score/, one fact each."""

from __future__ import annotations

import numpy as np
import pytest

from otel_straggler.detect.scores.references import References
from otel_straggler.detect.scores.scorer import Scorer
from otel_straggler.model.observation import BatchBuilder, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores
from otel_straggler.semconv import SECTION_KINDS, SectionKind

HOUR_NS = 3_600_000_000_000


def test_a_reference_that_is_not_met_again_doubles_in_a_half_life() -> None:
    """One lucky window is forgiven in time."""
    references = References(half_life_s=3600.0)
    enough = np.array([[True]])
    first = references.update(["gpu"], ["f"], np.array([[1.0]]), enough, 0)
    later = references.update(["gpu"], ["f"], np.array([[8.0]]), enough, HOUR_NS)
    met = references.update(["gpu"], ["f"], np.array([[1.5]]), enough, HOUR_NS)
    assert (first.item(), later.item(), met.item()) == (1.0, 2.0, 1.5)


def test_a_clock_that_runs_backwards_does_not_fade_a_reference() -> None:
    """A window that ended before the best was met uses the best as it is."""
    references = References(half_life_s=1.0)
    enough = np.array([[True]])
    references.update(["gpu"], ["f"], np.array([[1.0]]), enough, HOUR_NS)
    assert references.update(["gpu"], ["f"], np.array([[4.0]]), enough, 0).item() == 1.0


def test_references_survive_growth() -> None:
    """New subjects and names do not move what is known."""
    references = References(half_life_s=1e300)
    enough = np.ones((1, 1), bool)
    for i in range(50):
        references.update([f"gpu{i}"], [f"f{i % 7}"], np.array([[float(i + 1)]]), enough, 0)
    for i in range(50):
        nothing = np.array([[np.nan]])
        result = references.update([f"gpu{i}"], [f"f{i % 7}"], nothing, enough, 0)
        assert result.item() == i + 1


def scored(
    times_s: dict[int, list[float]], kind: SectionKind = "compute", threshold_steps: int = 1
) -> WindowScores:
    builder = BatchBuilder()
    for rank, durations in times_s.items():
        for i, duration_s in enumerate(durations):
            builder.add(
                Source(run_id="r", rank=rank, node=f"n{rank}", local_rank=0),
                Section("f", kind),
                step=i // threshold_steps,
                start_ns=i,
                duration_s=duration_s,
            )
    scorer = Scorer()
    scorer.observe(builder.build(), 0)
    (window,) = scorer.close_all()
    return window


def test_a_rank_twice_as_slow_scores_one_half_and_is_listed() -> None:
    """Under the threshold of 0.75."""
    window = scored({0: [1.0], 1: [2.0]})
    (listed,) = window.stragglers
    assert (listed.source.rank, listed.section, listed.score) == (1, "f", 0.5)


def test_a_score_at_the_threshold_is_not_listed() -> None:
    """Strictly below, as in NVRx."""
    assert scored({0: [3.0], 1: [4.0]}).stragglers == ()


@pytest.mark.parametrize("kind", SECTION_KINDS)
def test_waiting_checkpoints_and_evaluation_are_scored_but_never_listed(kind: SectionKind) -> None:
    """Who waits is a victim."""
    window = scored({0: [1.0], 1: [9.0]}, kind)
    assert window.section_relative[1, 0] == pytest.approx(1 / 9)
    assert bool(window.stragglers) == (kind in ("compute", "data", "other"))
    assert (window.largest_excess is not None) == bool(window.stragglers)


def test_a_lone_rank_scores_one() -> None:
    """It is its own best peer."""
    window = scored({0: [1.0]})
    assert window.section_relative.tolist() == [[1.0]]
    assert window.largest_excess is None


def test_the_largest_excess_is_counted_per_step_not_per_run() -> None:
    """Two runs of 1 s in each step cost a rank 2 s per step; its peers spend 1 s."""
    window = scored({0: [0.5] * 8, 1: [0.5] * 8, 2: [1.0] * 8}, threshold_steps=2)
    excess = window.largest_excess
    assert excess is not None
    assert (excess.source.rank, excess.own_s, excess.role_median_s) == (2, 2.0, 1.0)
    assert excess.excess_s == 1.0


def test_slowdown_is_own_median_over_the_median_of_the_role() -> None:
    """Three ranks at 1 s, one at 3 s."""
    window = scored({0: [1.0], 1: [1.0], 2: [1.0], 3: [3.0]})
    assert window.section_slowdown[:, 0].tolist() == [1.0, 1.0, 1.0, 3.0]
