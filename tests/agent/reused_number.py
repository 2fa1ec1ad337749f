"""A process connects and ends, and its number becomes another process's, in a PID namespace.

    unshare --pid --fork --mount-proc python -m tests.agent.reused_number FOLDER

Prints whom the agent watches then: nothing, or the number of a process that never was a rank.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

from otel_straggler.agent.beats import BeatPage
from otel_straggler.agent.config import FaultToleranceConfig
from otel_straggler.agent.frames import encode
from otel_straggler.agent.process import SOCKET, listening
from otel_straggler.agent.server import AgentServer
from otel_straggler.client.diagnostics.processes import started_ticks

_NEXT = Path("/proc/sys/kernel/ns_last_pid")


def main(folder: Path) -> None:
    server = AgentServer(FaultToleranceConfig(), listening(folder), folder, "run")
    is_done = threading.Event()

    def serve() -> None:
        while not is_done.is_set():
            server.step(0.02)

    thread = threading.Thread(target=serve)
    thread.start()
    connected, number, started = from_process_that_ends(folder)
    _NEXT.write_text(str(number - 1))
    with subprocess.Popen(["sleep", "600"]) as innocent, connected:
        assert innocent.pid == number, "the number was not free"
        init = {"version": 1, "rank": 3, "local_rank": 0, "attempt": 0, "run_id": ""}
        timeouts = {"heartbeat": {}, "section": {"section": {}}}
        connected.sendall(encode({"type": "init", "started": started, **init}))
        watch = encode({"type": "watch", "sections": [], **timeouts})
        socket.send_fds(connected, [watch], [BeatPage([]).file])
        while connected.recv(65_536).find(b"ok") < 0 and not server.rejections.counts:
            pass
        print(*(one.process.pid == innocent.pid for one in server.ranks.values()))
        print(dict(server.rejections.counts))
        innocent.kill()
    is_done.set()
    thread.join()
    server.close()


def from_process_that_ends(folder: Path) -> tuple[socket.socket, int, str]:
    """A connection of a process that has ended, its number, and when it had started."""
    ours, theirs = socket.socketpair()
    number = os.fork()
    if number == 0:
        own = socket.socket(socket.AF_UNIX)
        own.connect(str(folder / SOCKET))
        socket.send_fds(theirs, [started_ticks(os.getpid()).encode()], [own.fileno()])
        os._exit(0)
    data, files, _, _ = socket.recv_fds(ours, 100, 1)
    os.waitpid(number, 0)
    return socket.socket(fileno=files[0]), number, data.decode()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
