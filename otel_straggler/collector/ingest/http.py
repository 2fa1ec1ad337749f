"""OTLP over HTTP: which requests are OTLP, and how they are answered."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Awaitable, Mapping
from concurrent.futures import Future
from functools import partial

from otel_straggler import semconv
from otel_straggler.collector.access.guard import Guard, Refusal
from otel_straggler.collector.access.roles import Role
from otel_straggler.collector.api.commands import POLLS, Commands, run_in
from otel_straggler.collector.ingest import codings
from otel_straggler.collector.ingest.http_messages import Head, Heavy, Request, Response
from otel_straggler.collector.ingest.intake import (
    JSON,
    NOT_STORED,
    PROTOBUF,
    Answer,
    Intake,
    is_stored,
    is_stored_soon,
)
from otel_straggler.collector.ingest.intake import Request as OtlpRequest
from otel_straggler.errors import InputError
from otel_straggler.otlp.answers import SIGNALS, Code, Signal, status, success
from otel_straggler.otlp.decoder import SlowError

_PROTOBUF_TYPES = frozenset({PROTOBUF, "application/protobuf"})
_SIGNAL_OF: dict[str, Signal] = {f"/v1/{signal}": signal for signal in SIGNALS}
_COMMANDS = "commands"
_OFF_LOOP_BYTES = 1024 * 1024
"""Larger requests are decoded in another thread, so that they delay no heartbeat."""
_SLOW_OFF_LOOP_BYTES = 64 * 1024
"""Likewise of JSON and of what C++ does not read, which takes some ten times as long."""

_STATUS_OF = {"malformed": 400, "busy": 503, "stopping": 503, "limited": 429, "forbidden": 403}
_CODE_OF = {
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    405: Code.UNIMPLEMENTED,
    413: Code.RESOURCE_EXHAUSTED,
    429: Code.RESOURCE_EXHAUSTED,
    500: Code.INTERNAL,
    501: Code.UNIMPLEMENTED,
    503: Code.UNAVAILABLE,
}


class OtlpHttp:
    """The app behind the OTLP port.

    Args:
        keep_raw: keep compressed bodies as received, for forwarding.
        commands: polled by ranks; None: there is no such path.
        guard: who may send.
        checks_host: whether a Host that is no name of this server is refused. Only for loopback,
            where no client needs another; elsewhere services have any name, and a foreign page is
            known by its Origin.
    """

    def __init__(
        self,
        handler: Intake,
        *,
        keep_raw: bool,
        commands: Commands | None = None,
        guard: Guard | None = None,
        checks_host: bool = False,
    ) -> None:
        self._handler = handler
        self._guard = guard or Guard()
        self._checks_host = checks_host
        self._commands = commands
        self.keep_raw = keep_raw
        self.fixed_headers: Mapping[str, str] = {semconv.SCORER_HEADER: semconv.WIRE_VERSION}
        self._answers: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()  # large requests are answered in other threads

    @property
    def answers(self) -> dict[tuple[str, int], int]:
        """Answers by (signal, status); signal is empty for other paths."""
        with self._lock:
            return dict(self._answers)

    def refuse(self, head: Head) -> Response | None:
        """Answer by the head alone: wrong path, sender, method, type or coding; or no room."""
        refused = self._guard.refuse_browser(head, checks_host=self._checks_host)
        if refused is not None:
            return self._refused(refused, head)
        roles = self.roles(head.path)
        if roles is None:
            return self.failure(404, f"no such path; OTLP is at {', '.join(_SIGNAL_OF)}", head)
        refused = self._guard.admit(head, roles.get(head.method, "ingest"))
        if refused is not None:
            return self._refused(refused, head)
        if self._commands is not None and self.is_poll(head):
            return self._refuse_poll(head, self._commands)
        if head.method != "POST":
            refusal = self.failure(405, "OTLP is sent with POST", head)
            refusal.headers = {"Allow": "POST"}
            return refusal
        if _media_type(head) not in (*_PROTOBUF_TYPES, JSON):
            return self.failure(415, f"Content-Type must be {PROTOBUF} or {JSON}", head)
        if (problem := _problem_of_coding(head)) is not None:
            refusal = self.failure(415, problem, head)
            refusal.headers = {"Accept-Encoding": ", ".join(codings.installed_names())}
            return refusal
        if self._handler.is_busy(_SIGNAL_OF[head.path]):
            return self.failure(503, "not able to take requests now; send it again later", head)
        return None

    @property
    def paths(self) -> tuple[str, ...]:
        polled = () if self._commands is None else (semconv.COMMANDS_PATH,)
        return (*_SIGNAL_OF, *polled)

    def roles(self, path: str) -> Mapping[str, Role] | None:
        """The role that each method of a path needs; None if there is no such path."""
        if path in _SIGNAL_OF:
            return {"POST": "ingest"}
        return {"GET": "ingest", "POST": "ingest"} if path in self.paths else None

    def is_poll(self, head: Head) -> bool:
        return self._commands is not None and head.path == semconv.COMMANDS_PATH

    def coding(self, head: Head) -> str:
        return codings.OF_NAME.get(_encoding(head), codings.IDENTITY)

    def _refuse_poll(self, head: Head, commands: Commands) -> Response | None:
        if head.method not in ("GET", "POST"):
            refusal = self.failure(405, "a rank asks with GET, or POST with flight records", head)
            refusal.headers = {"Allow": "GET, POST"}
            return refusal
        if head.method == "POST" and _media_type(head) != JSON:
            return self.failure(415, f"Content-Type must be {JSON}", head)
        refused = commands.refusal(head.headers, POLLS)
        if refused is None:
            return None
        self._guard.record_refusal(head, refused[0], "commands_token")
        return self.failure(*refused, head)

    def respond(self, request: Request) -> Response | Awaitable[Response] | Heavy:
        if self._commands is not None and self.is_poll(request.head):
            if request.content:
                return Heavy(partial(self._poll, self._commands, request))
            return self._poll(self._commands, request)
        if len(request.content) < _OFF_LOOP_BYTES:
            try:
                response, stored = self._handle(request, _SLOW_OFF_LOOP_BYTES)
            except SlowError:
                return Heavy(partial(self._answer, request), is_slow=True)
            return response if stored is None else self._once_stored(request, response, stored)
        return Heavy(partial(self._answer, request), is_slow=_media_type(request.head) == JSON)

    def _poll(self, commands: Commands, request: Request) -> Response:
        try:
            run_id = run_in(request.head.query)
        except InputError as error:
            return self.failure(400, str(error), request.head)
        if not request.head.principal.covers(run_id):
            text = f"{request.head.principal.name} may not poll for run {run_id[:100]!r}"
            self._guard.record_refusal(request.head, 403, "run", run_id)
            return self.failure(403, text, request.head)
        try:
            body = commands.poll(request.head.query, request.content)
        except InputError as error:
            return self.failure(400, str(error), request.head)
        self._count(_COMMANDS, 200)
        return Response(200, body, JSON)

    def _answer(self, request: Request) -> Response:
        response, stored = self._handle(request)
        if stored is not None and not is_stored(stored):
            return self.failure(503, NOT_STORED, request.head)
        return response

    async def _once_stored(
        self, request: Request, response: Response, stored: Future[None]
    ) -> Response:
        if not await is_stored_soon(stored):
            return self.failure(503, NOT_STORED, request.head)
        return response

    def _handle(
        self, request: Request, max_slow_bytes: int | None = None
    ) -> tuple[Response, Future[None] | None]:
        """The response, and what is done once it may be sent; None: at once."""
        head = request.head
        signal, is_json = _SIGNAL_OF[head.path], _media_type(head) == JSON
        answer = self._handler.handle(
            OtlpRequest(
                signal=signal,
                content_type=JSON if is_json else PROTOBUF,
                body=request.content,
                raw_body=request.original,
                content_encoding="gzip" if self.keep_raw and self.coding(head) == "gzip" else "",
                sender=head.principal,
            ),
            max_slow_bytes,
        )
        if answer.status == "forbidden":
            self._guard.record_refusal(head, 403, answer.reason, answer.run_id)
        if answer.status != "ok":
            return self._refusal(answer, head), None
        body = success(signal, answer.rejected, answer.message, is_json=is_json)
        self._count(signal, 200)
        return Response(200, body, JSON if is_json else PROTOBUF), answer.stored

    def _refusal(self, answer: Answer, head: Head) -> Response:
        response = self.failure(_STATUS_OF[answer.status], answer.message, head)
        if response.status in (429, 503):
            response.headers = {"Retry-After": str(answer.retry_after_s)}
        return response

    def _refused(self, refused: Refusal, head: Head) -> Response:
        response = self.failure(refused.status, refused.message, head)
        response.headers = {**response.headers, **refused.headers}
        return response

    def failure(self, status_code: int, message: str, head: Head | None) -> Response:
        """A ``google.rpc.Status`` in the content type of the request."""
        is_json = head is not None and "json" in head.headers.get("content-type", "").lower()
        signal = "" if head is None else _SIGNAL_OF.get(head.path, "")
        signal = _COMMANDS if head is not None and self.is_poll(head) else signal
        self._count(signal, status_code)
        code = _CODE_OF.get(status_code, Code.INVALID_ARGUMENT)
        headers = {"Retry-After": "1"} if status_code == 503 else {}
        body = status(code, message, is_json=is_json)
        return Response(status_code, body, JSON if is_json else PROTOBUF, headers)

    def _count(self, signal: str, status_code: int) -> None:
        with self._lock:
            self._answers[signal, status_code] += 1


def _media_type(head: Head) -> str:
    return head.headers.get("content-type", "").partition(";")[0].strip().lower()


def _encoding(head: Head) -> str:
    return head.headers.get("content-encoding", "").strip().lower()


def _problem_of_coding(head: Head) -> str | None:
    coding = codings.OF_NAME.get(_encoding(head))
    if coding is None:
        return f"Content-Encoding must be one of {', '.join(codings.installed_names())}"
    return None if codings.is_installed(coding) else codings.missing(coding)
