"""CSV: what is accepted, and how each wrong file is named."""

import sys

import numpy as np
import pytest

from otel_straggler.errors import InputError
from otel_straggler.model.observation import NO_KERNEL, NO_SEQ, NO_STEP, Section
from otel_straggler.model.rank import Source
from otel_straggler.recordings.columns import TableRules
from otel_straggler.recordings.csv import ROWS_AT_ONCE, read_csv

HEADER = "run_id,rank,node,role,section,kind,step,start_ns,duration_s"
ROW = "run-1,0,node-0,default,forward,compute,0,1000,0.5"


def lines_of(*lines: str) -> list[bytes]:
    return [f"{line}\n".encode() for line in lines]


def read(*lines: str, header: str = HEADER):
    return read_csv(lines_of(header, *lines), "run.csv")


def refusal(*lines: str, header: str = HEADER) -> str:
    with pytest.raises(InputError) as refused:
        read(*lines, header=header)
    return str(refused.value)


def row(**cells: str) -> str:
    known = dict(zip(HEADER.split(","), ROW.split(","), strict=True))
    return ",".join((known | cells).values())


def test_a_row_becomes_an_observation() -> None:
    """Every column of a row is found again in the batch."""
    batch = read(row(rank="3", role="critic", step="7"))
    source = batch.sources[batch.source[0]]
    section = batch.sections[batch.section[0]]
    assert (source.run_id, source.rank, source.node, source.role) == (
        "run-1",
        3,
        "node-0",
        "critic",
    )
    assert (section.name, section.kind) == ("forward", "compute")
    assert (batch.step[0], batch.start_ns[0], batch.duration_s[0]) == (7, 1000, 0.5)


def test_columns_may_stand_in_any_order() -> None:
    """The header says which column is which."""
    names, cells = HEADER.split(","), ROW.split(",")
    turned = read(",".join(reversed(cells)), header=",".join(reversed(names)))
    plain = read(ROW)
    assert turned.sources == plain.sources
    assert turned.duration_s.tolist() == plain.duration_s.tolist()


def test_repeated_rows_are_distinct_runs() -> None:
    """A CSV carries no sequence numbers: nothing in it is a second delivery."""
    assert read(ROW, ROW).seq.tolist() == [NO_SEQ, NO_SEQ]


def test_a_row_with_a_kernel_is_a_kernel_duration() -> None:
    """The other rows are section runs; the class may be told or is read from the name."""
    batch = read(
        f"{ROW},,",
        f"{ROW},gemm,",
        f"{ROW},ncclDevKernel_AllReduce,",
        f"{ROW},copy,memory",
        header=f"{HEADER},kernel,kernel_class",
    )
    classes = [k if k == NO_KERNEL else batch.kernels[k].kernel_class for k in batch.kernel]
    assert classes == [NO_KERNEL, "compute", "nccl", "memory"]


def test_topology_columns_reach_the_source() -> None:
    """dp, pp, tp and their kin are ranks in the parallel dimensions; an empty cell is unknown."""
    batch = read(f"{ROW},1,,2", header=f"{HEADER},dp,pp,local_rank")
    assert batch.sources[0].parallel == (("data", 1),)
    assert batch.sources[0].local_rank == 2


def test_an_empty_step_means_none() -> None:
    """Rows without steps are scored by time."""
    assert read(row(step=""), row(step="4")).step.tolist() == [NO_STEP, 4]


def test_unknown_columns_are_ignored_with_one_note() -> None:
    """A file may carry more than is scored; that is said once, not per row."""
    notes: list[str] = []
    read_csv(lines_of(f"{HEADER},loss,lr", f"{ROW},1,2", f"{ROW},3,4"), "run.csv", notes.append)
    assert notes == ["run.csv: columns that mean nothing here are ignored: loss, lr"]


def test_a_byte_order_mark_and_windows_line_ends_are_accepted() -> None:
    """Spreadsheets write both."""
    batch = read_csv([b"\xef\xbb\xbf" + f"{HEADER}\r\n".encode(), f"{ROW}\r\n".encode()], "run.csv")
    assert len(batch) == 1


def test_a_byte_order_mark_before_a_quoted_header_is_accepted() -> None:
    """As pandas writes it with QUOTE_ALL and utf-8-sig."""
    header = ",".join(f'"{column}"' for column in HEADER.split(","))
    assert len(read_csv([b"\xef\xbb\xbf" + f"{header}\n".encode(), *lines_of(ROW)], "run.csv")) == 1


def test_copies_and_fills_of_memory_are_a_class_of_their_own() -> None:
    """Told by the names that CUPTI and the PyTorch profiler give them."""
    names = ("[CUDA memcpy HtoD]", "Memset (Device)", "fused_memcpy_kernel")
    batch = read(*(f"{ROW},{name}" for name in names), header=f"{HEADER},kernel")
    assert [batch.kernels[k].kernel_class for k in batch.kernel] == ["memory", "memory", "compute"]


def test_a_nul_byte_is_refused_wherever_it_is() -> None:
    """It is never part of a name. Python 3.10 cannot say in which column it is."""
    message = refusal(ROW, row(section="for\0ward"))
    what = ", column section: got 'for\\x00ward'" if sys.version_info >= (3, 11) else ": got "
    assert message.startswith(f"run.csv:3{what}")
    assert "expected text without a NUL byte" in message


def test_a_value_of_thousands_of_characters_is_shortened() -> None:
    """And blamed on its own column."""
    message = refusal(row(rank="9" * 5000))
    assert message.startswith("run.csv:2, column rank: got '999")
    assert "... (5,000 characters)" in message
    assert len(message) < 300


def test_blank_lines_are_skipped() -> None:
    """A trailing empty line is no row."""
    assert len(read(ROW, "", ROW, "")) == 2


def test_a_quoted_name_may_hold_a_comma_and_a_line_break() -> None:
    """And the lines after it are still counted right."""
    name = '"data,\nloading"'
    assert read(row(section=name)).sections[0].name == "data,\nloading"
    assert refusal(row(section=name), row(rank="x")).startswith("run.csv:4, column rank")


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("duration_s", "fast", "a number of seconds, at most 1e9"),
        ("duration_s", "inf", "a number of seconds, at most 1e9"),
        ("duration_s", "1e300", "a number of seconds, at most 1e9"),
        ("duration_s", "1_0", "a number of seconds, at most 1e9"),
        ("rank", "-1", "a whole number of at least 0"),
        ("rank", "1.5", "a whole number of at least 0"),
        ("rank", "", "a whole number of at least 0"),
        ("rank", "99999999999", "a whole number of at least 0"),
        ("kind", "gpu", "one of compute, data, wait, checkpoint, eval, other"),
        ("section", "", "a name"),
        ("run_id", "", "a name"),
        ("step", "-1", "a whole number of at least 0"),
        ("step", "1.0", "a whole number of at least 0"),
        ("step", "9" * 30, "a whole number of at least 0"),
        ("start_ns", "1.7e18", "a whole number from 0"),
        ("start_ns", "-5", "a whole number from 0"),
        ("start_ns", "9" * 30, "a whole number from 0"),
    ],
)
def test_a_wrong_cell_is_named_with_line_column_value_and_expectation(
    column: str, value: str, expected: str
) -> None:
    """The user can go straight to the cell."""
    message = refusal(ROW, ROW, row(**{column: value}))
    assert message.startswith(f"run.csv:4, column {column}: got {value!r}; expected {expected}")


def test_a_wrong_cell_deep_in_the_file_is_named_by_its_line() -> None:
    """Rows are converted in chunks, but the message is about one row."""
    rows = [ROW] * (ROWS_AT_ONCE + 10)
    rows[-1] = row(duration_s="long")
    assert refusal(*rows).startswith(f"run.csv:{len(rows) + 1}, column duration_s")


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5"])
def test_a_microbatch_is_a_count(value: str) -> None:
    """How many runs the row stands for."""
    message = refusal(f"{ROW},{value}", header=f"{HEADER},microbatch")
    assert message.startswith(f"run.csv:2, column microbatch: got {value!r}; expected a whole")


def test_a_row_stands_for_as_many_runs_as_it_says() -> None:
    """An empty cell means one; where all rows stand for one run there is no column."""
    header = f"{HEADER},microbatch"
    runs = read(f"{ROW},8", f"{ROW},", f"{ROW},1", header=header).runs
    assert runs is not None
    assert runs.tolist() == [8, 1, 1]
    assert read(f"{ROW},1", f"{ROW},", header=header).runs is None
    assert read(ROW).runs is None


def test_an_unknown_kernel_class_is_refused() -> None:
    """Only compute, nccl and memory have a meaning."""
    message = refusal(f"{ROW},gemm,fast", header=f"{HEADER},kernel,kernel_class")
    assert "column kernel_class: got 'fast'; expected one of compute, nccl, memory" in message


def test_a_row_with_a_cell_too_few_is_named() -> None:
    """The number of cells is that of the header."""
    message = refusal(ROW, "run-1,0,node-0")
    assert message.startswith("run.csv:3: got '3 cells'; expected 9, as in the header")


@pytest.mark.parametrize("column", ["rank", "duration_s"])
def test_a_missing_column_is_named(column: str) -> None:
    """Who, and how long: nothing else can stand for these."""
    header = ",".join(c for c in HEADER.split(",") if c != column)
    message = refusal(ROW, header=header)
    assert f"expected a header with a column {column!r}" in message
    assert f"--column {column}=ITS_NAME" in message


def test_a_table_without_steps_and_starts_is_refused() -> None:
    """Nothing says which rows belong together."""
    message = refusal("0,1", header="rank,duration_s")
    assert message.startswith("run.csv:1: got 'rank,duration_s'; expected a header with a column")
    assert "'step' or 'start_ns'" in message


def test_the_other_columns_may_be_missing() -> None:
    """A run without a name has that of its file, and a section's kind comes from its name."""
    rules = TableRules(run_id="run")
    lines = lines_of("rank,section,step,duration_s", "3,all_reduce,7,0.5", "3,forward,7,1")
    batch = read_csv(lines, "run.csv", rules=rules)
    assert batch.sources == (Source(run_id="run", rank=3),)
    assert batch.sections == (Section("all_reduce", "wait"), Section("forward", "compute"))
    assert batch.start_ns.tolist() == [0, 500_000_000]


def test_a_file_without_commas_is_no_csv() -> None:
    """Another separator, or another kind of text."""
    message = refusal("0;1", header="rank;step;duration_s")
    assert message.startswith("run.csv:1: got 'rank;step;duration_s'; expected columns separated")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("0", "duration_zero"),
        ("1e-320", "duration_zero"),
        ("-0.5", "duration_negative"),
        ("nan", "duration_unknown"),
        ("", "duration_unknown"),
    ],
)
def test_a_row_without_a_length_is_skipped_and_counted(value: str, reason: str) -> None:
    """Marks and timers that were never stopped are in every real recording."""
    rules = TableRules()
    lines = lines_of(HEADER, ROW, row(duration_s=value), ROW)
    assert len(read_csv(lines, "run.csv", rules=rules)) == 2
    assert rules.skipped == {reason: 1}


def test_a_column_that_stands_twice_is_refused() -> None:
    """Nobody can know which one counts."""
    message = refusal(f"{ROW},1", header=f"{HEADER},rank")
    assert message.startswith("run.csv:1, column rank: got '2 columns of this name'; expected one")


def test_a_header_without_rows_is_no_data() -> None:
    """An empty report would look like a healthy run."""
    assert "expected rows below the header. There is no data to score." in refusal()


def test_text_that_is_no_utf8_is_named_by_its_line() -> None:
    """The line is counted, the bytes are shown."""
    with pytest.raises(InputError, match=r"run.csv:3: got b'\\xff\\xfe.*; expected text in UTF-8"):
        read_csv([*lines_of(HEADER, ROW), b"run-1,\xff\xfe,x\n"], "run.csv")


def test_a_quote_that_is_never_closed_is_refused() -> None:
    """The reader's complaint becomes a message with a place."""
    assert "expected a line of CSV" in refusal('run-1,0,"node-0')


def test_columns_have_the_types_that_scoring_expects() -> None:
    """int32 codes, int64 times, float64 seconds."""
    batch = read(ROW)
    assert batch.source.dtype == batch.section.dtype == batch.kernel.dtype == np.int32
    assert batch.step.dtype == batch.start_ns.dtype == batch.seq.dtype == np.int64
    assert batch.duration_s.dtype == np.float64
