"""The agent as a process: its folder, its lock, and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.agent.config import FaultToleranceConfig
from otel_straggler.agent.monitoring import SOCKET_VARIABLES
from otel_straggler.agent.process import SOCKET, checked_folder, listening, locked, running_agent
from otel_straggler.agent.ranks import RankProcess
from otel_straggler.errors import ConfigError, UnavailableError

from ..waiting import eventually
from .conftest import WORK, Node

RunNode = Callable[..., Any]


def test_a_second_agent_for_a_job_is_refused_and_the_first_goes_on(
    run_node: RunNode, tmp_path: Path
) -> None:
    with run_node() as node:
        rank = node.start(0, "print('watched', flush=True)" + WORK)
        assert rank.stdout.readline() == "watched\n"
        second = running_agent(
            FaultToleranceConfig(), folder=tmp_path / "node", environment=dict(os.environ)
        )
        expected = f"where the agent of process {node.agent_pid} runs"
        with pytest.raises(UnavailableError, match=expected), second:
            pass
        again = node.start(1, "print('watched', flush=True)")
        assert again.stdout.readline() == "watched\n"


def test_agents_of_different_jobs_run_on_one_node(run_node: RunNode) -> None:
    with run_node("a") as first, run_node("b") as second:
        assert first.agent_pid != second.agent_pid
        for node in (first, second):
            assert node.start(0, "print('watched', flush=True)").stdout.readline() == "watched\n"


def test_ranks_are_given_the_socket_under_both_names(tmp_path: Path) -> None:
    with running_agent(
        FaultToleranceConfig(), folder=tmp_path / "a", environment=dict(os.environ)
    ) as variables:
        assert variables == {
            "OTEL_STRAGGLER_AGENT_SOCKET": str(tmp_path / "a" / SOCKET),
            "FT_RANK_MONITOR_IPC_SOCKET": str(tmp_path / "a" / SOCKET),
            "OTEL_STRAGGLER_CHECKPOINT_REQUEST_FILE": str(tmp_path / "a" / "checkpoint"),
        }
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "a" / SOCKET).stat().st_mode & 0o777 == 0o600


def test_the_agent_ends_with_its_job(run_node: RunNode) -> None:
    with run_node() as node:
        pid = node.agent_pid
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


LAUNCHER = """
import os, sys
from otel_straggler.agent.config import FaultToleranceConfig
from otel_straggler.agent.process import running_agent
config = FaultToleranceConfig(workload_check_interval=0.05)
with running_agent(config, folder=sys.argv[1], environment=dict(os.environ)):
    print("started", flush=True)
    sys.stdin.read()
"""


def test_an_agent_whose_launcher_was_killed_ends_with_the_last_rank(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LAUNCHER, str(tmp_path / "node")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == b"started\n"
        node = Node(tmp_path / "node", {SOCKET_VARIABLES[0]: str(tmp_path / "node" / SOCKET)})
        agent = RankProcess(node.agent_pid)
        rank = node.start(0, "print('watched', flush=True)" + WORK)
        assert rank.stdout.readline() == "watched\n"
        launcher.kill()
        launcher.wait()
        assert node.start(1, "print('watched', flush=True)").stdout.readline() == "watched\n"
        assert agent.is_alive
        for process in node.ranks:
            process.kill()
            process.communicate()
        eventually(lambda: not agent.is_alive)
        agent.close()


def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(ConfigError, match=r"expected a folder of user \d+ with mode 0700"):
        checked_folder(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="expected a folder"):
        checked_folder(tmp_path / "link")


def test_a_folder_whose_path_is_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="for a socket in it"):
        checked_folder(tmp_path / ("x" * 100))


def test_the_socket_that_a_killed_agent_has_left_is_replaced(tmp_path: Path) -> None:
    first = listening(tmp_path)
    inode = (tmp_path / SOCKET).stat().st_ino
    first.close()
    listening(tmp_path).close()
    assert (tmp_path / SOCKET).exists()
    assert inode


def test_the_lock_is_free_when_its_holder_has_gone(tmp_path: Path) -> None:
    held = locked(tmp_path)
    with pytest.raises(UnavailableError, match=f"process {os.getpid()} runs"):
        locked(tmp_path)
    held.release()
    locked(tmp_path).release()


def test_a_killed_agent_is_started_again_and_watches_its_ranks_again(run_node: RunNode) -> None:
    with run_node(rank_heartbeat_timeout=2.0, timeout_action="terminate") as node:
        healthy = node.start(0, "print('watched', flush=True)" + WORK)
        assert healthy.stdout.readline() == "watched\n"
        first = node.agent_pid
        os.kill(first, signal.SIGKILL)
        starting = node.start(1, "client.send_heartbeat()\ntime.sleep(600)")
        assert starting.wait(60) == -signal.SIGKILL, "watched, although no agent ran when it began"
        assert node.agent_pid != first
        assert healthy.poll() is None
