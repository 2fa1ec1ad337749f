"""Directories: which files are a recording, and what is said of the others."""

from __future__ import annotations

import gzip
import os
import socket
from pathlib import Path

import pytest

from otel_straggler.errors import InputError
from otel_straggler.recordings import files
from otel_straggler.recordings.files import (
    Recording,
    RecordingReader,
    input_files,
    open_input,
    run_name,
)
from otel_straggler.simulate.scenarios import Plan, simulate
from otel_straggler.simulate.writers import encode_requests, frame, write_csv

RUN = simulate("one_slow_rank", Plan(ranks=4, steps=3, slow_rank=1)).batch


def read(folder: Path, notes: list[str] | None = None) -> Recording:
    notes = [] if notes is None else notes
    reader = RecordingReader(str(folder), is_directory=True, note=notes.append)
    for path in input_files(str(folder), notes.append):
        with open_input(path) as file:
            reader.read(file, path)
    return reader.recording()


def of_rank(rank: int, folder: Path) -> Path:
    """A table that names no run."""
    rows = "".join(f"{rank},{step},forward,0.{rank + 1}\n" for step in range(3))
    path = folder / f"rank{rank}.csv"
    path.write_text(f"rank,step,section,duration_s\n{rows}")
    return path


def test_all_files_of_a_directory_are_one_run(tmp_path: Path) -> None:
    """Packed or not, and named after the directory where they name no run."""
    for rank in range(3):
        of_rank(rank, tmp_path)
    packed = gzip.compress(of_rank(3, tmp_path).read_bytes())
    (tmp_path / "rank3.csv").write_bytes(packed)
    batch = read(tmp_path).batch
    assert [source.rank for source in batch.sources] == [0, 1, 2, 3]
    assert {source.run_id for source in batch.sources} == {tmp_path.name}
    assert len(batch) == 12


def test_a_directory_may_hold_several_formats(tmp_path: Path) -> None:
    """Rows that name their run keep it."""
    (tmp_path / "a.csv").write_text("".join(write_csv([RUN])))
    (tmp_path / "b.pb").write_bytes(b"".join(map(frame, encode_requests(RUN))))
    recording = read(tmp_path)
    assert len(recording.batch) == 2 * len(RUN)
    assert {source.run_id for source in recording.batch.sources} == {"simulated"}


def test_files_that_are_no_recordings_are_left_out_with_a_note(tmp_path: Path) -> None:
    """Settings, pictures and readmes lie next to recordings."""
    of_rank(0, tmp_path)
    (tmp_path / "README.md").write_text("# A run\n")
    (tmp_path / "results.json").write_text('{"loss": 3}\n')
    (tmp_path / "plot.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\0")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / ".hidden").write_text("x")
    (tmp_path / "deeper").mkdir()
    notes: list[str] = []
    assert len(read(tmp_path, notes).batch) == 3
    assert f"{tmp_path}: folders in it are not read: deeper" in notes
    names = "README.md, empty, plot.png, results.json"
    assert f"{tmp_path}: left out, no recordings: {names}" in notes


def test_a_directory_without_a_recording_is_refused(tmp_path: Path) -> None:
    """With what is wrong with the first file."""
    (tmp_path / "README.md").write_text("# A run\n")
    with pytest.raises(InputError, match=r"README.md:1: got '# A run'; expected columns separated"):
        read(tmp_path)


def test_a_directory_without_files_is_refused(tmp_path: Path) -> None:
    """Its folders are named."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with pytest.raises(InputError, match=r"without files'.* Name one of its folders: a, b\."):
        read(tmp_path)


def test_a_damaged_recording_in_a_directory_is_an_error(tmp_path: Path) -> None:
    """A rank that is missing by accident would look like a healthy one."""
    of_rank(0, tmp_path)
    (tmp_path / "rank1.csv.gz").write_bytes(
        gzip.compress(of_rank(1, tmp_path).read_bytes() * 50)[:-20]
    )
    with pytest.raises(InputError, match=r"rank1\.csv\.gz: .*expected a complete gzip file"):
        read(tmp_path)


def test_two_runs_in_a_directory_are_refused(tmp_path: Path) -> None:
    """Without names of runs, the same step of the same rank gives them away."""
    content = of_rank(0, tmp_path).read_text()
    (tmp_path / "rank0_again.csv").write_text(content)
    with pytest.raises(InputError) as refused:
        read(tmp_path)
    assert "got 'step 0 of rank 0, which" in str(refused.value)
    assert "Put the files of each run into a folder of its own." in str(refused.value)


def test_pipes_and_sockets_of_a_directory_are_never_opened(tmp_path: Path) -> None:
    """A reader of a pipe would wait forever."""
    of_rank(0, tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "sock"))
        notes: list[str] = []
        assert len(read(tmp_path, notes).batch) == 3
    assert f"{tmp_path}: left out, no regular files: pipe, sock" in notes


def test_devices_are_refused() -> None:
    """Some never end."""
    with pytest.raises(InputError, match="/dev/zero: got 'a device or socket'"):
        open_input("/dev/zero")


def test_unpacked_content_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file may hold any number of zeros."""
    monkeypatch.setattr(files, "MAX_PLAIN_BYTES", 1_000_000)
    (tmp_path / "bomb.gz").write_bytes(
        gzip.compress(b"rank,step,duration_s\n0,1," + b"1" * 2_000_000)
    )
    with pytest.raises(InputError, match=r"bomb.gz: got 'more content than is read at once'"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/runs/trace-AR.parquet", "trace-AR"),
        ("rank0.pt.trace.json.gz", "rank0"),
        ("job.7", "job.7"),
        ("/dev/fd/63", "recording"),
        ("<stdin>", "recording"),
    ],
)
def test_a_run_without_a_name_has_that_of_its_file(path: str, name: str) -> None:
    """Endings of formats are no part of it."""
    assert run_name(path) == name
