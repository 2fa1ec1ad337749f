"""A backend that requests are forwarded to."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer


class Sink:
    """An HTTP server that remembers; ``statuses`` are answered first, then 200."""

    def __init__(self, statuses: tuple[int, ...] = (), port: int = 0) -> None:
        self.received: list[tuple[str, bytes, str, str | None]] = []
        self.statuses = list(statuses)
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = sink.statuses.pop(0) if sink.statuses else 200
                if status == 200:
                    kind, coding = self.headers["Content-Type"], self.headers["Content-Encoding"]
                    sink.received.append((self.path, body, kind, coding))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.send_header("Connection", "close")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = HTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
