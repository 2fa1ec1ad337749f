"""Events of a launcher: lines of JSON, log records, metrics, reports."""

from __future__ import annotations

import json
import math
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from otel_straggler import semconv
from otel_straggler.client.endpoints import logs_endpoint, resolve_endpoints
from otel_straggler.config import Endpoint
from otel_straggler.errors import InputError
from otel_straggler.launcher.events import (
    Exit,
    failures_text,
    in_order_of_blame,
    parse_event,
    read_error_file,
)
from otel_straggler.launcher.launch import Launcher
from otel_straggler.launcher.reports import EventLog, SupervisorReports, Telemetry
from otel_straggler.model.fleet_reports import FleetReport
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.model.rank_failure import RankFailure
from otel_straggler.testing import CapturedRequests

from ..waiting import eventually

STARTED = LaunchEvent(
    name="straggler.attempt.started",
    at_unix_s=1_700_000_000.5,
    node="node-0",
    run_id="r",
    attempt=1,
    ranks=(2, 3),
    text="attempt 1 of r started",
)
KILLED = LaunchEvent(
    name="straggler.rank.exited",
    at_unix_s=1_700_000_001.5,
    node="node-0",
    run_id="r",
    attempt=1,
    rank=3,
    pid=77,
    exit_code=-9,
    reason="SIGKILL",
    text="rank 3 ended by SIGKILL",
)


def test_an_event_is_one_line_that_reads_back_as_it_was() -> None:
    for event in (STARTED, KILLED):
        assert "\n" not in event.to_json()
        assert parse_event(event.to_json()) == event


@pytest.mark.parametrize("line", ["", "[]", "{}", '{"name": "x"}', "\0", "[" * 100_000])
def test_another_line_is_refused(line: str) -> None:
    """A rank may have inherited the pipe; what it writes is no event."""
    with pytest.raises(InputError, match="not used"):
        parse_event(line)


def test_the_rank_that_was_killed_is_blamed_before_those_that_failed_with_it() -> None:
    exits = {0: Exit(1), 1: Exit(-15), 2: Exit(-9)}
    assert failures_text(exits).startswith("rank 2 ended by SIGKILL, rank 0 ended with exit code 1")


def test_the_rank_that_raised_is_blamed_before_those_that_lost_it() -> None:
    """By the time at which it raised, and although its process ended last, by the launcher's
    signal. An exception that says that a peer is gone comes after the signal that killed it."""
    raised = RankFailure(kind="raised", type="ValueError", message="bad sample 17")
    lost = RankFailure(kind="lost_peer", type="RuntimeError", message="Connection closed by peer")
    exits = {0: Exit(-6), 1: Exit(-15, raised, 8.0), 2: Exit(1, raised, 9.0), 3: Exit(1, lost, 7.0)}
    assert failures_text(exits) == (
        "rank 1 raised ValueError: bad sample 17, rank 2 raised ValueError: bad sample 17, "
        "rank 0 ended by SIGABRT, rank 3 ended with exit code 1: RuntimeError: Connection closed "
        "by peer"
    )
    assert in_order_of_blame({0: Exit(1, lost, 7.0), 1: Exit(-9)}) == [1, 0]


def test_events_are_kept_in_a_file_and_a_full_disk_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.add(STARTED)
    log.add(KILLED)
    names = [json.loads(line)["name"] for line in log.path.read_text().splitlines()]
    assert names == [STARTED.name, KILLED.name]
    assert log.next_attempt("r") == 2, "a requeued job goes on counting"
    assert log.next_attempt("another run in this folder") == 0
    lost = EventLog(tmp_path / "no-folder" / "events.jsonl")
    lost.add(STARTED)
    lost.add(KILLED)
    assert len(caplog.messages) == 1


def test_an_event_is_a_log_record_with_name_reason_and_rank() -> None:
    """And what was counted is a metric of the node's first rank, which a collector passes on."""
    with CapturedRequests() as sink:
        endpoints = resolve_endpoints({}, sink.url)
        telemetry = Telemetry(endpoints, {semconv.SERVICE_NAME: "train"})
        telemetry.start()
        telemetry.add(STARTED)
        telemetry.add(KILLED)
        telemetry.close()
        requests = [
            ExportLogsServiceRequest.FromString(r.body) for r in sink.requests if "logs" in r.path
        ]
        exits = sink.points(semconv.RUN_RANK_EXITS)
    records = [q.resource_logs[0].scope_logs[0].log_records[0] for q in requests]
    assert [record.event_name for record in records] == [STARTED.name, KILLED.name]
    assert [record.body.string_value for record in records] == [STARTED.text, KILLED.text]
    attributes = {a.key: a.value for a in records[1].attributes}
    assert attributes[semconv.RANK].int_value == 3
    assert attributes[semconv.LAUNCH_REASON].string_value == "SIGKILL"
    assert semconv.EXIT_CODE not in attributes, "a signal is no exit code"
    about = {a.key: a.value.string_value for a in requests[1].resource_logs[0].resource.attributes}
    assert (about[semconv.RUN_ID], about[semconv.HOST_NAME]) == ("r", "node-0")
    assert exits[-1].value == 1.0
    assert exits[-1].attributes == {semconv.REASON: "SIGKILL"}
    assert exits[-1].resource[semconv.RANK] == 2


def test_an_event_that_nobody_takes_is_sent_again() -> None:
    """A collector that restarts misses none."""
    with CapturedRequests() as sink:
        sink.behaviour.next_statuses = [503, 503]
        telemetry = Telemetry(resolve_endpoints({}, sink.url), {})
        telemetry.start()
        telemetry.add(KILLED)
        eventually(lambda: any(r.answered == 200 for r in list(sink.requests) if "logs" in r.path))
        telemetry.close()


def test_an_event_that_cannot_be_sent_keeps_no_other_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its thread ended, and nobody was told."""
    record = Telemetry._record

    def failing(event: LaunchEvent) -> Any:
        return record(event) if event is KILLED else 1 / 0

    monkeypatch.setattr(Telemetry, "_record", staticmethod(failing))
    with CapturedRequests() as sink:
        telemetry = Telemetry(resolve_endpoints({}, sink.url), {})
        telemetry.start()
        for event in (STARTED, STARTED, KILLED):
            telemetry.add(event)
        eventually(lambda: any("logs" in request.path for request in list(sink.requests)))
        telemetry.close()
    assert caplog.text.count("an event of the launcher is not sent: ZeroDivisionError") == 1


class Sink:
    """Fails as often as it is asked."""

    def __init__(self) -> None:
        self.events: list[LaunchEvent] = []

    def add(self, event: LaunchEvent) -> None:
        self.events.append(event)
        raise UnicodeEncodeError("utf-8", event.text, 0, 1, "surrogates not allowed")


@pytest.mark.parametrize(
    "line", ["x", "{}", "[" * 100_000, KILLED.to_json().replace('"attempt": 1', '"attempt": "1"')]
)
def test_torchrun_never_waits_for_who_reads_its_events(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line that is no event, and a place that cannot keep one, do not end the thread."""
    launcher = Launcher.__new__(Launcher)
    launcher._run_id, launcher._next_attempt, launcher._progress = "", 0, None
    failing, keeping = Sink(), Sink()
    keeping.add = keeping.events.append  # type: ignore[method-assign]
    launcher._sinks, launcher._failed = [failing, keeping], set()
    reading, writing = os.pipe()
    thread = threading.Thread(target=launcher._read, args=(reading,))
    thread.start()
    with os.fdopen(writing, "w") as pipe:
        pipe.write("\n".join([line, STARTED.to_json(), KILLED.to_json()]) + "\n")
    thread.join()
    assert failing.events == keeping.events == [STARTED, KILLED]
    printed = capsys.readouterr().err
    assert printed.count("events are not kept by Sink: UnicodeEncodeError") == 1
    assert len(printed.splitlines()) == 2


@pytest.mark.parametrize("at", [10**400, "x", None, [], {}])
def test_the_time_of_an_error_file_may_be_anything(at: object) -> None:
    """Written by a rank, and read where torchrun watches all of them."""
    more = {"otel_straggler": {"kind": "raised", "at_unix_s": at}, "timestamp": at}
    read = read_error_file({"message": {"message": "ValueError: bad", "extraInfo": more}})
    assert read[0] is not None
    assert read[1] == math.inf


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ("http://c:4318/v1/metrics", "http://c:4318/v1/logs"),
        ("http://c/otlp/v1/metrics", "http://c/otlp/v1/logs"),
    ],
)
def test_log_records_go_where_metrics_go(metrics: str, expected: str) -> None:
    assert logs_endpoint(Endpoint(url=metrics)).url == expected


def test_exits_and_ends_of_attempts_are_reported_to_a_supervisor() -> None:
    """Starts are not: it has nothing to do then."""

    class Sender:
        def __init__(self) -> None:
            self.sent: list[FleetReport] = []

        def send(self, report: FleetReport) -> None:
            self.sent.append(report)

    sender = Sender()
    reports = SupervisorReports(sender)  # type: ignore[arg-type]
    reports.add(STARTED)
    reports.add(KILLED)
    (report,) = sender.sent
    assert (report.kind, report.rank, report.reason) == ("rank_exited", 3, "SIGKILL")
    assert (report.run_id, report.attempt, report.node) == ("r", 1, "node-0")
