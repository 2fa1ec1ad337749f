"""The address for people and scrapers: /metrics, /v1/report, /healthz, /readyz, /v1/decisions,
/v1/maintenance, /v1/commands, /v1/alerts/test; and the live page, see ``pages.py``.

A browser on the same machine can be made to send requests here: under a foreign name (DNS
rebinding), so the Host header must be a name of this server; and from a foreign page, so changes
must come as JSON, which no page may send to another origin unasked.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from otel_straggler import semconv
from otel_straggler.collector.api.cache import BusyError, PageWork
from otel_straggler.collector.api.commands import ASKS, Commands
from otel_straggler.collector.api.decisions import UnknownSubjectError
from otel_straggler.collector.api.events import EventStreams
from otel_straggler.collector.api.pages import PageRoutes, busy
from otel_straggler.collector.ingest.http_messages import Head, Request, Response
from otel_straggler.collector.metrics.families import CONTENT_TYPE
from otel_straggler.collector.views.pages import Pages
from otel_straggler.collector.views.snapshot import ReportQuery
from otel_straggler.errors import InputError
from otel_straggler.model.verdict import Decision

_log = logging.getLogger(__name__)
Json: TypeAlias = dict[str, Any]

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
    """Where the answers come from; None where that is not allowed here.

    Attributes:
        metrics: text of /metrics.
        report: body of /v1/report, or the part that a query asks for; called on another thread.
        is_healthy, is_ready: for /healthz and /readyz.
        decide: records a person's decision about a verdict.
        commands: for ranks.
        maintenance: what is in force.
        announce: records maintenance of a node.
        try_alerts: sends a test alert and reports where it arrived; called on another thread.
        pages: what the live page shows.
    """

    metrics: Callable[[], bytes]
    report: Callable[[ReportQuery], bytes]
    is_healthy: Callable[[], bool]
    is_ready: Callable[[], bool]
    decide: Callable[[bytes], Decision] | None = None
    commands: Commands | None = None
    maintenance: Callable[[], Json] | None = None
    announce: Callable[[bytes], Json] | None = None
    try_alerts: Callable[[bytes], Json] | None = None
    pages: Pages | None = None


class Api:
    """The app behind the metrics port; ``allowed_hosts``: further names in a Host header."""

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
        self._add_people(answers)
        self._work = PageWork()
        self._trials = PageWork(threads=1, maximum=1)
        self._page: PageRoutes | None = None
        if answers.pages is not None:
            streams = EventStreams(answers.pages, work=self._work)
            self._page = PageRoutes(answers.pages, streams, self._work, self.failure)

    def _add_people(self, answers: Answers) -> None:
        """Add the routes by which people change something."""
        decide, commands = answers.decide, answers.commands
        listed, announce = answers.maintenance, answers.announce
        if decide is not None:
            self._routes[_DECISIONS] = lambda request: self._changed(
                request, lambda: asdict(decide(request.content))
            )
        if commands is not None:
            self._routes[semconv.COMMANDS_PATH] = lambda request: self._changed(
                request,
                lambda: commands.ask_for(request.content),
                lambda: commands.outcomes_of(request.head.query),
            )
        if announce is not None:
            self._routes[_MAINTENANCE] = lambda request: self._changed(
                request, lambda: announce(request.content), listed
            )
        if answers.try_alerts is not None:
            self._routes[_TRY_ALERTS] = self._try_alerts

    def refuse(self, head: Head) -> Response | None:
        if not self.is_own_name(head.headers.get("host", "")):
            self._log_foreign(head.headers.get("host", ""), head.path)
            text = "this Host is not served; name it in metrics.allowed_hosts if it is yours"
            return self.failure(403, text, head)
        is_of_page = self._page is not None and self._page.serves(head.path)
        if head.path not in self._routes and not is_of_page:
            paths = (*self._routes, *(self._page.paths if self._page else ()))
            return self.failure(404, f"no such path; there are {', '.join(paths)}", head)
        allowed = _METHODS.get(head.path, _ONLY_READ)
        if head.method not in allowed:
            refusal = self.failure(405, f"only {' and '.join(allowed)}", head)
            refusal.headers = {**_NOT_KEPT, "Allow": ", ".join(allowed)}
            return refusal
        media_type = head.headers.get("content-type", "").partition(";")[0].strip().lower()
        if head.method == "POST" and media_type != _JSON:
            return self.failure(415, f"what people decide comes as {_JSON}", head)
        commands = self._answers.commands
        if commands is not None and head.path == semconv.COMMANDS_PATH:
            refused = commands.refusal(head.headers, ASKS)
            return None if refused is None else self.failure(*refused, head)
        return None

    def is_own_name(self, host: str) -> bool:
        """Whether a Host header names this server. An address cannot be rebound; no Host at all is
        HTTP/1.0, which no browser speaks."""
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
        """Once per name: 403 explains nothing to a scraper."""
        if host in self._foreign or len(self._foreign) >= _MAX_FOREIGN:
            return
        self._foreign.add(host)
        _log.warning(
            "refused %.40r of Host %.80r; if that is a name of this collector, list it in "
            "metrics.allowed_hosts", path, host,
        )  # fmt: skip

    def coding(self, head: Head) -> str:  # noqa: ARG002 - there are no bodies to inflate
        return ""

    def respond(self, request: Request) -> Response | Awaitable[Response]:
        if self._page is not None and self._page.serves(request.head.path):
            return self._page.respond(request)
        return self._routes[request.head.path](request)

    def close(self) -> None:
        self._work.close()
        self._trials.close()

    def failure(self, status: int, message: str, head: Head | None) -> Response:  # noqa: ARG002
        return _json({"error": message}, status)

    def _changed(
        self, request: Request, post: Callable[[], Json], get: Callable[[], Json] | None = None
    ) -> Response:
        try:
            is_post = get is None or request.head.method == "POST"
            return _json(post() if is_post or get is None else get())
        except UnknownSubjectError as error:
            return self.failure(404, str(error), request.head)
        except InputError as error:
            return self.failure(400, str(error), request.head)

    async def _try_alerts(self, request: Request) -> Response:
        assert self._answers.try_alerts is not None
        content = request.content
        try:
            sent = await self._trials.do(content, partial(self._answers.try_alerts, content))
        except BusyError:
            return busy(self.failure(503, "another test alert is under way", request.head))
        except InputError as error:
            return self.failure(400, str(error), request.head)
        return _json(sent)

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
    return _json({"status": "ok" if is_good else "unavailable"}, 200 if is_good else 503)


def _json(value: Any, status: int = 200) -> Response:
    return Response(status, json.dumps(value).encode(), _JSON, _NOT_KEPT)
