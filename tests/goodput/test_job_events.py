"""Event logs of jobs: read, accounted for, written, and the goodput of checkpoints alone."""

import pytest

from otel_straggler.errors import InputError
from otel_straggler.goodput.account import account
from otel_straggler.goodput.activities import STEP, Activities, Activity
from otel_straggler.goodput.checkpoint_formula import checkpoint_goodput
from otel_straggler.goodput.job_events import (
    JobEvent,
    activities_of_events,
    event_line,
    events_of_activities,
    in_order,
    parse_event_line,
    parse_event_lines,
)

MINUTE = 60 * 10**9
EXAMPLE = (
    # minute, type, step, minutes that it took
    (0, "job_started", -1, -1),
    (5, "checkpoint_loaded", 25, -1),
    (55, "step_finished", 50, -1),
    (60, "checkpoint_saved", 50, -1),
    (100, "step_finished", 70, -1),
    (100, "job_terminated", -1, -1),
    (115, "job_started", -1, -1),
    (120, "checkpoint_loaded", 50, -1),
    (195, "step_finished", 75, -1),
    (200, "checkpoint_saved", 75, -1),
    (200, "job_terminated", -1, -1),
)
"""The worked example of resiliency.goodput_measure: 2 minutes a step, then 3."""
WITH_LENGTHS = tuple(
    (minute, what, step, 5 if what.startswith("checkpoint") else -1)
    for minute, what, step, _ in EXAMPLE
    if what != "step_finished"
)
"""The same with the lengths of saving and loading instead of finished steps."""
TABLE = {
    "productive": 100,
    "checkpoint_load": 10,
    "redone": 40,
    "restart": 15,
    "checkpoint": 10,
    "slow_steps": 25,
}


def events(rows) -> list[JobEvent]:
    return [
        JobEvent(minute * MINUTE, what, step, 0, max(-1, length * MINUTE), "job")
        for minute, what, step, length in rows
    ]


def minutes(of: Activities, reference_s: float | None = 120.0) -> dict[str, float]:
    result = account(of, reference_step_s=reference_s)
    assert result is not None
    pairs = zip(result.categories, result.run_ns.tolist(), strict=True)
    return {name: ns / MINUTE for name, ns in pairs if ns}


@pytest.mark.parametrize("rows", [EXAMPLE, WITH_LENGTHS], ids=["finished_steps", "lengths"])
def test_the_worked_example_gives_its_table(rows) -> None:
    """200 minutes = 100 + 10 + 40 + 15 + 10 + 25: goodput is 50 %."""
    assert minutes(activities_of_events(events(rows))) == TABLE
    assert sum(TABLE.values()) == 200


def test_checkpoints_alone_give_the_same_goodput_for_the_worked_example() -> None:
    result = checkpoint_goodput(events(EXAMPLE), 120.0)
    assert result.goodput == 0.5
    assert (result.total_s, result.effective_s) == (12_000.0, 6_000.0)
    assert (result.min_loaded_step, result.max_saved_step) == (25, 75)


def test_checkpoints_alone_count_as_the_calculator_does() -> None:
    """Starts of several nodes are one; a request for the run is implied; step 0 is no load."""
    log = [
        JobEvent(0, "job_started"),
        JobEvent(3 * 10**9, "job_started", node_rank=1),
        JobEvent(5 * 10**9, "checkpoint_loaded", 0),
        JobEvent(45 * 10**9, "checkpoint_saved", 20),
        JobEvent(50 * 10**9, "job_terminated"),
    ]
    result = checkpoint_goodput(log, 1.0)
    assert (result.events, result.started, result.loaded, result.saved) == (5, 1, 0, 1)
    assert (result.total_s, result.goodput) == (50.0, 0.4)


def test_without_a_saved_checkpoint_its_goodput_is_not_known() -> None:
    result = checkpoint_goodput(events(EXAMPLE[:3]), 120.0)
    assert result.goodput != result.goodput
    assert result.effective_s == 0.0


def test_a_saved_step_below_a_loaded_one_is_no_progress() -> None:
    log = [JobEvent(0, "checkpoint_loaded", 9), JobEvent(10**9, "checkpoint_saved", 3)]
    assert checkpoint_goodput(log, 1.0).goodput == 0.0


def test_time_before_the_first_process_is_scheduling_and_after_the_last_shutdown() -> None:
    log = [JobEvent(0, "user_scheduled"), *events((row[0] + 10, *row[1:]) for row in EXAMPLE)]
    log.append(JobEvent(215 * MINUTE, "user_terminated"))
    assert minutes(activities_of_events(log)) == {**TABLE, "scheduling": 10, "shutdown": 5}


def test_an_attempt_that_never_reported_its_end_ends_with_its_last_event() -> None:
    log = [event for event in events(EXAMPLE) if event.at_ns != 100 * MINUTE]
    without_redone = {name: length for name, length in TABLE.items() if name != "redone"}
    assert minutes(activities_of_events(log)) == {**without_redone, "restart": 55}


def test_events_become_activities_and_the_same_events_again() -> None:
    log = events(WITH_LENGTHS)
    assert events_of_activities(activities_of_events(log), "job") == in_order(log)


def test_a_checkpoint_without_a_step_is_of_the_steps_begun_before_it() -> None:
    rows = [
        *(Activity(STEP, k * 10, k * 10 + 9, 0, 0, k) for k in range(5)),
        Activity("checkpoint", 45, 49, 0, 0),
        Activity("checkpoint_load", 0, 0, 0, 0),
    ]
    log = events_of_activities(Activities.of(rows), "j")
    kinds = [(event.event_type, event.step) for event in log]
    assert kinds == [
        ("job_started", -1),
        ("checkpoint_loaded", 0),
        ("checkpoint_saved", 5),
        ("job_terminated", -1),
    ]


@pytest.mark.parametrize("event", events((*EXAMPLE, *WITH_LENGTHS)), ids=str)
def test_lines_are_read_as_they_were_written(event: JobEvent) -> None:
    assert parse_event_line(event_line(event), "log:1") == event


def test_a_line_of_the_original_is_read() -> None:
    line = (
        '{"timestamp": "2025-09-27T04:51:35.775347", "job_name": "n1", '
        '"event_type": "checkpoint_saved", "step": 500}'
    )
    event = parse_event_line(line, "log:1")
    assert event == JobEvent(1_758_948_695_775_347_000, "checkpoint_saved", 500, job_name="n1")


def test_an_event_of_another_type_is_none() -> None:
    line = '{"timestamp": "2025-09-27T04:51:35", "event_type": "coffee"}'
    assert parse_event_line(line, "log:1") is None


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "{}",
        '{"event_type": "job_started", "timestamp": "yesterday"}',
        '{"event_type": "job_started"}',
        '{"event_type": "checkpoint_saved", "timestamp": "2025-09-27T04:51:35", "step": -1}',
        '{"event_type": "checkpoint_saved", "timestamp": "2025-09-27T04:51:35", "step": true}',
        '{"event_type": "job_started", "timestamp": "2025-09-27T04:51:35", "duration_s": "x"}',
        '{"event_type": ["x"], "timestamp": "2025-09-27T04:51:35"}',
    ],
)
def test_a_line_that_is_no_event_is_refused_with_its_place(line: str) -> None:
    with pytest.raises(InputError, match="log:7"):
        parse_event_line(line, "log:7")


@pytest.mark.parametrize(
    "stamp",
    [
        "2026-11-24T10:00:00",
        "2026-11-24T10:00:00.000001",
        "2026-11-24T10:00:00.5",
        "2026-11-24T10:00:00Z",
        "2026-11-24T10:00:00.12345Z",
        "2026-11-24T12:00:00-05:00",
    ],
)
def test_lines_that_are_read_together_give_what_they_give_one_by_one(stamp: str) -> None:
    lines = [
        b'{"timestamp": "%s", "event_type": "checkpoint_saved", "step": %d, "duration_s": 0.5}\n'
        % (stamp.encode(), step)
        for step in range(3)
    ]
    lines[1:1] = [b"\n", b'{"timestamp": "2026-11-24T10:00:01", "event_type": "other"}\n']
    each = [parse_event_line(line, "log:1") for line in lines if line != b"\n"]
    together, others = parse_event_lines(lines, "log", 1)
    assert together == [event for event in each if event is not None]
    assert (len(together), others) == (3, 1)


@pytest.mark.parametrize(
    "line",
    [b"{}\n", b"nothing\n", b"{}, {}\n", b'{"timestamp": "x", "event_type": "job_started"}\n'],
)
def test_a_line_that_is_no_event_is_named_by_its_number(line: bytes) -> None:
    good = b'{"timestamp": "2026-11-24T10:00:01", "event_type": "job_started"}\n'
    with pytest.raises(InputError, match=r"log:13"):
        parse_event_lines([good, b" \n", good, line, good], "log", 10)
