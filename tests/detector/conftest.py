"""Ranks: processes of a gloo group that live as long as the tests, because torch loads slowly."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler import shutdown
from otel_straggler.client.recording import RECORDER
from otel_straggler.detector import Detector
from otel_straggler.native import VARIABLE

RANKS = 4
LONGEST_S = 120
_PROGRAM = Path(__file__).with_name("rank_process.py")


class Ranks:
    """Has all ranks do the same, each with arguments of its own."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "SLURM_"))},
            VARIABLE: os.environ.get(VARIABLE, ""),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "WORLD_SIZE": str(RANKS),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        self.processes = [
            subprocess.Popen(
                [sys.executable, str(_PROGRAM)],
                env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(RANKS)
        ]

    def do(self, what: str, *by_rank: dict[str, Any], **shared: Any) -> list[Any]:
        """The answers by rank. ``by_rank`` holds arguments that differ, ``shared`` those that do
        not."""
        alarm = threading.Timer(LONGEST_S, self.kill)
        alarm.start()
        try:
            for rank, process in enumerate(self.processes):
                own = by_rank[rank] if by_rank else {}
                assert process.stdin is not None
                process.stdin.write(json.dumps({"do": what, "with": {**shared, **own}}) + "\n")
                process.stdin.flush()
            return [self._answer(rank) for rank in range(RANKS)]
        finally:
            alarm.cancel()

    def _answer(self, rank: int) -> Any:
        stdout = self.processes[rank].stdout
        assert stdout is not None
        line = stdout.readline()
        assert line, f"rank {rank} ended or took longer than {LONGEST_S} s"
        return json.loads(line, object_hook=_with_ranks)

    def close(self) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.processes:
            process.wait(30)
            assert process.stdout is not None
            process.stdout.close()

    def kill(self) -> None:
        for process in self.processes:
            process.kill()


def _with_ranks(table: dict[str, Any]) -> dict[Any, Any]:
    """JSON has no numbers as keys; ranks are."""
    return {int(key) if key.isdigit() else key: value for key, value in table.items()}


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    started = Ranks()
    yield started
    try:
        started.close()
    finally:
        started.kill()


@pytest.fixture(autouse=True)
def _clean_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test sees the environment or the detector of another."""
    for prefix in ("OTEL_", "SLURM_", "TORCHELASTIC_", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_"):
        for name in [n for n in os.environ if n.startswith(prefix)]:
            if name != VARIABLE:
                monkeypatch.delenv(name)
    yield
    Detector.shutdown()
    shutdown()
    assert RECORDER.context is None
