"""What is told of hangs that are over."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from otel_straggler.publish.earlier_hangs import hang_of_before, what_came_then, why_it_hung
from otel_straggler.score.hangs.episodes import Hang

LOST = Hang(
    since_s=1_790_000_000.0,
    found_s=1_790_000_020.0,
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
    told = json.loads(json.dumps(hang_of_before(LOST), allow_nan=False))
    assert told["sentence"] == "Rank 5 on node-1 was silent."
    assert told["then"] == "it went on by itself"
    assert (told["since_s"], told["duration_s"]) == (1_790_000_000.0, 2_400.0)
    assert (told["culprits"], told["nodes"], told["why"]) == ([5], ["node-1"], "lost")
    assert (told["gpu_seconds_lost"], told["is_end_seen"]) == (19_200.0, True)


@pytest.mark.parametrize(
    ("changes", "said"),
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
        ({"kind": "left_early"}, "Rank 5 on node-1 had ended before the others."),
        ({"how": "goes_on"}, "Rank 5 on node-1 was silent; the others went on."),
        (
            {"kind": "joined_but_stuck", "culprits": (), "n_culprits": 0},
            "All ranks waited, and none got on.",
        ),
        ({"kind": None, "culprits": (), "n_culprits": 0}, "Nothing got on."),
    ],
)
def test_why_it_hung_is_told_in_the_past(changes: dict[str, object], said: str) -> None:
    """Whom it waited for, as far as it was known."""
    assert why_it_hung(replace(LOST, **changes)) == said


def test_what_nobody_saw_is_not_claimed() -> None:
    """An end while no collector looked, one that nobody heard of, a cost that nobody knows."""
    missed = replace(LOST, is_end_seen=False)
    assert what_came_then(missed) == "it went on by itself while no collector looked"
    open_end = replace(LOST, until_s=None, end=None)
    assert what_came_then(open_end) == "its end was not seen"
    assert hang_of_before(open_end)["is_end_seen"] is False
    assert hang_of_before(replace(LOST, how="unheard"))["gpu_seconds_lost"] is None
