"""The address for people and scrapers: /metrics, /v1/report, /healthz, /readyz, /v1/decisions,
/v1/maintenance, /v1/commands, /v1/alerts/test, /v1/login, /v1/logout, /runbook; and the live page,
see ``pages.py``. Each route names the role that each of its methods needs.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

from otel_straggler import semconv
from otel_straggler.alerts.catalogue import NAMES
from otel_straggler.alerts.render import chapter, runbook_file
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.collector.access.grants import is_token
from otel_straggler.collector.access.guard import COOKIE, Guard
from otel_straggler.collector.access.roles import NOBODY, PUBLIC, READ, Role
from otel_straggler.collector.api.cache import BusyError, PageWork
from otel_straggler.collector.api.commands import ASKS, Commands
from otel_straggler.collector.api.decisions import UnknownSubjectError
from otel_straggler.collector.api.events import EventStreams
from otel_straggler.collector.api.pages import (
    EVENTS,
    OF_ONE_RUN,
    PageRoutes,
    accepts_gzip,
    busy,
    whole,
)
from otel_straggler.collector.ingest.http_messages import (
    BadQueryError,
    Head,
    Request,
    Response,
    read_query,
)
from otel_straggler.collector.ingest.json_app import (
    JSON,
    NOT_STORED,
    JsonApp,
    Route,
    health_response,
    json_response,
)
from otel_straggler.collector.metrics.exposition import Wanted, media_type, served
from otel_straggler.collector.views.pages import Pages
from otel_straggler.collector.views.snapshot import ReportQuery
from otel_straggler.errors import InputError
from otel_straggler.model.json_body import JsonBody
from otel_straggler.model.verdict import Decision
from otel_straggler.throttle import Throttle

Json: TypeAlias = dict[str, Any]

_DECISIONS = "/v1/decisions"
_MAINTENANCE = "/v1/maintenance"
_TRY_ALERTS = "/v1/alerts/test"
_LOGIN = "/v1/login"
_LOGOUT = "/v1/logout"
_MAX_SCRAPES = 32
"""In different forms at once; those of one form share an answer."""
_TRIALS_PER_S, _TRIALS_AT_ONCE = 1 / 30, 3.0
"""Test alerts, which call people."""


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

    metrics: Callable[[], Awaitable[bytes]]
    report: Callable[[ReportQuery], bytes]
    is_healthy: Callable[[], bool]
    is_ready: Callable[[], bool]
    decide: Callable[[bytes], Decision] | None = None
    commands: Commands | None = None
    maintenance: Callable[[], Json] | None = None
    announce: Callable[[bytes], Json] | None = None
    try_alerts: Callable[[bytes], Json] | None = None
    pages: Pages | None = None


_CHANGES: Final[Mapping[str, Role]] = {"POST": "operate"}
_OF_ONE_RUN: Final = frozenset({"/v1/report", EVENTS, *OF_ONE_RUN})


class Api(JsonApp):
    """The app behind the metrics port.

    Args:
        guard: who may do what.
        is_tls: whether the cookie of a login is for TLS only.
    """

    def __init__(
        self, answers: Answers, *, guard: Guard | None = None, is_tls: bool = False
    ) -> None:
        headers = {semconv.SCORER_HEADER: semconv.WIRE_VERSION}
        super().__init__(guard or Guard(), takes_cookie=True, headers=headers)
        self._answers = answers
        self._is_tls = is_tls
        self._routes = {
            "/metrics": Route(READ, self._metrics),
            "/v1/report": Route(READ, self._report),
            "/healthz": Route(PUBLIC, lambda _: health_response(answers.is_healthy())),
            "/readyz": Route(PUBLIC, lambda _: health_response(answers.is_ready())),
            _LOGIN: Route({"POST": "public"}, self._login),
            _LOGOUT: Route({"POST": "public"}, self._logout),
            semconv.RUNBOOK_PATH: Route(PUBLIC, self._runbook),
        }
        self._add_people(answers)
        self._work = PageWork()
        self._scrapes = PageWork(threads=1, maximum=_MAX_SCRAPES)  # which no page delays
        self._trials = PageWork(threads=1, maximum=1)
        self._trial_rate = Throttle(_TRIALS_PER_S, _TRIALS_AT_ONCE)
        self._page: PageRoutes | None = None
        if answers.pages is not None:
            streams = EventStreams(answers.pages, work=self._work)
            self._page = PageRoutes(answers.pages, streams, self._work, self.failure)

    def _add_people(self, answers: Answers) -> None:
        """Add the routes by which people change something."""
        decide, commands = answers.decide, answers.commands
        listed, announce = answers.maintenance, answers.announce
        if decide is not None:
            self._routes[_DECISIONS] = Route(
                _CHANGES,
                lambda request: self._changed(request, lambda: asdict(decide(request.content))),
            )
        if commands is not None:
            self._routes[semconv.COMMANDS_PATH] = Route(
                {"GET": "read", **_CHANGES},
                lambda request: self._changed(
                    request,
                    lambda: commands.ask_for(request.content),
                    lambda: commands.outcomes_of(request.head.query, request.head.principal.runs),
                ),
            )
        if announce is not None:
            self._routes[_MAINTENANCE] = Route(
                {**READ, **_CHANGES},
                lambda request: self._changed(request, lambda: announce(request.content), listed),
            )
        if answers.try_alerts is not None:
            self._routes[_TRY_ALERTS] = Route(_CHANGES, self._try_alerts)

    @property
    def paths(self) -> tuple[str, ...]:
        return (*super().paths, *(self._page.paths if self._page else ()))

    def roles(self, path: str) -> Mapping[str, Role] | None:
        """The role that each method of a path needs; None if there is no such path."""
        of_page = None if self._page is None else self._page.roles(path)
        return super().roles(path) or of_page

    def refuse(self, head: Head) -> Response | None:
        refused = super().refuse(head)
        commands = self._answers.commands
        if refused is None and commands is not None and head.path == semconv.COMMANDS_PATH:
            without_token = commands.refusal(head.headers, ASKS)
            if without_token is not None:
                self._guard.record_refusal(head, without_token[0], "commands_token")
                return self.failure(*without_token, head)
        return refused

    def respond(self, request: Request) -> Response | Awaitable[Response]:
        head = request.head
        run_id = _query_of(head).get("run", "") if head.path in _OF_ONE_RUN else ""
        if run_id and not head.principal.covers(run_id):
            return self._unknown_run(head, run_id, self._answer(request))
        return self._answer(request)

    async def _unknown_run(
        self, head: Head, run_id: str, answer: Response | Awaitable[Response]
    ) -> Response:
        """The answer to a reader who asks for a run of another tenant, as for one that there is
        not."""
        response = answer if isinstance(answer, Response) else await answer
        self._guard.record_refusal(head, response.status, "run", run_id)
        return response

    def _answer(self, request: Request) -> Response | Awaitable[Response]:
        if self._page is not None and self._page.serves(request.head.path):
            return self._page.respond(request)
        answer = self._routes[request.head.path].answer(request)
        if request.head.method == "POST" and request.head.path not in (_LOGIN, _LOGOUT):
            return self._audited(request, answer)
        return answer

    async def _audited(self, request: Request, answer: Response | Awaitable[Response]) -> Response:
        head = request.head
        response = answer if isinstance(answer, Response) else await answer
        self._guard.audit.changed(
            head.principal, head.peer, f"POST {head.path}", response.status, request.content
        )
        return response

    # --- login -----------------------------------------------------------------------------------

    def _login(self, request: Request) -> Response:
        """Keep a token in a cookie that no script can read and no other site can send."""
        head = request.head
        try:
            token = JsonBody(request.content, "").text("token")
        except InputError:  # whose text would repeat what was typed
            return self.failure(400, "the body must be JSON with a token", head)
        who = self._guard.identify(head.peer, f"Bearer {token}")
        if who is NOBODY or not is_token(token):
            what = f"POST {_LOGIN}"
            self._guard.audit.refused(who, head.peer, what, 401, "unknown_credential")
            return self.failure(401, "no grant has this token", head)
        refused = self._guard.refusal_of(who, "read", head.peer, f"POST {_LOGIN}")
        if refused is not None:
            return self.refused(refused, head)
        self._guard.audit.changed(who, head.peer, f"POST {_LOGIN}", 200, b"")
        return self._with_cookie({"name": who.name, "role": who.role}, token)

    def _logout(self, request: Request) -> Response:  # noqa: ARG002 - the same for all
        return self._with_cookie({}, "", "; Max-Age=0")

    def _with_cookie(self, answer: Json, token: str, ending: str = "") -> Response:
        secure = "; Secure" if self._is_tls else ""
        cookie = f"{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict{secure}{ending}"
        response = json_response(answer)
        response.headers = {**response.headers, "Set-Cookie": cookie}
        return response

    def close(self) -> None:
        self._work.close()
        if self._page is not None:
            self._page.close()
        self._scrapes.close()
        self._trials.close()

    def _changed(
        self, request: Request, post: Callable[[], Json], get: Callable[[], Json] | None = None
    ) -> Response:
        try:
            is_post = get is None or request.head.method == "POST"
            return json_response(post() if is_post or get is None else get())
        except UnknownSubjectError as error:
            return self.failure(404, str(error), request.head)
        except InputError as error:
            return self.failure(400, str(error), request.head)

    async def _try_alerts(self, request: Request) -> Response:
        assert self._answers.try_alerts is not None
        content = request.content
        if (wait_s := self._trial_rate.wait_s()) > 0.0:
            text = f"too many test alerts; the next one may be sent in {math.ceil(wait_s)} s"
            refusal = self.failure(429, text, request.head)
            refusal.headers = {**refusal.headers, "Retry-After": str(math.ceil(wait_s))}
            return refusal
        self._trial_rate.spend(1.0)
        try:
            sent = await self._trials.do(content, partial(self._answers.try_alerts, content))
        except BusyError:
            return busy(self.failure(503, "another test alert is under way", request.head))
        except InputError as error:
            return self.failure(400, str(error), request.head)
        return json_response(sent)

    async def _metrics(self, request: Request) -> Response:
        """The text, in the format and coding that the scraper accepts."""
        text, head = await self._answers.metrics(), request.head
        wanted = Wanted(
            media_type=media_type(head.headers.get("accept", "")),
            prefix=head.principal.runs,
            is_zipped=accepts_gzip(head.headers.get("accept-encoding", "")),
        )
        try:
            body = await self._scrapes.do(wanted, partial(served, text, wanted))
        except BusyError as error:
            return busy(self.failure(503, str(error), head))
        headers = {**NOT_STORED, "Vary": "Accept, Accept-Encoding"}
        if wanted.is_zipped:
            headers["Content-Encoding"] = "gzip"
        return Response(200, body, wanted.media_type, headers)

    def _runbook(self, request: Request) -> Response:
        """The chapter of an alert; all of them without one."""
        name = _query_of(request.head).get("alert")
        if name is not None and name not in NAMES:
            return self.failure(404, "no alert has this name", request.head)
        text = runbook_file(AlertSettings()) if name is None else chapter(name, AlertSettings())
        return Response(200, text.encode(), "text/plain; charset=utf-8")

    async def _report(self, request: Request) -> Response:
        try:
            query = replace(_query(request.head.query), prefix=request.head.principal.runs)
        except BadQueryError as error:
            return self.failure(400, f"{error}; known are run, group and rank", request.head)
        try:
            body = await self._work.do(query, partial(self._answers.report, query))
        except BusyError as error:
            return busy(self.failure(503, str(error), request.head))
        return Response(200, body, JSON, NOT_STORED)


def _query_of(head: Head) -> dict[str, str]:
    """Empty if it cannot be read: who answers it says so."""
    try:
        return read_query(head.query)
    except BadQueryError:
        return {}


def _query(text: str) -> ReportQuery:
    """Read ``run``, ``group`` and ``rank``; BadQueryError for a rank that is no number."""
    given = read_query(text)
    return ReportQuery(
        run_id=given.get("run"),
        group=given.get("group"),
        rank=whole(given, "rank", minimum=0),
    )
