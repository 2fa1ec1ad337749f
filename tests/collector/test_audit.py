"""The audit trail: a line for each change, few for a flood of refusals; and as OTLP logs."""

from __future__ import annotations

import json
import logging

import pytest

from otel_straggler.collector.access.audit import Audit
from otel_straggler.collector.access.refusals import REASONS
from otel_straggler.collector.access.roles import NOBODY, Peer, Principal
from otel_straggler.log_lines import formatter

ALICE = Principal(name="alice", role="operate")
PEER = Peer(address="10.0.0.9:5000")


def test_a_line_says_who_from_where_and_what(caplog: pytest.LogCaptureFixture) -> None:
    """Values are JSON, so that nobody writes a second line, or another name, into one."""
    caplog.set_level(logging.INFO, "otel_straggler.audit")
    body = b'{"reason": "x"}\n2026 audit: who="bob"'
    Audit().changed(ALICE, PEER, "POST /v1/decisions", 200, body)
    [line] = caplog.messages
    assert line.startswith(
        'audit: who="alice" role="operate" from="10.0.0.9:5000" what="POST /v1/decisions" '
        'status=200 body="{\\"reason\\": '
    )
    assert "\n" not in line


def test_a_flood_of_refusals_is_a_line_in_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    """With the number of those that were left out; it hides no refusal of another sender, or for
    another reason. All are counted."""
    now = [0.0]
    audit = Audit(monotonic_s=lambda: now[0])
    for _ in range(1_000):
        audit.refused(NOBODY, PEER, "POST /v1/decisions", 401, "no_credential")
    before = len(caplog.messages)
    assert before <= 12
    now[0] = 60.0
    audit.refused(NOBODY, PEER, "POST /v1/decisions", 401, "no_credential")
    assert caplog.messages[before].endswith(f"not_logged_before={1_000 - before}")
    now[0] = 60.1
    team = Principal(name="team-b", role="ingest", runs="team-b/")
    audit.refused(team, PEER, "POST /v1/traces", 403, "run", 'team-a/"7"')
    audit.refused(NOBODY, PEER, "POST /v1/decisions", 401, "unknown_credential")
    assert caplog.messages[before + 1].endswith(
        'what="POST /v1/traces" status=403 reason="run" run="team-a/\\"7\\""'
    )
    assert len(caplog.messages) == before + 3
    counts = audit.refusals.counts()
    assert counts == {
        **dict.fromkeys(REASONS, 0),
        "no_credential": 1_001,
        "unknown_credential": 1,
        "run": 1,
    }


def test_a_refusal_is_shown_for_two_minutes_to_those_whose_runs_it_is_about() -> None:
    """Who may see all, sees all; a team sees what was tried with its runs, and what its own senders
    were refused. A stranger's scan is one line, whatever it tried."""
    now = [0.0]
    audit = Audit(monotonic_s=lambda: now[0])
    team_b = Principal(name="job-b", role="ingest", runs="team-b/")
    reader_b = Principal(name="bob", role="read", runs="team-b/")
    audit.refused(team_b, PEER, "POST /v1/traces", 403, "run", "team-a/7")
    audit.refused(reader_b, PEER, "GET /v1/run", 404, "run", "team-a/8")
    audit.refused(reader_b, PEER, "POST /v1/decisions", 403, "role")
    for path in ("a", "b", "c"):
        audit.refused(NOBODY, PEER, f"POST /v1/{path}", 401, "no_credential")
    foreign = "its grant does not cover the run that it names (run)"
    written, read, changed, scanned = every = audit.refusals.problems()
    assert written == f"job-b was refused POST /v1/traces of run 'team-a/7': {foreign}"
    assert read == f"bob was refused GET /v1/run of run 'team-a/8': {foreign}"
    assert changed.startswith("bob was refused POST /v1/decisions: the role of its grant does")
    assert scanned.startswith("somebody without a known credential was refused POST /v1/a: ")
    assert audit.refusals.problems("team-a/") == every[:2]
    assert audit.refusals.problems("team-b/") == every[:1]
    assert audit.refusals.problems("team-c/") == ()
    now[0] = 121.0
    assert audit.refusals.problems() == ()


def test_of_many_refusals_the_newest_ten_are_shown() -> None:
    """And how many there are beside them."""
    audit = Audit()
    for number in range(1_100):
        who = Principal(name=f"job-{number}", role="ingest")
        audit.refused(who, PEER, "POST /v1/decisions", 403, "role")
    *shown, more = audit.refusals.problems()
    assert [each.split()[0] for each in shown] == [f"job-{n}" for n in range(1_090, 1_100)]
    assert more == "990 others were refused something in the last two minutes"


def test_a_line_is_an_otlp_log_record_too() -> None:
    """In OTLP's JSON, which protobuf reads."""
    from google.protobuf.json_format import Parse
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    sent: list[bytes] = []
    Audit(sent.append, wall_ns=lambda: 5).changed(ALICE, PEER, "POST /v1/x", 200, b"{}")
    request = Parse(sent[0], ExportLogsServiceRequest())
    [record] = request.resource_logs[0].scope_logs[0].log_records
    attributes = {each.key: each.value.string_value for each in record.attributes}
    assert (attributes["audit.who"], attributes["audit.status"]) == ("alice", "200")
    assert record.time_unix_nano == 5
    assert json.loads(sent[0])


FORGED = '2026-01-01T00:00:00.000+00:00 WARNING audit: who="alice" role="admin"'
BREAKS = {
    "a line feed": "\n",
    "a return": "\r",
    "both": "\r\n",
    "a form feed": "\f",
    "the next line": "\x85",
    "a line separator": "\u2028",
    "an escape": "\x1b[2K\x1b[1G",
    "a bidirectional override": "\u202e",
    "backspaces": "\b" * 80,
    "NUL": "\0",
}


@pytest.mark.parametrize("what", BREAKS)
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_text_from_outside_begins_no_line_of_the_log(what: str, log_format: str) -> None:
    """In a message, in what is logged of an error, and in the text of an error below it."""
    outside = f"x{BREAKS[what]}{FORGED}"
    try:
        raise ValueError(outside)
    except ValueError as error:
        record = logging.makeLogRecord(
            {"levelname": "INFO", "msg": "the shard %s: %s", "args": (outside, error)}
        )
        plain = formatter(log_format).format(record)
        record.exc_info = (ValueError, error, error.__traceback__)
        with_traceback = formatter(log_format).format(record)
    assert len(plain.splitlines()) == 1
    assert plain.isprintable()
    first, *below = with_traceback.split("\n")
    assert not first.startswith(FORGED)
    assert all(line.startswith("  ") and line.isprintable() for line in below)
    assert (log_format == "text") == bool(below)
    for line in (first, *below):
        assert len(line.splitlines()) == 1
