"""GPU times of rows: a rank's own work, and what a step has of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.detect.scores.settings import ScoreSettings, VerdictSettings
from otel_straggler.detect.scores.step_tables import build_step_table
from otel_straggler.detect.scores.stream import Stream
from otel_straggler.detect.verdicts.blocks import joined
from otel_straggler.model.observation import (
    COLLECTIVE,
    CUPTI,
    EVENTS,
    HOST,
    BatchBuilder,
    GpuTimes,
    ObservationBatch,
    Section,
)
from otel_straggler.model.rank import Source

NAN = float("nan")
TIMES = st.floats(0.0, 1e4) | st.just(0.0)
ROWS = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 2), st.integers(5, 8),
        st.sampled_from([HOST, EVENTS, CUPTI, COLLECTIVE]), TIMES, TIMES, TIMES | st.just(NAN),
    ),
    min_size=1,
    max_size=60,
)  # fmt: skip


def batch_of(rows: list[tuple[int, int, int, int, float, float, float]]) -> ObservationBatch:
    """Rows of 0.5 s: rank, section, step, basis, busy, nccl and kernel seconds."""
    builder = BatchBuilder()
    for at, (rank, section, step, *_) in enumerate(rows):
        builder.add(
            Source(run_id="r", rank=rank), Section(f"s{section}"), step=step, seq=at,
            start_ns=step * 10**9 + at, duration_s=0.5,
        )  # fmt: skip
    basis = np.array([row[3] for row in rows], np.uint8)
    busy, nccl, kernel = np.array([row[4:] for row in rows]).T.copy()
    for column, minimum in ((busy, EVENTS), (nccl, CUPTI), (kernel, CUPTI)):
        column[basis < minimum] = NAN
    is_host = basis == COLLECTIVE
    busy[is_host], kernel[is_host] = 0.5, NAN
    nccl[is_host] %= 0.5
    return replace(builder.build(), gpu=GpuTimes(basis, busy, nccl, kernel))


def times(busy: float, nccl: float, kernel: float = NAN, basis: int = CUPTI) -> float:
    columns = (np.array([value]) for value in (busy, nccl, kernel))
    return float(GpuTimes(np.array([basis], np.uint8), *columns).own_s()[0])


@pytest.mark.parametrize(
    ("busy", "nccl", "kernel", "own"),
    [
        (1.0, 0.25, 1.0, 0.75),  # one after the other
        (1.0, 0.9, 1.8, 0.9),  # communication beside work: work is what the other kernels take
        (1.0, 0.0, 1.9, 1.0),  # streams beside each other: no more than the device was busy
        (1.0, 0.25, NAN, 0.75),  # the sum is not told
        (0.5, 0.75, NAN, 0.0),  # more communication than time
        (0.5, 0.75, 0.6, 0.0),
        (0.0, 0.0, 0.0, 0.0),
    ],
)
def test_own_work_is_what_is_left_without_communication(
    busy: float, nccl: float, kernel: float, own: float
) -> None:
    """Whether it runs beside other kernels or alone; never below 0."""
    assert times(busy, nccl, kernel) == pytest.approx(own)


@given(TIMES, TIMES, TIMES | st.just(NAN), st.floats(1e-6, 1e6))
def test_own_work_lies_within_busy_time_and_does_not_depend_on_the_unit(
    busy: float, nccl: float, kernel: float, factor: float
) -> None:
    """Whatever is told."""
    own = times(busy, nccl, kernel)
    assert 0.0 <= own <= busy
    assert own >= busy - nccl or own == pytest.approx(busy - nccl)
    scaled = times(busy * factor, nccl * factor, kernel * factor)
    assert scaled == pytest.approx(own * factor, rel=1e-9, abs=1e-9 * factor * (busy + nccl))


def clock_of(rows: list[int], in_step: list[int]) -> int:
    """By the bases of the rows of a cell, and of all ranks in that section and step."""
    timed = [basis for basis in rows if basis in (EVENTS, CUPTI)]
    if not timed or len(timed) < 0.8 * len(rows):
        return HOST
    kernels, events = in_step.count(CUPTI), in_step.count(EVENTS)
    wanted = CUPTI if kernels >= 0.45 * (kernels + events) else EVENTS
    return wanted if wanted in timed else timed[0]


@given(ROWS)
def test_a_step_has_the_sums_of_its_rows_by_the_clock_that_most_have(
    rows: list[tuple[int, int, int, int, float, float, float]],
) -> None:
    """Few that do not tell, or were measured otherwise, take the mean of the others; more make
    the cell unknown. Who waited in no collective waited 0 s, on a rank that reports its waiting."""
    batch = batch_of(rows)
    table = build_step_table(batch)
    assert table is not None
    assert table.gpu is not None
    assert batch.gpu is not None
    own, waited = batch.gpu.own_s(), batch.gpu.nccl_s
    reports = {row[0] for row in rows if row[3] == COLLECTIVE}
    ranks = [source.rank for source in table.sources]
    names = [section.name for section in table.sections]
    for t, step in enumerate(table.steps.tolist()):
        for r, rank in enumerate(ranks):
            for s, name in enumerate(names):
                at = [i for i, row in enumerate(rows) if row[:3] == (rank, int(name[1:]), step)]
                in_step = [row[3] for row in rows if row[1:3] == (int(name[1:]), step)]
                basis = clock_of([rows[i][3] for i in at], in_step)
                if at and rank in reports and not {rows[i][3] for i in at} & {EVENTS, CUPTI}:
                    basis = COLLECTIVE
                assert table.gpu.basis[t, r, s] == basis
                here = table.gpu.own_s[t, r, s]
                if basis == HOST:
                    assert np.isnan(here)
                elif basis == COLLECTIVE:
                    waits = sum(waited[i] for i in at if rows[i][3] == COLLECTIVE)
                    assert table.gpu.nccl_s[t, r, s] == pytest.approx(waits)
                    assert here == pytest.approx(0.5 * len(at) - waits)
                else:
                    known = [own[i] for i in at if rows[i][3] == basis]
                    assert here == pytest.approx(sum(known) * len(at) / len(known))
                tells = basis in (CUPTI, COLLECTIVE)
                assert np.isnan(table.gpu.nccl_s[t, r, s]) == (not tells)


def test_an_interval_has_one_clock_on_all_ranks() -> None:
    """Without step numbers an interval of 10 s holds steps with kernel times and others: that of
    most rows counts on all ranks, also on one where by chance the others are more."""
    rows = [
        (rank, 0, 0, CUPTI if at < n_kernels else EVENTS, 0.2 if at < n_kernels else 0.3,
         0.0 if at < n_kernels else NAN, NAN)
        for rank, n_kernels in enumerate((1, 1, 4))
        for at in range(6)
    ]  # fmt: skip
    table = build_step_table(batch_of(rows), interval_ns=10**10)
    assert table is not None
    assert table.gpu is not None
    assert table.gpu.basis.ravel().tolist() == [EVENTS] * 3
    np.testing.assert_allclose(table.gpu.own_s.ravel(), 6 * 0.3)


def test_who_reports_waiting_reports_all_of_it() -> None:
    """Sections in which a rank met nobody go by the same basis with all their time; a rank that
    reports no waiting stays with the host, and kernels that were timed stay as they are."""
    rows = [
        (0, 0, 5, COLLECTIVE, NAN, 0.2, NAN), (0, 1, 5, HOST, NAN, NAN, NAN),
        (0, 1, 6, HOST, NAN, NAN, NAN), (0, 2, 6, CUPTI, 0.4, 0.1, NAN),
        (1, 0, 5, HOST, NAN, NAN, NAN), (1, 1, 5, EVENTS, 0.3, NAN, NAN),
    ]  # fmt: skip
    table = build_step_table(batch_of(rows))
    assert table is not None
    assert table.gpu is not None
    names = [section.name for section in table.sections]
    column = {name: names.index(name) for name in ("s0", "s1", "s2")}
    gpu = table.gpu.of_rows(np.s_[:, :, [column[name] for name in ("s0", "s1", "s2")]])
    assert gpu.basis[:, 0].tolist() == [[COLLECTIVE, COLLECTIVE, HOST], [HOST, COLLECTIVE, CUPTI]]
    assert gpu.basis[:, 1].tolist() == [[HOST, EVENTS, HOST], [HOST, HOST, HOST]]
    np.testing.assert_allclose(gpu.own_s[:, 0], [[0.3, 0.5, NAN], [NAN, 0.5, 0.3]])
    np.testing.assert_allclose(gpu.nccl_s[:, 0], [[0.2, 0.0, NAN], [NAN, 0.0, 0.1]])


def test_a_table_in_which_nobody_tells_has_no_gpu_times() -> None:
    """It costs nothing then."""
    builder = BatchBuilder()
    builder.add(Source(run_id="r", rank=0), Section("s"), step=1, start_ns=1, duration_s=1.0)
    table = build_step_table(builder.build())
    assert table is not None
    assert table.gpu is None


def test_blocks_are_joined_with_what_some_of_them_tell() -> None:
    """The others tell nothing."""
    reported = build_step_table(batch_of([(0, 0, 5, CUPTI, 0.4, 0.1, 0.4)]))
    assert reported is not None
    assert reported.gpu is not None
    both = joined([reported, replace(reported, gpu=None)])
    assert both.gpu is not None
    assert both.gpu.basis.ravel().tolist() == [CUPTI, HOST]
    np.testing.assert_allclose(both.gpu.own_s.ravel(), [0.3, NAN])
    assert joined([replace(reported, gpu=None)] * 2).gpu is None


def test_a_run_keeps_its_gpu_times_through_windows_and_second_deliveries() -> None:
    """What comes twice counts once, in whatever order; a batch without GPU times mixes in."""
    rows = [(r, 0, s, CUPTI, 0.4 + 0.01 * r, 0.1, NAN) for s in range(5, 8) for r in range(3)]
    batch = batch_of([*rows, (1, 1, 7, HOST, NAN, NAN, NAN)])
    order = np.random.default_rng(0).permutation(len(batch))
    stream = Stream(ScoreSettings(), VerdictSettings(), 0)
    stream.observe(batch.take(order), 0)
    stream.observe(batch.take(slice(0, 4)), 0)
    [table] = stream.close_all_tables()
    assert table.gpu is not None
    names = [section.name for section in table.sections]
    forward = names.index("s0")
    expected = np.broadcast_to([0.3, 0.31, 0.32], (3, 3))
    np.testing.assert_allclose(table.gpu.own_s[..., forward], expected)
