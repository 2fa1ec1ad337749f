"""A collector that only pretends: serves the page, and canned answers in the collector's shape.

``python -m tests.page.server straggler --port 9900`` serves a scenario to look at.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from otel_straggler.page import asset

from .run_views import NOW_S, World, rank_detail, run_view, runs_of, timeline
from .scenarios import SCENARIOS

Json = dict[str, Any]
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


class CannedCollector:
    """Serves one set of runs at a time; what it serves can be changed while pages look.

    Attributes:
        worlds: the runs, first one first; change them with :meth:`show`.
        asked: addresses that were asked for, in order.
    """

    def __init__(self, *worlds: World, port: int = 0) -> None:
        self.worlds = list(worlds)
        self.asked: list[str] = []
        self.changes: Json = {}
        self._news = threading.Condition()
        self._number = 1
        self._run_views: dict[int, tuple[World, Json]] = {}
        self._started = time.time() - NOW_S  # collector's "now" goes on from the canned one
        self.started_at_s = NOW_S - 9000
        self._is_up = True
        self._server = _server(self, port)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def show(self, *worlds: World, **changes: Any) -> None:
        """Other runs from now on; streams tell the pages. ``changes`` go into every picture."""
        with self._news:
            self.worlds = list(worlds)
            self.changes = changes
            self._number += 1
            self._news.notify_all()

    def go_away(self) -> None:
        """Nothing listens any more; open streams end."""
        with self._news:
            self._is_up = False
            self._news.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def come_back(self, *, is_restarted: bool = False) -> None:
        """Listens on the same port again, as another process if told so."""
        if is_restarted:
            self.started_at_s += 100
        self._is_up = True
        self._server = _server(self, self.port)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> CannedCollector:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_up:
            self.go_away()

    # --- what it answers ---------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        return time.time() - self._started

    def answer(self, path: str, query: dict[str, str]) -> Json | None:
        """The JSON of an address; None if there is no such thing."""
        run_views = [self._run_view(world) for world in self.worlds]
        if path == "/v1/runs":
            return self._dated(runs_of(run_views))
        run = query.get("run")
        result = [n for n, each in enumerate(run_views) if run in (None, each["run"]["run_id"])]
        if not result:
            return None
        world = self.worlds[result[0]]
        if path == "/v1/run":
            return run_views[result[0]]
        if path == "/v1/timeline":
            return timeline(world, query.get("section", ""), int(query.get("after", "0")))
        rank = int(query.get("rank", "-1"))
        return rank_detail(world, rank) if path == "/v1/rank" and 0 <= rank < world.ranks else None

    def _run_view(self, world: World) -> Json:
        reported = self._dated(self._canned_run_view(world))
        reported["snapshot"] = f"{world.run_id}-{self._number}"
        for key, value in self.changes.items():
            reported[key] = {**reported[key], **value} if isinstance(value, dict) else value
        return reported

    def _canned_run_view(self, world: World) -> Json:
        if id(world) not in self._run_views:
            self._run_views[id(world)] = world, run_view(world)  # kept, or another would get its id
        return self._run_views[id(world)][1]

    def _dated(self, reported: Json) -> Json:
        """Canned times end at ``NOW_S``; the collector's clock went on from there."""
        return {**reported, "started_at_s": self.started_at_s, "now_s": self.now_s}

    def news(self, run: str | None) -> Json:
        """What a stream says: snapshot and time."""
        return {"snapshot": f"{run}-{self._number}", "now_s": self.now_s, "last": 120}

    def wait_for_news(self, seen: int) -> int | None:
        """The number of the newest set of runs once it is not ``seen``; None at the end."""
        with self._news:
            self._news.wait_for(lambda: self._number != seen or not self._is_up)
            return self._number if self._is_up else None

    @property
    def is_up(self) -> bool:
        return self._is_up

    @property
    def number(self) -> int:
        return self._number


def _server(collector: CannedCollector, port: int) -> ThreadingHTTPServer:
    class Handler(_Handler):
        canned = collector

    ThreadingHTTPServer.allow_reuse_address = True
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    return server


class _Handler(BaseHTTPRequestHandler):
    canned: CannedCollector
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if not self.canned.is_up:  # a connection that was kept open
            self.close_connection = True
            return
        split = urlsplit(self.path)
        self.canned.asked.append(self.path)
        query = {name: values[-1] for name, values in parse_qs(split.query).items()}
        if split.path == "/v1/events":
            self._stream(query.get("run"))
        elif split.path.startswith("/v1/"):
            self._json(self.canned.answer(split.path, query))
        else:
            self._file("index.html" if split.path == "/" else split.path.removeprefix("/page/"))

    def _json(self, reported: Json | None) -> None:
        body = json.dumps(
            reported or {"error": "no such run, group or rank"}, allow_nan=False
        ).encode()
        etag = f'"{hash(json.dumps({**(reported or {}), "now_s": 0}))}"'
        if reported and self.headers.get("If-None-Match") == etag:
            return self._send(304, b"", {"ETag": etag})
        headers = {"Content-Type": "application/json", "ETag": etag}
        return self._send(200 if reported else 404, body, headers)

    def _file(self, name: str) -> None:
        result = asset(name)
        if result is None:
            return self._send(404, b"", {})
        headers = {"Content-Type": result.media_type, "Content-Security-Policy": POLICY}
        return self._send(200, result.content, headers)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)

    def _stream(self, run: str | None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        number: int | None = self.canned.number
        try:
            self._say("retry: 1000\n\n")
            while number is not None:
                self._report("snapshot", self.canned.news(run))
                number = self.canned.wait_for_news(number)
                if number is not None:
                    self._report("runs", {"n": len(self.canned.worlds)})
        except OSError:
            pass  # the page has gone

    def _report(self, event: str, news: Json) -> None:
        self._say(f"event: {event}\ndata: {json.dumps(news)}\n\n")

    def _say(self, text: str) -> None:
        self.wfile.write(text.encode())
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Not to the terminal."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", nargs="*", default=["straggler"], choices=[*SCENARIOS, "empty"])
    parser.add_argument("--port", type=int, default=9900)
    chosen = parser.parse_args()
    worlds = [SCENARIOS[name]() for name in chosen.scenario if name != "empty"]
    with CannedCollector(*worlds, port=chosen.port) as collector:
        print(f"{', '.join(chosen.scenario)} at {collector.url}; Ctrl-C ends it")
        threading.Event().wait()


if __name__ == "__main__":
    main()
