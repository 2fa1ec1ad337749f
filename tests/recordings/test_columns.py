"""Tables of other tools: names and units of columns, kinds of operations, and when steps begin."""

from __future__ import annotations

import numpy as np
import pytest

from otel_straggler.errors import ConfigError, InputError
from otel_straggler.model.observation import ObservationBatch
from otel_straggler.recordings.columns import (
    TableRules,
    find_columns,
    kind_of_operation,
    parse_mapping,
)
from otel_straggler.recordings.csv import read_csv


def read(text: str, notes: list[str] | None = None, **columns: str) -> ObservationBatch:
    lines = [line.encode() + b"\n" for line in text.split()]
    notes = [] if notes is None else notes
    return read_csv(lines, "run.csv", notes.append, TableRules(columns=columns))


def test_columns_of_other_tools_are_recognized() -> None:
    """The layout too: a rank is compared with those that do the same work."""
    batch = read("global_rank,iteration,optype,duration_ms,dp_rank,stage\n3,7,forward,250,1,2")
    [source] = batch.sources
    assert source.rank == 3
    assert source.parallel == (("data", 1), ("pipeline", 2))
    assert (batch.step[0], batch.sections[0].name, batch.duration_s[0]) == (7, "forward", 0.25)


def test_a_column_is_mapped_by_its_name() -> None:
    """Whatever it is called, and in whatever unit."""
    batch = read("who,n,took\n3,7,250", rank="who", step="n", duration_us="took")
    assert (batch.sources[0].rank, batch.step[0], batch.duration_s[0]) == (3, 7, 250e-6)


def test_our_own_name_beats_another() -> None:
    """A file may have both."""
    columns = find_columns(["stage", "pp", "rank", "step", "duration_s"], TableRules(), "run")
    assert columns.of["pp"] == "pp"


def test_a_mapped_column_that_is_not_there_is_named() -> None:
    """With those that are."""
    with pytest.raises(ConfigError, match=r"--column rank: got 'x'; expected one of the columns"):
        read("rank,step,duration_s\n1,1,1", rank="x")


@pytest.mark.parametrize("text", ["rank", "rank=", "color=x", "duration_h=x"])
def test_a_mapping_that_means_nothing_is_refused(text: str) -> None:
    """The names that have a meaning are listed."""
    with pytest.raises(
        ConfigError, match="expected NAME=COLUMN with one of the names run_id, rank"
    ):
        parse_mapping([text])


@pytest.mark.parametrize(
    ("start", "unit"), [("1700000000", "s"), ("1700000000000", "ms"), ("1700000000000000000", "ns")]
)
def test_a_time_without_a_unit_is_read_as_the_date_says(start: str, unit: str) -> None:
    """And a note says so."""
    notes: list[str] = []
    batch = read(f"rank,step,start,duration\n0,1,{start},5", notes)
    assert batch.start_ns[0] == 1_700_000_000 * 10**9
    assert batch.duration_s[0] == pytest.approx({"s": 5, "ms": 5e-3, "ns": 5e-9}[unit])
    assert f"run.csv: start and duration read as {unit}: no unit in the name" in notes[-1]


def test_a_start_beyond_any_date_is_refused() -> None:
    """The unit is another."""
    with pytest.raises(InputError, match=r"run.csv, column start_s: got '1e\+12'; expected a time"):
        read("rank,step,start_s,duration_s\n0,1,1e12,5")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("forward-compute", "compute"),
        ("backward-send", "wait"),
        ("grads-reduce-scatter", "wait"),
        ("params-all-gather", "wait"),
        ("ncclDevKernel_AllReduce_Sum", "wait"),
        ("all2all_data:kjt", "wait"),
        ("optimizer", "compute"),
        ("optimizer-clip-main-grad", "wait"),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "data"),
        ("save_checkpoint", "checkpoint"),
        ("checkpointed_forward", "compute"),
        ("validation", "eval"),
        ("sender_mlp", "compute"),
    ],
)
def test_the_words_of_a_name_say_its_kind(name: str, kind: str) -> None:
    """Who waits for others is no culprit."""
    assert kind_of_operation(name) == kind


def test_clocks_that_begin_again_in_every_step_are_laid_end_to_end() -> None:
    """As in published traces; within a step nothing moves."""
    notes: list[str] = []
    rows = [f"{rank},{step},{0.1 * rank},0.5" for step in (5, 6, 7) for rank in (0, 1)]
    batch = read("\n".join(["rank,step,start_s,duration_s", *rows]), notes)
    assert (batch.start_ns / 1e9).tolist() == pytest.approx([0.0, 0.1, 0.6, 0.7, 1.2, 1.3])
    assert "all steps begin at the same time: they are laid end to end" in notes[-1]


@pytest.mark.parametrize("steps", [2, 50])
def test_clocks_that_run_on_are_left_alone(steps: int) -> None:
    """Steps may overlap a little."""
    rows = [f"{r},{s},{s + 0.2 * r},1" for s in range(steps) for r in (0, 1)]
    batch = read("\n".join(["rank,step,start_s,duration_s", *rows]))
    assert batch.start_ns.max() == round((steps - 1 + 0.2) * 1e9)


def test_without_starts_the_rows_of_a_rank_follow_each_other() -> None:
    """All ranks begin a step together."""
    batch = read("rank,step,duration_s\n0,1,1\n0,1,2\n1,1,5\n0,2,1\n1,2,1")
    assert (batch.start_ns / 1e9).tolist() == [0, 1, 0, 5, 5]
    assert np.all(batch.step == [1, 1, 1, 2, 2])
