"""``otel-straggler score`` and ``replay`` on recordings as people have them."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_straggler.simulate.runs import Fault, Layout, RunPlan, generate
from otel_straggler.simulate.writers import write_csv

Call = Callable[..., tuple[int, str, str]]


def write_ranks(folder: Path, steps: int = 40, slow: float = 1.5, since: int = 0) -> Path:
    """A table per rank, without names of the run, in milliseconds; rank 1 is slow."""
    folder.mkdir()
    for rank in range(4):
        rows = ["rank,iteration,op,took_ms"]
        for step in range(100, 100 + steps):
            work = (100 + (step * 7 + rank * 3) % 5) * (
                slow if rank == 1 and step >= since else 1.0
            )
            rows += [f"{rank},{step},forward,{work}", f"{rank},{step},all_reduce,{160 - work}"]
        (folder / f"rank{rank}.csv").write_text("\n".join(rows))
    return folder


def test_a_directory_of_tables_is_scored(call: Call, tmp_path: Path) -> None:
    """The columns are mapped, the run is named after the folder, waiting is known by its name."""
    folder = write_ranks(tmp_path / "job-7", steps=60)
    code, output, errors = call("score", folder, "--column", "duration_ms=took_ms")
    assert (code, errors) == (0, "")
    assert output.startswith("run job-7: 4 ranks, steps 100 to 159")
    assert "confirmed: rank 1 takes 1." in output
    assert "all_reduce" in output
    report = json.loads(call("score", folder, "--column=duration_ms=took_ms", "--json")[1])
    assert report["runs"]["job-7"]["windows"][-1]["sections"]["all_reduce"] == "wait"


def test_a_directory_is_replayed(call: Call, tmp_path: Path) -> None:
    """With the same options. A rank that was always slow would page nobody: it may be a stage."""
    folder = write_ranks(tmp_path / "job-7", steps=100, since=150)
    code, output, errors = call(
        "replay", folder, "--would-have-paged", "--column", "duration_ms=took_ms"
    )
    assert (code, errors) == (0, "")
    assert output.startswith("run job-7, ")
    assert output.splitlines()[0].endswith(" recorded: 1 page")


def test_what_no_column_is_named_says_how_to_map_one(call: Call, tmp_path: Path) -> None:
    """One line, and no traceback."""
    folder = write_ranks(tmp_path / "job-7", steps=60)
    code, _, errors = call("score", folder)
    assert code == 2
    assert "--column duration_s=ITS_NAME, or duration_ms and the like by its unit." in errors
    assert len(errors.splitlines()) == 1


def test_rows_of_no_length_are_counted_in_the_output(call: Call, tmp_path: Path) -> None:
    """In text and in JSON."""
    folder = write_ranks(tmp_path / "job-7", steps=60)
    path = folder / "rank0.csv"
    path.write_text(path.read_text() + "\n0,100,mark,0" * 12 + "\n0,100,mark,-1\n0,100,mark,nan")
    arguments = ("score", folder, "--column", "duration_ms=took_ms")
    _, _, errors = call(*arguments)
    assert errors.splitlines() == [
        f"otel-straggler: note: {folder}: skipped 12 rows with a duration of zero",
        f"otel-straggler: note: {folder}: skipped 1 row with a negative duration",
        f"otel-straggler: note: {folder}: skipped 1 row without a duration",
    ]
    report = json.loads(call(*arguments, "--json")[1])
    assert report["runs"]["job-7"]["not_scored"] == {
        "duration_zero": 12,
        "duration_negative": 1,
        "duration_unknown": 1,
    }


@pytest.mark.parametrize("verb", [("score",), ("replay", "--would-have-paged")])
def test_a_recording_too_short_for_verdicts_says_so(
    call: Call, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    """All well, or too early to know: these look alike."""
    folder = write_ranks(tmp_path / "job-7", steps=12)
    _, _, errors = call(*verb, folder, "--column", "duration_ms=took_ms")
    assert errors == (
        f"otel-straggler: note: {folder}: run job-7 has 12 steps; verdicts need about 20: "
        "only large slowdowns can show\n"
    )


def test_a_short_recording_from_the_start_may_be_warming_up(call: Call, recorded) -> None:
    """Slow first steps are left out."""
    _, _, errors = call("score", recorded(steps=19))
    assert "has 19 steps; verdicts need about 20, or 40 if the first 20 are slower" in errors
    assert call("score", recorded(steps=20))[2] == ""


def test_the_settings_say_how_long_verdicts_need(call: Call, recorded, tmp_path: Path) -> None:
    """The shortest window, and the warm-up."""
    config = tmp_path / "c.yaml"
    config.write_text("verdicts: {windows_steps: [50, 100], warm_up_steps: 0}\n")
    _, _, errors = call("score", recorded(steps=30), "--config", config)
    assert "has 30 steps; verdicts need about 50: only" in errors


def test_a_short_recording_without_steps_says_so(call: Call, tmp_path: Path) -> None:
    """By its length."""
    path = tmp_path / "run.csv"
    rows = [f"{rank},{at},1" for at in range(30) for rank in (0, 1)]
    path.write_text("\n".join(["rank,start_s,duration_s", *rows]))
    _, _, errors = call("score", path)
    assert "run run has no steps and lasts 30.0 s; verdicts need about 200 s" in errors


def test_one_rank_alone_has_no_peer(call: Call, tmp_path: Path) -> None:
    """One trace of a job is easily taken for all of them."""
    folder = write_ranks(tmp_path / "job-7", steps=60)
    _, _, errors = call("score", folder / "rank1.csv", "--column", "duration_ms=took_ms")
    assert "run rank1 has one rank: score it together with its peers" in errors


def test_a_file_that_is_cut_off_is_one_line(call: Call, recorded, tmp_path: Path) -> None:
    """With its name, and exit code 2."""
    packed = tmp_path / "run.csv.gz"
    packed.write_bytes(gzip.compress(recorded().read_bytes())[:-30])
    code, output, errors = call("score", packed)
    assert (code, output) == (2, "")
    assert errors.startswith(f"otel-straggler: error: {packed}: got '")
    assert len(errors.splitlines()) == 1


def test_a_pipe_is_replayed_from_its_first_byte(call: Call, tmp_path: Path) -> None:
    """To ask whether it is a history would take its beginning away."""
    plan = RunPlan(
        layout=Layout.parse("dp4"), steps=80, faults=(Fault.parse("compute:2@rank1:step0"),)
    )
    content = "".join(write_csv(generate(plan).batches())).encode()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(content,))
    writer.start()
    code, output, errors = call("replay", pipe, "--would-have-paged")
    writer.join()
    assert (code, errors) == (0, "")
    assert "1 page" in output
