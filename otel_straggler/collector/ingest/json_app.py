"""An app that answers with JSON: which role each method of a path needs, and refusals by the head.
The metrics address of a collector, and a supervisor."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from otel_straggler.collector.access.guard import Guard, Refusal
from otel_straggler.collector.access.roles import Role
from otel_straggler.collector.ingest.http_messages import Head, Request, Response

JSON: Final = "application/json"
NOT_STORED: Final = {"Cache-Control": "no-store"}


@dataclass(frozen=True, slots=True)
class Route:
    """One path: the role that each method needs, and what answers. A method without a role is
    refused, so a route cannot be open by mistake."""

    roles: Mapping[str, Role]
    answer: Callable[[Request], Response | Awaitable[Response]]


class JsonApp:
    """The part of an :class:`App` that does not depend on what it answers.

    Args:
        guard: who may do what.
        takes_cookie: whether the cookie of a login is a credential.
        headers: of every answer.
    """

    keep_raw = False

    def __init__(
        self, guard: Guard, *, takes_cookie: bool, headers: Mapping[str, str] | None = None
    ) -> None:
        self._guard = guard
        self._takes_cookie = takes_cookie
        self.fixed_headers: Mapping[str, str] = {
            **(headers or {}),
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        self._routes: dict[str, Route] = {}

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(self._routes)

    def roles(self, path: str) -> Mapping[str, Role] | None:
        """The role that each method of a path needs; None if there is no such path."""
        route = self._routes.get(path)
        return None if route is None else route.roles

    def refuse(self, head: Head) -> Response | None:
        """Answer by the head alone: foreign page, wrong path, method, sender or type."""
        refused = self._guard.refuse_browser(head, checks_host=True)
        if refused is not None:
            return self.refused(refused, head)
        roles = self.roles(head.path)
        if roles is None:
            return self.failure(404, f"no such path; there are {', '.join(self.paths)}", head)
        if head.method not in roles:
            response = self.failure(405, f"only {' and '.join(roles)}", head)
            response.headers = {**NOT_STORED, "Allow": ", ".join(roles)}
            return response
        refused = self._guard.admit(head, roles[head.method], with_cookie=self._takes_cookie)
        if refused is not None:
            return self.refused(refused, head)
        media_type = head.headers.get("content-type", "").partition(";")[0].strip().lower()
        if head.method == "POST" and media_type != JSON:
            return self.failure(415, f"only {JSON} is read", head)
        return None

    def refused(self, refused: Refusal, head: Head) -> Response:
        """The answer to somebody who may not do this."""
        response = self.failure(refused.status, refused.message, head)
        response.headers = {**response.headers, **refused.headers}
        return response

    def coding(self, head: Head) -> str:  # noqa: ARG002 - bodies are not compressed
        return ""

    def failure(self, status: int, message: str, head: Head | None) -> Response:  # noqa: ARG002
        return json_response({"error": message}, status)


def json_response(value: Any, status: int = 200) -> Response:
    return Response(status, json.dumps(value).encode(), JSON, NOT_STORED)


def health_response(is_good: bool) -> Response:
    return json_response({"status": "ok" if is_good else "unavailable"}, 200 if is_good else 503)
