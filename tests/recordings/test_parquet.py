"""Parquet: what is accepted, and how each wrong file is named."""

from __future__ import annotations

import builtins
import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_straggler.errors import InputError, StragglerError, UnavailableError
from otel_straggler.recordings import files
from otel_straggler.recordings.files import Recording, read_recording
from otel_straggler.simulate.scenarios import Plan, simulate
from otel_straggler.simulate.writers import write_csv

from .shared_data import shared

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: Parquet was not read")
arrow_csv = pytest.importorskip("pyarrow.csv")
parquet = pytest.importorskip("pyarrow.parquet")

RUN = simulate("one_slow_rank", Plan(ranks=4, steps=3, slow_rank=1)).batch


def written(table: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    parquet.write_table(table, file, **options)
    return file.getvalue()


def table_of(**columns: Any) -> Any:
    plain = {"rank": [0, 1], "step": [5, 5], "section": ["fwd", "fwd"], "duration_s": [1.0, 2.0]}
    return pa.table({name: cells for name, cells in (plain | columns).items() if cells is not None})


def read(content: bytes) -> Recording:
    return read_recording(io.BytesIO(content), "run.parquet")


def refusal(content: bytes) -> str:
    with pytest.raises(StragglerError) as refused:
        read(content)
    return str(refused.value)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_table_means_what_its_csv_means(pack: Any) -> None:
    """The same columns, names and rules; gzip is seen by its first bytes."""
    text = "".join(write_csv([RUN])).encode()
    recording = read(pack(written(arrow_csv.read_csv(io.BytesIO(text)))))
    batch, expected = recording.batch, read_recording(io.BytesIO(text), "run.csv").batch
    assert recording.form == "parquet"
    assert (batch.sources, batch.sections) == (expected.sources, expected.sections)
    for column in ("source", "section", "kernel", "step", "start_ns", "duration_s"):
        assert np.array_equal(getattr(batch, column), getattr(expected, column))


def test_dictionaries_gaps_and_dates_are_read() -> None:
    """As pandas writes them."""
    start = pa.array([1_700_000_000_000_000, None], pa.timestamp("us", "UTC"))
    content = written(
        table_of(
            section=pa.array(["fwd", "fwd"]).dictionary_encode(),
            step=pa.array([5, None], pa.int64()),
            start_time=start.fill_null(start[0]),
            duration_s=None,
            duration=pa.array([1_500, 2_500], pa.duration("ms")),
            dp_rank=[1.0, float("nan")],
        )
    )
    batch = read(content).batch
    assert batch.step.tolist() == [5, -1]
    assert batch.start_ns[0] == 1_700_000_000 * 10**9
    assert batch.duration_s.tolist() == [1.5, 2.5]
    assert [source.parallel for source in batch.sources] == [(("data", 1),), ()]


def test_rows_without_a_length_are_skipped_and_counted() -> None:
    """As of a CSV."""
    durations = [0.0, -1.0, None, 1.0]
    content = written(table_of(rank=[0] * 4, step=[1] * 4, section=["x"] * 4, duration_s=durations))
    reasons = ("duration_zero", "duration_negative", "duration_unknown")
    assert read(content).not_scored == dict.fromkeys(reasons, 1)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"rank": [0, -1]}, "column rank, row 2: got '-1'; expected a whole number of at least 0"),
        ({"rank": [0, None]}, "column rank, row 2: got ''; expected a whole number"),
        ({"rank": [0, 1.5]}, "column rank, row 2: got '1.5'; expected a whole number"),
        ({"step": [1.5, 2.0]}, "column step: got 'double: "),
        ({"step": [1, -7]}, "column step, row 2: got -7; expected a whole number"),
        ({"section": ["a", None]}, "column section, row 2: got ''; expected a name"),
        ({"kind": ["wait", "gpu"]}, "column kind, row 2: got 'gpu'; expected one of compute"),
        ({"duration_s": ["a", "b"]}, "column duration_s: got 'a column of string'"),
        ({"duration_s": [1.0, 1e300]}, "column duration_s, row 2: got 1e+300; expected at most"),
        ({"start_ns": [1, None]}, "column start_ns, row 2: got None; expected a whole number"),
        ({"microbatch": [1, 0]}, "column microbatch: got '0'; expected a whole number"),
    ],
)
def test_a_wrong_cell_is_named(columns: dict[str, Any], message: str) -> None:
    """By column and row."""
    assert refusal(written(table_of(**columns))).startswith(f"run.parquet, {message}")


def test_a_table_without_ranks_is_refused() -> None:
    """With what to do about it."""
    message = refusal(written(table_of(rank=None)))
    assert "run.parquet: got 'step,section,duration_s'; expected a header with a column 'rank'" in (
        message
    )


def test_a_table_without_rows_is_no_data() -> None:
    """An empty report would look like a healthy run."""
    assert "got 'no rows'" in refusal(written(table_of().slice(0, 0)))


@pytest.mark.parametrize("cut", [4, 100, -1])
def test_a_file_that_is_cut_off_is_refused(cut: int) -> None:
    """In one line."""
    message = refusal(written(table_of())[:cut])
    assert message.startswith("run.parquet: got '")
    assert "expected a complete Parquet file. Was the download or copy cut off?" in message
    assert "\n" not in message


def test_a_small_file_of_many_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before they are unpacked."""
    monkeypatch.setattr(files, "MAX_PLAIN_BYTES", 1_000)
    count = 100_000
    big = table_of(
        rank=np.arange(count) % 2,
        step=np.arange(count),
        section=["fwd"] * count,
        duration_s=np.arange(count) + 1.0,
    )
    assert "bytes'; expected at most 1,000. Split it" in refusal(written(big))


def test_without_pyarrow_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no dependency of the package."""
    really = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ModuleNotFoundError(name=name)
        return really(name, *rest, **more)

    content = written(table_of())
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UnavailableError) as refused:
        read(content)
    assert str(refused.value).endswith("Install it with: pip install 'otel-straggler[parquet]'")


@pytest.mark.parametrize(("name", "ranks", "marks"), [("AR", 16, 704), ("ST", 8, 256)])
def test_a_published_trace_is_read_as_it_is(name: str, ranks: int, marks: int) -> None:
    """All operations; who sends and receives waits, and the layout is that of the columns."""
    path: Path = shared(f"pipeline_traces/trace-{name}.parquet")
    with path.open("rb") as file:
        recording = read_recording(file, str(path))
    batch = recording.batch
    assert recording.not_scored == {"duration_zero": marks}
    assert len(batch) == parquet.read_metadata(path).num_rows - marks
    assert len(batch.sources) == ranks
    assert {source.run_id for source in batch.sources} == {f"trace-{name}"}
    assert {dict(source.parallel)["pipeline"] for source in batch.sources} == {0, 1, 2, 3}
    sections = [batch.sections[code] for code in np.unique(batch.section)]
    compute = {section.name for section in sections if section.kind == "compute"}
    assert compute == {"forward-compute", "backward-compute", "optimizer"}
    assert {section.kind for section in sections} == {"compute", "wait"}
    steps = np.unique(batch.step)
    begins = [batch.start_ns[batch.step == step].min() for step in steps]
    assert np.all(np.diff(begins) > 0)


def test_a_text_named_parquet_is_read_for_what_it_is() -> None:
    """The content decides."""
    with pytest.raises(InputError, match="expected columns separated by commas"):
        read(b"hello\n")
