"""A server that answers as Prometheus does, with series that a test has made."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Made = tuple[Mapping[str, str], Sequence[tuple[float, float]]]


class FakePrometheus:
    """Answers every expression from ``series``; one that is not there has no series.

    Args:
        series: by expression: pairs of labels and points (seconds since the epoch, value).
        errors: by expression: what is wrong with it.
        labels: values by label.
    """

    def __init__(
        self,
        series: Mapping[str, Sequence[Made]] | None = None,
        errors: Mapping[str, str] | None = None,
        labels: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.series = dict(series or {})
        self.errors = dict(errors or {})
        self.labels = dict(labels or {})
        self.asked: list[tuple[str, dict[str, str]]] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._tell(*fake.answer(self.path, ""))

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                self._tell(*fake.answer(self.path, self.rfile.read(length).decode()))

            def _tell(self, status: int, told: Any) -> None:
                body = json.dumps(told).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FakePrometheus:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, path: str, body: str) -> tuple[int, Any]:
        parts = urlsplit(path)
        given = {key: held[-1] for key, held in parse_qs(parts.query or body).items()}
        verb = parts.path.removeprefix("/api/v1/")
        self.asked.append((verb, given))
        if verb.startswith("label/"):
            return 200, _success(list(self.labels.get(verb.split("/")[1], ())))
        expression = given.get("query", "")
        if expression in self.errors:
            told = {"status": "error", "errorType": "bad_data", "error": self.errors[expression]}
            return 400, told
        found = self.series.get(expression, ())
        if verb == "query":
            vector = [
                {"metric": dict(labels), "value": _point(*held[-1])} for labels, held in found
            ]
            return 200, _success({"resultType": "vector", "result": vector})
        matrix = [
            {"metric": dict(labels), "values": [_point(*one) for one in held]}
            for labels, held in found
        ]
        return 200, _success({"resultType": "matrix", "result": matrix})


def _point(at_s: float, value: float) -> list[Any]:
    return [at_s, f"{value:g}".replace("nan", "NaN").replace("inf", "+Inf")]


def _success(data: Any) -> dict[str, Any]:
    return {"status": "success", "data": data}
