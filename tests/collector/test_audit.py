"""The audit trail: a line for each change, few for a flood of refusals; and as OTLP logs."""

from __future__ import annotations

import json
import logging

import pytest

from otel_straggler.collector.access.audit import Audit
from otel_straggler.collector.access.roles import NOBODY, Peer, Principal

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
    """With the number of those that were left out."""
    now = [0.0]
    audit = Audit(monotonic_s=lambda: now[0])
    for _ in range(1_000):
        audit.refused(NOBODY, PEER, "POST /v1/decisions", 401)
    before = len(caplog.messages)
    assert before <= 12
    now[0] = 60.0
    audit.refused(NOBODY, PEER, "POST /v1/decisions", 401)
    assert caplog.messages[before].endswith(f"not_logged_before={1_000 - before}")


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
