"""Layer-1 scores equal the written definitions, on random windows with missing data."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.detect.scores.references import ReferenceSet
from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.detect.scores.window_scores import score_window
from otel_straggler.model.observation import (
    BatchBuilder,
    Ints,
    Kernel,
    ObservationBatch,
    Section,
)
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores

NEVER_FADES = 1e300
times_s = st.floats(min_value=1e-6, max_value=1e3)
runs = st.lists(times_s, max_size=9)


@st.composite
def windows(draw: st.DrawFn) -> dict[tuple[int, str, str | None], list[float]]:
    """{(rank, section, kernel or None): durations}, with ranks, sections and kernels missing."""
    ranks = draw(st.integers(1, 5))
    cells = [
        (rank, section, kernel)
        for rank in range(ranks)
        for section in ("forward", "backward", "data")
        for kernel in (None, "gemm", "softmax", "ncclDevKernel_AllReduce")
    ]
    return {cell: draw(runs) for cell in cells if draw(st.booleans())}


def role_of(rank: int) -> str:
    return "actor" if rank < 3 else "critic"


def batch_of(
    window: dict[tuple[int, str, str | None], list[float]], first_step: int = 0
) -> ObservationBatch:
    builder = BatchBuilder()
    for (rank, section, kernel), durations in window.items():
        source = Source(run_id="run", rank=rank, node="n", local_rank=rank, role=role_of(rank))
        kind = None if kernel is None else Kernel(kernel, "nccl" if "nccl" in kernel else "compute")
        for i, duration_s in enumerate(durations):
            builder.add(
                source,
                Section(section),
                start_ns=1_000 * i,
                duration_s=duration_s,
                step=first_step + i,
                kernel=kind,
            )
    return builder.build()


def score(*parts: ObservationBatch) -> list[WindowScores]:
    scorer = Scorer(ScoreSettings(window_steps=10, reference_half_life_s=NEVER_FADES))
    scored = []
    for part in parts:
        scorer.observe(part, 0)
        scored += scorer.close_all()
    return scored


def by_rank_and_section(scores: WindowScores, table: np.ndarray) -> dict[tuple[int, str], float]:
    return {
        (source.rank, section.name): float(table[r, s])
        for r, source in enumerate(scores.sources)
        for s, section in enumerate(scores.sections)
        if not math.isnan(table[r, s])
    }


def medians(window: dict, *, of_kernels: bool) -> dict:
    return {
        cell: statistics.median(durations)
        for cell, durations in window.items()
        if durations and (cell[2] is not None) == of_kernels
    }


def assert_same(result: dict, expected: dict) -> None:
    assert result.keys() == expected.keys()
    for key, value in expected.items():
        assert abs(result[key] - value) <= 1e-9, key


@given(windows())
def test_relative_section_scores_are_best_median_over_own_median(window: dict) -> None:
    """relative = fastest peer's median / own median, among the ranks of the role that ran it."""
    median = {(r, s): m for (r, s, _), m in medians(window, of_kernels=False).items()}
    expected = {
        (r, s): min(m2 for (r2, s2), m2 in median.items() if s2 == s and role_of(r2) == role_of(r))
        / m
        for (r, s), m in median.items()
    }
    scored = score(batch_of(window))
    result = by_rank_and_section(scored[0], scored[0].section_relative) if scored else {}
    assert_same(result, expected)


@given(st.lists(windows(), min_size=1, max_size=4))
def test_individual_section_scores_are_own_best_median_over_own_median(sequence: list) -> None:
    """individual = smallest own median so far / own median; short windows never set the best."""
    best: dict[tuple[int, str], float] = {}
    expected_of_window = []
    for window in sequence:
        expected = {}
        for (r, s, _), m in medians(window, of_kernels=False).items():
            if len(window[r, s, None]) >= 5:
                best[r, s] = min(m, best.get((r, s), m))
            expected[r, s] = min(1.0, best.get((r, s), m) / m)
        if any(window.values()):
            expected_of_window.append(expected)
    scored = score(*(batch_of(w, first_step=100 * i) for i, w in enumerate(sequence)))
    assert len(scored) == len(expected_of_window)
    for scores, expected in zip(scored, expected_of_window, strict=True):
        assert_same(by_rank_and_section(scores, scores.section_individual), expected)


@given(windows())
def test_gpu_scores_are_time_weighted_means_over_common_kernels(window: dict) -> None:
    """gpu relative = sum of w * best / own over the kernels that all compared ranks ran."""
    pooled: dict[tuple[int, str], list[float]] = {}
    for (r, _, k), durations in window.items():
        if k is not None and "nccl" not in k and durations:
            pooled.setdefault((r, k), []).extend(durations)
    expected = {}
    for rank in {r for r, _ in pooled}:
        peers = {r for r, _ in pooled if role_of(r) == role_of(rank)}
        common = [k for k in ("gemm", "softmax") if all((p, k) in pooled for p in peers)]
        weight = {k: sum(pooled[rank, k]) for k in common}
        if common:
            expected[rank] = sum(
                weight[k]
                * min(statistics.median(pooled[p, k]) for p in peers)
                / statistics.median(pooled[rank, k])
                for k in common
            ) / sum(weight.values())
    scored = score(batch_of(window))
    result = {}
    for scores in scored:
        for source, value in zip(scores.sources, scores.gpu_relative, strict=True):
            if not math.isnan(value):
                result[source.rank] = float(value)
    assert_same(result, expected)


@given(st.lists(windows(), min_size=1, max_size=3))
def test_individual_gpu_scores_use_every_kernel_of_the_rank(sequence: list) -> None:
    """gpu individual = time-weighted mean of own best / own over all of the rank's kernels."""
    best: dict[tuple[int, str], float] = {}
    scored = score(*(batch_of(w, first_step=100 * i) for i, w in enumerate(sequence)))
    scored_windows = iter(scored)
    for window in sequence:
        if not any(window.values()):
            continue
        scores = next(scored_windows)
        pooled: dict[tuple[int, str], list[float]] = {}
        for (r, _, k), durations in window.items():
            if k is not None and "nccl" not in k and durations:
                pooled.setdefault((r, k), []).extend(durations)
        expected: dict[int, float] = {}
        for key, durations in pooled.items():
            median = statistics.median(durations)
            if len(durations) >= 5:
                best[key] = min(median, best.get(key, median))
        for rank in {r for r, _ in pooled}:
            own = {k: d for (r, k), d in pooled.items() if r == rank}
            total = sum(sum(d) for d in own.values())
            expected[rank] = (
                sum(
                    sum(d) * min(1.0, best.get((rank, k), math.inf) / statistics.median(d))
                    for k, d in own.items()
                )
                / total
            )
        result = {
            source.rank: float(value)
            for source, value in zip(scores.sources, scores.gpu_individual, strict=True)
            if not math.isnan(value)
        }
        assert_same(result, expected)


@given(windows(), st.floats(1e-3, 1e3))
def test_scores_do_not_depend_on_the_unit_of_time(window: dict, factor: float) -> None:
    """Multiplying every time by one factor changes no relative score."""
    scaled = {cell: [d * factor for d in durations] for cell, durations in window.items()}
    for a, b in zip(score(batch_of(window)), score(batch_of(scaled)), strict=True):
        np.testing.assert_allclose(a.section_relative, b.section_relative, rtol=1e-9)
        np.testing.assert_allclose(a.gpu_relative, b.gpu_relative, rtol=1e-9)


@given(windows(), st.randoms(use_true_random=False))
def test_scores_do_not_depend_on_the_order_of_rows(window: dict, random: object) -> None:
    """A window is a set of rows."""
    batch = batch_of(window)
    order = list(range(len(batch)))
    random.shuffle(order)  # type: ignore[attr-defined]
    for a, b in zip(score(batch), score(batch.take(np.array(order, np.intp))), strict=True):
        forward = by_rank_and_section(a, a.section_relative)
        assert_same(by_rank_and_section(b, b.section_relative), forward)


@settings(max_examples=40)
@given(windows())
def test_the_largest_excess_is_that_of_its_definition(window: dict) -> None:
    """Median over steps of a rank's time in a section, less the median of its role."""
    per_step: dict[tuple[int, str], list[float]] = {}
    for (rank, section, kernel), durations in window.items():
        if kernel is None and durations:
            per_step[rank, section] = durations  # a run of it in every step
    own = {cell: statistics.median(times) for cell, times in per_step.items()}
    excess = {
        (r, s): m
        - statistics.median(
            m2 for (r2, s2), m2 in own.items() if s2 == s and role_of(r2) == role_of(r)
        )
        for (r, s), m in own.items()
    }
    scored = score(batch_of(window))
    result = scored[0].largest_excess if scored else None
    maximum = max(excess.values(), default=0.0)
    if result is None:
        assert maximum <= 0.0
        return
    cell = result.source.rank, result.section
    assert math.isclose(result.excess_s, maximum, abs_tol=1e-9)
    assert math.isclose(result.excess_s, excess[cell], abs_tol=1e-9)
    assert math.isclose(result.own_s, own[cell])
    assert math.isclose(result.own_s - result.role_median_s, result.excess_s, abs_tol=1e-9)


def test_counted_kernels_are_asked_for_by_the_times_of_each_rank() -> None:
    """From the start of its first row to the end of its last, by its own clock; in order of rank.
    Where the rows hold kernels nobody is asked."""
    asked = []

    def counted(sources: Sequence[Source], first_ns: Ints, last_ns: Ints, _: int) -> None:
        asked.append(([s.rank for s in sources], first_ns.tolist(), last_ns.tolist()))

    def scored(kernel: Kernel | None) -> WindowScores:
        builder = BatchBuilder()
        for rank, start_ns in ((1, 5_000), (0, 200), (1, 3_000), (0, 700)):
            source = Source(run_id="run", rank=rank)
            builder.add(source, Section("f"), start_ns=start_ns, duration_s=1e-6, kernel=kernel)
        return score_window(
            builder.build(),
            ReferenceSet.empty(NEVER_FADES),
            world_size=2,
            threshold=0.75,
            min_reference_samples=5,
            closed_by="end",
            counted_kernels=counted,
        )

    assert np.isnan(scored(None).gpu_relative).all()
    assert asked == [([0, 1], [200, 3_000], [1_700, 6_000])]
    assert np.isfinite(scored(Kernel("gemm", "compute")).gpu_relative).all()
    assert len(asked) == 1
