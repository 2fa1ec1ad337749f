"""A stuck rank tells what it is in: by itself, and when it is asked on its host."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.cli import main
from otel_straggler.client.diagnostics.processes import started_ticks
from otel_straggler.client.diagnostics.stacks import OLDER, StacksFile
from otel_straggler.model.diagnostics import MAX_DUMPS, StacksHead, parse_dumps

SOON = {"OTEL_STRAGGLER_EVIDENCE_AFTER_S": "0.5"}


def functions(dump: Any) -> list[str]:
    return [frame.function for frame in dump.main.frames]


@pytest.mark.parametrize(
    ("way", "innermost"), [("asleep", "asleep"), ("deadlocked", "wait_for_lock")]
)
def test_a_section_that_stays_open_has_its_stacks_written(
    start: Any, wait: Any, way: str, innermost: str
) -> None:
    """Without being asked, after ``evidence_after_s``; the head says what was open since when."""
    stuck = start(way, rank=3, **SOON)
    assert stuck.line() == "stuck"
    # Where the machine stands still meanwhile, the kernel's timer may have written some before.
    dump = wait(lambda: [d for d in stuck.dumps() if d.head.section])[0]
    assert functions(dump)[0] == innermost
    assert functions(dump)[-2:] == ["main", "<module>"]
    head = dump.head
    assert (head.run, head.rank, head.step, head.section) == ("stuck-run", "3", "812", "forward")
    assert head.since < head.at
    assert head.why.startswith("forward is open for")
    [path] = stuck.folder.glob("*.stacks.txt")
    assert path.name.startswith("stuck-run--rank3-")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_rank_that_keeps_the_gil_has_its_stacks_written(start: Any, wait: Any) -> None:
    """By the kernel's timer and a handler in C: no thread of Python runs any more."""
    stuck = start("keeps_the_gil", **SOON)
    assert stuck.line() == "stuck"
    dump = wait(stuck.dumps)[-1]
    assert dump.head.by == "signal" or functions(dump)[0] == "keeps_the_gil"
    by_signal = wait(lambda: [d for d in stuck.dumps() if d.head.by == "signal" or is_bare(d)])
    assert functions(by_signal[0])[0] == "keeps_the_gil"


def is_bare(dump: Any) -> bool:
    """The first stacks after the announcement, without a head of their own."""
    return bool(dump.head.is_announcement and dump.threads)


def test_nothing_is_written_unless_asked(start: Any, wait: Any, tmp_path: Path) -> None:
    """With a folder alone a rank only says who it is; without one there is no file at all."""
    stuck = start("asleep", rank=1)
    assert stuck.line() == "stuck"
    [path] = wait(lambda: list(tmp_path.glob("*rank1*.stacks.txt")))
    without = start("asleep", rank=2, OTEL_STRAGGLER_EVIDENCE_DIR="")
    assert without.line() == "stuck"
    time.sleep(1.0)
    assert [dump.head.is_announcement for dump in parse_dumps(path.read_text())] == [True]
    assert not list(tmp_path.glob("*rank2*.stacks.txt"))


def test_a_rank_that_ends_in_order_leaves_no_file(start: Any, tmp_path: Path) -> None:
    """It has nothing to tell."""
    stuck = start("ends")
    assert stuck.line() == "stuck"
    assert list(tmp_path.glob("*.stacks.txt"))
    stuck.process.communicate("go on\n", timeout=60)
    assert stuck.process.returncode == 0
    assert not list(tmp_path.glob("*.stacks.txt"))
    assert not list(tmp_path.glob("*.ring"))


def test_a_folder_that_cannot_be_written_does_not_stop_training(start: Any, tmp_path: Path) -> None:
    """It is a line in the log."""
    (tmp_path / "file").write_text("")
    stuck = start("ends", OTEL_STRAGGLER_EVIDENCE_DIR=str(tmp_path / "file"))
    assert stuck.line() == "stuck"
    _, printed = stuck.process.communicate("go on\n", timeout=60)
    assert stuck.process.returncode == 0
    assert "no stacks can be written to" in printed


@pytest.mark.parametrize("way", ["asleep", "keeps_the_gil"])
def test_a_rank_is_asked_on_its_node_by_its_signal(
    start: Any, tmp_path: Path, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without py-spy, and whoever has the GIL."""
    stuck = start(way, rank=3)
    assert stuck.line() == "stuck"
    started = time.monotonic()
    assert main(["hang", "stacks", "--dir", str(tmp_path), "--rank", "3", "--signal-only"]) == 0
    assert time.monotonic() - started < 60
    assert f"the main thread is in {way} (stuck_program.py" in capsys.readouterr().out
    dump = stuck.dumps()[-1]
    assert functions(dump)[0] == way
    assert (dump.head.why, dump.head.by) == ("asked on its host", "signal")
    assert stuck.process.poll() is None


def test_a_stopped_rank_says_so(
    start: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its signal would only come when it goes on."""
    stuck = start("asleep")
    assert stuck.line() == "stuck"
    stuck.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, stuck.pid, os.WSTOPPED | os.WNOWAIT)
    assert main(["hang", "stacks", "--dir", str(tmp_path), "--signal-only"]) == 1
    assert "it is stopped" in capsys.readouterr().err


def test_a_process_that_has_announced_nothing_is_never_sent_a_signal(
    start: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default of a signal is to end it."""
    stuck = start("asleep", OTEL_STRAGGLER_EVIDENCE_DIR="")
    assert stuck.line() == "stuck"
    assert main(["hang", "stacks", "--pid", str(stuck.pid), "--signal-only"]) == 1
    assert "no signal" in capsys.readouterr().err
    assert stuck.process.poll() is None


def test_a_file_of_a_process_that_is_gone_names_nobody(
    start: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its number may be another's by now."""
    stuck = start("asleep")
    assert stuck.line() == "stuck"
    stuck.close()
    assert main(["hang", "stacks", "--dir", str(tmp_path)]) == 2
    assert "living ranks of this host" in capsys.readouterr().err


def test_a_forked_child_answers_for_nobody(start: Any, wait: Any, tmp_path: Path) -> None:
    """A worker of a DataLoader has neither the thread nor the handler, and the file is intact."""
    stuck = start("forks", **SOON)
    printed = sorted([stuck.line(), stuck.line()])
    assert printed[1] == "stuck"
    _, child, threads = printed[0].split()
    assert threads == "1"
    number = int(wait(stuck.dumps)[0].head.signal)
    caught = Path(f"/proc/{child}/status").read_text()
    mask = int(caught.partition("SigCgt:")[2].split()[0], 16)
    assert not mask >> (number - 1) & 1
    assert len(list(tmp_path.glob("*.stacks.txt"))) == 1
    assert {dump.head.pid for dump in stuck.dumps()} == {str(stuck.pid)}


def test_a_users_own_timer_of_faulthandler_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """There is one in a process, and pytest may have it."""
    import faulthandler

    import otel_straggler

    touched: list[str] = []
    for name in ("dump_traceback_later", "cancel_dump_traceback_later"):
        monkeypatch.setattr(faulthandler, name, lambda *_a, name=name, **_k: touched.append(name))
    handled = [signal.getsignal(number) for number in range(1, 32)]
    otel_straggler.configure(
        endpoint="http://127.0.0.1:1",
        evidence_dir=str(tmp_path),
        evidence_after_s=0.1,
        handle_sigterm=False,
    )
    otel_straggler.shutdown()
    assert touched == []
    assert [signal.getsignal(number) for number in range(1, 32)] == handled


def test_files_are_bounded_and_the_oldest_goes(tmp_path: Path) -> None:
    """Two files, whatever happens; who writes by number goes on in the new one."""
    path = tmp_path / "x.stacks.txt"
    announcement = StacksHead(rank="3", why="announced", pid="1")
    file = StacksFile(path, max_dumps=3)
    file.announce(announcement)
    for number in range(8):
        file.dump(announcement, StacksHead(rank="3", why=f"dump {number}"))
    os.write(file.descriptor, b"by number\n")
    dumps = parse_dumps(path.read_text())
    assert [dump.head.why for dump in dumps] == ["announced", "dump 6", "dump 7"]
    assert path.read_text().endswith("by number\n")
    older = tmp_path / ("x" + OLDER)
    assert [d.head.why for d in parse_dumps(older.read_text())][1:] == [
        "dump 3",
        "dump 4",
        "dump 5",
    ]
    assert len(list(tmp_path.iterdir())) == 2
    file.close()
    assert path.exists()


def test_a_name_cannot_forge_a_head() -> None:
    """Line breaks in a run id are blanks in the file."""
    head = StacksHead(run="a\n---\nThread 0x01 (x):\n=== otel-straggler stacks 1", rank="1")
    [dump] = parse_dumps(head.text())
    assert dump.threads == ()
    assert dump.head.rank == "1"


def test_names_of_threads_are_read_where_python_writes_them() -> None:
    """From 3.14 on; a name may hold anything."""
    text = StacksHead(rank="1").text() + (
        "Thread 0x00007f10 [load (1)] (most recent call first):\n"
        '  File "a.py", line ??? in f\n'
        "Current thread 0x00007f20 [MainThread] (most recent call first):\n"
        '  File "a "b".py", line 12 in g\n'
        "  ...\n"
    )
    [dump] = parse_dumps(text)
    assert [thread.name for thread in dump.threads] == ["load (1)", "MainThread"]
    assert dump.main is not None
    assert (dump.main.frames[0].file, dump.main.frames[0].line) == ('a "b".py', 12)
    assert dump.threads[0].frames[0].line == 0


def test_of_many_dumps_the_newest_are_read() -> None:
    """A file that somebody made huge costs no more than that."""
    text = "".join(StacksHead(rank="1", step=str(n)).text() for n in range(MAX_DUMPS + 5))
    dumps = parse_dumps(text)
    assert (len(dumps), dumps[-1].head.step) == (MAX_DUMPS, str(MAX_DUMPS + 4))


def test_a_folder_that_hangs_holds_up_no_training(tmp_path: Path) -> None:
    """Here a pipe that nobody reads; stacks are taken in memory and written without the GIL."""
    file = StacksFile(tmp_path / "x.stacks.txt")
    reader, pipe = os.pipe()
    os.set_blocking(reader, False)
    os.dup2(pipe, file.descriptor)
    os.close(pipe)
    os.set_blocking(file.descriptor, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(file.descriptor, b"x" * 4_096)
    os.set_blocking(file.descriptor, True)
    head = StacksHead(rank="1")
    writer = threading.Thread(target=file.dump, args=(head, head), daemon=True)
    writer.start()
    writer.join(0.5)  # we run meanwhile
    assert writer.is_alive()
    while writer.is_alive():
        with contextlib.suppress(BlockingIOError):
            os.read(reader, 65_536)
    os.close(reader)


def forge(folder: Path, **values: str) -> Path:
    """A file of stacks that somebody has made up."""
    path = folder / "forged.stacks.txt"
    path.write_text(StacksHead(run="r", rank="3", why="announced", **values).text())
    return path


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[str]]:
    """A process of this user that has nothing to do with us, and a handler for every signal that
    could be meant; it prints those that come."""
    program = (
        "import signal, sys\n"
        "for n in (signal.SIGTERM, signal.SIGUSR1, *range(signal.SIGRTMIN, signal.SIGRTMAX)):\n"
        "    signal.signal(n, lambda n, _: print('signal', int(n), flush=True))\n"
        "print('ready', flush=True)\n"
        "for line in sys.stdin:\n"
        "    print('end', flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGRTMIN + 9])
@pytest.mark.parametrize("start_is_right", [True, False])
def test_a_forged_file_has_no_unrelated_process_signaled(
    stranger: subprocess.Popen[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    number: int,
    start_is_right: bool,
) -> None:
    """Its number and start are for everybody to see; only a rank has its own file open."""
    started = started_ticks(stranger.pid) if start_is_right else "1"
    path = forge(tmp_path, pid=str(stranger.pid), started=started, signal=str(int(number)))
    before = path.read_bytes()
    code = main(["hang", "stacks", "--dir", str(tmp_path), "--signal-only"])
    assert code == (1 if start_is_right else 2)
    if start_is_right:
        assert "does not have" in capsys.readouterr().err
    assert path.read_bytes() == before
    printed, _ = stranger.communicate("end\n", timeout=30)
    assert printed == "end\n"


def test_a_rank_that_announces_a_signal_with_a_meaning_is_not_sent_it(
    start: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGTERM has a handler in a training process, too; who may write its file may not use it."""
    stuck = start("asleep", rank=3)
    assert stuck.line() == "stuck"
    [path] = tmp_path.glob("*.stacks.txt")
    text = re.sub(
        r"^signal: \d+$", f"signal: {int(signal.SIGTERM)}", path.read_text(), flags=re.MULTILINE
    )
    path.write_text(text)
    assert main(["hang", "stacks", "--dir", str(tmp_path), "--signal-only"]) == 1
    assert "none for stacks" in capsys.readouterr().err
    assert stuck.process.poll() is None


@pytest.mark.skipif(
    os.geteuid() != 0, reason="not root (run as root): only root can give a file to another user"
)
def test_a_file_of_another_user_than_its_process_is_not_believed(
    start: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Root signals ranks of any user, but only by what they wrote themselves."""
    stuck = start("asleep", rank=3)
    assert stuck.line() == "stuck"
    [path] = tmp_path.glob("*.stacks.txt")
    os.chown(path, 12_345, -1)
    assert main(["hang", "stacks", "--dir", str(tmp_path), "--signal-only"]) == 1
    assert "belongs to user 12345" in capsys.readouterr().err
