"""A forked child has nothing of its rank's: no lock, no handler, no manager to close."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.agent.process import locked as agent_locked
from otel_straggler.collector.history.database import WriterLock
from otel_straggler.collector.history.spool import Spool
from otel_straggler.errors import UnavailableError
from otel_straggler.regular_files import FileLock, LockedError

from ..waiting import eventually
from .states import saved

FORKS = {
    "os.fork": "pid = os.fork() or sleep()",
    "a fork of a fork": """
read, write = os.pipe()
if not os.fork():
    child = os.fork() or sleep()
    os.write(write, str(child).encode())
    os._exit(0)
pid = int(os.read(read, 20))""",
    "a fork in a thread": """
pids = []
thread = threading.Thread(target=lambda: pids.append(os.fork() or sleep()))
thread.start()
thread.join()
pid = pids[0]""",
    "a pseudoterminal": "pid = os.forkpty()[0] or sleep()",
    "multiprocessing": """
child = multiprocessing.get_context("fork").Process(target=sleep)
child.start()
pid = child.pid""",
    "a worker of a data loader": """
import torch.utils.data
loader = torch.utils.data.DataLoader(
    range(4), num_workers=1, multiprocessing_context="fork", worker_init_fn=lambda _: sleep()
)
loading = iter(loader)
pid = loading._workers[0].pid""",
    "a program": "pid = subprocess.Popen(['sleep', '600']).pid",
    "a program that inherits": "pid = subprocess.Popen(['sleep', '600'], close_fds=False).pid",
}
HEAD = """
import multiprocessing, os, signal, subprocess, sys, threading, time

def sleep():
    while True:
        time.sleep(600)
"""
MANAGER = """
from otel_straggler.checkpoint import Manager
manager = Manager(sys.argv[1], use_process=False, handle_sigterm=False)
"""
KILLED = """
print(pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
LOCKS = {
    "an agent": """
from pathlib import Path
from otel_straggler.agent.process import locked
lock = locked(Path(sys.argv[1]))
""",
    "a history": """
from pathlib import Path
from otel_straggler.collector.history.database import WriterLock
lock = WriterLock(Path(sys.argv[1]) / "history.db")
lock.acquire()
""",
    "a spool": """
from pathlib import Path
from otel_straggler.collector.history.spool import Spool
spool = Spool(Path(sys.argv[1]) / "spool", max_bytes=1 << 20, syncs=False)
spool.open()
""",
    "a file": """
from otel_straggler.regular_files import FileLock
lock = FileLock(sys.argv[1] + "/lock")
""",
}


@contextlib.contextmanager
def orphan(code: str, folder: Path) -> Iterator[int]:
    """The child of a process that was killed."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", HEAD + code + KILLED, str(folder)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    try:
        process.wait()
        assert process.returncode == -signal.SIGKILL
        os.kill(pid, 0)
        yield pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        process.stdout.close()


def soon(take: Callable[[], Any]) -> Any:
    """What it returns, once the child, which may have only just begun, has dropped its lock."""
    taken: list[Any] = []

    def is_free() -> bool:
        with contextlib.suppress(UnavailableError, LockedError):
            taken.append(take())
        return bool(taken)

    eventually(is_free, 20.0)
    return taken[0]


@pytest.mark.parametrize("fork", FORKS.values(), ids=FORKS)
def test_a_training_starts_again_while_a_child_of_its_killed_rank_lives(
    tmp_path: Path, fork: str
) -> None:
    with orphan(MANAGER + fork, tmp_path):
        assert len(saved(tmp_path, 1, use_process=False)) == 1


def test_a_rank_that_lives_keeps_its_lock_although_a_child_of_it_has_ended(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    if not (pid := os.fork()):
        lock.release()
        os._exit(0)
    os.waitpid(pid, 0)
    with pytest.raises(LockedError, match=f"locked by {os.getpid()}"):
        FileLock(tmp_path / "lock")
    lock.release()
    FileLock(tmp_path / "lock").release()


@pytest.mark.parametrize("code", LOCKS.values(), ids=LOCKS)
def test_every_lock_ends_with_its_process(tmp_path: Path, code: str) -> None:
    """Of the agent, a collector's history and spool; and it is one while the process lives."""
    history = WriterLock(tmp_path / "history.db")
    spool = Spool(tmp_path / "spool", max_bytes=1 << 20, syncs=False)
    with orphan(code + FORKS["os.fork"], tmp_path):
        agent = soon(lambda: agent_locked(tmp_path))
        soon(history.acquire)
        soon(spool.open)
        one = soon(lambda: FileLock(tmp_path / "lock"))
    with pytest.raises(UnavailableError, match=f"process {os.getpid()}"):
        agent_locked(tmp_path)
    with pytest.raises(UnavailableError, match=f"process {os.getpid()}"):
        WriterLock(tmp_path / "history.db").acquire()
    for each in (agent, history, one):
        each.release()
    spool.close()


@pytest.mark.timeout(60)
def test_a_forked_child_ends_by_sigterm_and_asks_for_no_checkpoint(tmp_path: Path) -> None:
    """As data loaders end their workers."""
    code = f"""{HEAD}
from otel_straggler.checkpoint import Manager
manager = Manager(sys.argv[1], use_process=False)
read, write = os.pipe()
pid = os.fork()
if not pid:
    os.write(write, b"ready")
    sleep()
os.read(read, 5)
os.kill(pid, signal.SIGTERM)
status = os.waitpid(pid, 0)[1]
print(os.WTERMSIG(status), manager._agreement._requested, flush=True)
manager.close()
"""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ended.stdout.split() == [str(int(signal.SIGTERM)), "None"]


def test_a_forked_child_that_leaves_the_with_block_ends_nothing(tmp_path: Path) -> None:
    """The request file is still served, the run has not ended, and the folder stays locked."""
    code = f"""{HEAD}
from otel_straggler.checkpoint import Manager
from otel_straggler.checkpoint.folder import read_history
from otel_straggler.errors import UsageError
from pathlib import Path
request = sys.argv[1] + "/request"
folder = Path(sys.argv[1]) / "checkpoints"
with Manager(folder, use_process=False, handle_sigterm=False, request_file=request) as manager:
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        try:
            Manager(folder, use_process=False, handle_sigterm=False)
        except UsageError:
            print("locked", end=" ")
        print(os.path.exists(request + ".served"), read_history(folder)["clean_ends"], flush=True)
if not pid:
    os._exit(0)
"""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ended.stdout.split() == ["locked", "True", "0.0"]
