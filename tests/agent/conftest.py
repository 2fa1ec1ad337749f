"""What the agent's tests share: an agent in a thread, one in a process, and ranks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.agent.client import RankMonitorClient
from otel_straggler.agent.config import FaultToleranceConfig
from otel_straggler.agent.monitoring import SOCKET_VARIABLES
from otel_straggler.agent.process import SOCKET, listening, running_agent
from otel_straggler.agent.server import AgentServer

from ..waiting import eventually

RANK = """
import os, signal, sys, time
from otel_straggler import fault_tolerance
client = fault_tolerance.RankMonitorClient()
client.init_workload_monitoring()
"""
WORK = """
while True:
    client.send_heartbeat()
    time.sleep(0.01)
"""


class LocalAgent:
    """An agent in a thread of this process, which also is all of its ranks; it never signals."""

    def __init__(self, folder: Path, config: FaultToleranceConfig) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        self.hangs: list[dict[str, Any]] = []
        self.server = AgentServer(
            config,
            listening(folder),
            folder / "diagnostics",
            "run",
            lambda _, facts: self.hangs.append(facts),
        )
        self._is_ending = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_ending:
            self.server.step(0.02)

    def close(self) -> None:
        if self._thread.is_alive():
            self._is_ending = True
            self._thread.join()
            self.server.close()


MakeAgent = Callable[..., LocalAgent]
MakeClient = Callable[..., RankMonitorClient]


@pytest.fixture
def make_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeAgent]:
    """Makes an agent by fields of its configuration; clients find it."""
    made: list[LocalAgent] = []

    def make(**fields: Any) -> LocalAgent:
        fields = {"workload_check_interval": 0.02, **fields}
        made.append(LocalAgent(tmp_path / "agent", FaultToleranceConfig(**fields)))
        return made[-1]

    for name in SOCKET_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(SOCKET_VARIABLES[0], str(tmp_path / "agent" / SOCKET))
    yield make
    for agent in made:
        agent.close()


@pytest.fixture
def make_client(monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeClient]:
    """Makes clients, by rank, that are watched already."""
    made: list[RankMonitorClient] = []

    def make(rank: int = 0, **arguments: Any) -> RankMonitorClient:
        monkeypatch.setenv("RANK", str(rank))
        made.append(RankMonitorClient())
        made[-1].init_workload_monitoring(**arguments)
        return made[-1]

    yield make
    for client in made:
        client.shutdown_workload_monitoring()


class Node:
    """A node with an agent in a process of its own, and ranks in theirs."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self.folder = folder
        self.variables = variables
        self.ranks: list[subprocess.Popen[str]] = []

    def start(
        self, rank: int, code: str, before: str = "", stdin: int | None = None, **variables: str
    ) -> Any:
        """A rank that is monitored and then runs ``code``."""
        process = subprocess.Popen(
            [sys.executable, "-c", before + RANK + code],
            env={**os.environ, **self.variables, "RANK": str(rank), **variables},
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ranks.append(process)
        return process

    @property
    def hangs(self) -> list[dict[str, Any]]:
        """Diagnostics so far, by time."""
        files = sorted(
            (self.folder / "diagnostics").glob("*.hang.json"),
            key=lambda path: int(path.name.split("-")[2].split(".")[0]),
        )
        result = []
        for path in files:
            with contextlib.suppress(ValueError):  # is being written
                result.append(json.loads(path.read_text()))
        return result

    def hung_ranks(self, count: int) -> list[int]:
        """Once there are so many."""
        eventually(lambda: len(self.hangs) >= count)
        return sorted(hang["rank"] for hang in self.hangs)

    @property
    def agent_pid(self) -> int:
        """As the lock says."""
        return int((self.folder / "agent.lock").read_text())


@pytest.fixture
def run_node(tmp_path: Path) -> Iterator[Callable[..., contextlib.AbstractContextManager[Node]]]:
    """Runs a node by fields of its configuration; ends its ranks."""

    @contextlib.contextmanager
    def run(name: str = "node", **fields: Any) -> Iterator[Node]:
        fields = {"workload_check_interval": 0.05, **fields}
        environment = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_STRAGGLER_S")}
        config = FaultToleranceConfig(**fields)
        folder = tmp_path / name
        with running_agent(config, folder=folder, environment=environment) as variables:
            node = Node(folder, variables)
            try:
                yield node
            finally:
                for process in node.ranks:
                    if process.poll() is None:
                        process.send_signal(signal.SIGCONT)
                        process.kill()
                    process.communicate()

    return run
