"""The lowest scores of a run, as alerts look at them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from otel_straggler import semconv
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.collector.metrics.score_series import RunScores
from otel_straggler.collector.views.alert_input import newest_scores
from otel_straggler.collector.views.run_view import NewestScores
from otel_straggler.model.observation import Section
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores

from .watched_world import WatchedWorld

KEEP_S = 900.0


def window(
    ranks: int = 4, sections: tuple[Section, ...] = (Section("forward"),), **changes: Any
) -> WindowScores:
    """All ranks at 1.0 in everything; ``changes`` are tables, or fields of the window."""
    shape = (ranks, len(sections))
    group = changes.pop("group", "")
    sources = tuple(
        Source(run_id="run", rank=r, group=group, node=f"n{r}", role="r") for r in range(ranks)
    )
    reported: dict[str, Any] = {
        "run_id": "run",
        "job": "job",
        "group": group,
        "attempt": 0,
        "first_step": 0,
        "last_step": 3,
        "start_ns": 1,
        "end_ns": 2,
        "n_steps": 4,
        "sources": sources,
        "sections": sections,
        "section_median_s": np.ones(shape),
        "section_step_s": np.ones(shape),
        "section_own_s": np.ones(shape),
        "section_count": np.ones(shape, np.int64),
        "section_relative": np.ones(shape),
        "section_individual": np.ones(shape),
        "section_slowdown": np.ones(shape),
        "gpu_relative": np.full(ranks, np.nan),
        "gpu_individual": np.full(ranks, np.nan),
        "gpu_section_relative": np.full(shape, np.nan),
        "gpu_section_individual": np.full(shape, np.nan),
        "stragglers": (),
        "largest_excess": None,
        "world_size": ranks,
        "missing_ranks": (),
        "duplicates": 0,
        "superseded": 0,
        "closed_by": "complete",
    }
    return WindowScores(**{**reported, **changes})


def newest(*windows: WindowScores, at_s: float = 1.0) -> dict[str, NewestScores]:
    scores = RunScores("run", keep_s=KEEP_S)
    for number, each in enumerate(windows):
        scores.observe(each, at_s + number)
    return newest_scores(scores, AlertSettings())


def test_the_lowest_of_each_rank_come_first_with_their_section() -> None:
    """Those that are near a threshold or below; the GPU's are of whole ranks."""
    names = (Section("forward"), Section("data", "data"))
    its = newest(
        window(
            2,
            names,
            section_relative=np.array([[0.9, 0.4], [0.6, 0.95]]),
            section_individual=np.array([[0.7, 1.0], [1.0, 1.0]]),
            gpu_relative=np.array([0.8, 0.5]),
        )
    )[""].lowest
    relative = [(s.rank, s.section, s.value) for s in its.section_relative]
    assert relative == [(0, "data", 0.4), (1, "forward", 0.6)]
    assert (its.section_individual[0].rank, its.section_individual[0].value) == (0, 0.7)
    assert [(s.rank, s.section, s.value) for s in its.gpu_relative] == [(1, "", 0.5), (0, "", 0.8)]
    assert (its.section_relative[0].node, its.section_relative[0].role) == ("n0", "r")


def test_sections_that_are_never_listed_are_left_out() -> None:
    """A rank that waits long is a victim."""
    names = (Section("forward"), Section("allreduce", "wait"), Section("save", "checkpoint"))
    its = newest(window(2, names, section_relative=np.full((2, 3), 0.1)))[""].lowest
    assert [(s.rank, s.section) for s in its.section_relative] == [(0, "forward"), (1, "forward")]


def test_what_is_not_known_is_left_out() -> None:
    """NaN is no score."""
    its = newest(window(2, section_relative=np.array([[np.nan], [0.5]])))[""].lowest
    assert [s.rank for s in its.section_relative] == [1]
    assert newest(window(2, sections=()))[""].lowest.section_relative == ()


@pytest.mark.parametrize("ranks", [5, 1_000])
def test_all_that_are_low_are_kept_of_however_many_ranks(ranks: int) -> None:
    """And of the others those that are near: one that is named stays named a little longer."""
    values = np.linspace(1.0, 0.1, ranks)[:, None]
    its = newest(window(ranks, section_relative=values))[""].lowest
    kept = [(s.rank, s.value) for s in its.section_relative]
    assert kept == [(r, values[r, 0]) for r in reversed(range(ranks)) if values[r, 0] < 0.875]


def test_a_rank_is_degraded_only_if_most_others_have_not_lost_as_much() -> None:
    """Where all have moved together it is not the rank; the section says how far they have."""
    together = np.array([[0.6], [0.61], [0.59], [0.6]])
    its = newest(window(section_individual=together))[""].lowest
    assert its.section_individual == ()
    [speed] = its.speeds
    assert (speed.section, speed.ranks, speed.below) == ("forward", 4, 4)
    assert speed.median == pytest.approx(0.6)
    assert speed.is_low(0.75)
    by_itself = np.array([[0.6], [0.61], [0.4], [0.6]])
    its = newest(window(section_individual=by_itself))[""].lowest
    assert [s.rank for s in its.section_individual] == [2]
    half = np.array([[0.6], [1.0], [0.6], [1.0]])
    its = newest(window(section_individual=half))[""].lowest
    assert [s.rank for s in its.section_individual] == [0, 2]
    assert not its.speeds[0].is_low(0.75)


def test_a_degraded_rank_says_what_its_best_was_and_when() -> None:
    """In the section in which it is slowest."""
    names = (Section("forward"), Section("backward"))
    its = newest(
        window(
            3,
            names,
            section_individual=np.array([[1.0, 1.0], [0.7, 0.5], [1.0, 1.0]]),
            section_best_s=np.array([[1.0, 1.0], [0.2, 0.0702], [1.0, 1.0]]),
            section_best_at_s=np.full((3, 2), 1_795_788_180.0),
        )
    )[""].lowest
    [score] = its.section_individual
    assert (score.rank, score.section) == (1, "backward")
    assert score.best_text == "Its best was 70.2ms, at 2026-11-27 14:03 UTC."


def test_a_rank_that_is_not_in_the_newest_window_keeps_its_scores() -> None:
    """As its series do."""
    both = window(3, section_relative=np.array([[0.5], [0.9], [0.3]]))
    one = window(2, section_relative=np.array([[0.8], [0.7]]))
    result = newest(both, one, at_s=5.0)[""]
    its = result.lowest
    assert result.at_s == 6.0
    assert [(s.rank, s.value) for s in its.section_relative] == [(2, 0.3), (1, 0.7), (0, 0.8)]


def test_a_window_by_time_adds_what_has_no_step() -> None:
    """And nothing that the window by step has."""
    timed = {"first_step": None, "last_step": None}
    names = (Section("forward"), Section("loader", "data"))
    its = newest(
        window(1, section_relative=np.array([[0.5]])),
        window(1, names, section_relative=np.array([[0.1, 0.2]]), **timed),
    )[""].lowest
    assert [(s.section, s.value) for s in its.section_relative] == [("loader", 0.2)]


def test_the_time_of_the_last_score_outlives_the_scores() -> None:
    """That there are none any more is what an alert wants to say."""
    scores = RunScores("run", keep_s=KEEP_S)
    scores.observe(window(group="a"), 5.0)
    assert scores.expire(5.0 + KEEP_S + 1.0)
    its = newest_scores(scores, AlertSettings())["a"]
    assert (its.at_s, its.lowest.section_relative) == (5.0, ())


def test_what_is_watched_is_what_the_series_show(kit: Any) -> None:
    """The same numbers for the collector's own alerts and for Prometheus' rules."""
    world = WatchedWorld(kit.settings(), 4)
    for rank in range(4):
        seconds = {"forward": 0.2 if rank == 3 else 0.1, "data": 0.1}
        world.take(kit.spans_of(world.source("", rank), range(12), seconds))
    world.now_s += 1.0
    world.look()
    page = world.worker.snapshot.page.decode()
    shown = {
        (int(sample.labels["rank"]), sample.labels["section"]): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == semconv.SECTION_RELATIVE.prometheus_name
    }
    assert len(shown) == 8
    low = {key: value for key, value in shown.items() if value < 0.875}
    assert {(s.rank, s.section): s.value for s in world.run().scores.section_relative} == low
    (scored_at_s,) = set(world.by("rank", semconv.RANK_LAST_SCORED).values())
    assert world.run().last_scored_at_s == scored_at_s
    lowest = world.run().scores.section_relative[0]
    assert (lowest.rank, lowest.section) == (3, "forward")


def test_a_new_window_is_seen_at_once(kit: Any) -> None:
    """What is kept from look to look is dropped when scores change."""
    world = WatchedWorld(kit.settings(), 2)
    for first, slow in ((0, 0.2), (12, 0.4)):
        for rank in range(2):
            times = {"forward": slow if rank == 1 else 0.1}
            world.take(kit.spans_of(world.source("", rank), range(first, first + 12), times))
        world.now_s += 1.0
        world.look()
        world.look()
        assert world.run().scores.section_relative[0].value == pytest.approx(0.1 / slow, rel=0.01)


def test_verdicts_clashes_and_losses_are_watched(kit: Any, by_hand: Any, monkeypatch: Any) -> None:
    """Of their group only; who is silenced is not among them."""
    world = WatchedWorld(kit.settings(), {"": 2, "critic": 1})
    run_verdicts = by_hand.run_verdicts(
        by_hand.verdict(),
        by_hand.verdict(subject_id="gpu:GPU-6"),
        by_hand.verdict(subject_id="gpu:GPU-7", group="critic"),
        worlds=(by_hand.world(slowdown=1.3),),
    )
    run_verdicts = dataclasses.replace(run_verdicts, silenced=frozenset({"gpu:GPU-6"}))
    publisher = world.worker._publisher
    monkeypatch.setattr(publisher, "_run_verdicts", lambda *_: run_verdicts)
    clash = world.source("critic", 0)
    monkeypatch.setattr(publisher, "_clashes", lambda *_: (clash, clash))
    world.live(5.0)
    for rank in range(2):
        world.say(rank, dropped={"ring_full": 3 + rank, "rejected": 1})
    world.look()
    mine, critic = world.run(), world.run("critic")
    assert [v.subject_id for v in mine.verdicts] == ["gpu:GPU-5"]
    assert [v.subject_id for v in critic.verdicts] == ["gpu:GPU-7"]
    assert (mine.slowdown, np.isnan(critic.slowdown)) == (1.3, True)
    assert (mine.clashes, critic.clashes) == (1, 1)  # of the run, as in its series
    assert world.value(semconv.RUN_IDENTITY_CLASHES) == 1
    assert (mine.dropped, critic.dropped) == ({"ring_full": 7, "rejected": 2}, {})
