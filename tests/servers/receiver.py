"""An HTTP(S) server that takes alerts, or does not: it fails, hangs, closes, sends elsewhere."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CLOSE, HANG = 0, -1
"""In place of a status."""


@dataclass(frozen=True)
class Received:
    """One request that was taken."""

    path: str
    headers: dict[str, str]
    body: Any


class Receiver:
    """Answers with ``statuses`` first, then 200; what it takes is remembered.

    Args:
        statuses: of the first answers.
        tls: how to speak TLS; None for plain HTTP.
        largest_bytes: larger bodies are answered with 413.
        port: 0 for a free one.
        text: body of every answer.
        rule: gives a status by what was sent, where no other is due.
    """

    def __init__(
        self,
        *statuses: int,
        tls: ssl.SSLContext | None = None,
        largest_bytes: int = 2**30,
        port: int = 0,
        text: str = "",
        rule: Callable[[Any], int] = lambda _: 200,
    ) -> None:
        self.statuses = list(statuses)
        self.received: list[Received] = []
        self.refused: list[Received] = []
        self.tries = 0
        self._released = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                receiver.tries += 1
                body = self.rfile.read(int(self.headers["Content-Length"]))
                reported = json.loads(body)
                status = receiver.statuses.pop(0) if receiver.statuses else rule(reported)
                if len(body) > largest_bytes:
                    status = 413
                if status == HANG:
                    receiver._released.wait(60)
                if status in (CLOSE, HANG):
                    self.close_connection = True
                    return
                headers = {k.lower(): v for k, v in self.headers.items()}
                one = Received(self.path, headers, reported)
                (receiver.received if status == 200 else receiver.refused).append(one)
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "https://elsewhere/alerts")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None: ...

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """A client that gave up is no news."""

        self._server = Server(("127.0.0.1", port), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = self._server.server_port
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
