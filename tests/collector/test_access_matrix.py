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
from otel_straggler.otlp.clients.token import TOKEN_VARIABLE

from ..servers.receiver import Receiver
from .authorities import TOKENS, WRONG, Authority, bearer, write_grants
from .conftest import PROTOBUF

READ = {"GET": "read", "HEAD": "read"}
PUBLIC = {"GET": "public", "HEAD": "public"}
EXPECTED = {
    "/": PUBLIC,
    "/page/...": PUBLIC,
    "/healthz": PUBLIC,
    "/runbook": PUBLIC,
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
OWN, FOREIGN = "team-a/own", "team-b/foreign"
TEAM = "team-a-0123456789abcdef"
SECRETS = {None: NOBODY, WRONG: NOBODY} | {
    token: Principal(name=f"{role}-user", role=role) for role, token in TOKENS.items()
}


class Guarded:
    """A collector with grants, and who asks it."""

    def __init__(self, kit: Any, folder: Path, authority: Authority | None, webhook: str) -> None:
        settings = kit.settings(
            auth__grant_files=(write_grants(folder, f"read team-a token:{TEAM} runs=team-a/"),),
            commands__enabled=True,
            commands__token=COMMANDS,
            **({} if authority is None else authority.settings()),
        )
        notify = replace(settings.alerts.notify, webhook=webhook)
        settings = replace(settings, alerts=replace(settings.alerts, notify=notify, mode="page"))
        self.live = kit.Live(settings)
        self.authority = authority

    def ask(
        self,
        listener: str,
        method: str,
        path: str,
        token: str | None,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> tuple[int, bytes]:
        host, _, port = self.live.addresses[listener].rpartition(":")
        connection = (
            http.client.HTTPConnection(host, int(port), timeout=30)
            if self.authority is None
            else http.client.HTTPSConnection(
                host, int(port), timeout=30, context=self.authority.context()
            )
        )
        content = {} if body is None else {"Content-Type": content_type}
        headers = {semconv.COMMANDS_TOKEN_HEADER: COMMANDS, **content, **bearer(token)}
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            if "event-stream" in (response.getheader("Content-Type") or ""):
                return response.status, b"" if method == "HEAD" else response.read1()
            return response.status, response.read()
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


@pytest.fixture(scope="module")
def two_teams(guarded: Guarded, kit: Any) -> Guarded:
    """With a run of each of two tenants, which hang of the same node."""
    for run_id in (OWN, FOREIGN):
        ranks = [kit.rank(rank, 2, run_id=run_id) for rank in range(2)]
        bodies = [("traces", kit.spans_of(rank, range(12))) for rank in ranks]
        bodies += [("metrics", kit.beat_of(rank, step=11)) for rank in ranks]
        for signal, body in bodies:
            status, _ = guarded.ask(
                "otlp_http", "POST", f"/v1/{signal}", TOKENS["ingest"], body, PROTOBUF
            )
            assert status == 200

    def is_shown() -> bool:  # what was asked for earlier is cached for a while
        bodies = [
            guarded.ask("metrics", "GET", path, token)[1]
            for path in ("/v1/runs", "/metrics", "/v1/report")
            for token in (TEAM, TOKENS["read"])
        ]
        seen = guarded.live.collector._worker.snapshot.runs
        has_windows = all(run_id in seen and seen[run_id].windows for run_id in (OWN, FOREIGN))
        is_whole = all(FOREIGN.encode() in body for body in bodies[1::2])
        return has_windows and is_whole and all(OWN.encode() in body for body in bodies)

    kit.eventually(is_shown)
    return guarded


QUERIES = ("", f"?run={OWN}", f"?run={FOREIGN}", "?run=", "?rank=0", f"?run={FOREIGN}&rank=0")
READABLE = [path for path, roles in EXPECTED.items() if roles.get("GET") == "read"]


@pytest.mark.parametrize("path", READABLE)
def test_a_reader_of_one_tenant_sees_no_run_of_another(two_teams: Guarded, path: str) -> None:
    """At every path that can be read, with every query: neither its content nor that it exists."""
    for query in QUERIES:
        name = "nobody-has-this"
        status, body = two_teams.ask("metrics", "GET", f"{path}{query}", TEAM)
        is_asked_for = FOREIGN in query
        assert is_asked_for or FOREIGN.encode() not in body, query
        unknown = two_teams.ask("metrics", "GET", f"{path}{query}".replace(FOREIGN, name), TEAM)
        if is_asked_for and not unknown[1].startswith(b"#"):
            assert (status, body.replace(FOREIGN.encode(), name.encode())) == unknown, query


def test_a_reader_of_one_tenant_learns_nothing_of_commands_to_another(
    two_teams: Guarded, kit: Any
) -> None:
    """Neither what came of them nor that they exist: as with an id that nobody gave."""
    commands = two_teams.live.collector._commands
    for run_id in (OWN, FOREIGN):
        beat = kit.beat_of(kit.rank(0, 2, run_id=run_id), sent_at_s=2.0, step=11)
        two_teams.ask("otlp_http", "POST", "/v1/metrics", TOKENS["ingest"], beat, PROTOBUF)
        kit.eventually(lambda of=run_id: commands.snapshot.source_of(of, "", 0))
    ids = {
        run_id: commands.ask(run_id, "", [0], "dump_stacks", "a test") for run_id in (OWN, FOREIGN)
    }
    [own], [foreign] = ids[OWN], ids[FOREIGN]

    def outcomes(token: str, *asked: str) -> Any:
        status, body = two_teams.ask("metrics", "GET", f"/v1/commands?ids={','.join(asked)}", token)
        assert status == 200
        return json.loads(body)

    assert outcomes(TEAM, foreign, own, "0123") == {"outcomes": {own: "waiting"}}
    assert outcomes(TEAM, foreign) == outcomes(TEAM, "0123") == {"outcomes": {}}
    for role in ("read", "operate", "admin"):
        assert outcomes(TOKENS[role], foreign, own)["outcomes"].keys() == {foreign, own}, role


def test_a_reader_of_one_tenant_sees_its_own_runs_and_one_of_all_sees_all(
    two_teams: Guarded,
) -> None:
    """Every path that shows runs shows them to those who may see them."""
    own = {"/metrics": OWN, "/v1/report": OWN, "/v1/runs": OWN, "/v1/run": OWN, "/v1/rank": OWN}
    for path, name in own.items():
        query = "?rank=0" if path == "/v1/rank" else ""
        assert name.encode() in two_teams.ask("metrics", "GET", f"{path}{query}", TEAM)[1], path
    for path in ("/metrics", "/v1/report", "/v1/runs"):
        body = two_teams.ask("metrics", "GET", path, TOKENS["read"])[1]
        assert OWN.encode() in body, path
        assert FOREIGN.encode() in body, path
    status, _ = two_teams.ask("metrics", "GET", f"/v1/run?run={FOREIGN}", TOKENS["read"])
    assert status == 200


def test_a_reader_of_one_tenant_sees_no_run_of_another_on_other_shards(
    two_teams: Guarded, start: Any, kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list and single runs that a shard fetches from another with its own token."""
    if two_teams.authority is not None:
        return  # a shard asks in the same way
    token = tmp_path / "token"
    token.write_text(TOKENS["read"])
    monkeypatch.setenv(TOKEN_VARIABLE, str(token))
    url = f"http://{two_teams.live.addresses['metrics']}"
    grants = (write_grants(tmp_path, f"read team-a token:{TEAM} runs=team-a/"),)
    shard = start(auth__grant_files=grants, metrics__peers=(url,), metrics__collector_id="b")

    def names(token: str) -> set[str]:
        return {each["run_id"] for each in shard.get("/v1/runs", bearer(token)).json()["runs"]}

    kit.eventually(lambda: names(TOKENS["read"]) == {OWN, FOREIGN})
    assert names(TEAM) == {OWN}
    assert shard.get(f"/v1/run?run={OWN}", bearer(TEAM)).status == 200
    for path in ("/v1/run", "/v1/timeline", "/v1/scalars"):
        assert shard.get(f"{path}?run={FOREIGN}", bearer(TEAM)).status == 404
        assert shard.get(f"{path}?run={FOREIGN}", bearer(TOKENS["read"])).status == 200
