"""Record what ``otel-straggler simulate --send --speed 1`` sends: its sleep moves a clock.

python -m tests.golden.record FOLDER NAME ...
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from . import clocked
from .scenarios import OFFLINE, START_S, arguments_of, offline_arguments

Request = tuple[float, str, bytes]
"""When it came, "traces" or "metrics", and its body."""


@contextlib.contextmanager
def recording(clock: clocked.Clock, requests: list[Request]) -> Iterator[str]:
    """A server that takes everything; gives its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            requests.append((clock.now_s, self.path.rpartition("/")[2], body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def main(folder: Path, names: Sequence[str]) -> None:
    clock = clocked.Clock.create(folder / f"clock-of-{names[0]}", START_S)
    clocked.install(clock, sleeping_moves_it=True)
    from otel_straggler.cli import main as command

    for name in names:
        clock.set(START_S)
        requests: list[Request] = []
        with recording(clock, requests) as url:
            if code := command([*arguments_of(name), "--send", url]):
                sys.exit(code)
        if name in OFFLINE:
            report(folder, name)
        (folder / f"{name}.record").write_bytes(pickle.dumps(requests))


def report(folder: Path, name: str) -> None:
    """Write the run to a file and score it."""
    from otel_straggler.cli import main as command

    path = str(folder / f"{name}.otlp")
    with (folder / f"{name}.report").open("w") as output, contextlib.redirect_stdout(output):
        code = command(offline_arguments(name, path))
        code = code or command(["score", path, "--window-steps", "20", "--json"])
    if code:
        sys.exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
