"""Webhook that keeps what it gets, and when."""

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
        at_s: when it had been read, seconds since 1970.
        path: where it was sent: the routes of an Alertmanager differ in it.
        payload: its JSON.
        status: what it was answered with; 200 = it was delivered.
    """

    at_s: float
    path: str
    payload: Json
    status: int = 200


Answer = Callable[[str, Json], int]
"""From path and payload to the status of the answer."""


class Receiver:
    """Listens on a free port of this machine, in threads of its own, until :meth:`close`.

    Args:
        answer: how requests are answered; 200 to all by default.
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
        """All so far, in the order in which they came."""
        with self._has_new:
            return tuple(self._received)

    def wait_for(self, is_it: Callable[[Received], bool], timeout_s: float) -> Received | None:
        """The first request, of those that came and those to come, for which ``is_it`` holds;
        None if none has come within ``timeout_s``."""
        ends_at_s = time.monotonic() + timeout_s
        n_seen = 0
        with self._has_new:
            while True:
                for one in self._received[n_seen:]:
                    if is_it(one):
                        return one
                n_seen = len(self._received)
                left_s = ends_at_s - time.monotonic()
                if left_s <= 0 or not self._has_new.wait(left_s):
                    return None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, path: str, payload: Json) -> int:
        """Keep one request; the status of its answer."""
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
                status = receiver.take(self.path, json.loads(body))
            except ValueError:
                status = 400
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing on standard error."""

    return Handler
