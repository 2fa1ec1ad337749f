"""What DDP's timers say of the section around them, in a table of steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler import semconv
from otel_straggler.detect.scores.ddp_timers import timer_of
from otel_straggler.detect.scores.settings import ScoreSettings, VerdictSettings
from otel_straggler.detect.scores.step_tables import build_step_table
from otel_straggler.detect.scores.stream import Stream
from otel_straggler.model.observation import (
    COLLECTIVE,
    CUPTI,
    DDP,
    EVENTS,
    HOST,
    BatchBuilder,
    GpuTimes,
    ObservationBatch,
    Section,
)
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable

NAN = float("nan")
FORWARD, BACKWARD = Section("forward"), Section("backward")
Row = tuple[int, Section, int, float, int]
"""Rank, section, step, seconds, and basis."""


def timer(name: str, parent: str = "backward") -> Section:
    return Section(f"{parent}/{name}", "wait" if "comm" in name else "compute", parent)


def of_ddp(rank: int, step: int, own_s: float, waited_s: float, around: str) -> list[Row]:
    """What DDP's timers send of a backward."""
    return [
        (rank, timer(semconv.DDP_BACKWARD, around), step, own_s, EVENTS),
        (rank, timer(semconv.DDP_COMMUNICATION, around), step, waited_s, EVENTS),
    ]


def batch_of(rows: list[Row]) -> ObservationBatch:
    builder = BatchBuilder()
    for at, (rank, section, step, seconds, _) in enumerate(rows):
        builder.add(
            Source(run_id="r", rank=rank), section, step=step, seq=at,
            start_ns=step * 10**9 + at, duration_s=seconds,
        )  # fmt: skip
    basis = np.array([row[4] for row in rows], np.uint8)
    seconds = np.array([row[3] for row in rows])
    busy_s = np.where(basis == HOST, NAN, seconds)
    nccl_s = np.where(basis >= CUPTI, 0.25 * seconds, NAN)
    return replace(builder.build(), gpu=GpuTimes(basis, busy_s, nccl_s, np.full(len(rows), NAN)))


def table_of(rows: list[Row]) -> StepTable:
    table = build_step_table(batch_of(rows))
    assert table is not None
    return table


def cell(table: StepTable, step: int, rank: int, section: Section) -> tuple[int, float, float]:
    """Basis, own seconds and waiting."""
    at = (
        table.steps.tolist().index(step),
        [source.rank for source in table.sources].index(rank),
        table.sections.index(section),
    )
    if table.gpu is None:
        return HOST, NAN, NAN
    return int(table.gpu.basis[at]), float(table.gpu.own_s[at]), float(table.gpu.nccl_s[at])


def test_a_section_has_the_times_of_ddp_and_lasts_as_long_as_by_the_hosts_clock() -> None:
    """Own work and waiting are apart, and nothing is in the step twice."""
    rows: list[Row] = [(0, FORWARD, 5, 0.01, HOST), (0, BACKWARD, 5, 0.02, HOST)]
    plain = table_of(rows)
    table = table_of(
        [
            *rows,
            (0, timer(semconv.DDP_FORWARD, "forward"), 5, 0.3, EVENTS),
            *of_ddp(0, 5, 0.7, 0.1, "backward"),
        ]
    )
    assert cell(table, 5, 0, FORWARD) == (DDP, 0.3, 0.0)
    assert cell(table, 5, 0, BACKWARD) == (DDP, 0.7, 0.1)
    assert table.sections == plain.sections
    np.testing.assert_array_equal(table.seconds, plain.seconds)
    np.testing.assert_array_equal(table.end_ns, plain.end_ns)
    np.testing.assert_array_equal(table.runs, plain.runs)


def test_one_section_around_both_has_their_sum() -> None:
    """As where a trainer's callbacks see forward and backward as one."""
    whole = Section("train")
    table = table_of(
        [
            (0, whole, 5, 0.02, HOST),
            (0, timer(semconv.DDP_FORWARD, "train"), 5, 0.25, EVENTS),
            *of_ddp(0, 5, 0.5, 0.125, "train"),
        ]
    )
    assert cell(table, 5, 0, whole) == (DDP, 0.75, 0.125)


def test_kernels_tell_more_and_events_and_collectives_less() -> None:
    """A cell by kernels stays as it was; another goes by DDP's timers."""
    for basis, expected in ((CUPTI, CUPTI), (EVENTS, DDP), (COLLECTIVE, DDP), (HOST, DDP)):
        rows: list[Row] = [(0, BACKWARD, 5, 0.02, basis), *of_ddp(0, 5, 0.7, 0.1, "backward")]
        assert cell(table_of(rows), 5, 0, BACKWARD)[0] == expected


def test_steps_that_ddp_did_not_sample_stay_with_the_host() -> None:
    """So does a rank that reports nothing of it."""
    rows = [(rank, BACKWARD, step, 0.02, HOST) for rank in range(2) for step in range(5, 8)]
    table = table_of([*rows, *of_ddp(1, 6, 0.7, 0.1, "backward")])
    bases = [[cell(table, step, rank, BACKWARD)[0] for rank in range(2)] for step in range(5, 8)]
    assert bases == [[HOST, HOST], [HOST, DDP], [HOST, HOST]]


@pytest.mark.parametrize(
    "odd",
    [
        of_ddp(0, 9, 0.7, 0.1, "backward"),  # of a step that is not here
        of_ddp(7, 5, 0.7, 0.1, "backward"),  # of a rank that is not here
        of_ddp(0, 5, 0.7, 0.1, "optimizer"),  # of a section that is not here
        of_ddp(0, 5, 0.7, 0.1, "backward")[1:],  # waiting alone
        [(0, timer(semconv.DDP_BACKWARD), 5, 0.7, HOST)],  # by the host's clock
        [(0, Section("eval/backward/ddp_backward", "compute", "backward"), 5, 0.7, EVENTS)],
        [(0, Section("ddp_backward", "compute", "backward"), 5, 0.7, EVENTS)],
        [(0, Section("backward/attention", "compute", "backward"), 5, 0.7, EVENTS)],
    ],
)
def test_what_belongs_to_no_section_says_nothing(odd: list[Row]) -> None:
    """The section next to it stays by the host's clock."""
    table = table_of([(0, BACKWARD, 5, 0.02, HOST), *odd])
    assert cell(table, 5, 0, BACKWARD)[0] == HOST
    assert table.sections == (BACKWARD,)


def test_a_section_of_the_users_with_such_a_name_is_a_section() -> None:
    """At the top there is nothing around it."""
    mine = Section("backward/ddp_backward")
    assert timer_of(mine) == ""
    assert table_of([(0, mine, 5, 0.5, HOST)]).sections == (mine,)


def test_intervals_of_time_have_no_times_of_ddp() -> None:
    """Its spans begin one step before they are sent."""
    rows: list[Row] = [(0, BACKWARD, 5, 0.02, HOST), *of_ddp(0, 5, 0.7, 0.1, "backward")]
    table = build_step_table(batch_of(rows), interval_ns=10**10)
    assert table is not None
    assert table.sections == (BACKWARD,)
    assert table.gpu is None or not table.gpu.basis.any()


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(5, 12)), unique=True, min_size=1),
    st.integers(0, 2**16),
)
def test_times_reach_verdicts_however_late_and_often_they_come(
    sampled: list[tuple[int, int]], seed: int
) -> None:
    """Within the block of their step: in any order, twice, or in a batch of their own."""
    rows: list[Row] = [(r, BACKWARD, s, 0.02, HOST) for r in range(4) for s in range(5, 13)]
    for rank, step in sampled:
        rows += of_ddp(rank, step, 0.5 + 0.01 * rank, 0.1, "backward")
    batch = batch_of(rows)
    order = np.random.default_rng(seed).permutation(len(batch))
    stream = Stream(ScoreSettings(), VerdictSettings(), 0)
    stream.observe(batch.take(order[: len(order) // 2]), 0)
    stream.observe(batch.take(order), 0)
    tables = list(stream.close_all_tables())
    for table in tables:
        for step in table.steps.tolist():
            for rank in range(4):
                expected = (DDP, 0.5 + 0.01 * rank, 0.1) if (rank, step) in sampled else None
                found = cell(table, step, rank, BACKWARD)
                assert found == expected if expected else found[0] == HOST
    assert sum(len(table) for table in tables) == 8
