"""Stacks of many ranks are read together: the few that are elsewhere are named."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.cli import main
from otel_straggler.detect.hangs.stacks import cluster
from otel_straggler.model.diagnostics import StackFrame, StacksHead, ThreadStack, parse_dumps

TORCH = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
WAITING = (("all_reduce", TORCH, 2810), ("train", "/home/ada/train.py", 60))
LOADING = (("read", "/usr/lib/python3.11/socket.py", 706), ("load", "/home/ada/data.py", 41),
           ("train", "/home/ada/train.py", 58))  # fmt: skip


def thread(*frames: tuple[str, str, int], number: int = 7) -> ThreadStack:
    return ThreadStack(number, "", tuple(StackFrame(*frame) for frame in frames))


def text_of(*frames: tuple[str, str, int]) -> str:
    lines = [f'  File "{file}", line {line} in {function}' for function, file, line in frames]
    helper = 'Thread 0x00000002 (most recent call first):\n  File "x.py", line 1 in other\n\n'
    main_thread = "Thread 0x00000007 (most recent call first):\n" + "\n".join(lines)
    return f"{helper}{main_thread}\n"


def head(rank: int, **changes: str) -> StacksHead:
    made = StacksHead(run="r", rank=str(rank), node=f"n{rank}", at="2026-01-01T00:00:00+00:00",
                      why="announced", main_thread="0x0000000000000007")  # fmt: skip
    return replace(made, **changes)


def write(folder: Path, rank: int, *frames: tuple[str, str, int], asked: bool = True) -> None:
    text = head(rank).text()
    if asked:
        text += head(rank, why="asked", by="faulthandler").text()
    (folder / f"r--rank{rank}-s.stacks.txt").write_text(text + (text_of(*frames) if frames else ""))


def test_the_rank_that_is_elsewhere_is_named_with_its_own_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The innermost frame of the program, not of a library; and what the others are in."""
    for rank in range(5):
        write(tmp_path, rank, *(LOADING if rank == 3 else WAITING))
    assert main(["hang", str(tmp_path)]) == 0
    assert capsys.readouterr().out == (
        "Rank 3 is not where the others are: in load (data.py, line 41), there in read (socket.py, "
        "line 706). Ranks 0 to 2 and 4 are in train (train.py, line 60), there in all_reduce "
        "(distributed_c10d.py, line 2810).\n"
    )
    assert main(["hang", "--json", str(tmp_path)]) == 0
    reported = json.loads(capsys.readouterr().out)["stacks"]
    assert [(s["ranks"], s["own"]["function"]) for s in reported["suspects"]] == [([3], "load")]
    assert reported["dominant"]["ranks"] == [0, 1, 2, 4]


def test_ranks_that_say_nothing_are_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asked and silent; not asked; without a file; with an empty one."""
    for rank in (0, 1, 2):
        write(tmp_path, rank, *WAITING)
    write(tmp_path, 4)
    write(tmp_path, 5, asked=False)
    (tmp_path / "r--rank6-s.stacks.txt").write_text("")
    assert main(["hang", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "No stacks of rank 4, although asked for" in out
    assert "No stacks of rank 5: not asked" in out
    assert "No file of rank 3" in out
    assert "rank6-s.stacks.txt: no stacks were read, it is empty" in err


def test_without_a_majority_nobody_is_suspected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two against two says nothing."""
    for rank in range(4):
        write(tmp_path, rank, *(LOADING if rank % 2 else WAITING))
    assert main(["hang", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "not where the others are" not in out
    assert "Ranks 1 and 3 are in load" in out


def test_numbers_in_names_and_lines_make_no_difference() -> None:
    """Turns of a loop, compiled functions, another tool's words for the same."""
    result = cluster(
        [
            (0, thread(("forward_1", "/a/m.py", 7), ("train", "/a/train.py", 1))),
            (1, thread(("forward_22", "/b/m.py", 9), ("train", "/a/train.py", 5))),
            (2, thread(("epoll_wait", "libc.so.6", 0), ("Model.forward_3", "/a/m.py", 7),
                       ("train", "/a/train.py", 1))),
        ]
    )  # fmt: skip
    assert result.dominant is not None
    assert result.dominant.ranks == (0, 1, 2)


def test_of_several_sessions_of_a_rank_the_newest_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A restart leaves the files of the one before."""
    for rank in range(3):
        write(tmp_path, rank, *WAITING)
    old = head(1, at="2025-12-31T00:00:00+00:00").text() + text_of(*LOADING)
    (tmp_path / "r--rank1-a-old.stacks.txt").write_text(old)
    assert main(["hang", str(tmp_path)]) == 0
    assert "nobody is elsewhere" in capsys.readouterr().out


def test_runs_are_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The newest is told, the others are named; or the one that is asked for."""
    for rank in range(3):
        write(tmp_path, rank, *WAITING)
    other = tmp_path / "other.stacks.txt"
    other.write_text(head(0, run="other").text() + text_of(*LOADING))
    os.utime(other, (1, 1))
    assert main(["hang", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "Ranks 0 to 2 are in train" in out
    assert "Left out: run other" in err
    assert main(["hang", str(tmp_path), "--run", "other"]) == 0
    assert "Rank 0 is in load" in capsys.readouterr().out


def test_what_a_file_says_cannot_paint_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names come from others."""
    for rank in range(3):
        write(tmp_path, rank, ("a\x1b[31mb", "/x/\x1b]0;t.py", 1))
    assert main(["hang", str(tmp_path)]) == 0
    assert "\x1b" not in capsys.readouterr().out


@given(st.binary(max_size=3_000))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    """They are somebody else's."""
    for dump in parse_dumps(data.decode("utf-8", "replace")):
        assert dump.main is None or dump.main in dump.threads


@given(st.data())
@settings(deadline=None)
def test_a_damaged_file_is_read_as_far_as_it_goes(data: st.DataObject) -> None:
    """Lines lost, doubled, cut or out of order."""
    lines = (head(1, why="asked").text() + text_of(*LOADING)).split("\n")
    order = data.draw(st.lists(st.integers(0, len(lines) - 1), max_size=60))
    cut = [lines[n][: data.draw(st.integers(0, 90))] for n in order]
    dumps = parse_dumps("\n".join(cut))
    cluster((n, d.main) for n, d in enumerate(dumps) if d.main is not None)


def test_real_ranks_of_which_one_does_not_join(
    start: Any, wait: Any, tmp_path: Path, free_port: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three wait in a gloo all_reduce; rank 1 sleeps, and is named with its line."""
    world = {
        "WORLD_SIZE": "3",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": free_port,
        "OMP_NUM_THREADS": "1",
    }
    ranks = [start("all_reduce_alone", rank=rank, **world) for rank in range(3)]
    for one in ranks:
        assert one.line() == "stuck"

    def reported() -> str:
        """What the stacks of now say; until all have joined they may say something else."""
        assert main(["hang", "stacks", "--dir", str(tmp_path), "--signal-only"]) == 0
        capsys.readouterr()
        assert main(["hang", str(tmp_path)]) == 0
        printed = capsys.readouterr().out
        return printed if "not where the others are" in printed else ""

    out = wait(reported)
    assert "Rank 1 is not where the others are: in asleep (stuck_program.py, line" in out
    assert "Ranks 0 and 2 are in all_reduce_alone (stuck_program.py, line" in out
    assert "all_reduce (distributed_c10d.py" in out
