"""Reports of nodes reach the supervisor once it is there, under the id that they were given."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from otel_straggler.errors import ConfigError, InputError
from otel_straggler.model.fleet_reports import (
    FleetReport,
    new_report_id,
    read_report,
    report_json,
)
from otel_straggler.otlp import report_sender
from otel_straggler.otlp.report_sender import ReportSender

from ..servers.receiver import CLOSE, Receiver
from ..waiting import eventually

REPORT = FleetReport(
    kind="rank_hung", id="r-1", run_id="llama", attempt=2, node="n1", rank=7, at_unix_s=1.79e9,
    reason="heartbeat_timeout", text="no progress for 62 s in forward",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_sender, "retry_delay_s", lambda *_: 0.0)


def test_a_report_is_read_as_it_was_written() -> None:
    """Also one about no rank."""
    about_a_node = dataclasses.replace(REPORT, rank=None, kind="agent_started")
    assert read_report(report_json(REPORT)) == REPORT
    assert read_report(report_json(about_a_node)) == about_a_node
    assert new_report_id() != new_report_id()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"kind": "rank_slow"}, "one of rank_hung, rank_exited"),
        ({"id": ""}, "a text of 1 to 256"),
        ({"node": None}, "a text of 1 to 256"),
        ({"node": "x" * 257}, "a text of 1 to 256"),
        ({"rank": -1}, "a whole number"),
        ({"rank": True}, "a whole number"),
        ({"attempt": 1.5}, "a whole number"),
        ({"at_unix_s": "now"}, "seconds since 1970"),
        ({"reason": 5}, "a text"),
    ],
)
def test_a_wrong_report_is_an_error_that_names_the_field(
    change: dict[str, object], expected: str
) -> None:
    """And what was expected."""
    body = json.dumps({**json.loads(report_json(REPORT)), **change}).encode()
    with pytest.raises(InputError, match=f"report: {next(iter(change))}: got .*{expected}"):
        read_report(body)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1" * 5_000])
def test_what_is_no_number_of_json_is_no_report(number: str) -> None:
    """Python reads the first two, and ends with a ValueError of its own for the last."""
    body = json.dumps({**json.loads(report_json(REPORT)), "at_unix_s": 0}).encode()
    body = body.replace(b'"at_unix_s": 0', f'"at_unix_s": {number}'.encode())
    with pytest.raises(InputError, match=r"report: body: got .*expected a JSON object with kind"):
        read_report(body)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"x"', b"[" * 100_000])
def test_what_is_no_object_is_no_report(body: bytes) -> None:
    """Whatever it is."""
    with pytest.raises(InputError, match="a JSON object with kind, id"):
        read_report(body)


def test_names_of_a_report_are_safe_to_show() -> None:
    """No control characters, no mentions."""
    body = {**json.loads(report_json(REPORT)), "node": "n\x1b[2J", "text": "<!channel> look"}
    report = read_report(json.dumps(body).encode())
    assert report.node == "n\N{REPLACEMENT CHARACTER}[2J"
    assert "<!" not in report.text


def test_a_report_is_sent_again_until_the_supervisor_has_it(tmp_path: Path) -> None:
    """It was away, then it refused a token that has been renewed since."""
    token = tmp_path / "token"
    token.write_text("a-token-of-letters\n")
    with Receiver(CLOSE, 503, 401) as receiver:
        sender = ReportSender(receiver.url, str(token))
        sender.send(REPORT)
        eventually(lambda: sender.counts["sent"])
        sender.close()
    assert [each.path for each in receiver.received] == ["/v1/reports"]
    assert receiver.received[0].body == json.loads(report_json(REPORT))
    assert receiver.received[0].headers["authorization"] == "Bearer a-token-of-letters"
    assert {each.body["id"] for each in receiver.refused} == {"r-1"}


def test_a_report_that_is_refused_does_not_hold_up_the_others() -> None:
    """400 is for good."""
    with Receiver(400) as receiver:
        sender = ReportSender(receiver.url)
        sender.send(REPORT)
        sender.send(dataclasses.replace(REPORT, id="r-2"))
        eventually(lambda: sender.counts["sent"])
        sender.close()
    assert [each.body["id"] for each in receiver.received] == ["r-2"]
    assert (sender.counts["refused"], sender.counts["sent"]) == (1, 1)


def test_without_a_supervisor_reports_wait_within_a_bound(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The oldest give way, and the rest is counted at the end."""
    monkeypatch.setattr(report_sender, "MAX_WAITING", 3)
    sender = ReportSender("http://127.0.0.1:9", str(tmp_path / "missing"))
    for number in range(5):
        sender.send(dataclasses.replace(REPORT, id=f"r-{number}"))
    sender.close(0.0)
    sender.close(0.0)
    assert sender.counts == {"dropped": 5}


def test_an_agent_says_again_that_it_is_there_when_it_had_nothing_to_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under the same id and with the time as it is then; nothing else is sent again."""
    monkeypatch.setattr(report_sender, "RENEW_S", 0.05)
    started = dataclasses.replace(REPORT, kind="agent_started", id="start", rank=None)
    with Receiver() as receiver:
        sender = ReportSender(receiver.url)
        sender.keep(started)
        sender.send(REPORT)
        eventually(lambda: sender.counts["sent"] >= 4)
        sender.close()
    ids = [each.body["id"] for each in receiver.received]
    assert ids[:2] == ["start", "r-1"]
    assert set(ids[2:]) == {"start"}
    assert receiver.received[0].body["at_unix_s"] == REPORT.at_unix_s
    assert receiver.received[3].body["at_unix_s"] != receiver.received[2].body["at_unix_s"]


def test_the_environment_names_the_supervisor() -> None:
    """Nothing is sent where it names none; a wrong URL is an error."""
    assert report_sender.report_sender({}) is None
    with pytest.raises(ConfigError, match="OTEL_STRAGGLER_SUPERVISOR: got 'host:1'"):
        report_sender.report_sender({"OTEL_STRAGGLER_SUPERVISOR": "host:1"})
    with Receiver() as receiver:
        sender = report_sender.report_sender({"OTEL_STRAGGLER_SUPERVISOR": receiver.url})
        assert sender is not None
        sender.send(REPORT)
        sender.close()
    assert len(receiver.received) == 1
