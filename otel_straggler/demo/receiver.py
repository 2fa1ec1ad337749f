"""A webhook that stores its requests."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Received:
    """One request.

    Attributes:
        at_s: seconds since 1970.
        path: the routes of an Alertmanager differ in it.
        payload: its JSON.
        status: of the answer.
    """

    at_s: float
    path: str
    payload: Json
    status: int = 200


Answer = Callable[[str, Json], int]
"""From path and payload to the status of the answer."""


class Receiver:
    """Listens on a free port of this machine, in its own threads, until :meth:`close`.

    Args:
        answer: 200 to all by default.
    """

    def __init__(self, answer: Answer = lambda _path, _payload: 200) -> None:
        self._answer = answer
        self._received: list[Received] = []
        self._has_new = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="webhook")
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def received(self) -> tuple[Received, ...]:
        """All requests so far, in order."""
        with self._has_new:
            return tuple(self._received)

    def wait_for(self, is_it: Callable[[Received], bool], timeout_s: float) -> Received | None:
        """The first past or future request for which ``is_it`` holds; None after ``timeout_s``."""

        def first() -> Received | None:
            return next(filter(is_it, self._received), None)

        with self._has_new:
            return self._has_new.wait_for(first, timeout_s)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def record(self, path: str, payload: Json) -> int:
        """Store one request; returns the status of its answer."""
        status = self._answer(path, payload)
        with self._has_new:
            self._received.append(Received(time.time(), path, payload, status))
            self._has_new.notify_all()
        return status


def _handler_of(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                status = receiver.record(self.path, json.loads(body))
            except ValueError:
                status = 400
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing on standard error."""

    return Handler
