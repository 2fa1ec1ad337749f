"""py-spy, where it is installed, takes the stacks from outside."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.cli import hang_stacks, main

REAL = hang_stacks.find_py_spy()


@pytest.fixture
def py_spy() -> None:
    if REAL is None:
        pytest.skip("py-spy is not installed: it would show that its stacks are read")


@pytest.mark.usefixtures("py_spy")
@pytest.mark.parametrize("way", ["deadlocked", "keeps_the_gil"])
def test_the_stacks_of_a_rank_are_taken_from_outside(
    start: Any, tmp_path: Path, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They go to its file, and say who holds the GIL."""
    stuck = start(way, rank=3)
    assert stuck.line() == "stuck"
    assert main(["hang", "stacks", "--dir", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    if "py-spy could not" in err:
        pytest.skip(
            "py-spy may not trace here (needs root or CAP_SYS_PTRACE): "
            "it would show that its stacks are read"
        )
    innermost = "wait_for_lock" if way == "deadlocked" else way
    assert f"the main thread is in {innermost} (stuck_program.py" in out
    assert ("holds the GIL" in out) == (way == "keeps_the_gil")
    dump = stuck.dumps()[-1]
    assert dump.head.by == "py-spy"
    assert dump.main.frames[0].function == innermost


@pytest.mark.usefixtures("py_spy")
def test_a_process_without_a_file_is_told_on_the_terminal(
    start: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also one that knows nothing of us."""
    stuck = start("asleep", OTEL_STRAGGLER_EVIDENCE_DIR="")
    assert stuck.line() == "stuck"
    code = main(["hang", "stacks", "--pid", str(stuck.pid)])
    out, err = capsys.readouterr()
    if "py-spy could not" in err:
        pytest.skip(
            "py-spy may not trace here (needs root or CAP_SYS_PTRACE): "
            "it would show that its stacks are read"
        )
    assert code == 0
    assert "MainThread" in out
    assert "asleep (" in out


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A py-spy of our own, which answers as it is told."""

    def install(code: int, out: str, err: str = "") -> None:
        path = tmp_path / "py-spy"
        program = (
            f"import sys; sys.stdout.write({out!r}); sys.stderr.write({err!r}); sys.exit({code})"
        )
        path.write_text(f"#!{sys.executable}\n{program}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(hang_stacks, "find_py_spy", lambda: str(path))
        monkeypatch.setattr("otel_straggler.cli.hang_stacks.find_py_spy", lambda: str(path))

    return install


@pytest.mark.parametrize(
    ("code", "out", "printed"),
    [
        (1, "", "py-spy could not: Permission Denied"),
        (0, "no JSON", "py-spy saw no thread"),
        (0, "[]", "py-spy saw no thread"),
        (0, "{}", "py-spy saw no thread"),
        (0, json.dumps(["x", {"frames": 7, "thread_id": "y"}]), "py-spy saw no thread"),
    ],
)
def test_where_py_spy_cannot_the_signal_is_sent(
    start: Any, tmp_path: Path, fake: Any, code: int, out: str, printed: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """As in a container without the right to trace; why is said."""
    stuck = start("asleep", rank=3)
    assert stuck.line() == "stuck"
    fake(code, out, "Permission Denied: try running again with elevated permissions\n")
    assert main(["hang", "stacks", "--dir", str(tmp_path)]) == 0
    reported = capsys.readouterr()
    assert printed in reported.err
    assert "the main thread is in asleep" in reported.out
    assert stuck.dumps()[-1].head.by == "signal"


def test_that_py_spy_is_missing_is_said_once(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For however many ranks."""
    ranks = [start("asleep", rank=rank) for rank in range(2)]
    for one in ranks:
        assert one.line() == "stuck"
    monkeypatch.setattr("otel_straggler.cli.hang_stacks.find_py_spy", lambda: None)
    assert main(["hang", "stacks", "--dir", str(tmp_path)]) == 0
    reported = capsys.readouterr()
    assert reported.err.count("py-spy is not installed") == 1
    assert reported.out.count("the main thread is in asleep") == 2
    assert [one.process.poll() for one in ranks] == [None, None]
