"""Whoever is refused something because of who they are: a line of the audit trail, a count by
reason, and a problem on the page of those who may know of it."""

from __future__ import annotations

import gzip
import http.client
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from otel_straggler import semconv
from otel_straggler.collector.access import audit as audit_module
from otel_straggler.collector.access.refusals import REASONS
from otel_straggler.collector.ingest.grpc_messages import METHODS
from otel_straggler.model.rank import Source
from otel_straggler.otlp.encode_events import EventRecord, encode_event
from otel_straggler.otlp.encode_metrics import (
    SectionHistogram,
    encode_histograms,
    encode_kernel_times,
    encode_numbers,
)
from otel_straggler.simulate.writers import resource_of

from ..kernels_made import tally
from .authorities import TOKENS, WRONG, bearer, write_grants
from .ways import WAYS, Way

COMMANDS = "s3cret"
OWN, FOREIGN = "team-b/own", "team-a/7"
JOB_B = "job-b-0123456789abcdef"
READERS = {name: f"reader-{name}-0123456789abcdef" for name in ("a", "b")}
NOW_S = 1_790_000_000.0
HTTP: Final = Way("http", "protobuf", False)
Send = Callable[[Any, Any], int]
"""Sends something as job-b; returns the status."""


class Refusing:
    """A collector with two tenants."""

    def __init__(self, live: Any, kit: Any, caplog: pytest.LogCaptureFixture) -> None:
        self.live, self._ask, self._caplog = live, kit.ask, caplog
        self.commands_token: str | None = COMMANDS

    def ask(
        self,
        listener: str,
        method: str,
        path: str,
        token: str | None,
        body: bytes | None = None,
        **headers: str,
    ) -> Any:
        known = bearer(token)
        if self.commands_token is not None:
            known[semconv.COMMANDS_TOKEN_HEADER] = self.commands_token
        if body is not None:
            known["Content-Type"] = "application/json"
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        address = self.live.addresses[listener]
        return self._ask(address, method, path, body, {**known, **given})

    def call(
        self,
        signal: str,
        token: str | None,
        body: bytes,
        *,
        zipped: bool = False,
        **headers: str,
    ) -> int:
        """Over gRPC; the status that HTTP would have."""
        (method,) = (name for name, of in METHODS.items() if of == signal)
        metadata = [(key.lower(), value) for key, value in {**bearer(token), **headers}.items()]
        compression = grpc.Compression.Gzip if zipped else None
        with grpc.insecure_channel(self.live.addresses["otlp_grpc"]) as channel:
            try:
                channel.unary_unary(method)(
                    body, timeout=30, metadata=metadata, compression=compression
                )
            except grpc.RpcError as error:
                return {"UNAUTHENTICATED": 401, "PERMISSION_DENIED": 403}[error.code().name]
        return 200

    def series(self) -> dict[str, float]:
        """By reason, in /metrics."""
        text = self.ask("metrics", "GET", "/metrics", TOKENS["admin"]).body.decode()
        name = semconv.COLLECTOR_REFUSED.prometheus_name
        lines = (line for line in text.splitlines() if line.startswith(f"{name}{{"))
        return {line.split('reason="')[1].split('"')[0]: float(line.split()[-1]) for line in lines}

    def counts(self) -> dict[str, int]:
        """The same at once."""
        return dict(self.live.collector._refusals.counts())

    def problems(self, token: str) -> list[str]:
        """On the page of who has this token."""
        answer = self.ask("metrics", "GET", "/v1/runs", token).json()
        return list(answer.get("problems", ()))

    def events(self, token: str) -> Any:
        """The stream of a page, after its first lines."""
        host, _, port = self.live.addresses["metrics"].rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        connection.request("GET", "/v1/events", headers=bearer(token))
        response = connection.getresponse()
        while response.readline() != b"\n":
            pass
        return response

    def lines(self) -> list[str]:
        """Of the audit trail."""
        return [each for each in self._caplog.messages if each.startswith("audit: ")]

    def expect(self, reason: str, action: Callable[[], Any], *parts: str) -> Any:
        """That an action is refused: it is counted once, and a line that has these parts."""
        before = self.counts()
        self._caplog.clear()
        result = action()
        (line,) = self.lines()
        assert [part for part in (f'reason="{reason}"', *parts) if part not in line] == [], line
        assert self.counts() == {**before, reason: before[reason] + 1}
        return result


@pytest.fixture
def its(
    start: Callable[..., Any],
    kit: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> Refusing:
    """Every refusal is a line: what is left out of a flood has a test of its own."""
    monkeypatch.setattr(audit_module, "_REFUSALS_AT_ONCE", 1e6)
    caplog.set_level(logging.INFO, "otel_straggler.audit")
    readers = (f"read reader-{n} token:{t} runs=team-{n}/" for n, t in READERS.items())
    grants = write_grants(tmp_path, f"ingest job-b token:{JOB_B} runs=team-b/", *readers)
    live = start(auth__grant_files=(grants,), commands__enabled=True, commands__token=COMMANDS)
    return Refusing(live, kit, caplog)


def test_all_reasons_are_counted_from_the_start(its: Refusing, kit: Any) -> None:
    """A rate over the first refusal is one over a series that was there before it."""
    assert its.series() == dict.fromkeys(REASONS, 0.0)
    its.ask("metrics", "GET", "/v1/runs", WRONG)
    kit.eventually(lambda: its.series()["unknown_credential"] == 1.0)


# --- what one tenant sends about runs of another --------------------------------------------------


def source(run_id: str = FOREIGN) -> Source:
    return Source(run_id=run_id, rank=0, job="job", node="n", session_id="0" * 16, world_size=1)


def telemetry(signal: str, make: Callable[[Any], bytes], way: Way = HTTP) -> Send:
    def send(its: Refusing, kit: Any) -> int:
        body = make(kit)
        if way.transport == "grpc":
            return its.call(signal, JOB_B, body, zipped=way.zipped)
        content = way.content(body, signal)
        coding = {"Content_Encoding": "gzip"} if way.zipped else {}
        content = gzip.compress(content) if way.zipped else content
        path, types = f"/v1/{signal}", {"Content_Type": way.content_type}
        answer = its.ask("otlp_http", "POST", path, JOB_B, content, **types, **coding)
        return int(answer.status)

    return send


def poll(method: str, body: Any = None) -> Send:
    def send(its: Refusing, _: Any) -> int:
        path = f"/v1/commands?run={FOREIGN}&group=&rank=0&session={'0' * 16}&node=n&done=7:done"
        content = None if body is None else json.dumps(body).encode()
        return int(its.ask("otlp_http", method, path, JOB_B, content).status)

    return send


def spans(kit: Any) -> bytes:
    return bytes(kit.spans_of(source(), range(3)))


def heartbeat(kit: Any, **values: Any) -> bytes:
    return bytes(kit.beat_of(source(), **{"step": 3, "sent_at_s": NOW_S, **values}))


def end(kit: Any) -> bytes:
    return heartbeat(kit, finished_at_s=NOW_S, outcome="failed")


def two_runs(kit: Any) -> bytes:
    """One that it may send, and one that it may not."""
    return bytes(kit.spans_of(source(OWN), range(3))) + spans(kit)


def section_times(_: Any) -> bytes:
    histogram = SectionHistogram(
        section="forward", kind="compute", bounds_s=(0.1,), counts=[1, 2], sum_s=0.5
    )
    return encode_histograms(
        [histogram], resource=resource_of(source()), started_at_s=1.0, now_s=NOW_S
    )


def kernel_times(_: Any) -> bytes:
    made = tally(("gemm", "forward", [1_000, 1_100]))
    return encode_kernel_times(
        made.take(), resource=resource_of(source()), start_ns=1, end_ns=int(NOW_S * 1e9)
    )


def number(metric: semconv.Metric) -> Callable[[Any], bytes]:
    def make(_: Any) -> bytes:
        labels = {str(key): "x" for key in metric.labels}
        return encode_numbers(
            [(metric, labels, 2.0)], resource=resource_of(source()), now_s=NOW_S, started_at_s=1.0
        )

    return make


def launch(_: Any) -> bytes:
    attributes = {semconv.LAUNCH_JOB: 1, semconv.LAUNCH_NODE_RANKS: "0"}
    record = EventRecord(
        name="straggler.attempt.started", at_unix_s=NOW_S, text="x", attributes=attributes
    )
    resource = {semconv.RUN_ID: FOREIGN, semconv.RUN_ATTEMPT: 0, semconv.HOST_NAME: "n"}
    return encode_event(record, resource=resource)


GRPC = Way("grpc", "protobuf", False)
KINDS: Final[dict[str, Send]] = {
    **{f"spans, {way}": telemetry("traces", spans, way) for way in WAYS},
    **{f"heartbeats, {way}": telemetry("metrics", heartbeat, way) for way in WAYS},
    "two runs in one request": telemetry("traces", two_runs),
    "the end of a rank": telemetry("metrics", end),
    "times of sections": telemetry("metrics", section_times),
    "times of kernels": telemetry("metrics", kernel_times),
    "sensors": telemetry("metrics", number(semconv.HW_TEMPERATURE)),
    "checkpoints": telemetry("metrics", number(semconv.CHECKPOINT_SAVES)),
    "a timeout of an agent": telemetry("metrics", number(semconv.RANK_TIMED_OUT)),
    "an attempt of a launcher": telemetry("logs", launch),
    "an attempt of a launcher, gRPC": telemetry("logs", launch, GRPC),
    "a poll for commands": poll("GET"),
    "a flight record": poll("POST", {"flight_records": {"7": {"entries": []}}}),
    "a profile": poll("POST", {"profiles": {"7": {"operators": []}}}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_sent_of_a_run_of_another_tenant_is_refused_and_audited(
    its: Refusing, kit: Any, kind: str
) -> None:
    """Shown to the tenant whose run it is, to the one that sent it, and to who sees all; to nobody
    else. Nothing of it is kept."""
    parts = ('who="job-b"', 'role="ingest"', 'from="127.0.0.1:', "status=403", f'run="{FOREIGN}"')
    assert its.expect("run", lambda: KINDS[kind](its, kit), *parts) == 403
    (problem,) = kit.eventually(lambda: its.problems(TOKENS["read"]))
    assert problem.startswith("job-b was refused ")
    assert f"of run '{FOREIGN}': its grant does not cover the run" in problem
    for token in READERS.values():
        kit.eventually(lambda of=token: its.problems(of) == [problem])
    runs = its.ask("metrics", "GET", "/v1/runs", TOKENS["read"]).json()["runs"]
    assert (runs, its.live.collector._worker.counts().rows["scored"]) == ([], 0)


def test_an_open_page_is_told_that_something_was_refused(its: Refusing, kit: Any) -> None:
    """It asks for the list of runs only if there is something new."""
    stream = its.events(READERS["a"])
    (open_one,) = its.live.collector._servers._api._page._events._open
    kit.eventually(lambda: open_one._reported_list is not None)
    poll("GET")(its, kit)
    assert stream.readline() == b"event: runs\n"


def test_there_are_more_than_twenty_kinds() -> None:
    """Each way of writing about a run."""
    assert len(KINDS) >= 20


# --- who may not do it at all ---------------------------------------------------------------------


@pytest.mark.parametrize("listener", ["metrics", "otlp_http"])
def test_whoever_may_not_use_a_path_is_audited_at_each_of_them(
    its: Refusing, listener: str
) -> None:
    """All paths by all methods, from the routes themselves: without a credential, with an unknown
    one, and with a role that is not enough."""
    servers = its.live.collector._servers
    app = servers._api if listener == "metrics" else servers._otlp
    routes = [(path, *of) for path in app.paths for of in app.roles(path).items()]
    guarded = [route for route in routes if route[2] != "public"]
    assert {role for _, _, role in guarded} >= (
        {"read", "operate"} if app is servers._api else set()
    )
    for path, method, role in guarded:
        body = b"{}" if method == "POST" else None
        other = TOKENS["ingest" if role == "read" else "read"]
        for (reason, status), token in zip(REFUSED, (None, WRONG, other), strict=True):
            ask = partial(its.ask, listener, method, path, token, body)
            parts = (f'what="{method} {path}"', f"status={status}")
            assert its.expect(reason, ask, *parts).status == status


REFUSED: Final = (("no_credential", 401), ("unknown_credential", 401), ("role", 403))


@pytest.mark.parametrize("signal", METHODS.values())
def test_whoever_may_not_send_over_grpc_is_audited(its: Refusing, signal: str) -> None:
    """The same for its methods; a browser does not speak it, whatever its page may do."""
    for (reason, status), token in zip(REFUSED, (None, WRONG, TOKENS["operate"]), strict=True):
        call = partial(its.call, signal, token, b"")
        parts = (f'what="gRPC {signal}"', f"status={status}")
        assert its.expect(reason, call, *parts) == status
    page = partial(its.call, signal, TOKENS["ingest"], b"", origin="https://evil.example")
    assert its.expect("origin", page, 'who="ingest-user"', f'what="gRPC {signal}"') == 403


@pytest.mark.parametrize("listener", ["metrics", "otlp_http"])
def test_a_foreign_page_and_a_foreign_name_are_audited_with_whose_browser_it_was(
    its: Refusing, listener: str
) -> None:
    """DNS rebinding has the Host of the page; a form or a script has its Origin."""
    path = "/v1/maintenance" if listener == "metrics" else "/v1/traces"
    ask = partial(its.ask, listener, "POST", path, TOKENS["admin"], b"{}")
    who = ('who="admin-user"', f'what="POST {path}"', "status=403")
    assert its.expect("host", partial(ask, Host="evil.example"), *who).status == 403
    assert its.expect("origin", partial(ask, Origin="https://evil.example"), *who).status == 403


@pytest.mark.parametrize("listener", ["metrics", "otlp_http"])
@pytest.mark.parametrize("token", ["", "wrong"])
def test_who_has_not_the_token_of_commands_is_audited(
    its: Refusing, listener: str, token: str
) -> None:
    """Beside the role that it takes."""
    its.commands_token = token or None
    ask = partial(its.ask, listener, "POST", "/v1/commands", TOKENS["admin"], b"{}")
    its.expect("commands_token", ask, 'who="admin-user"', 'what="POST /v1/commands"')


def test_a_login_that_is_refused_is_audited(its: Refusing) -> None:
    """With a token that nobody has, and with one that opens no page."""
    for token, reason, who in (
        (WRONG, "unknown_credential", 'who=""'),
        (TOKENS["ingest"], "role", 'who="ingest-user"'),
    ):
        body = json.dumps({"token": token}).encode()
        login = partial(its.ask, "metrics", "POST", "/v1/login", None, body)
        its.expect(reason, login, who, 'what="POST /v1/login"')
    assert not [line for line in its.lines() if "0123456789abcdef" in line]


# --- what a reader asks for -----------------------------------------------------------------------


def test_a_reader_who_asks_for_a_run_of_another_tenant_is_audited(its: Refusing, kit: Any) -> None:
    """At every path that shows a run. The answer is that of a run that there is not; the tenant
    whose run it is sees who asked."""
    for path in ("/v1/report", "/v1/run", "/v1/rank", "/v1/scalars", "/v1/timeline", "/v1/events"):
        ask = partial(its.ask, "metrics", "GET", f"{path}?run={FOREIGN}&rank=0", READERS["b"])
        status = 200 if path == "/v1/report" else 404
        parts = ('who="reader-b"', f'what="GET {path}"', f"status={status}", f'run="{FOREIGN}"')
        assert its.expect("run", ask, *parts).status == status
    (problem,) = kit.eventually(lambda: its.problems(READERS["a"]))
    assert problem.startswith("reader-b was refused GET ")
    kit.eventually(lambda: its.problems(TOKENS["read"]) == [problem])
    assert its.problems(READERS["b"]) == []
    own = partial(its.ask, "metrics", "GET", f"/v1/run?run={OWN}", READERS["b"])
    before = its.counts()
    assert own().status == 404  # there is none yet
    assert its.counts() == before


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["max_runs", "max_ranks"])
def test_what_is_beyond_a_limit_is_audited_and_shown_to_its_tenant(
    start: Any, kit: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, limit: str
) -> None:
    """It is counted as what is rejected for load."""
    caplog.set_level(logging.INFO, "otel_straggler.audit")
    readers = (f"read reader-{n} token:{t} runs=team-{n}/" for n, t in READERS.items())
    grants = write_grants(tmp_path, f"ingest job-b token:{JOB_B} runs=team-b/ {limit}=1", *readers)
    its = Refusing(start(auth__grant_files=(grants,)), kit, caplog)
    for number in range(2):
        who = replace(source(f"team-b/{number}"), rank=number, world_size=2)
        body = kit.beat_of(who, step=1)
        types = {"Content_Type": HTTP.content_type}
        answer = its.ask("otlp_http", "POST", "/v1/metrics", JOB_B, body, **types)
    assert answer.status == 403
    (line,) = its.lines()
    assert f'status=403 reason="{limit}"' in line
    kit.eventually(lambda: any(limit in each for each in its.problems(READERS["b"])))
    assert its.problems(READERS["a"]) == []
