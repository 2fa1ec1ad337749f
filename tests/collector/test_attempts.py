"""What launchers report, as attempts of a run."""

from __future__ import annotations

from typing import Any

from otel_straggler.collector.views.attempts import MAX_ATTEMPTS, launches_json
from otel_straggler.model.launch_event import LaunchEvent


def started(attempt: int, at_s: float, node: str = "a", job: int = 1) -> LaunchEvent:
    return LaunchEvent(
        name="straggler.attempt.started", at_unix_s=at_s, node=node, attempt=attempt, job=job
    )


def ended(
    attempt: int, at_s: float, reason: str, node: str = "a", text: str = "", **more: Any
) -> LaunchEvent:
    return LaunchEvent(
        name="straggler.attempt.ended",
        at_unix_s=at_s,
        node=node,
        attempt=attempt,
        reason=reason,
        text=text,
        **more,
    )


def test_an_attempt_begins_with_its_first_node_and_ends_with_its_last() -> None:
    """And the node that failed says why; the others only followed it."""
    shown = launches_json(
        [
            started(0, 100.0),
            started(0, 101.0, "b"),
            ended(0, 200.0, "SIGTERM", "a", "rank 0 ended by SIGTERM"),
            ended(0, 201.0, "SIGKILL", "b", "rank 3 ended by SIGKILL, rank 2 ended by SIGTERM"),
            started(1, 205.0),
            started(1, 206.0, "b"),
        ]
    )
    assert shown is not None
    assert shown["restarts"] == 1
    assert shown["attempts"] == [
        {
            "attempt": 0,
            "job": 1,
            "nodes": ["a", "b"],
            "started_at_s": 100.0,
            "ended_at_s": 201.0,
            "reason": "SIGKILL",
            "text": "rank 3 ended by SIGKILL, rank 2 ended by SIGTERM",
        },
        {
            "attempt": 1,
            "job": 1,
            "nodes": ["a", "b"],
            "started_at_s": 205.0,
            "ended_at_s": None,
            "reason": None,
            "text": None,
        },
    ]
    assert shown["text"] == "after rank 3 ended by SIGKILL, rank 2 ended by SIGTERM"


def test_an_attempt_goes_on_while_one_of_its_nodes_has_not_ended_it() -> None:
    shown = launches_json([started(0, 1.0), started(0, 1.0, "b"), ended(0, 9.0, "exit_0")])
    assert shown is not None
    (attempt,) = shown["attempts"]
    assert (attempt["ended_at_s"], attempt["reason"]) == (None, "exit_0")
    assert shown["text"] is None


def test_an_end_whose_begin_was_not_seen_is_known_by_its_end() -> None:
    """A collector that started later."""
    shown = launches_json([ended(4, 9.0, "exit_1", text="rank 0 ended with exit code 1")])
    assert shown is not None
    assert (shown["restarts"], shown["text"]) == (4, "")
    (attempt,) = shown["attempts"]
    assert (attempt["started_at_s"], attempt["ended_at_s"]) == (None, 9.0)


def test_only_the_newest_attempts_are_shown() -> None:
    shown = launches_json([started(each, float(each)) for each in range(50)])
    assert shown is not None
    assert shown["restarts"] == 49
    assert [each["attempt"] for each in shown["attempts"]] == list(range(50))[-MAX_ATTEMPTS:]


def test_a_run_without_a_launcher_has_no_attempts_to_show() -> None:
    job = LaunchEvent(name="straggler.job.started", at_unix_s=1.0, node="a")
    assert launches_json([]) is None
    assert launches_json([job]) is None
