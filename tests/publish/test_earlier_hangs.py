"""What is told of hangs that are over."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from otel_straggler.collector.views.hang_json import (
    earlier_hangs_json,
    hang_of_before,
    what_came_then,
    why_it_hung,
)
from otel_straggler.detect.hangs.episodes import Hang

from .run_view import made

LOST = Hang(
    since_s=1_790_000_000.0,
    detected_s=1_790_000_020.0,
    seen_s=1_790_002_399.0,
    until_s=1_790_002_400.0,
    end="went_on",
    kind="lost",
    culprits=(5,),
    nodes=("node-1",),
    n_culprits=1,
    gpu_seconds_lost=19_200.0,
)


def test_a_hang_is_told_with_all_that_a_person_asks() -> None:
    """When, for how long, because of whom, what it cost, how it was over."""
    reported = json.loads(json.dumps(hang_of_before(LOST), allow_nan=False))
    assert reported["sentence"] == "Rank 5 on node-1 was silent."
    assert reported["then"] == "it resumed on its own"
    assert (reported["since_s"], reported["duration_s"]) == (1_790_000_000.0, 2_400.0)
    assert (reported["culprits"], reported["nodes"], reported["why"]) == ([5], ["node-1"], "lost")
    assert (reported["gpu_seconds_lost"], reported["is_end_seen"]) == (19_200.0, True)


@pytest.mark.parametrize(
    ("changes", "printed"),
    [
        (
            {"culprits": (4, 5), "nodes": ("a", "a"), "n_culprits": 2},
            "Ranks 4, 5 on a were silent.",
        ),
        ({"culprits": (4, 5), "nodes": ("a", "b"), "n_culprits": 2}, "Ranks 4, 5 were silent."),
        (
            {"culprits": tuple(range(20)), "nodes": ("a",) * 20, "n_culprits": 64},
            "Ranks 0, 1, 2, 3 and 60 more were silent.",
        ),
        ({"kind": "never_joined"}, "Rank 5 on node-1 did not join the others."),
        ({"kind": "left_early"}, "Rank 5 on node-1 exited before the others."),
        ({"how": "goes_on"}, "Rank 5 on node-1 was silent; the others kept training."),
        (
            {"kind": "joined_but_stuck", "culprits": (), "n_culprits": 0},
            "No rank made progress.",
        ),
        ({"kind": None, "culprits": (), "n_culprits": 0}, "The run made no progress."),
    ],
)
def test_why_it_hung_is_told_in_the_past(changes: dict[str, object], printed: str) -> None:
    """Whom it waited for, as far as it was known."""
    assert why_it_hung(replace(LOST, **changes)) == printed


def test_what_nobody_saw_is_not_claimed() -> None:
    """An end while no collector looked, one that nobody heard of, a cost that nobody knows."""
    missed = replace(LOST, is_end_seen=False)
    assert what_came_then(missed) == "it resumed on its own while no collector was running"
    open_end = replace(LOST, until_s=None, end=None)
    assert what_came_then(open_end) == "its end was not observed"
    assert hang_of_before(open_end)["is_end_seen"] is False
    assert hang_of_before(replace(LOST, how="unheard"))["gpu_seconds_lost"] is None


def test_many_brief_hangs_are_told_in_sum() -> None:
    """Of saves that take a bit longer than the timeout; the hour among them stands alone. Who is
    waited for in most of them is said."""
    brief = replace(LOST, until_s=LOST.since_s + 45.0, gpu_seconds_lost=360.0)
    alike = replace(brief, kind="joined_but_stuck", culprits=(), nodes=(), n_culprits=0)
    result = replace(made.result_of(), before=(brief, alike, brief, LOST, brief))
    reported = json.loads(json.dumps(earlier_hangs_json(result), allow_nan=False))
    assert [hang["is_brief"] for hang in reported["earlier"]] == [True, False, True, True, True]
    in_sum = reported["earlier_brief"]
    assert in_sum["sentence"] == (
        "4 shorter than 2 min, 3 min in total; 3 of them caused by rank 5 on node-1."
    )
    assert (in_sum["n"], in_sum["duration_s"], in_sum["gpu_seconds_lost"]) == (4, 180.0, 1440.0)
    more = earlier_hangs_json(replace(result, before_left_out=70))["earlier_brief"]
    assert more["sentence"].startswith("74 shorter than 2 min, at least 3 min in total")
    assert more["is_all"] is False


def test_a_few_brief_hangs_stand_each_for_itself() -> None:
    """Nor are those that were left out called brief where none that is kept is."""
    brief = replace(LOST, until_s=LOST.since_s + 45.0)
    for before, left_out in (((brief,) * 3, 0), ((LOST,) * 30, 9), ((), 0)):
        reported = earlier_hangs_json(
            replace(made.result_of(), before=before, before_left_out=left_out)
        )
        assert reported["earlier_brief"] is None
        assert not any(hang["is_brief"] for hang in reported["earlier"])
        assert reported["earlier_left_out"] == left_out
