"""The address for people and scrapers: /metrics, /v1/report, /healthz, /readyz, /v1/decisions,
/v1/maintenance, /v1/commands, /v1/alerts/test; and the live page, see ``page_routes``.

All but the four before the page only read snapshots. A browser on the same machine can be made to
send requests here: under a foreign name (DNS rebinding), so the Host header must be a name that
belongs to this server; and from a foreign page, so what is decided must come as JSON, which no page
may send to another origin unasked.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from otel_straggler import semconv
from otel_straggler.collector.api.cache import BusyError, PageWork
from otel_straggler.collector.api.commands import GuardedAsking
from otel_straggler.collector.api.decisions import UnknownSubjectError
from otel_straggler.collector.api.events import EventStreams
from otel_straggler.collector.api.maintenance import Maintaining
from otel_straggler.collector.api.pages import PageRoutes, busy
from otel_straggler.collector.ingest.http_messages import Head, Request, Response
from otel_straggler.collector.metrics.families import CONTENT_TYPE
from otel_straggler.collector.views.pages import Pages
from otel_straggler.collector.views.snapshot import ReportQuery
from otel_straggler.errors import InputError
from otel_straggler.model.verdict import Decision

_log = logging.getLogger(__name__)

_JSON = "application/json"
_DECISIONS = "/v1/decisions"
_MAINTENANCE = "/v1/maintenance"
_TRY_ALERTS = "/v1/alerts/test"
_METHODS = {
    _DECISIONS: ("POST",),
    _TRY_ALERTS: ("POST",),
    _MAINTENANCE: ("GET", "HEAD", "POST"),
    semconv.COMMANDS_PATH: ("GET", "POST"),
}
_ONLY_READ = ("GET", "HEAD")
_MAX_FOREIGN = 10
_NOT_KEPT = {"Cache-Control": "no-store"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Where the answers come from.

    Attributes:
        metrics: text of /metrics.
        report: body of /v1/report, or the part of it that a query asks for; may take a while, so
            it is called on another thread.
        is_healthy: the process can do its work.
        is_ready: it can take data now.
        decide: takes a person's decision about a verdict; None if that is not allowed here.
        asking: takes what a person wants of ranks; None if that is not allowed here.
        maintaining: takes maintenance of nodes, and lists it; None if that is not allowed here.
        try_alerts: sends a test alert and says where it arrived; may take a while, so it is called
            on another thread; None if that is not allowed here.
        pages: what the live page shows; None if there is no such page.
    """

    metrics: Callable[[], bytes]
    report: Callable[[ReportQuery], bytes]
    is_healthy: Callable[[], bool]
    is_ready: Callable[[], bool]
    decide: Callable[[bytes], Decision] | None = None
    asking: GuardedAsking | None = None
    maintaining: Maintaining | None = None
    try_alerts: Callable[[bytes], dict[str, Any]] | None = None
    pages: Pages | None = None


class Api:
    """The app behind the metrics port.

    Args:
        answers: what to serve.
        allowed_hosts: further names that a Host header may carry.
    """

    keep_raw = False

    def __init__(self, answers: Answers, allowed_hosts: tuple[str, ...] = ()) -> None:
        self._answers = answers
        self._names = {"localhost", socket.gethostname().lower()}
        self._names.update(host.lower() for host in allowed_hosts)
        self._foreign: set[str] = set()
        self.fixed_headers = {
            semconv.SCORER_HEADER: semconv.WIRE_VERSION,
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        self._routes: dict[str, Callable[[Request], Response | Awaitable[Response]]] = {
            "/metrics": self._metrics,
            "/v1/report": self._report,
            "/healthz": lambda _: _state(answers.is_healthy()),
            "/readyz": lambda _: _state(answers.is_ready()),
        }
        if answers.decide is not None:
            self._routes[_DECISIONS] = self._decided
        if answers.asking is not None:
            self._routes[semconv.COMMANDS_PATH] = self._asked
        if answers.maintaining is not None:
            self._routes[_MAINTENANCE] = self._maintenance
        if answers.try_alerts is not None:
            self._routes[_TRY_ALERTS] = self._try_alerts
        self._work = PageWork()
        self._trials = PageWork(threads=1, maximum=1)
        self._page: PageRoutes | None = None
        if answers.pages is not None:
            streams = EventStreams(answers.pages, work=self._work)
            self._page = PageRoutes(answers.pages, streams, self._work, self.failure)

    def refuse(self, head: Head) -> Response | None:
        if not self.is_own_name(head.headers.get("host", "")):
            self._log_foreign(head.headers.get("host", ""), head.path)
            text = "this Host is not served; name it in metrics.allowed_hosts if it is yours"
            return self.failure(403, text, head)
        if head.path not in self._routes and not self._is_of_page(head.path):
            return self.failure(404, f"no such path; there are {', '.join(self._paths())}", head)
        allowed = _METHODS.get(head.path, _ONLY_READ)
        if head.method not in allowed:
            refusal = self.failure(405, f"only {' and '.join(allowed)}", head)
            refusal.headers = {**_NOT_KEPT, "Allow": ", ".join(allowed)}
            return refusal
        media_type = head.headers.get("content-type", "").partition(";")[0].strip().lower()
        if head.method == "POST" and media_type != _JSON:
            return self.failure(415, f"what people decide comes as {_JSON}", head)
        asking = self._answers.asking
        if asking is not None and head.path == semconv.COMMANDS_PATH:
            refused = asking.refusal(head.headers)
            return None if refused is None else self.failure(*refused, head)
        return None

    def is_own_name(self, host: str) -> bool:
        """Whether a Host header names this server. An address cannot be rebound, a name can.

        No Host at all is HTTP/1.0, which no browser speaks.
        """
        name = host.strip().lower()
        if name.startswith("["):
            name = name[1:].partition("]")[0]
        elif name.count(":") == 1:
            name = name.partition(":")[0]
        if not name or name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _log_foreign(self, host: str, path: str) -> None:
        """Once for a name: to a scraper that asks by an unlisted one, 403 says nothing."""
        if host in self._foreign or len(self._foreign) >= _MAX_FOREIGN:
            return
        self._foreign.add(host)
        _log.warning(
            "refused %.40r of Host %.80r; if that is a name of this collector, list it in "
            "metrics.allowed_hosts", path, host,
        )  # fmt: skip

    def is_gzip(self, head: Head) -> bool:  # noqa: ARG002 - there are no bodies to inflate
        return False

    def respond(self, request: Request) -> Response | Awaitable[Response]:
        if self._page is not None and self._page.serves(request.head.path):
            return self._page.respond(request)
        return self._routes[request.head.path](request)

    def close(self) -> None:
        """After the last request: begin no more work."""
        self._work.close()
        self._trials.close()

    def failure(self, status: int, message: str, head: Head | None) -> Response:  # noqa: ARG002
        return _reported({"error": message}, status)

    def _is_of_page(self, path: str) -> bool:
        return self._page is not None and self._page.serves(path)

    def _paths(self) -> tuple[str, ...]:
        return (*self._routes, *(() if self._page is None else self._page.paths))

    def _decided(self, request: Request) -> Response:
        assert self._answers.decide is not None
        try:
            decision = self._answers.decide(request.content)
        except UnknownSubjectError as error:
            return self.failure(404, str(error), request.head)
        except InputError as error:
            return self.failure(400, str(error), request.head)
        return _reported(asdict(decision))

    def _asked(self, request: Request) -> Response:
        assert self._answers.asking is not None
        try:
            is_post = request.head.method == "POST"
            reported = (
                self._answers.asking.ask(request.content)
                if is_post
                else self._answers.asking.outcomes(request.head.query)
            )
        except InputError as error:
            return self.failure(400, str(error), request.head)
        return _reported(reported)

    def _maintenance(self, request: Request) -> Response:
        assert self._answers.maintaining is not None
        if request.head.method != "POST":
            return _reported(self._answers.maintaining.listed())
        try:
            taken = self._answers.maintaining.take(request.content)
        except InputError as error:
            return self.failure(400, str(error), request.head)
        return _reported(taken)

    async def _try_alerts(self, request: Request) -> Response:
        assert self._answers.try_alerts is not None
        content = request.content
        try:
            reported = await self._trials.do(content, partial(self._answers.try_alerts, content))
        except BusyError:
            return busy(self.failure(503, "another test alert is under way", request.head))
        except InputError as error:
            return self.failure(400, str(error), request.head)
        return _reported(reported)

    def _metrics(self, request: Request) -> Response:  # noqa: ARG002
        return Response(200, self._answers.metrics(), CONTENT_TYPE, _NOT_KEPT)

    async def _report(self, request: Request) -> Response:
        try:
            query = _query(request.head.query)
        except ValueError:
            text = "rank must be a whole number; known are run, group and rank"
            return self.failure(400, text, request.head)
        try:
            body = await self._work.do(query, partial(self._answers.report, query))
        except BusyError as error:
            return busy(self.failure(503, str(error), request.head))
        return Response(200, body, _JSON, _NOT_KEPT)


def _query(text: str) -> ReportQuery:
    """Read ``run``, ``group`` and ``rank``; ValueError for a rank that is no number."""
    given = dict(parse_qsl(text, keep_blank_values=True))
    rank = given.get("rank")
    return ReportQuery(
        run_id=given.get("run"),
        group=given.get("group"),
        rank=None if rank is None else int(rank),
    )


def _state(is_good: bool) -> Response:
    return _reported({"status": "ok" if is_good else "unavailable"}, 200 if is_good else 503)


def _reported(value: Any, status: int = 200) -> Response:
    return Response(status, json.dumps(value).encode(), _JSON, _NOT_KEPT)
