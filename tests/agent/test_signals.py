"""Who is signalled: the process that connected, by the kernel's handle, or nobody."""

from __future__ import annotations

import ast
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import otel_straggler
from otel_straggler.agent import connections
from otel_straggler.agent.beats import BeatPage
from otel_straggler.agent.connections import Connection, peer_handle, peer_of
from otel_straggler.agent.frames import ProtocolError
from otel_straggler.client.diagnostics import processes
from otel_straggler.client.diagnostics.processes import ProcessHandle, started_ticks

from ..waiting import eventually
from .conftest import MakeAgent
from .test_connections import INIT, WATCH, Raw

PACKAGE = Path(otel_straggler.__file__).parent
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def may_make_namespaces() -> bool:
    try:
        done = subprocess.run(
            ["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, check=False
        )
    except OSError:
        return False
    return done.returncode == 0


@pytest.mark.skipif(
    not may_make_namespaces(),
    reason="no PID namespace (run as root): it would show that a number used again is not watched",
)
def test_a_process_that_has_the_number_of_one_that_connected_is_not_watched(tmp_path: Path) -> None:
    """Found by attack: the agent ended a process that never was a rank."""
    tmp_path.chmod(0o700)
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc",
         sys.executable, "-m", "tests.agent.reused_number", tmp_path],
        cwd=PACKAGE.parent, env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "\n{'process': 1}\n", done.stderr


@pytest.fixture
def old_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Linux 6.5: only the number of the peer is known."""
    monkeypatch.setattr(connections, "peer_handle", lambda _: None)


@pytest.fixture
def oldest_kernel(old_kernel: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Linux 5.3: no process has a handle."""

    def none(_pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", none)


KERNELS = pytest.mark.parametrize("kernel", ["", "old_kernel", "oldest_kernel"])


@KERNELS
def test_a_rank_is_watched_on_every_kernel(
    make_agent: MakeAgent, request: pytest.FixtureRequest, kernel: str
) -> None:
    if kernel:
        request.getfixturevalue(kernel)
    agent = make_agent()
    raw = Raw(agent)
    page = BeatPage([])
    raw.send(INIT, WATCH, file=page.file)
    eventually(lambda: 1 in agent.server.ranks)
    assert agent.server.ranks[1].process.pid == os.getpid()
    page.end()
    raw.socket.close()


@pytest.fixture
def accepted() -> Iterator[Connection]:
    """Of a socket pair, both of whose ends this process has made."""
    ours, theirs = socket.socketpair()
    connection = Connection(ours, peer_of(ours), 0.0)
    connection.init = {**INIT}
    yield connection
    connection.close()
    theirs.close()


OWN = int(started_ticks(os.getpid()))


@pytest.mark.parametrize(
    ("started", "younger", "why"),
    [
        (lambda: "1", False, "its number is another process's now"),
        (lambda: str(OWN + 1), False, "its number is another process's now"),
        (lambda: "x", False, "its number is another process's now"),
        (lambda: str(OWN), True, "is younger than the connection"),
        (lambda: "", True, "is younger than the connection"),
        (lambda: "9" * 21, False, "expected a text"),
    ],
    ids=["1", "later", "no-number", "younger", "unknown", "long"],
)
@pytest.mark.parametrize("kernel", ["old_kernel", "oldest_kernel"])
def test_without_the_kernels_handle_the_start_decides(
    accepted: Connection,
    request: pytest.FixtureRequest,
    kernel: str,
    started: Callable[[], str],
    younger: bool,
    why: str,
) -> None:
    request.getfixturevalue(kernel)
    accepted.init = {**INIT, "started": started()}
    if younger:
        accepted._at_ticks = OWN - 1
    with pytest.raises(ProtocolError, match=why):
        accepted.open_process()


def test_the_kernels_handle_says_which_process_it_is(accepted: Connection) -> None:
    """The number that came with the connection is for the log alone."""
    descriptor = peer_handle(accepted.socket)
    if descriptor is None:
        pytest.skip("no SO_PEERPIDFD (Linux 6.5): it would show that no number is believed")
    os.close(descriptor)
    accepted.peer = accepted.peer._replace(pid=1)
    process = accepted.open_process()
    assert process.pid == os.getpid()
    process.close()


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(SLEEP)
    yield process
    process.kill()
    process.wait()


@KERNELS
def test_a_process_that_has_ended_gets_no_signal(
    child: subprocess.Popen[bytes], request: pytest.FixtureRequest, kernel: str
) -> None:
    """Neither while its parent has not asked for its exit code, nor later."""
    if kernel:
        request.getfixturevalue(kernel)
    handle = ProcessHandle(child.pid)
    assert handle.is_alive
    handle.signal(signal.SIGSTOP)
    eventually(lambda: handle.is_stopped)
    handle.signal(signal.SIGKILL)
    eventually(lambda: not handle.is_alive)
    assert not handle.is_stopped
    assert not handle.handles(signal.SIGTERM)
    child.wait()
    with pytest.raises(ProcessLookupError):
        handle.signal(signal.SIGTERM)
    with pytest.raises(ProcessLookupError):
        ProcessHandle(child.pid)
    handle.close()
    handle.close()


@KERNELS
def test_a_number_that_is_another_process_now_gets_no_signal(
    child: subprocess.Popen[bytes],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    kernel: str,
) -> None:
    """What had the number before has ended; the kernel would send to who has it now."""
    if kernel:
        request.getfixturevalue(kernel)
    gone = subprocess.Popen(SLEEP)
    handle = ProcessHandle(gone.pid)
    gone.kill()
    gone.wait()
    handle.pid = child.pid
    later = str(int(handle.started) + 1)
    monkeypatch.setattr(processes, "started_ticks", lambda _: later)
    assert not handle.is_alive
    with pytest.raises(ProcessLookupError):
        handle.signal(signal.SIGKILL)
    handle.close()
    time.sleep(0.05)
    assert child.poll() is None


@pytest.mark.parametrize("make", [
    lambda: ProcessHandle(0), lambda: ProcessHandle(-1), lambda: ProcessHandle(2**22 + 1),
    lambda: ProcessHandle(os.getpid(), started="1"),
])  # fmt: skip
def test_no_process_is_no_handle(make: Callable[[], ProcessHandle]) -> None:
    files = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(ProcessLookupError):
        make()
    assert len(list(Path("/proc/self/fd").iterdir())) == files


# --- who sends signals ----------------------------------------------------------------------------

SENDERS = {
    "client/diagnostics/processes.py ProcessHandle.signal os.kill":
        "the one way to another process; its start was compared right before",
    "client/diagnostics/processes.py ProcessHandle.signal signal.pidfd_send_signal":
        "the one way to another process",
    "client/termination.py Termination._handle os.kill": "to itself",
    "client/termination.py Termination._end_unless_handled os.kill": "to itself",
    "client/termination.py end_with_parent signal.raise_signal": "to itself",
    "client/termination.py end_with_parent.continued signal.raise_signal": "to itself",
    "checkpoint/emergency.py SigtermWatch.end os.kill": "to itself",
    "inject/effects.py killed os.kill": "to itself: the fault",
    "inject/effects.py hung os.kill": "to itself: the fault",
    "inject/simulated_faults.py _fail os.kill": "to itself: the fault",
    "inject/keeper.py Keeper.close self._process.kill":
        "its own child, not waited for: the number is the child's",
    "inject/keeper.py _undo os.kill": "SIGCONT to its parent, compared right before",
    "demo/training.py Training.inject self._ranks[rank].send_signal": "its own child",
    "demo/training.py Training.close process.terminate": "its own child",
    "demo/processes.py Collector.kill self._process.kill": "its own child",
    "demo/processes.py end process.terminate": "its own child",
    "demo/processes.py end os.killpg": "its own child, not waited for, leads that group",
    "supervisor/executors/programs.py _kill os.killpg":
        "its own child, not waited for, leads that group",
}  # fmt: skip
VERBS = frozenset({
    "kill", "killpg", "send_signal", "terminate", "pidfd_send_signal", "raise_signal", "tgkill",
    "pthread_kill", "sigqueue",
})  # fmt: skip


def senders(source: str, file: str) -> Iterator[str]:
    """Where a file sends a signal: file, function and call."""

    def within(node: ast.AST, where: tuple[str, ...]) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef))
            yield from within(child, (*where, child.name) if named else where)  # type: ignore[attr-defined]
            if isinstance(child, ast.Call):
                its = ast.unparse(child.func)
                if its.rpartition(".")[2] in VERBS:
                    yield f"{file} {'.'.join(where)} {its}"

    yield from within(ast.parse(source), ())


def test_every_signal_goes_to_a_handle_or_to_itself_or_to_an_own_child() -> None:
    """A new one needs :meth:`ProcessHandle.signal`, or a reason here."""
    assert list(senders("class A:\n def f(p):\n  os.kill(p, 9)", "x")) == ["x A.f os.kill"]
    found = {
        each
        for path in sorted(PACKAGE.rglob("*.py"))
        for each in senders(path.read_text(), str(path.relative_to(PACKAGE)))
    }
    assert found == set(SENDERS)
