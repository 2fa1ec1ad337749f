"""Work and waiting in one section: nobody stands out there, and nothing may sound as if all were
well."""

from __future__ import annotations

import math

import numpy as np
import pytest

from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.model.observation import Floats
from otel_straggler.model.verdict import Verdict, WorldSummary
from tests.score.verdicts.worlds import Sections, by_hand, made, usual, with_waiting

RANKS, SLOW = 16, 5
WHOLE: Sections = (("step", "compute"),)


def whole_steps(*, slow_from: int, apart: float = 2e-4) -> Floats:
    """(T, R, 1) seconds of a section that holds all of the step; ``apart`` is what clocks see."""
    work_s = usual(120, RANKS)[..., :2]
    work_s[slow_from:, SLOW, 1] *= 1.5
    seconds = with_waiting(work_s).sum(axis=2, keepdims=True)
    return np.asarray(seconds * np.exp(np.random.default_rng(1).normal(0.0, apart, seconds.shape)))


def reported(
    seconds: Floats, sections: Sections = WHOLE
) -> tuple[WorldSummary, tuple[Verdict, ...]]:
    judge = VerdictEngine()
    for table in by_hand(seconds, sections):
        judge.observe(table)
    judge.finish()
    summary = judge.summary()
    assert summary is not None
    return summary, judge.changes


@pytest.mark.parametrize("slow_from", [0, 200])
def test_where_all_wait_inside_the_only_section_it_is_told(slow_from: int) -> None:
    """With or without a slow rank, for that is what nobody can tell; nor is anything that rests on
    differences between ranks."""
    summary, changes = reported(whole_steps(slow_from=slow_from))
    assert (summary.waits_inside, changes) == ("step", ())
    rests = (summary.resolvable_slowdown, summary.slowdown, summary.waste, summary.m_w)
    assert all(map(math.isnan, rests))
    assert summary.step_s > 1.0


def test_a_rank_that_becomes_slow_there_is_no_uniform_slowdown() -> None:
    """All take longer because one does: what all share is not where to look."""
    _, changes = reported(whole_steps(slow_from=60))
    assert {change.cause for change in changes} == {"unknown"}
    newest = changes[-1]
    assert (newest.state, newest.is_localised, newest.pages) == ("suspect", False, False)
    assert "cannot localize, with work and waiting of all ranks in step" in newest.sentence


def test_ranks_that_differ_as_devices_do_are_not_said_to_wait() -> None:
    """By half a per cent, with steps that vary together by far more."""
    longer = np.exp(np.random.default_rng(2).normal(0.0, 0.2, (120, 1, 1)))
    summary, _ = reported(whole_steps(slow_from=200, apart=0.005) * longer)
    assert (summary.waits_inside, summary.waits_unseen) == ("", True)


def test_ranks_that_are_alike_in_steps_that_are_alike_are_not_said_to_wait() -> None:
    """Nothing varies, so nothing says that it varies together."""
    assert reported(np.ones((120, RANKS, 1)))[0].waits_inside == ""


def test_where_the_waiting_has_a_section_of_its_own_it_is_seen() -> None:
    """And the all-clear is one; where backward holds it, its behavior shows that, and work, too."""
    assert (
        reported(usual(120, RANKS), (("data", "data"), ("f", "compute"), ("sync", "wait")))[
            0
        ].waits_inside
        == ""
    )
    for timing, inside in (("local", ""), ("synchronised", "backward")):
        judge = VerdictEngine()
        for table in made("dp16", timing=timing):
            judge.observe(table)
        summary = judge.summary()
        assert summary is not None
        assert (summary.waits_inside, summary.waits_unseen) == (inside, False)
