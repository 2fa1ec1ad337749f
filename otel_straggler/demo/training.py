"""The demo's training: processes in lockstep, one of which can be made to fail.

    python -m otel_straggler.demo.training PORT     one rank

GPU work is replaced by sleeping; processes, lockstep, heartbeats and spans are real. A rank sends
one byte when it reaches the collective, and waits for one byte: none continues before all have
arrived, as with NCCL. A training script may replace these ranks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import otel_straggler
from otel_straggler.demo.processes import end, free_address

Fault = Literal["slow", "stuck", "lost"]
FAULTS: tuple[Fault, ...] = ("slow", "stuck", "lost")
SIGNALS: dict[Fault, signal.Signals] = {
    "slow": signal.SIGUSR1, "stuck": signal.SIGUSR2, "lost": signal.SIGKILL
}  # fmt: skip
TEXT: dict[Fault, str] = {
    "slow": "needs longer in {section} from now on",
    "stuck": "does not come to the next all-reduce (it lives, and waits for something else)",
    "lost": "is killed (SIGKILL)",
}
SECTIONS = ("data_loading", "forward")
"""Sections in which a rank can be slow."""
SECTION_VARIABLE = "DEMO_SLOW_SECTION"
RANKS_PER_NODE = 4
_SECTIONS_S = {"data_loading": 0.005, "forward": 0.025, "backward": 0.010}
_SLOWER_BY_S = 0.030


class Training:
    """Started at once; :meth:`close` ends it.

    Args:
        log: file for the output of the ranks.
        section: in which a slow rank is slow.
        script: what each rank runs instead of this module, with its flags; rank and world are in
            the
            environment, as from torchrun, and signals make it fail.
    """

    def __init__(
        self,
        endpoint: str,
        run_id: str,
        n_ranks: int,
        log: Path,
        *,
        section: str = SECTIONS[-1],
        script: Sequence[str] = (),
    ) -> None:
        self._meeting = None if script else Meeting(n_ranks)
        self._log = log
        self._ranks: list[subprocess.Popen[bytes]] = []
        module = ["-m", "otel_straggler.demo.training", str(self._meeting and self._meeting.port)]
        shared = {
            "WORLD_SIZE": str(n_ranks),
            "OTEL_STRAGGLER_ENDPOINT": endpoint,
            "OTEL_STRAGGLER_RUN_ID": run_id,
            "OTEL_STRAGGLER_SERVICE_NAME": "demo",
            "OTEL_STRAGGLER_HEARTBEAT_S": "0.5",
            "OTEL_STRAGGLER_FLUSH_S": "0.25",
            SECTION_VARIABLE: section,
        }
        if script:
            host, _, port = free_address().partition(":")
            shared |= {"MASTER_ADDR": host, "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
            shared["OMP_NUM_THREADS"] = "1"
        try:
            with log.open("wb") as file:
                for rank in range(n_ranks):
                    own = {
                        "RANK": str(rank),
                        "LOCAL_RANK": str(rank % RANKS_PER_NODE),
                        "OTEL_RESOURCE_ATTRIBUTES": f"host.name={node_of(rank)}",
                    }
                    process = subprocess.Popen(  # noqa: S603  our own module, or what is asked for
                        [sys.executable, *(script or module)],
                        env={**os.environ, **shared, **own},
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
        """The end of the output of the ranks."""
        return self._log.read_text(errors="replace")[-4000:]

    @property
    def exit_codes(self) -> list[int]:
        """Of the ranks that have ended."""
        return [code for process in self._ranks if (code := process.poll()) is not None]

    def wait(self, timeout_s: float) -> list[int]:
        """Exit codes of all ranks, once they have ended by themselves."""
        ends_at_s = time.monotonic() + timeout_s
        return [process.wait(ends_at_s - time.monotonic()) for process in self._ranks]

    def inject(self, fault: Fault, rank: int) -> None:
        self._ranks[rank].send_signal(SIGNALS[fault])

    def close(self) -> None:
        for process in self._ranks:
            if process.poll() is None:
                process.terminate()
        if self._meeting is not None:
            self._meeting.close()
        for process in self._ranks:
            end(process)


def node_of(rank: int) -> str:
    """The ranks pretend to be on several nodes."""
    return f"node-{rank // RANKS_PER_NODE}"


# --- the collective -----------------------------------------------------------------------------


class Meeting:
    """A barrier on a free port of this machine, in its own threads, until :meth:`close`."""

    def __init__(self, n_ranks: int) -> None:
        self._barrier = threading.Barrier(n_ranks)
        self._server = _Server(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, name="meeting")
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def come(self) -> None:
        """One rank has arrived; wait for all others."""
        with contextlib.suppress(threading.BrokenBarrierError):  # it is closed
            self._barrier.wait()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._barrier.abort()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128


def _handler_of(meeting: Meeting) -> type[socketserver.BaseRequestHandler]:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            try:
                while self.request.recv(1):
                    meeting.come()
                    self.request.sendall(b".")
            except OSError:
                return  # a rank was killed: it is waited for

    return Handler


# --- one rank -----------------------------------------------------------------------------------


def main(port: int) -> None:
    """Train until the meeting is over."""
    seconds = dict(_SECTIONS_S)
    stuck = threading.Event()

    def be_slow(*_: Any) -> None:
        seconds[os.environ[SECTION_VARIABLE]] += _SLOWER_BY_S

    signal.signal(SIGNALS["slow"], be_slow)
    signal.signal(SIGNALS["stuck"], lambda *_: stuck.set())
    otel_straggler.configure()
    peers = socket.create_connection(("127.0.0.1", port))
    n, is_over = 0, False
    while not is_over:
        with otel_straggler.step(n):
            for name, takes_s in seconds.items():
                with otel_straggler.section(name, kind="data" if "data" in name else "compute"):
                    time.sleep(takes_s)
                    if stuck.is_set() and name == "forward":
                        threading.Event().wait()
            with otel_straggler.section("gradient_sync", kind="wait"):
                is_over = not _met(peers)
        n += 1
    otel_straggler.shutdown()


def _met(peers: socket.socket) -> bool:
    try:
        peers.sendall(b".")
        return bool(peers.recv(1))
    except OSError:
        return False


if __name__ == "__main__":
    main(int(sys.argv[1]))
