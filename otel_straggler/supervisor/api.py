"""The supervisor's HTTP side: alerts, reports, commands of people, /metrics, /healthz."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, cast

from otel_straggler.collector.access.guard import Guard, Refusal
from otel_straggler.collector.access.roles import PUBLIC, READ, Principal, Role
from otel_straggler.collector.ingest.http_messages import Head, Request, Response
from otel_straggler.collector.metrics.families import CONTENT_TYPE
from otel_straggler.errors import InputError
from otel_straggler.model.fleet_reports import REPORTS_PATH, read_report
from otel_straggler.model.names import MAX_NAME, clean_name
from otel_straggler.supervisor.causes import read_webhook
from otel_straggler.supervisor.engine import Engine
from otel_straggler.supervisor.fleet import HOST_STATES, Decision, HostState
from otel_straggler.supervisor.telemetry import Telemetry

_log = logging.getLogger(__name__)

ALERTS_PATH: Final = "/v1/alerts"
STATUS_PATH: Final = "/v1/status"
STOP_PATH: Final = "/v1/stop"
RESUME_PATH: Final = "/v1/resume"
HOSTS_PATH: Final = "/v1/hosts"
MAX_BODY_BYTES: Final = 1024 * 1024
_JSON: Final = "application/json"
_NOT_KEPT: Final = {"Cache-Control": "no-store"}
_SHOWN: Final = 50
"""Decisions of a status."""
_REMEDY: Final = "See docs/operate/supervisor.md."
_INGEST: Final[Mapping[str, Role]] = {"POST": "ingest"}
_OPERATE: Final[Mapping[str, Role]] = {"POST": "operate"}


@dataclass(frozen=True, slots=True)
class Route:
    """One path: the role that each method needs, and what answers, in another thread."""

    roles: Mapping[str, Role]
    answer: Callable[[Request], Response]


class SupervisorApi:
    """The app behind the port. All work is done by one thread, in order."""

    keep_raw = False

    def __init__(self, engine: Engine, telemetry: Telemetry, guard: Guard) -> None:
        self._engine, self._telemetry, self._guard = engine, telemetry, guard
        self.fixed_headers: Mapping[str, str] = {
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        self._thread = ThreadPoolExecutor(1, "straggler-supervisor-api")
        self._routes: dict[str, Route] = {
            ALERTS_PATH: Route(_INGEST, self._alerts),
            REPORTS_PATH: Route(_INGEST, self._report),
            STATUS_PATH: Route(READ, self._status),
            STOP_PATH: Route(_OPERATE, self._stop),
            RESUME_PATH: Route(_OPERATE, self._resume),
            HOSTS_PATH: Route(_OPERATE, self._mark),
            "/metrics": Route(READ, self._metrics),
            "/healthz": Route(PUBLIC, self._health),
        }

    def roles(self, path: str) -> Mapping[str, Role] | None:
        """The role that each method of a path needs; None if there is no such path."""
        route = self._routes.get(path)
        return None if route is None else route.roles

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(self._routes)

    # --- before the body -------------------------------------------------------------------------

    def refuse(self, head: Head) -> Response | None:
        foreign = self._guard.refuse_browser(head, checks_host=True)
        if foreign is not None:
            return self._refused(foreign, head)
        roles = self.roles(head.path)
        if roles is None:
            return self.failure(404, f"no such path; there are {', '.join(self._routes)}", head)
        if head.method not in roles:
            response = self.failure(405, f"only {' and '.join(roles)}", head)
            response.headers = {**_NOT_KEPT, "Allow": ", ".join(roles)}
            return response
        refused = self._guard.admit(head, roles[head.method])
        if refused is not None:
            return self._refused(refused, head)
        media_type = head.headers.get("content-type", "").partition(";")[0].strip().lower()
        if head.method == "POST" and media_type != _JSON:
            return self.failure(415, f"only {_JSON} is read", head)
        return None

    def _refused(self, refused: Refusal, head: Head) -> Response:
        if head.path in (ALERTS_PATH, REPORTS_PATH):
            self._telemetry.ignored("unauthenticated")
        response = self.failure(refused.status, refused.message, head)
        response.headers = {**response.headers, **refused.headers}
        return response

    def coding(self, head: Head) -> str:  # noqa: ARG002 - bodies are not compressed
        return ""

    def failure(self, status: int, message: str, head: Head | None) -> Response:  # noqa: ARG002
        return _json({"error": message}, status)

    # --- answers ---------------------------------------------------------------------------------

    def respond(self, request: Request) -> Awaitable[Response]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._thread, self._answered, request)

    def _answered(self, request: Request) -> Response:
        head = request.head
        try:
            response = self._routes[head.path].answer(request)
        except InputError as error:
            if head.path in (ALERTS_PATH, REPORTS_PATH):
                self._telemetry.ignored("malformed")
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

    def _alerts(self, request: Request) -> Response:
        webhook = read_webhook(_object(request.content, "a webhook of Alertmanager"))
        for reason, number in webhook.rejected.items():
            self._telemetry.ignored(reason, number)
        who = request.head.principal
        causes = [cause for cause in webhook.causes if self._may(who, cause.run_id, cause.host)]
        outcomes = Counter(map(_outcome, self._engine.submit(causes)))
        if forbidden := len(webhook.causes) - len(causes):
            outcomes["forbidden"] = forbidden
        return _json({"outcomes": {**outcomes, **webhook.rejected}})

    def _report(self, request: Request) -> Response:
        report = read_report(request.content)
        if not self._may(request.head.principal, report.run_id, report.node):
            return _json({"outcome": "forbidden"})
        return _json({"outcome": _outcome(self._engine.report(report))})

    def _may(self, who: Principal, run_id: str, host: str) -> bool:
        """Whether somebody may send something about a run and a host: neither may be another's."""
        known = self._engine.fleet.hosts.get(host)
        on_host = known.run_id if known is not None else ""
        is_theirs = bool(run_id) and who.covers(run_id) and (not on_host or who.covers(on_host))
        if who.runs and not is_theirs:
            self._telemetry.ignored("forbidden")
            return False
        return True

    def _status(self, request: Request) -> Response:  # noqa: ARG002 - the same for all
        return _json(self._engine.status(_SHOWN))

    def _stop(self, request: Request) -> Response:
        values = _object(request.content, "a JSON object with reason")
        reason = _text(values, "reason")
        by = _text(values, "by", request.head.principal.name)
        return _json({"stopped": self._engine.stop(reason, by)})

    def _resume(self, request: Request) -> Response:
        _object(request.content, "a JSON object")
        return _json({"stopped": None, "was_stopped": self._engine.resume()})

    def _mark(self, request: Request) -> Response:
        values = _object(request.content, "a JSON object with name and state")
        state = values.get("state")
        if state not in HOST_STATES:
            raise InputError.of("state", state, f"one of {', '.join(HOST_STATES)}", _REMEDY)
        host = self._engine.mark(_text(values, "name"), cast("HostState", state))
        return _json({"name": host.name, "state": host.state})

    def _metrics(self, request: Request) -> Response:  # noqa: ARG002 - the same for all
        families = self._telemetry.families(self._engine.fleet, self._engine.unfinished())
        return Response(200, families.render(), CONTENT_TYPE, _NOT_KEPT)

    def _health(self, request: Request) -> Response:  # noqa: ARG002 - the same for all
        is_alive = self._engine.is_alive
        return _json({"status": "ok" if is_alive else "unavailable"}, 200 if is_alive else 503)


def _outcome(decision: Decision) -> str:
    return decision.action or decision.reason


def _object(body: bytes, expected: str) -> Mapping[str, Any]:
    try:
        values = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise InputError.of("body", body[:100].decode("utf-8", "replace"), expected, _REMEDY)
    return values


def _text(values: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = values.get(key, default)
    if value is None and default is not None:
        value = default
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_NAME:
        raise InputError.of(key, value, f"a text of 1 to {MAX_NAME} characters", _REMEDY)
    return clean_name(value.encode("utf-8", "replace").decode())


def _json(value: Any, status: int = 200) -> Response:
    return Response(status, json.dumps(value).encode(), _JSON, _NOT_KEPT)
