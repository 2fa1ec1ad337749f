"""The HTTP side: who may do what, replayed and forged webhooks, metrics, health."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.errors import ConfigError
from otel_straggler.model.fleet_reports import FleetReport
from otel_straggler.otlp.report_sender import ReportSender
from otel_straggler.supervisor.causes import MAX_ALERTS
from otel_straggler.supervisor.service import Supervisor
from otel_straggler.supervisor.settings import load_settings

from ..collector.authorities import Authority
from ..waiting import eventually
from .served import CONFIG, TOKENS, Served
from .supervised import NOW_S, Remembering, alert_json, webhook

GPU = alert_json("GpuXid", node="a", xid="79")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    result = Served(tmp_path)
    yield result
    result.supervisor.stop()


MATRIX = {
    ("POST", "/v1/alerts"): {"ingest", "admin"},
    ("POST", "/v1/reports"): {"ingest", "admin"},
    ("GET", "/v1/status"): {"read", "operate", "admin"},
    ("GET", "/metrics"): {"read", "operate", "admin"},
    ("POST", "/v1/stop"): {"operate", "admin"},
    ("POST", "/v1/resume"): {"operate", "admin"},
    ("POST", "/v1/hosts"): {"operate", "admin"},
    ("GET", "/healthz"): {"ingest", "read", "operate", "admin", "", "no-such-token-at-all"},
}


def test_each_path_is_open_to_its_roles_alone(served: Served) -> None:
    """401 without a credential that is known, 403 without the role; before the body is read."""
    paths = served.supervisor._api.paths
    assert {path for _, path in MATRIX} == set(paths)
    for (method, path), allowed in MATRIX.items():
        body = {} if method == "POST" else None
        for role in (*TOKENS, "", "no-such-token-at-all"):
            status, _ = served.ask(method, path, body, role=role)
            if role in allowed:
                assert status in (200, 400), (path, role)
            else:
                assert status == (403 if role in TOKENS else 401), (path, role)
    assert served.executor.performed == []


def test_a_forged_webhook_does_nothing_and_is_counted(served: Served) -> None:
    """Without a token, with a wrong one, with a fingerprint that is not that of its labels."""
    assert served.ask("POST", "/v1/alerts", webhook(GPU))[0] == 401
    assert served.ask("POST", "/v1/alerts", webhook(GPU), role="x" * 32)[0] == 401
    forged = {**GPU, "labels": {**GPU["labels"], "node": "b"}}
    answer = served.ask("POST", "/v1/alerts", webhook(forged), role="ingest")
    assert answer == (200, {"outcomes": {"fingerprint": 1}})
    assert served.ignored() == {"unauthenticated": 2, "fingerprint": 1}
    assert served.executor.performed == []


def test_a_replayed_webhook_does_nothing_and_is_counted(served: Served) -> None:
    """Also after a restart, with other annotations, and one of long ago."""
    acted = served.ask("POST", "/v1/alerts", webhook(GPU), role="ingest")
    assert acted == (200, {"outcomes": {"replace_host": 1}})
    eventually(lambda: len(served.executor.performed) == 2)
    replayed = {**GPU, "annotations": {"summary": "again"}, "generatorURL": "http://elsewhere"}
    old = alert_json("GpuXid", at_s=NOW_S - 86_400, node="b", xid="79")
    for _ in range(2):
        answer = served.ask("POST", "/v1/alerts", webhook(replayed, old), role="ingest")
        assert answer == (200, {"outcomes": {"known": 1, "stale": 1}})
        assert served.ignored() == {"known": 1, "stale": 1}
        served.supervisor.stop()
        served.start()
    assert len(served.executor.performed) == 2


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"version": "3", "alerts": []}', b"\xff\xfe", b"[" * 100_000]
)
def test_a_malformed_webhook_is_refused_with_a_reason(served: Served, body: bytes) -> None:
    """400, which Alertmanager does not send again."""
    status, answer = served.ask("POST", "/v1/alerts", body, role="ingest")
    assert status == 400
    assert "expected" in answer["error"]
    assert served.ignored() == {"malformed": 1}


def test_a_webhook_is_as_large_as_its_alerts(served: Served) -> None:
    """A thousand with the annotations of a collector are taken."""
    alerts = [alert_json("Other", node=f"n{n}", text="x" * 1_000) for n in range(MAX_ALERTS)]
    status, answer = served.ask("POST", "/v1/alerts", webhook(*alerts), role="ingest")
    assert (status, answer) == (200, {"outcomes": {"no_rule": MAX_ALERTS}})


@pytest.mark.parametrize(
    ("body", "status", "headers", "why"),
    [
        (b" " * 9_000_000, 413, {}, "the body is larger than"),
        (webhook(*[GPU] * (MAX_ALERTS + 1)), 400, {}, f"a list of at most {MAX_ALERTS}"),
        (webhook(GPU), 415, {"Content-Type": "text/plain"}, "only application/json"),
        ({**webhook(GPU), "version": "5"}, 400, {}, "webhook: version"),
    ],
)
def test_alerts_that_are_refused_as_a_whole_are_counted_and_logged(
    served: Served,
    caplog: pytest.LogCaptureFixture,
    body: Any,
    status: int,
    headers: dict[str, str],
    why: str,
) -> None:
    """Alertmanager does not send them again, so nothing else says that they are lost."""
    assert served.ask("POST", "/v1/alerts", body, role="ingest", **headers)[0] == status
    assert served.ignored() == {"malformed": 1}
    [line] = [each for each in caplog.messages if "nothing follows from it" in each]
    assert line.startswith("a request of ingest to /v1/alerts")
    assert why in line


def test_alerts_that_alertmanager_left_out_are_logged(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """And those that came are decided about; of a flood of such lines ten are logged."""
    for _ in range(30):
        served.ask("POST", "/v1/alerts", {**webhook(GPU), "truncatedAlerts": 7}, role="ingest")
    assert served.executor.performed
    assert len([each for each in caplog.messages if "lacks alerts (max_alerts): 7" in each]) == 11


def test_a_page_in_a_browser_cannot_command(served: Served) -> None:
    """Neither one of another origin, nor one under a foreign name, nor a form."""
    asked = {"reason": "x"}
    for headers in ({"Origin": "http://elsewhere"}, {"Host": "elsewhere:9470"}):
        assert served.ask("POST", "/v1/stop", asked, role="operate", **headers)[0] == 403
    form = {"Content-Type": "text/plain"}
    assert served.ask("POST", "/v1/stop", asked, role="operate", **form)[0] == 415
    assert served.ask("GET", "/v1/stop", role="operate")[0] == 405
    assert served.ask("GET", "/v1/nothing", role="operate")[0] == 404
    assert not served.supervisor.engine.fleet.is_stopped


def test_a_token_for_some_runs_is_for_no_others(served: Served) -> None:
    """Nor for none, nor for a host that another run is on."""
    with (served.folder / "grants").open("a") as grants:
        grants.write("ingest team-a token:token-of-team-a-0123456789 runs=team-a/\n")
    served.supervisor.stop()
    served.start()
    own = {"kind": "rank_hung", "attempt": 0, "at_unix_s": NOW_S, "run_id": "team-a/1"}
    served.ask("POST", "/v1/hosts", {"name": "a", "state": "running"}, role="operate")
    other = {**own, "kind": "agent_started", "id": "0", "run_id": "team-b/1", "node": "b"}
    assert served.ask("POST", "/v1/reports", other, role="ingest")[0] == 200
    token = "token-of-team-a-0123456789"

    def outcome(**change: object) -> object:
        body = {**own, "id": "1", "node": "a", **change}
        return served.ask("POST", "/v1/reports", body, role=token)[1]["outcome"]

    assert outcome(run_id="team-b/1") == "forbidden"
    assert outcome(node="b") == "forbidden"
    answer = served.ask("POST", "/v1/alerts", webhook(GPU), role=token)
    assert answer == (200, {"outcomes": {"forbidden": 1}})
    assert outcome() == "forbidden", "no run of theirs is known to be there"
    assert outcome(kind="agent_started", id="2") == "no_rule"
    assert outcome() == "restart_in_job"
    assert served.ignored() == {"forbidden": 4, "no_rule": 2}


def test_tls_is_as_in_the_collector(tmp_path: Path) -> None:
    """Reports and commands trust its authority by SSL_CERT_FILE."""
    authority = Authority(tmp_path)
    (tmp_path / "supervisor.yaml").write_text(
        CONFIG.format(folder=tmp_path) + f"tls: {{cert_file: {authority.cert_file}}}\n"
    )
    (tmp_path / "grants").write_text("read read token:0123456789abcdef\n")
    supervisor = Supervisor(load_settings(tmp_path / "supervisor.yaml"), executor=Remembering())
    address = supervisor.start()
    try:
        connection = http.client.HTTPSConnection(address, context=authority.context(), timeout=10)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()
    finally:
        supervisor.stop()


def test_reports_come_with_the_sender_of_the_agents(served: Served, tmp_path: Path) -> None:
    """With its token file; each is acted upon once."""
    token = tmp_path / "token"
    token.write_text(TOKENS["ingest"])
    sender = ReportSender(f"http://{served.address}", str(token))
    report = FleetReport(
        kind="rank_hung", id="1", run_id="r", attempt=0, node="a", rank=1, at_unix_s=NOW_S
    )
    sender.send(report)
    sender.send(report)
    sender.close(10.0)
    assert sender.counts["sent"] == 2
    eventually(lambda: served.executor.performed)
    assert served.executor.performed == [("restart_in_job", "a")]
    assert served.ignored() == {"known": 1}


def test_people_stop_it_and_it_stays_stopped_over_a_restart(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """Who and why is shown, and audited."""
    stopped = served.ask("POST", "/v1/stop", {"reason": "new switches"}, role="operate")
    assert stopped == (
        200, {"stopped": {"reason": "new switches", "by": "operate", "at_unix_s": NOW_S}},
    )  # fmt: skip
    served.supervisor.stop()
    served.start()
    answer = served.ask("POST", "/v1/alerts", webhook(GPU), role="ingest")
    assert answer[1] == {"outcomes": {"stopped": 1}}
    assert served.ask("GET", "/v1/status", role="read")[1]["stopped"]["by"] == "operate"
    assert served.ask("POST", "/v1/resume", {}, role="operate")[1]["was_stopped"] is True
    answer = served.ask("POST", "/v1/alerts", webhook(GPU), role="ingest")
    assert answer[1] == {"outcomes": {"replace_host": 1}}
    assert served.ask("POST", "/v1/stop", {}, role="operate")[0] == 400


def test_a_status_has_hosts_and_decisions(served: Served) -> None:
    """The newest first; a repaired host is a spare again."""
    served.ask("POST", "/v1/alerts", webhook(GPU), role="ingest")
    eventually(lambda: served.supervisor.engine.unfinished() == 0)
    marked = served.ask("POST", "/v1/hosts", {"name": "a", "state": "spare"}, role="operate")
    assert marked == (200, {"name": "a", "state": "spare"})
    assert served.ask("POST", "/v1/hosts", {"name": "a", "state": "x"}, role="operate")[0] == 400
    status = served.ask("GET", "/v1/status", role="read")[1]
    assert {host["name"]: host["state"] for host in status["hosts"]} == {
        "a": "spare", "b": "running", "s": "running",
    }  # fmt: skip
    (decision,) = status["decisions"]
    assert (decision["action"], decision["status"], decision["host"]) == (
        "replace_host", "done", "a",
    )  # fmt: skip


def test_health_is_that_of_the_thread_that_acts(served: Served) -> None:
    """A supervisor that does nothing any more says so."""
    assert served.ask("GET", "/healthz") == (200, {"status": "ok"})
    served.supervisor.engine.close(10.0)
    assert served.ask("GET", "/healthz")[0] == 503


@pytest.mark.parametrize(
    "name", ["a,b", "n[1-4]", "ALL", "localhost", "-a", "a b", "a\n", "n\u2011"]
)
def test_a_name_that_can_be_no_host_is_not_marked(served: Served, name: str) -> None:
    """As a spare it would be in the way of each replacement, and cordoned it would hide that nobody
    knows which hosts are."""
    for state in ("spare", "cordoned"):
        asked = {"name": name, "state": state}
        status, answer = served.ask("POST", "/v1/hosts", asked, role="operate")
        assert (status, "expected the name of one host" in answer["error"]) == (400, True)
    assert (
        served.ask("POST", "/v1/hosts", {"name": name, "state": "gone"}, role="operate")[0] == 200
    )
    assert "unknown" in served.ask("GET", "/v1/status", role="read")[1]
    assert set(served.supervisor.engine.fleet.hosts) == {"a", "b", "s"}
    served.ask("POST", "/v1/alerts", webhook(GPU), role="ingest")
    assert served.supervisor.engine.fleet.state_of("s") == "running"


@pytest.mark.parametrize("name", ["a,b", "n[1-4]", "ALL"])
def test_a_file_names_one_host_at_a_time(tmp_path: Path, name: str) -> None:
    (tmp_path / "supervisor.yaml").write_text(f'fleet: {{hosts: {{"{name}": spare}}}}')
    with pytest.raises(ConfigError, match="each of one host"):
        load_settings(tmp_path / "supervisor.yaml")
