"""The demo's training: processes in lockstep, one of which can be made to go wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Literal

from otel_straggler.demo.collector import end
from otel_straggler.demo.lockstep import BE_SLOW, STAY_AWAY, Meeting

Fault = Literal["slow", "stuck", "lost"]
FAULTS: tuple[Fault, ...] = ("slow", "stuck", "lost")
SAID: dict[Fault, str] = {
    "slow": "needs twice as long in forward from now on",
    "stuck": "does not come to the next all-reduce (it lives, and waits for something else)",
    "lost": "is killed (SIGKILL)",
}
RANKS_PER_NODE = 4


class Training:
    """Started at once; :meth:`close` ends all that is left of it.

    Args:
        endpoint: of the collector.
        run_id: of the run.
        n_ranks: processes.
        log: file for what they print.
    """

    def __init__(self, endpoint: str, run_id: str, n_ranks: int, log: Path) -> None:
        self.meeting = Meeting(n_ranks)
        self._log = log
        self._ranks: list[subprocess.Popen[bytes]] = []
        try:
            with log.open("wb") as file:
                for rank in range(n_ranks):
                    process = subprocess.Popen(  # noqa: S603  our own module
                        [sys.executable, "-m", "otel_straggler.demo.rank", str(self.meeting.port)],
                        env=_environment(endpoint, run_id, rank, n_ranks),
                        stdout=file,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                    self._ranks.append(process)
        except BaseException:
            self.close()
            raise

    @property
    def log(self) -> str:
        """The end of what the ranks have printed."""
        return self._log.read_text(errors="replace")[-4000:]

    def go_wrong(self, fault: Fault, rank: int) -> None:
        """From now on."""
        if fault == "lost":
            self._ranks[rank].send_signal(signal.SIGKILL)
        else:
            self.meeting.order(rank, BE_SLOW if fault == "slow" else STAY_AWAY)

    def close(self) -> None:
        """End all processes."""
        for process in self._ranks:
            if process.poll() is None:
                process.terminate()
        self.meeting.close()
        for process in self._ranks:
            end(process)


def node_of(rank: int) -> str:
    """The ranks pretend to be on several."""
    return f"node-{rank // RANKS_PER_NODE}"


def _environment(endpoint: str, run_id: str, rank: int, n_ranks: int) -> dict[str, str]:
    return {
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": str(n_ranks),
        "LOCAL_RANK": str(rank % RANKS_PER_NODE),
        "OTEL_STRAGGLER_ENDPOINT": endpoint,
        "OTEL_STRAGGLER_RUN_ID": run_id,
        "OTEL_STRAGGLER_SERVICE_NAME": "demo",
        "OTEL_RESOURCE_ATTRIBUTES": f"host.name={node_of(rank)}",
    }
