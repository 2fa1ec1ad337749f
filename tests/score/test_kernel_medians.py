"""Medians of histograms, many at a time."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.detect.scores.kernels import (
    HistogramKernels,
    KernelMedians,
    KernelsOfWindow,
    group_histograms,
)
from otel_straggler.model.kernels import KernelCell, KernelTimesBuilder
from otel_straggler.model.observation import Kernel
from otel_straggler.model.rank import Source

WHO = Source(run_id="r", rank=0)


def add(
    to: KernelTimesBuilder, times_s: list[float], scale: int, cell: str = "k", rank: int = 0
) -> None:
    """One point of a kernel, with its bounds."""
    index = [math.ceil(math.log2(t) * 2**scale) - 1 for t in times_s]
    first = min(index)
    runs = np.bincount(np.array(index) - first)
    section, _, name = cell.rpartition("/")
    to.add(
        Source(run_id="r", rank=rank),
        KernelCell(section, Kernel(name)),
        start_ns=1,
        end_ns=2,
        count=len(times_s),
        sum_s=sum(times_s),
        min_s=min(times_s),
        max_s=max(times_s),
        scale=scale,
        first=first,
        runs=runs,
    )


points = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.integers(3, 9),
        st.lists(st.floats(1e-8, 1e2), min_size=1, max_size=20),
    ),
    min_size=1,
    max_size=12,
)


@given(points)
def test_a_median_is_off_by_half_a_bucket_at_most(
    of_points: list[tuple[int, int, list[float]]],
) -> None:
    """Of the coarsest histogram in the group; however far the times lie apart."""
    builder = KernelTimesBuilder()
    for _, scale, times_s in of_points:
        add(builder, times_s, scale)
    group = np.array([number for number, _, _ in of_points], np.int64)
    result = group_histograms(builder.build(), group, 6)
    for number in range(6):
        members = [(scale, times) for at, scale, times in of_points if at == number]
        seen = [t for _, times in members for t in times]
        assert result.count[number] == len(seen)
        assert result.total_s[number] == pytest.approx(math.fsum(seen))
        if seen:
            error = (2.0 ** (2.0 ** -min(scale for scale, _ in members)) - 1) / 2
            assert result.median_s[number] == pytest.approx(statistics.median(seen), rel=error)
        else:
            assert math.isnan(result.median_s[number])


def test_times_far_apart_do_not_fill_the_memory() -> None:
    """Buckets of a millionth from a nanosecond to an hour: ten billion would lie between."""
    builder = KernelTimesBuilder()
    add(builder, [1e-9, 1e-9, 3600.0], 20)
    add(builder, [2.0, 3600.0, 3600.0], 20)
    result = group_histograms(builder.build(), np.array([0, 1]), 2)
    assert result.median_s.tolist() == [pytest.approx(1e-9, rel=1e-6), pytest.approx(3600.0)]


def test_bounds_that_a_sender_made_up_do_no_harm() -> None:
    """A time is still positive and finite."""
    builder = KernelTimesBuilder()
    builder.add(
        WHO, KernelCell("", Kernel("k")), start_ns=1, end_ns=2, count=3, sum_s=0.0, min_s=9.0,
        max_s=0.0, scale=-10, first=-(2**31), runs=np.array([1, 0, 1]),
    )  # fmt: skip
    result = group_histograms(builder.build(), np.zeros(1, np.int64), 1)
    assert 0.0 < result.median_s[0] < math.inf


def test_ranks_and_sections_are_kept_apart() -> None:
    """A kernel's median over the rank is that of all its runs, in sections without rows too."""
    builder = KernelTimesBuilder()
    for rank in range(3):
        add(builder, [1.0 + rank] * 3, 7, "forward/gemm", rank)
        add(builder, [5.0 + rank] * 2, 7, "backward/gemm", rank)
        add(builder, [7.0], 7, "elsewhere/gemm", rank)
        if rank != 1:
            add(builder, [0.5] * 4, 7, "forward/softmax", rank)
        add(builder, [9.0], 7, "forward/<other>", rank)
    kernels = KernelsOfWindow(KernelMedians(builder.build()), end_ns=7)
    result = HistogramKernels(kernels, ["forward", "backward", "empty"], 3)
    whole, forward, backward = result.of(None), result.of(0), result.of(1)
    assert result.of(2) is None
    assert whole is not None
    assert forward is not None
    assert backward is not None
    assert whole.names == forward.names == ["gemm", "softmax"]
    assert backward.names == ["gemm"]
    about = {"rel": 0.003, "nan_ok": True}
    gemm = [[1.0, 2.0, 3.0][rank] + 2.0 for rank in range(3)]  # between the two in the middle
    assert whole.times.median_s[:, 0] == pytest.approx(np.array(gemm), **about)
    assert forward.times.median_s[:, 0] == pytest.approx(np.array([1.0, 2.0, 3.0]), **about)
    assert backward.times.median_s[:, 0] == pytest.approx(np.array([5.0, 6.0, 7.0]), **about)
    assert forward.times.median_s[:, 1] == pytest.approx(np.array([0.5, np.nan, 0.5]), **about)
    assert forward.times.count.tolist() == [[3, 4], [3, 0], [3, 4]]
    assert whole.times.total_s[0, 0] == pytest.approx(3.0 + 10.0 + 7.0)
