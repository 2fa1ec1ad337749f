"""Rows to step tables: what is summed up, in which order, and what is left out."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.detect.scores.step_tables import StepEnds, build_step_table
from otel_straggler.detect.verdicts.blocks import pieces
from otel_straggler.model.observation import (
    NO_STEP,
    BatchBuilder,
    Kernel,
    ObservationBatch,
    Section,
)
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable

from .step_tables import step_table

NAN = float("nan")
S = 1_000_000_000


@dataclass(frozen=True)
class Row:
    rank: int
    section: str
    step: int
    start_ns: int
    duration_s: float
    seq: int
    runs: int
    tokens: float


ROWS = st.lists(
    st.builds(
        Row,
        rank=st.integers(0, 4),
        section=st.sampled_from(["load", "forward", "backward"]),
        step=st.sampled_from([16, 21, 27, 28]),
        start_ns=st.integers(0, 10**12),
        duration_s=st.floats(1e-6, 1e3),
        seq=st.integers(0, 3),
        runs=st.integers(1, 3),
        tokens=st.sampled_from([NAN, 0.0, 512.0, 4096.0]),
    ),
    max_size=60,
)


def batch_of(rows: list[Row], *, restarted: frozenset[int] = frozenset()) -> ObservationBatch:
    """Ranks are met in descending order, so that tables have something to sort."""
    builder = BatchBuilder()
    for rank in range(4, -1, -1):
        builder.source_code(Source(run_id="r", rank=rank))
    for row in rows:
        builder.add(
            Source(run_id="r", rank=row.rank),
            Section(row.section),
            step=row.step,
            start_ns=row.start_ns,
            duration_s=row.duration_s,
            seq=row.seq,
            runs=row.runs,
            tokens=row.tokens,
        )
    return builder.build()


def check(table: StepTable, rows: list[Row]) -> None:
    """Compare with loops over plain Python numbers."""
    first: dict[tuple[int, str, int], Row] = {}
    for row in rows:
        first.setdefault((row.rank, row.section, row.seq), row)
    kept = list(first.values())
    cells: dict[tuple[int, int, str], list[Row]] = defaultdict(list)
    lines: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in kept:
        cells[row.step, row.rank, row.section].append(row)
        lines[row.step, row.rank].append(row)
    assert table.steps.tolist() == sorted({row.step for row in kept})
    assert [s.rank for s in table.sources] == sorted({row.rank for row in kept})
    names = [s.name for s in table.sections]
    assert sorted(names) == sorted({row.section for row in kept})
    for t, step in enumerate(table.steps.tolist()):
        for r, source in enumerate(table.sources):
            line = lines[step, source.rank]
            starts = min((row.start_ns for row in line), default=0)
            ends = max((row.start_ns + round(row.duration_s * 1e9) for row in line), default=0)
            assert table.start_ns[t, r] == starts
            assert table.end_ns[t, r] == ends
            for s, name in enumerate(names):
                cell = cells[step, source.rank, name]
                total = sum(row.duration_s for row in cell) if cell else NAN
                assert table.seconds[t, r, s] == pytest.approx(total, nan_ok=True)
                assert table.runs[t, r, s] == sum(row.runs for row in cell)
            reported = [
                sum(row.tokens for row in cells[step, source.rank, name] if row.tokens >= 0)
                for name in names
                if any(row.tokens >= 0 for row in cells[step, source.rank, name])
            ]
            assert table.tokens[t, r] == pytest.approx(max(reported, default=NAN), nan_ok=True)
    for r, source in enumerate(table.sources):
        for s, name in enumerate(names):
            of_steps = [cells[step, source.rank, name] for step in table.steps.tolist()]
            assert table.run_cv[r, s] == pytest.approx(cv_of(of_steps), nan_ok=True, abs=1e-9)
    middles = [middle_offset(name, cells, lines) for name in names]
    assert middles == sorted(middles)


def cv_of(of_steps: list[list[Row]]) -> float:
    squares, freedom, seconds, runs = 0.0, 0, 0.0, 0
    for cell in of_steps:
        if len(cell) < 2:
            continue
        mean_s = sum(row.duration_s for row in cell) / sum(row.runs for row in cell)
        squares += sum(row.runs * (row.duration_s / row.runs - mean_s) ** 2 for row in cell)
        freedom += len(cell) - 1
        seconds += sum(row.duration_s for row in cell)
        runs += sum(row.runs for row in cell)
    return math.sqrt(squares / freedom) / (seconds / runs) if freedom else NAN


def middle_offset(
    name: str,
    cells: dict[tuple[int, int, str], list[Row]],
    lines: dict[tuple[int, int], list[Row]],
) -> float:
    return statistics.median(
        min(row.start_ns for row in cell) - min(row.start_ns for row in lines[step, rank])
        for (step, rank, section), cell in cells.items()
        if section == name and cell
    )


@given(ROWS)
def test_a_table_is_what_loops_over_its_rows_say(rows: list[Row]) -> None:
    """Sums, runs, spread, tokens, starts and ends; redelivered rows count once."""
    table = build_step_table(batch_of(rows), world_size=5)
    if not rows:
        assert table is None
        return
    assert table is not None
    assert (table.world_size, table.is_timed) == (5, False)
    check(table, rows)


@given(ROWS, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(rows: list[Row], random: object) -> None:
    """Rows that are all distinct give the same table in any order."""
    distinct = list({(r.rank, r.section, r.seq): r for r in rows}.values())
    shuffled = list(distinct)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    if distinct:
        table = build_step_table(batch_of(shuffled))
        assert table is not None
        check(table, distinct)


def test_a_row_that_stands_for_runs_counts_them_all() -> None:
    """Four microbatches told in one row: one time, four runs."""
    table = build_step_table(batch_of([Row(0, "forward", 16, 5, 2.0, 0, 4, NAN)]))
    assert table is not None
    assert (table.runs.item(), table.seconds.item()) == (4, 2.0)
    assert np.isnan(table.run_cv.item())


def test_the_spread_of_runs_is_that_of_single_runs_within_a_step() -> None:
    """Steps that differ as a whole add nothing: the sequence lengths within a step do."""
    rows = [
        Row(0, "forward", step, at, seconds, 10 * step + at, 1, NAN)
        for step, scale in ((16, 1.0), (21, 3.0))
        for at, seconds in enumerate((scale, scale))
    ]
    table = build_step_table(batch_of(rows))
    assert table is not None
    assert table.run_cv.tolist() == [[0.0]]


def test_kernels_and_nested_sections_are_not_summed() -> None:
    """Their time is in the top-level section around them already."""
    who = Source(run_id="r", rank=0)
    builder = BatchBuilder()
    builder.add(who, Section("forward"), step=1, start_ns=1, duration_s=1.0)
    builder.add(who, Section("layer", parent="forward"), step=1, start_ns=1, duration_s=0.5)
    builder.add(who, Section("forward"), step=1, start_ns=1, duration_s=0.1, kernel=Kernel("gemm"))
    table = build_step_table(builder.build())
    assert table is not None
    assert table.sections == (Section("forward"),)
    assert table.seconds.tolist() == [[[1.0]]]


def test_of_two_sessions_of_a_rank_one_is_summed() -> None:
    """The one with more rows; two processes are never added up."""
    builder = BatchBuilder()
    for session, steps in (("a", (1, 2)), ("b", (1, 2, 3))):
        for step in steps:
            builder.add(
                Source(run_id="r", rank=0, session_id=session),
                Section("forward"),
                step=step,
                start_ns=step,
                duration_s=1.0 if session == "a" else 2.0,
                seq=step,
            )
    table = build_step_table(builder.build())
    assert table is not None
    assert [s.session_id for s in table.sources] == ["b"]
    assert table.seconds.ravel().tolist() == [2.0, 2.0, 2.0]


def test_sections_stand_in_the_order_in_which_they_run() -> None:
    """By their usual start after the first section of the step, on the rank's own clock; a
    clock that is hours off moves nothing."""
    rows = [
        Row(rank, section, step, step * S + index * 10**6 + rank * 3600 * S, 0.001, step, 1, NAN)
        for rank in range(3)
        for step in (16, 21)
        for index, section in ((2, "backward"), (0, "load"), (1, "forward"))
    ]
    table = build_step_table(batch_of(rows))
    assert table is not None
    assert [s.name for s in table.sections] == ["load", "forward", "backward"]


def test_rows_without_a_step_stand_in_intervals_of_time() -> None:
    """Ten seconds each; rows with a step beside them go by their time too."""
    rows = [Row(0, "load", NO_STEP, at * S, 1.0, at, 1, NAN) for at in (1, 9, 11, 35)]
    table = build_step_table(batch_of(rows), interval_ns=10 * S)
    assert table is not None
    assert table.is_timed
    assert table.steps.tolist() == [0, 1, 3]
    assert table.runs.ravel().tolist() == [2, 1, 1]
    assert build_step_table(batch_of(rows)) is None


def test_a_step_lasts_from_the_end_of_the_one_before() -> None:
    """With what no section covers; without a step before, and over a clock that was set back, it is
    what lies between its own first start and last end."""
    ends = StepEnds()
    work = np.ones((6, 2, 1))
    whole = step_table(work, {"forward": "compute"}, wall_s=1.0)
    starts_ns = 10**12 + 3 * S * np.arange(6)[:, None] + np.array([[0, S]])
    starts_ns[4:, 1] -= 600 * S
    whole = replace(whole, start_ns=starts_ns, end_ns=starts_ns + S)
    lost = replace(whole, steps=np.array([0, 1, 2, 3, 4, 6]))
    first, rest = pieces(lost, 3)
    seconds = [ends.timed(table).step_s for table in (first, rest)]
    np.testing.assert_allclose(
        np.concatenate([each for each in seconds if each is not None]),
        [[1.0, 1.0], [3.0, 3.0], [3.0, 3.0], [3.0, 3.0], [3.0, 1.0], [1.0, 1.0]],
    )
