"""Real processes that get stuck, and what they leave behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.collector.service import Collector
from otel_straggler.collector.settings import (
    CollectorSettings,
    CommandsSettings,
    LivenessSettings,
    MetricsSettings,
    ReceiverSettings,
)
from otel_straggler.model.diagnostics import StacksDump
from otel_straggler.recordings.diagnostics_files import read_stacks_file

from ..waiting import eventually

PROGRAM = Path(__file__).with_name("stuck_program.py")


class Stuck:
    """One stuck rank."""

    def __init__(self, way: str, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), way],
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self) -> str:
        assert self.process.stdout is not None
        printed = self.process.stdout.readline().strip()
        if printed == "stuck":
            self._wait_for_sleep()
        return printed

    def _wait_for_sleep(self) -> None:
        """Until the main thread has not run for a while; it speaks a moment before."""
        sleeping = 0
        while sleeping < 4:
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
            sleeping = sleeping + 1 if state == "S" else 0
            time.sleep(0.02)

    def dumps(self) -> list[StacksDump]:
        """Those with stacks, in its file."""
        result = [
            dump
            for path in self.folder.glob("*.stacks.txt")
            for dump in read_stacks_file(path)
            if dump.head.pid == str(self.pid) and dump.threads
        ]
        return [dump for dump in result if dump.main is not None]

    def close(self) -> str:
        """What it said on standard error."""
        with contextlib.suppress(ProcessLookupError):  # with its children, who share its pipes
            os.killpg(self.pid, signal.SIGKILL)
        return self.process.communicate(timeout=30)[1]


Start = Callable[..., Stuck]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a stuck rank that writes its evidence to ``tmp_path``; it sends to nobody."""
    with contextlib.ExitStack() as started:

        def begin(way: str, *, rank: int = 0, **env: str) -> Stuck:
            given = {
                "RANK": str(rank),
                "WORLD_SIZE": "4",
                "OTEL_STRAGGLER_EVIDENCE_DIR": str(tmp_path),
                "OTEL_STRAGGLER_RING_DIR": str(tmp_path),
                "OTEL_STRAGGLER_ENDPOINT": "http://127.0.0.1:1",
                "OTEL_STRAGGLER_HEARTBEAT_S": "0.2",
                "OTEL_STRAGGLER_FLUSH_S": "0.2",
                **env,
            }
            stuck = Stuck(way, tmp_path, {k: v for k, v in given.items() if v})
            started.callback(stuck.close)
            return stuck

        yield begin


@pytest.fixture
def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


@pytest.fixture(scope="session")
def wait() -> Callable[..., Any]:
    return eventually


TOKEN = "s3cret"
FREE = "127.0.0.1:0"
ON = {"OTEL_STRAGGLER_COMMANDS": "on", "OTEL_STRAGGLER_COMMANDS_TOKEN": TOKEN}


class Live:
    """A collector, and where it is."""

    def __init__(self, commands: CommandsSettings, liveness: LivenessSettings) -> None:
        settings = CollectorSettings(
            receivers=ReceiverSettings(otlp_http=FREE, otlp_grpc=FREE),
            metrics=MetricsSettings(listen=FREE),
            liveness=liveness,
            commands=commands,
        )
        self.collector = Collector(settings)
        addresses = self.collector.start()
        self.otlp = f"http://{addresses['otlp_http']}"
        self.pages = f"http://{addresses['metrics']}"


@pytest.fixture
def collect() -> Iterator[Any]:
    """Starts a collector that takes commands."""
    running: list[Live] = []

    def start(*on_hang: str, **liveness: float) -> Live:
        commands = CommandsSettings(enabled=True, token=TOKEN, on_hang=on_hang)
        running.append(Live(commands, LivenessSettings(**liveness)))
        return running[-1]

    yield start
    for one in running:
        one.collector.stop()
