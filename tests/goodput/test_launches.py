"""Events of launchers: as activities, and as the reasons of disruptions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from otel_straggler import semconv
from otel_straggler.errors import InputError
from otel_straggler.goodput.account import account
from otel_straggler.goodput.activities import STEP, Activities, Activity, joined
from otel_straggler.goodput.launches import activities_of_launches, disruptions, events_by_run
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.otlp.decode_logs import decode_launch_events
from otel_straggler.otlp.encode_events import EventRecord, encode_event

S = 10**9


def event(name: str, at_s: float, **values: Any) -> LaunchEvent:
    known = {"node": "a", "run_id": "r", **values}
    return LaunchEvent(name=f"straggler.{name}", at_unix_s=at_s, **known)  # type: ignore[arg-type]


def crash() -> list[LaunchEvent]:
    """Two nodes of a rank each: b fails, a follows; the second attempt ends well."""
    return [
        event("job.started", 0.0, run_id=""),
        event("attempt.started", 5.0, ranks=(0,)),
        event("attempt.started", 5.5, node="b", ranks=(1,)),
        event("attempt.ended", 20.0, reason="membership", text="nodes have changed"),
        event("rank.exited", 19.0, node="b", rank=1, reason="SIGKILL"),
        event("attempt.ended", 19.5, node="b", reason="SIGKILL", text="rank 1 ended by SIGKILL"),
        event("attempt.started", 24.0, attempt=1, ranks=(0,)),
        event("attempt.started", 24.0, node="b", attempt=1, ranks=(1,)),
        event("attempt.ended", 40.0, attempt=1, reason="exit_0"),
        event("attempt.ended", 40.0, node="b", attempt=1, reason="exit_0"),
        event("job.ended", 41.0, attempt=1, reason="exit_0"),
    ]


def steps(attempt: int, first_ns: int, numbers: range) -> list[Activity]:
    """Of two seconds, on both ranks."""
    return [
        Activity(STEP, at_ns, at_ns + 2 * S, rank, attempt, number)
        for rank in range(2)
        for number, at_ns in zip(numbers, range(first_ns, first_ns + 99 * S, 2 * S))  # noqa: B905
    ]


def test_time_outside_of_steps_is_named_by_what_the_launcher_reports() -> None:
    [events] = events_by_run(crash()).values()
    rows = Activities.of([*steps(0, 8 * S, range(4)), *steps(1, 26 * S, range(3, 9))])
    result = account(joined([rows, activities_of_launches(events)]))
    assert result is not None
    seconds = {name: result.of(name) / S for name in result.categories if result.of(name)}
    assert seconds == {
        "productive": 18.0,
        "scheduling": 5.0,
        "start_up": 3.0,
        "hang": 4.0,
        "restart": 4.0,
        "reinitialization": 2.0,
        "redone": 2.0,
        "shutdown": 3.0,
    }
    [disruption] = disruptions(result, events)
    assert disruption[:4] == (0, 19_500_000_000, "SIGKILL", "rank 1 ended by SIGKILL")
    assert (disruption.recovery_ns, disruption.redone_ns) == (10 * S, 2 * S)


def test_without_a_launcher_a_disruption_has_no_reason() -> None:
    rows = Activities.of([*steps(0, 8 * S, range(4)), *steps(1, 26 * S, range(3, 9))])
    result = account(rows)
    assert result is not None
    assert [each[:4] for each in disruptions(result, [])] == [(0, 16 * S, "", "")]


def test_an_event_that_came_before_the_run_had_a_name_belongs_to_the_next_of_its_node() -> None:
    other = [replace(each, run_id=each.run_id and "s", at_unix_s=99.0) for each in crash()]
    by_run = events_by_run([*crash(), *crash(), *other, event("job.started", 999.0, run_id="")])
    assert {run_id: len(events) for run_id, events in by_run.items()} == {"r": 11, "s": 11}
    assert by_run["r"][0].run_id == "r"


def test_an_attempt_without_an_end_lives_as_long_as_its_spans() -> None:
    events = [each for each in crash() if each.at_unix_s <= 5.5]
    result = account(
        joined([Activities.of(steps(0, 8 * S, range(4))), activities_of_launches(events)])
    )
    assert result is not None
    assert (result.end_ns, result.of("hang"), result.of("shutdown")) == (16 * S, 0, 0)


@pytest.mark.parametrize("is_json", [False, True])
def test_an_event_is_read_as_it_was_sent(is_json: bool) -> None:
    sent = event("rank.exited", 19.0, rank=3, pid=77, exit_code=1, reason="exit_1", text="boom",
                 attempt=2, job=4, ranks=(2, 3))  # fmt: skip
    record = EventRecord(
        name=sent.name,
        at_unix_s=sent.at_unix_s,
        text=sent.text,
        attributes={
            semconv.LAUNCH_JOB: 4,
            semconv.LAUNCH_REASON: "exit_1",
            semconv.LAUNCH_NODE_RANKS: "2, 3",
            semconv.RANK: 3,
            semconv.PROCESS_PID: 77,
            semconv.EXIT_CODE: 1,
        },
    )
    resource = {semconv.HOST_NAME: "a", semconv.RUN_ID: "r", semconv.RUN_ATTEMPT: 2}
    body = encode_event(record, resource=resource)
    if is_json:
        request = ExportLogsServiceRequest.FromString(body)
        body = MessageToJson(request, use_integers_for_enums=True).encode()
    assert decode_launch_events(body, is_json=is_json) == (sent,)


def test_log_records_of_others_are_left_out() -> None:
    record = EventRecord(name="app.started", at_unix_s=1.0, text="hello")
    assert decode_launch_events(encode_event(record, resource={})) == ()
    assert decode_launch_events(b"\xff no request at all") == ()
    with pytest.raises(InputError, match="ExportLogsServiceRequest"):
        decode_launch_events(b"\xff otel_straggler")
