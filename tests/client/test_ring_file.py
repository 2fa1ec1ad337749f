"""The open section of a process that cannot speak for itself, told from outside."""

from __future__ import annotations

import os
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.client import ring_file
from otel_straggler.client.recording import FORM
from otel_straggler.client.ring_file import RingFileError, RingState, read_ring_file
from otel_straggler.native import REASON

pytestmark = pytest.mark.skipif(
    FORM == "python", reason=f"{REASON}: it would show that another process can read the ring"
)
BEGIN = """
import ctypes, os, sys, threading, time
from otel_straggler import phase, section, step
from otel_straggler.client.recording import RECORDER
RECORDER.enable()
print(RECORDER.session.session_id, flush=True)
"""
STUCK = """
helper = threading.Event()
def prefetch():
    with section("prefetch", kind="data"):
        helper.set()
        time.sleep(600)
threading.Thread(target=prefetch, daemon=True).start()
helper.wait()
step(7)
with section("done"):
    pass
with phase("eval"), section("outer"), section("all-reduce ü", kind="wait"):
"""


def read_ring(data: bytes) -> RingState:
    """Read bytes that do not change."""
    return ring_file._state(lambda offset, count: data[offset : offset + count], len(data))


Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Run a program whose ring is a file in ``tmp_path``."""
    processes: list[subprocess.Popen[str]] = []

    def begin(program: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", BEGIN + program],
            env={**os.environ, "OTEL_STRAGGLER_RING_DIR": str(tmp_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate(timeout=30)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def state_of(folder: Path) -> RingState:
    [path] = folder.glob("*.ring")
    return read_ring_file(path)


def check_stuck(state: RingState, pid: int, session_id: str) -> None:
    assert (state.pid, state.session_id, state.is_recording) == (pid, session_id, True)
    assert (state.step, state.last_step, state.phase) == (7, 7, "eval")
    assert (state.pending, state.dropped) == (1, 0)
    result = state.open_section
    assert result is not None
    assert (result.name, result.kind, result.phase) == ("all-reduce ü", "wait", "eval")
    assert (result.step, result.tid, result.depth, result.is_stepping) == (7, pid, 3, True)
    assert [run.name for run in state.open_runs] == ["prefetch", "all-reduce ü"]
    assert state.open_runs[0].start_ns <= state.progress_ns <= result.start_ns


def test_the_open_section_of_a_stopped_process_is_told(start: Start, tmp_path: Path) -> None:
    """SIGSTOP, as a debugger or a batch system sends it."""
    process = start(STUCK + "    print('in', flush=True); time.sleep(600)")
    session_id = line(process)
    assert line(process) == "in"
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    check_stuck(state_of(tmp_path), process.pid, session_id)


def test_the_open_section_of_a_killed_process_is_told(start: Start, tmp_path: Path) -> None:
    """SIGKILL, as the kernel sends it where memory runs out. The file stays."""
    process = start(STUCK + "    print('in', flush=True); time.sleep(600)")
    session_id = line(process)
    assert line(process) == "in"
    process.kill()
    process.wait(timeout=30)
    check_stuck(state_of(tmp_path), process.pid, session_id)


def test_the_open_section_of_a_process_that_holds_the_gil_is_told(
    start: Start, tmp_path: Path
) -> None:
    """A C call that never gives the interpreter back silences every thread of Python."""
    process = start(
        STUCK + "    os.write(1, b'in\\n'); ctypes.PyDLL(None).sleep(600)",
    )
    session_id = line(process)
    assert line(process) == "in"
    check_stuck(state_of(tmp_path), process.pid, session_id)


def test_a_running_process_is_read_without_a_mixture(start: Start, tmp_path: Path) -> None:
    """Whoever looks at the wrong moment looks again."""
    process = start(
        "print('in', flush=True)\n"
        "one, two = section('one', kind='data'), section('two', kind='wait')\n"
        "while True:\n"
        "    with one:\n"
        "        with two: pass\n"
    )
    line(process), line(process)
    seen = set()
    for _ in range(3_000):
        result = state_of(tmp_path).open_section
        if result is not None:
            seen.add((result.name, result.kind, result.depth))
    assert seen <= {("one", "data", 1), ("two", "wait", 2)}
    assert seen


def test_a_stack_that_changed_while_it_was_copied_is_copied_again(whole: bytes) -> None:
    """What was copied in between is believed as little as a torn page."""
    (slot_bytes,) = struct.unpack_from("<I", whole, 24)
    (slots_offset,) = struct.unpack_from("<Q", whole, 56)
    copies: list[int] = []

    def read(offset: int, count: int) -> bytes:
        data = whole[offset : offset + count]
        if offset < slots_offset or not data or (offset - slots_offset) % slot_bytes:
            return data
        if count == slot_bytes:
            copies.append(offset)
            return bytes(count) if copies.count(offset) == 1 else data
        version = 2 * min(copies.count(offset), 1) + struct.unpack_from("<Q", data, 8)[0]
        return data[:8] + struct.pack("<Q", version) + data[16:]

    result = ring_file._state(read, len(whole))
    assert result == read_ring(whole)
    assert len(copies) > len(set(copies))


def test_a_stack_whose_owner_died_while_moving_it_is_not_believed(whole: bytes) -> None:
    """An odd version stays for ever; the other threads are told."""
    (slots_offset,) = struct.unpack_from("<Q", whole, 56)
    damaged = bytearray(whole)
    struct.pack_into("<Q", damaged, slots_offset + 8, 3)
    names = {run.name for run in read_ring(whole).open_runs}
    assert len({run.name for run in read_ring(bytes(damaged)).open_runs}) == len(names) - 1


def test_a_process_that_ends_in_order_leaves_no_file(start: Start, tmp_path: Path) -> None:
    """There is nothing to tell of it."""
    process = start("print(len(os.listdir(os.environ['OTEL_STRAGGLER_RING_DIR'])), flush=True)")
    line(process)
    assert line(process) == "1"
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_a_forked_child_leaves_the_file_of_its_parent_alone(start: Start, tmp_path: Path) -> None:
    """It neither writes to it nor removes it, and has one of its own if it is to record."""
    process = start(
        """
with section("parents"):
    child = os.fork()
    if child == 0:
        with section("childs"):
            pass
        assert not RECORDER.drain()
    else:
        os.waitpid(child, 0)
        assert [r[0][0].name for r in RECORDER.drain()] == []
if child == 0:
    assert RECORDER.context is None and not RECORDER.drain()
    RECORDER.enable()
    with section("asked"):
        pass
    assert [r[0][0].name for r in RECORDER.drain()] == ["asked"]
    assert len(os.listdir(os.environ["OTEL_STRAGGLER_RING_DIR"])) == 2
    sys.exit(0)
assert [r[0][0].name for r in RECORDER.drain()] == ["parents"]
step(3)
print("in", flush=True)
time.sleep(600)
"""
    )
    session_id = line(process)
    assert line(process) == "in"
    state = state_of(tmp_path)
    assert (state.pid, state.session_id, state.step) == (process.pid, session_id, 3)
    assert (state.pending, state.open_runs) == (0, ())


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    """Recording goes on in private memory."""
    (tmp_path / "file").touch()
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + "with section('a'): pass\nprint(len(RECORDER.drain()))"],
        env={**os.environ, "OTEL_STRAGGLER_RING_DIR": str(tmp_path / "file" / "folder")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[1] == "1"
    assert "no ring file in" in done.stderr


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a real file, up to where the ring begins, with a small ring behind."""
    folder = tmp_path_factory.mktemp("rings")
    copy = f"import shutil\nshutil.copy(RECORDER.path, {str(folder / 'copy')!r})\n"
    program = BEGIN + STUCK + "".join(f"    {each}\n" for each in copy.splitlines())
    environment = {**os.environ, "OTEL_STRAGGLER_RING_DIR": str(folder)}
    program += "    os._exit(0)"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)
    data = (folder / "copy").read_bytes()
    (ring_offset,) = struct.unpack_from("<Q", data, 72)
    small = bytearray(data[: ring_offset + 2 * 128])
    struct.pack_into("<Q", small, 32, len(small))
    struct.pack_into("<Q", small, 80, 2)
    return bytes(small)


def test_bytes_are_read_as_a_file_is(whole: bytes) -> None:
    """For tools that have only a copy."""
    result = read_ring(whole).open_section
    assert result is not None
    assert result.name == "all-reduce ü"


def test_a_section_made_while_the_file_is_read_has_its_name(start: Start, tmp_path: Path) -> None:
    """It never shows up as an open section without a name."""
    process = start(
        "print('in', flush=True)\n"
        "sys.stdin.readline()\n"
        "for n in range(2_000):\n"
        "    with section(f'made-{n}', kind='data'): time.sleep(0)\n"
        "with section('made-last', kind='data'):\n"
        "    print('out', flush=True)\n"
        "    time.sleep(600)\n"
    )
    line(process), line(process)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    seen = set()
    is_over = False
    while not is_over:
        is_over = bool(select.select([process.stdout], [], [], 0)[0])
        result = state_of(tmp_path).open_section
        if result is not None:
            seen.add((result.name[:5], result.kind))
    assert seen == {("made-", "data")}


@settings(deadline=None)
@given(st.data())
def test_damaged_bytes_raise_nothing_but_their_own_error(whole: bytes, data: st.DataObject) -> None:
    """Whatever a process that died, or a full disk, has left behind."""
    damaged = bytearray(whole)
    offsets = st.one_of(
        st.integers(0, 511),
        st.integers(4096, 4096 + 256),
        st.integers(528_384, 528_384 + 3 * 2_112),
        st.integers(0, len(damaged) - 1),
    )
    for offset, new in data.draw(
        st.lists(st.tuples(offsets, st.binary(min_size=1, max_size=8)), min_size=1, max_size=8)
    ):
        damaged[offset : offset + len(new)] = new[: len(damaged) - offset]
    end = data.draw(st.one_of(st.just(len(damaged)), st.integers(0, len(damaged))))
    try:
        state = read_ring(bytes(damaged[:end]))
    except RingFileError as error:
        assert "ring file: " in str(error)  # noqa: PT017
    else:
        assert state.pending >= 0


@given(st.binary(max_size=5_000))
def test_other_bytes_are_refused(data: bytes) -> None:
    """A file that is no ring."""
    with pytest.raises(RingFileError, match="Is it a whole file"):
        read_ring(data)
