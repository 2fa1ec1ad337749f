"""Who may do what: every role at every endpoint of every listener, with TLS and without.

The endpoints are read from the routes themselves. A new one fails here until its role stands in
``EXPECTED``, which is also what docs/operate/security.md says.
"""

from __future__ import annotations

import http.client
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from otel_straggler import semconv
from otel_straggler.collector.access.roles import NOBODY, Principal
from otel_straggler.collector.ingest.grpc_messages import METHODS

from ..servers.receiver import Receiver
from .authorities import TOKENS, WRONG, Authority, bearer, write_grants

READ = {"GET": "read", "HEAD": "read"}
PUBLIC = {"GET": "public", "HEAD": "public"}
EXPECTED = {
    "/": PUBLIC,
    "/page/...": PUBLIC,
    "/healthz": PUBLIC,
    "/readyz": PUBLIC,
    "/v1/login": {"POST": "public"},
    "/v1/logout": {"POST": "public"},
    "/metrics": READ,
    "/v1/report": READ,
    "/v1/runs": READ,
    "/v1/run": READ,
    "/v1/rank": READ,
    "/v1/scalars": READ,
    "/v1/timeline": READ,
    "/v1/events": READ,
    "/v1/decisions": {"POST": "operate"},
    "/v1/maintenance": {**READ, "POST": "operate"},
    "/v1/commands": {"GET": "read", "POST": "operate"},
    "/v1/alerts/test": {"POST": "operate"},
}
EXPECTED_OTLP = {
    "/v1/traces": {"POST": "ingest"},
    "/v1/metrics": {"POST": "ingest"},
    "/v1/logs": {"POST": "ingest"},
    "/v1/commands": {"GET": "ingest", "POST": "ingest"},
}
BODIES = {
    "/v1/maintenance": {"node": "n", "seconds": 60, "reason": "r"},
    "/v1/alerts/test": {"severity": "critical", "seconds": 1},
    "/v1/login": {"token": WRONG},
}
COMMANDS = "s3cret"
SECRETS = {None: NOBODY, WRONG: NOBODY} | {
    token: Principal(name=f"{role}-user", role=role) for role, token in TOKENS.items()
}


class Guarded:
    """A collector with grants, and who asks it."""

    def __init__(self, kit: Any, folder: Path, authority: Authority | None, webhook: str) -> None:
        settings = kit.settings(
            auth__grant_files=(write_grants(folder),),
            commands__enabled=True,
            commands__token=COMMANDS,
            **({} if authority is None else authority.settings()),
        )
        notify = replace(settings.alerts.notify, webhook=webhook)
        settings = replace(settings, alerts=replace(settings.alerts, notify=notify, mode="page"))
        self.live = kit.Live(settings)
        self.authority = authority

    def ask(
        self, listener: str, method: str, path: str, token: str | None, body: bytes | None = None
    ) -> tuple[int, bytes]:
        host, _, port = self.live.addresses[listener].rpartition(":")
        connection = (
            http.client.HTTPConnection(host, int(port), timeout=30)
            if self.authority is None
            else http.client.HTTPSConnection(
                host, int(port), timeout=30, context=self.authority.context()
            )
        )
        content = {} if body is None else {"Content-Type": "application/json"}
        headers = {semconv.COMMANDS_TOKEN_HEADER: COMMANDS, **content, **bearer(token)}
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            is_stream = "event-stream" in (response.getheader("Content-Type") or "")
            return response.status, b"" if is_stream else response.read()
        finally:
            connection.close()

    def call(self, method: str, token: str | None) -> grpc.StatusCode:
        address = self.live.addresses["otlp_grpc"]
        if self.authority is None:
            channel = grpc.insecure_channel(address)
        else:
            roots = Path(self.authority.ca_file).read_bytes()
            channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(roots))
        metadata = [(key.lower(), value) for key, value in bearer(token).items()]
        with channel:
            try:
                channel.unary_unary(method)(b"", timeout=30, metadata=metadata)
            except grpc.RpcError as error:
                return error.code()
            return grpc.StatusCode.OK


@pytest.fixture(scope="module")
def webhook() -> Iterator[Receiver]:
    """Whoever is notified."""
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module", params=["in the clear", "TLS"])
def guarded(
    request: pytest.FixtureRequest, kit: Any, tmp_path_factory: Any, webhook: Receiver
) -> Iterator[Guarded]:
    """A collector of each kind for the whole file."""
    folder = tmp_path_factory.mktemp("access")
    authority = Authority(folder) if request.param == "TLS" else None
    result = Guarded(kit, folder, authority, f"{webhook.url}/hook")
    yield result
    result.live.stop(4.0)


def test_the_documentation_has_the_roles() -> None:
    """docs/operate/security.md: every method of every path in the row of its role."""
    page = (Path(__file__).parents[2] / "docs/operate/security.md").read_text(encoding="utf-8")
    lines = page.partition("## Roles")[2].partition("## ")[0].splitlines()
    rows = {
        line.split()[1]: set(re.findall(r"`([A-Z]+ /[^`]*)`", line))
        for line in lines
        if "`" in line
    }
    for table in (EXPECTED, EXPECTED_OTLP):
        for role in ("public", "read", "operate", "ingest"):
            wanted = {
                f"{method} {path}"
                for path, roles in table.items()
                for method, needed in roles.items()
                if needed == role and method != "HEAD"
            }
            assert rows[role] == wanted or not wanted, role


def test_every_route_has_the_role_that_is_documented(guarded: Guarded) -> None:
    """A route that nobody thought about fails here."""
    api, otlp = guarded.live.collector._servers._api, guarded.live.collector._servers._otlp
    assert {path: dict(api.roles(path)) for path in api.paths} == EXPECTED
    assert {path: dict(otlp.roles(path)) for path in otlp.paths} == EXPECTED_OTLP


@pytest.mark.parametrize("token", SECRETS, ids=lambda token: token or "no token")
def test_each_role_may_do_what_it_may_and_nothing_else(
    guarded: Guarded, token: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """At every endpoint of both HTTP listeners, by every method that it has."""
    caplog.set_level(logging.INFO, "otel_straggler.audit")
    who = SECRETS[token]
    for listener, table in (("metrics", EXPECTED), ("otlp_http", EXPECTED_OTLP)):
        for name, roles in table.items():
            path = name.replace("...", "style.css")
            for method, role in roles.items():
                caplog.clear()
                body = json.dumps(BODIES.get(path, {})).encode() if method == "POST" else None
                status, _ = guarded.ask(listener, method, path, token, body)
                where = f"{method} {path} of {listener} as {who.role}: {status}"
                refused = 401 if who is NOBODY else 403
                if path == "/v1/login":
                    assert status == 401, where  # the token in the body is wrong
                elif who.may(role):
                    assert status not in (401, 403), where
                    if role == "operate":
                        [line] = [m for m in caplog.messages if f'"POST {path}"' in m]
                        assert f'who="{who.name}" role="{who.role}" from="127.0.0.1:' in line
                else:
                    assert status == refused, where


@pytest.mark.parametrize("token", SECRETS, ids=lambda token: token or "no token")
def test_grpc_takes_telemetry_from_ingest_and_admin_only(
    guarded: Guarded, token: str | None
) -> None:
    """All of its methods."""
    who = SECRETS[token]
    refused = "UNAUTHENTICATED" if who is NOBODY else "PERMISSION_DENIED"
    for method in METHODS:
        expected = "OK" if who.may("ingest") else refused
        assert guarded.call(method, token).name == expected, method


def test_without_a_role_for_it_nothing_changes(guarded: Guarded, webhook: Receiver) -> None:
    """Neither maintenance, nor decisions, nor commands, nor a test alert, nor a run."""

    def state() -> Any:
        collector = guarded.live.collector
        notified = sum(each.body["status"] == "firing" for each in webhook.received)
        spans = collector._intake.counts()
        books = (collector._decisions.state(), collector._maintenance.listed())
        return (*books, dict(collector._commands.counts()), notified, spans.points, spans.outcomes)

    before = state()
    for token, who in SECRETS.items():
        for listener, table in (("metrics", EXPECTED), ("otlp_http", EXPECTED_OTLP)):
            for path, roles in table.items():
                if "POST" in roles and not who.may(roles["POST"]):
                    body = json.dumps(BODIES.get(path, {})).encode()
                    guarded.ask(listener, "POST", path, token, body)
    assert state() == before
