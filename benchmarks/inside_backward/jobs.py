"""The processes of a row's ranks, which train its runs one after the other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from otel_straggler.demo.processes import free_address

Json = dict[str, Any]
PROGRAM = ("-m", "benchmarks.inside_backward.ranks")


class Job:
    """So many ranks of one kind of training.

    Args:
        training: of ``ranks.py``.
        world_size: how many ranks.
        log: file for what they print.
        come_first: with real-time priority, if that is permitted.
        program: of a rank; the training and a flag follow.

    Raises:
        RuntimeError: a rank has ended; with the end of the log.
    """

    def __init__(
        self,
        training: str,
        world_size: int,
        log: Path,
        *,
        come_first: bool = True,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self._log = log
        host, _, port = free_address().rpartition(":")
        where = {"WORLD_SIZE": str(world_size), "MASTER_ADDR": host, "MASTER_PORT": port,
                 "LOCAL_WORLD_SIZE": str(world_size), "GLOO_SOCKET_IFNAME": "lo",
                 "TORCHELASTIC_RUN_ID": "none", "OMP_NUM_THREADS": "1",
                 "TORCHINDUCTOR_COMPILE_THREADS": "1"}  # fmt: skip
        flags = ["first"] if come_first else []
        with log.open("wb") as file:
            self._ranks = [
                subprocess.Popen(
                    [sys.executable, *program, training, *flags],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=file,
                    start_new_session=True,
                    env={**os.environ, **where, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                )
                for rank in range(world_size)
            ]
        self._wait_for("ready")

    def train(self, run: Json, added: Mapping[int, Json]) -> None:
        """Train a run, and wait until it is over; ``added`` seconds by rank, see ``Pace.plan``."""
        for rank, process in enumerate(self._ranks):
            assert process.stdin is not None
            line = json.dumps({**run, "added": added.get(rank, {})})
            process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()
        self._wait_for("over")

    def close(self) -> None:
        """End all ranks, politely if they are."""
        for process in self._ranks:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
        for process in self._ranks:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def _wait_for(self, word: str) -> None:
        for process in self._ranks:
            assert process.stdout is not None
            if process.stdout.readline().strip() != word.encode():
                self._kill()
                raise RuntimeError(self._log.read_text(errors="replace")[-4000:])

    def _kill(self) -> None:
        """All at once: who waits for a rank that is gone does not end by itself."""
        for process in self._ranks:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
