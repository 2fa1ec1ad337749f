"""Requests to a server and its JSON answers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urljoin, urlsplit

from otel_straggler.cli.text import names_text, printable
from otel_straggler.errors import ConfigError, InputError, UnavailableError, describe
from otel_straggler.otlp.clients.client import NO_ANSWER, Response
from otel_straggler.otlp.clients.http import UNIX, HttpClient
from otel_straggler.otlp.clients.tls import tls_advice
from otel_straggler.otlp.clients.token import TOKEN_REMEDY, token_headers
from otel_straggler.semconv import FORMAT_VERSION
from otel_straggler.strict_json import parse_json

DEFAULT_COLLECTOR: Final = "http://127.0.0.1:9464"
_SILENCE_S, _TIMEOUT_S = 5.0, 600.0
"""For a single wait, and for a whole request: a large report takes time."""
_MAX_BYTES = 1024 * 1024 * 1024
_BAD_REQUEST = 400
_UNAUTHORIZED = frozenset({401, 403})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 10
_MAX_NAMED = 10
_HOST_AND_PORT = re.compile(r"[\w.-]+:\d{1,5}|\[[0-9a-fA-F:.]+\]:\d{1,5}")


class RefusedError(InputError):
    """Raised when a server answers with an error status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that commands ask.

    Attributes:
        url: without a trailing slash.
        expected, remedy: for messages if something else answers.
        away: remedy if there is no answer; by default the same.
        headers: of each request.
        is_collector: whether it gets the token of ``OTEL_STRAGGLER_TOKEN_FILE``.
    """

    url: str
    expected: str
    remedy: str
    away: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    is_collector: bool = False

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """The JSON answer to a GET, to a POST of ``body``, or to ``method``; None if it is empty.

        Raises:
            RefusedError: it answers with an error status.
            InputError: it answers with something else than JSON.
            UnavailableError: there is no answer.
        """
        where = self.url + path
        token = token_headers() if self.is_collector else {}
        response = exchange(where, body, method, {**self.headers, **token})
        if response.status == NO_ANSWER:
            remedy = _remedy(where, response.error, self.away or self.remedy)
            raise UnavailableError.of(where, printable(response.error), self.expected, remedy)
        if not response.is_success:
            raise RefusedError(self._refusal(where, response), response.status)
        if not response.body:
            return None
        try:
            return parse_json(response.body, None)
        except ValueError as error:
            raise InputError.of(where, "no JSON", self.expected, self.remedy) from error

    def _refusal(self, where: str, response: Response) -> str:
        reason = _reason_in(response)
        if response.status == _BAD_REQUEST and reason:
            return f"{where}: {reason}"
        value = f"HTTP {response.status}" + (f": {reason}" if reason else "")
        is_token = self.is_collector and response.status in _UNAUTHORIZED
        remedy = TOKEN_REMEDY if is_token else self.remedy
        return describe(where=where, value=value, expected=self.expected, remedy=remedy)


def exchange(
    url: str, body: Any = None, method: str | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Send a GET, which follows redirects, a POST of ``body`` as JSON, or ``method``."""
    data = None if body is None else json.dumps(body).encode()
    json_headers = {"Accept": "application/json", "Content-Type": "application/json"}
    for _ in range(_MAX_REDIRECTS):
        client = HttpClient(url, timeout_s=_TIMEOUT_S, silence_s=_SILENCE_S, max_bytes=_MAX_BYTES)
        response = client.send(
            method or ("GET" if data is None else "POST"),
            data,
            headers={**json_headers, **(headers or {})},
        )
        client.close()
        target = urljoin(url, response.headers.get("location", ""))
        is_elsewhere = response.status in _REDIRECTS and target.startswith(("http://", "https://"))
        if data is not None or method is not None or not is_elsewhere or target == url:
            break
        if urlsplit(target)[:2] != urlsplit(url)[:2]:
            headers = {}  # what is secret is for the first server only
        url = target
    return response


def _reason_in(response: Response) -> str:
    """The server's own message for a refusal; empty if it has none."""
    try:
        answer = parse_json(response.body)
    except ValueError:
        return ""
    if isinstance(answer, dict):
        answer = answer.get("error") or answer.get("message") or ""
    return printable(str(answer), 1_000)


def _remedy(url: str, reason: str, usual: str) -> str:
    """What to do if there is no answer: ``usual``, unless TLS is the reason."""
    ca = "Name a file with the CA of its certificate: export SSL_CERT_FILE=/path/to/ca.pem"
    own = "commands have none of their own; ask an address that wants none, or --history."
    advice = tls_advice(url, reason, ca=ca, own=own)
    if not advice or not url.startswith("https://"):
        return f"{usual} {advice}".rstrip()  # a server that dies cuts connections, too
    return advice


def collector_url(collector: str) -> str:
    """The URL that ``--collector`` names, which may be that of the report."""
    return base_url(collector, "--collector", DEFAULT_COLLECTOR).removesuffix("/v1/report")


def fetch_report(url: str) -> Any:
    """The report of the collector at ``url``.

    Raises:
        UnavailableError: there is no answer.
        InputError: another program answers.
    """
    where = f"{url}/v1/report"
    server = Server(
        url=where,
        expected=f"a report with schema_version {FORMAT_VERSION}",
        remedy="Is another program, or another version of the collector, listening there?",
        away="Is it running, and is this its --metrics address?",
        is_collector=True,
    )
    report: Any = server.ask("")
    value = ""
    if not isinstance(report, dict) or not isinstance(report.get("runs"), dict):
        value = "JSON without runs"
    elif report.get("schema_version") != FORMAT_VERSION:
        value = f"schema_version {report.get('schema_version')}"
    if value:
        raise InputError.of(where, value, server.expected, server.remedy)
    return report


def known_run(report: Mapping[str, Any], run_id: str | None, where: str) -> None:
    """Check that a report has a run; None: whichever.

    Raises:
        ConfigError: it has not; names those that it has.
    """
    runs = report["runs"]
    if run_id is None or run_id in runs:
        return
    expected = f"one of: {names_text(runs, _MAX_NAMED)}" if runs else "a run; it has none yet"
    remedy = f"{where} knows no run of that name: is it that of another collector, or too old?"
    raise ConfigError.of("--run", run_id, expected, remedy)


def _has_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port beyond all, or half of an IPv6 address
        return False


def base_url(url: str, option: str, example: str) -> str:
    """The URL without a trailing slash; HOST:PORT becomes HTTP, and unix:PATH that of a socket.

    Raises:
        ConfigError: it is no HTTP URL.
    """
    if _HOST_AND_PORT.fullmatch(url):
        url = f"http://{url}"
    if url.startswith("unix:"):
        return f"{UNIX}://{quote(url.removeprefix('unix:').rstrip('/'), safe='')}"
    if not url.startswith(("http://", "https://")):
        remedy = f"Give {option} with http:// or https:// before it."
        raise ConfigError.of(option, url, f"a URL such as {example}", remedy)
    if not _has_address(url):
        expected = f"a host and a port of 1 to 65535, as in {example}"
        raise ConfigError.of(option, url, expected, f"Correct {option}.")
    return url.rstrip("/")
