"""The supervisor's HTTP side: alerts, reports, commands of people, /metrics, /healthz."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, cast

from otel_straggler.collector.access.guard import Guard, Refusal
from otel_straggler.collector.access.roles import PUBLIC, READ, Role
from otel_straggler.collector.ingest.http_messages import Head, Request, Response
from otel_straggler.collector.ingest.json_app import (
    NOT_STORED,
    JsonApp,
    Route,
    health_response,
    json_response,
)
from otel_straggler.collector.metrics.families import CONTENT_TYPE
from otel_straggler.errors import InputError
from otel_straggler.model.fleet_reports import REPORTS_PATH, read_report
from otel_straggler.model.json_body import JsonBody
from otel_straggler.supervisor.causes import read_webhook
from otel_straggler.supervisor.engine import Engine
from otel_straggler.supervisor.executors import is_host_name
from otel_straggler.supervisor.fleet import HOST_STATES, Decision, HostState
from otel_straggler.supervisor.telemetry import Telemetry
from otel_straggler.throttle import Throttle

_log = logging.getLogger(__name__)

ALERTS_PATH: Final = "/v1/alerts"
STATUS_PATH: Final = "/v1/status"
STOP_PATH: Final = "/v1/stop"
RESUME_PATH: Final = "/v1/resume"
HOSTS_PATH: Final = "/v1/hosts"
GONE: Final = "gone"
"""Of a host that is marked so the fleet no longer knows."""
MAX_BODY_BYTES: Final = 8 * 1024 * 1024
"""As many alerts as a webhook may have take up to 3 MiB."""
_SHOWN: Final = 50
"""Decisions of a status."""
_REMEDY: Final = "See docs/operate/supervisor.md."
_INGEST: Final[Mapping[str, Role]] = {"POST": "ingest"}
_OPERATE: Final[Mapping[str, Role]] = {"POST": "operate"}


class SupervisorApi(JsonApp):
    """The app behind the port. What comes in is done by one thread, in order; people and scrapes
    are answered by another, so they wait for one webhook at most; ``/healthz`` waits for nothing.
    """

    def __init__(self, engine: Engine, telemetry: Telemetry, guard: Guard) -> None:
        super().__init__(guard, takes_cookie=False)
        self._engine, self._telemetry = engine, telemetry
        self._thread = ThreadPoolExecutor(1, "straggler-supervisor-api")
        self._people = ThreadPoolExecutor(1, "straggler-supervisor-people")
        self._may_log = Throttle(0.1, burst=10.0)
        self._routes = {
            ALERTS_PATH: Route(_INGEST, self._alerts),
            REPORTS_PATH: Route(_INGEST, self._report),
            STATUS_PATH: Route(READ, self._status),
            STOP_PATH: Route(_OPERATE, self._stop),
            RESUME_PATH: Route(_OPERATE, self._resume),
            HOSTS_PATH: Route(_OPERATE, self._mark),
            "/metrics": Route(READ, self._metrics),
            "/healthz": Route(PUBLIC, self._health),
        }

    def refused(self, refused: Refusal, head: Head) -> Response:
        if head.path in (ALERTS_PATH, REPORTS_PATH):
            self._telemetry.ignored("unauthenticated")
        return super().refused(refused, head)

    def failure(self, status: int, message: str, head: Head | None) -> Response:
        """What is refused as a whole, and not sent again, is counted and in the log."""
        whole = (400, 413, 415)
        if head is not None and head.path in (ALERTS_PATH, REPORTS_PATH) and status in whole:
            self._telemetry.ignored("malformed")
            self._warn(head, f"is not read, and nothing follows from it: {message}")
        return super().failure(status, message, head)

    def _warn(self, head: Head, text: str) -> None:
        if self._may_log.passes():
            _log.warning("a request of %s to %s %s", head.principal.name, head.path, text)

    # --- answers ---------------------------------------------------------------------------------

    def respond(self, request: Request) -> Response | Awaitable[Response]:
        path = request.head.path
        if path == "/healthz":
            return self._health(request)
        thread = self._thread if path in (ALERTS_PATH, REPORTS_PATH) else self._people
        return asyncio.get_running_loop().run_in_executor(thread, self._answered, request)

    def _answered(self, request: Request) -> Response:
        head = request.head
        if head.principal.runs and self._routes[head.path].roles is READ:
            self._guard.record_refusal(head, 403, "role")
            return self.failure(403, "a grant with runs= reads nothing here: all is shown", head)
        try:
            response = cast("Response", self._routes[head.path].answer(request))
        except InputError as error:
            response = self.failure(400, str(error), head)
        except sqlite3.Error as error:
            _log.error("the journal cannot be written: %s", error)
            response = self.failure(503, "the journal cannot be written; try again later", head)
        if "operate" in self._routes[head.path].roles.values():
            what = f"{head.method} {head.path}"
            audit = self._guard.audit
            audit.changed(head.principal, head.peer, what, response.status, request.content)
        return response

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        self._people.shutdown(wait=True)

    def _alerts(self, request: Request) -> Response:
        values = _body(request, "a webhook of Alertmanager").values
        webhook = read_webhook(values)
        if values.get("truncatedAlerts"):
            self._warn(
                request.head, f"lacks alerts (max_alerts): {values['truncatedAlerts']!r:.20}"
            )
        for reason, number in webhook.rejected.items():
            self._telemetry.ignored(reason, number)
        decisions = self._engine.submit(webhook.causes, request.head.principal)
        for decision in decisions:
            self._audit_forbidden(request, decision)
        outcomes = Counter(map(_outcome, decisions))
        return json_response({"outcomes": {**outcomes, **webhook.rejected}})

    def _report(self, request: Request) -> Response:
        decision = self._engine.report(read_report(request.content), request.head.principal)
        self._audit_forbidden(request, decision)
        return json_response({"outcome": _outcome(decision)})

    def _audit_forbidden(self, request: Request, decision: Decision) -> None:
        """What a grant may not speak of is in the audit trail; of a flood not every one."""
        if decision.reason == "forbidden":
            self._guard.record_refusal(request.head, 200, "forbidden", decision.run_id)

    def _status(self, request: Request) -> Response:  # noqa: ARG002 - the same for all
        return json_response(self._engine.status(_SHOWN))

    def _stop(self, request: Request) -> Response:
        values = _body(request, "a JSON object with reason")
        by = values.name("by", request.head.principal.name)
        return json_response({"stopped": self._engine.stop(values.name("reason"), by)})

    def _resume(self, request: Request) -> Response:
        _body(request, "a JSON object")
        return json_response({"stopped": None, "was_stopped": self._engine.resume()})

    def _mark(self, request: Request) -> Response:
        values = _body(request, "a JSON object with name and state")
        state, name = values.get("state"), values.name("name")
        if state not in (*HOST_STATES, GONE):
            raise values.wrong("state", state, f"one of {', '.join((*HOST_STATES, GONE))}")
        if state == GONE:
            self._engine.forget(name)
        elif not is_host_name(name):
            raise values.wrong("name", name, "the name of one host; mark each one")
        else:
            self._engine.mark(name, cast("HostState", state))
        return json_response({"name": name, "state": state})

    def _metrics(self, request: Request) -> Response:  # noqa: ARG002 - the same for all
        families = self._telemetry.families(self._engine.fleet, self._engine.unfinished())
        return Response(200, families.render(), CONTENT_TYPE, NOT_STORED)

    def _health(self, request: Request) -> Response:  # noqa: ARG002 - the same for all
        return health_response(self._engine.is_alive)


def _outcome(decision: Decision) -> str:
    return decision.action or decision.reason


def _body(request: Request, expected: str) -> JsonBody:
    return JsonBody(request.content or b"{}", _REMEDY, expected=expected)
