"""Since when a run stands still, and what it costs: the same in all parts of a picture."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from otel_straggler.collector.views.answer import answer_of
from otel_straggler.collector.views.heat import heat_json
from otel_straggler.collector.views.numbers import duration
from otel_straggler.collector.views.run_json import run_json, scalars_of
from otel_straggler.collector.views.run_view import RunView
from otel_straggler.collector.views.snapshot import Snapshot
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.detect.hangs.states import HangKind, RunState

from . import made


def hung(
    kind: HangKind | None,
    state: RunState = "stuck",
    culprits: tuple[int, ...] = (5,),
    **heartbeats: Any,
) -> WorldView:
    """8 ranks that hang since 90 s by the judge; ``heartbeats`` are ages by rank."""
    return made.seen(
        hang=made.result_of(8, state, kind, culprits),
        heartbeats=made.heartbeats_of(made.table_of(), **heartbeats),
    )


def ages(all_s: float, **others: float) -> np.typing.NDArray[np.float64]:
    result = np.full(8, all_s)
    for rank, age_s in others.items():
        result[int(rank[1:])] = age_s
    return result


def test_a_hang_counts_from_the_last_progress_and_not_from_when_it_was_judged() -> None:
    """Also where some stopped earlier: the run stands still since the last one did."""
    seen = hung("never_joined", progress_age_s=ages(120.0, r2=128.0, r5=125.0))
    answer = answer_of(seen)
    assert answer["since_s"] == made.NOW_S - 120
    assert answer["sentence"].endswith("8 GPUs have been idle for 2 min.")
    assert answer_of(made.without_gpus(seen))["sentence"].endswith(
        "8 ranks have been idle for 2 min."
    )


def test_what_it_costs_is_told_alike_everywhere() -> None:
    """Eight GPUs stand idle, which is in the total already; all of the time is lost."""
    seen = replace(
        hung("never_joined", progress_age_s=ages(120.0)),
        run_verdicts=made.run_verdicts(world=made.summary(gpu_seconds_lost=963.0)),
    )
    expected = {"gpu_seconds_lost_per_hour": 28_800.0, "gpu_seconds_lost": 963.0}
    assert answer_of(seen)["cost"] == expected
    run = run_json(seen)
    assert {name: run[name] for name in expected} == expected
    names = ("waste", "slowdown", "m_w")
    assert [run[name] for name in names] == [1.0, None, None]
    view = RunView(run_id="run", run_verdicts=seen.run_verdicts, _worlds={"": seen})
    report = json.loads(Snapshot(runs={"run": view}).report())["runs"]["run"]["run"]
    assert [report[name] for name in names] == [1.0, None, None]
    assert report["gpu_seconds_lost"] == 963.0
    assert scalars_of(seen)["gpu_seconds_lost_per_hour"] == 28_800.0


def test_a_rank_that_only_does_not_report_costs_nothing() -> None:
    """The others train on for longer than it is silent: none of them waits for it."""
    seen = hung(
        "lost",
        "partly_lost",
        heartbeat_age_s=ages(1.0, r5=65.0),
        progress_age_s=ages(0.5, r5=66.0),
    )
    answer = answer_of(seen)
    assert "1 min 5 s; the other ranks keep training" in answer["sentence"]
    assert "idle" not in answer["sentence"]
    assert answer["since_s"] == made.NOW_S - 65
    assert answer["cost"] == {"gpu_seconds_lost_per_hour": None, "gpu_seconds_lost": 3.0}
    assert "doctor" in answer["advice"][0]
    assert run_json(seen)["waste"] == pytest.approx(0.0099)


def test_a_rank_that_died_is_waited_for() -> None:
    """The others came a little further than its last word, and stopped."""
    seen = hung(
        "lost",
        "partly_lost",
        heartbeat_age_s=ages(1.0, r5=65.0),
        progress_age_s=ages(60.0, r5=66.0),
    )
    result = seen.standstill
    assert result is not None
    assert (result.how, result.n_idle, result.idle_s) == ("idle", 8, 60.0)


def test_of_a_run_that_is_silent_altogether_nobody_knows_whether_it_waits() -> None:
    seen = hung("lost", "lost", tuple(range(8)), heartbeat_age_s=ages(30.0, r3=29.0))
    answer = answer_of(seen)
    assert answer["since_s"] == made.NOW_S - 29
    assert answer["sentence"].startswith("All 8 ranks: no heartbeats. This has lasted 29 s")
    assert "dead, or cut off" in answer["sentence"]
    assert answer["cost"]["gpu_seconds_lost_per_hour"] is None


def test_without_signs_the_judge_is_believed() -> None:
    seen = made.seen(hang=made.result_of(8, "stuck", "never_joined", [5]), heartbeats=None)
    assert answer_of(seen)["since_s"] == made.NOW_S - 90


def test_a_run_that_gets_on_does_not_stand_still() -> None:
    assert made.seen().standstill is None
    assert made.seen(hang=None).standstill is None


def test_a_hang_without_a_culprit_hatches_nobody() -> None:
    """All have joined: the words must not point at a worker."""
    result = heat_json(hung("joined_but_stuck", culprits=()))
    assert (result["pattern"], result["silent"]) == ("silent", [])
    assert result["pattern_text"].startswith("All workers wait")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, "less than 1 s"),
        (59.7, "1 min"),
        (3599.8, "1 h"),
        (86_399.0, "1 d"),
        (90_000.0, "1 d 1 h"),
    ],
)
def test_a_length_of_time_never_has_sixty_of_a_unit(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected
