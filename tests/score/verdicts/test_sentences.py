"""What a person reads at night."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import get_args

import pytest

from otel_straggler.detect.verdicts.sentences import sentence
from otel_straggler.model.causes import Cause
from otel_straggler.model.verdict import Evidence, Scope, State, Verdict

VERDICT = Verdict(
    run_id="r",
    subject_id="s",
    scope="rank",
    rank=5,
    node="node-1",
    role="critic",
    section="forward",
    cause="slow_gpu",
    state="confirmed",
    slowdown=1.5,
    since_step=4210,
    n_peers=1023,
    on_gpu=True,
)


@pytest.mark.parametrize("state", get_args(State))
@pytest.mark.parametrize("scope", get_args(Scope))
def test_every_verdict_has_a_sentence(scope: Scope, state: State) -> None:
    """Without a hole where a step or a section is not known."""
    for cause, reported in itertools.product(
        get_args(Cause), ({}, {"since_step": None, "section": ""})
    ):
        text = sentence(replace(VERDICT, cause=cause, scope=scope, state=state, **reported))
        assert text.endswith(".")
        assert "None" not in text
        assert "  " not in text
        assert " ." not in text


def test_a_sentence_says_who_where_how_much_since_when_and_what_it_costs() -> None:
    """In numbers that a person can read."""
    text = sentence(replace(VERDICT, gpu_seconds_lost_per_hour=3 * 3600.0))
    assert text.startswith(
        "rank 5 on node-1 takes 1.50x as long as its 1,023 peers in forward since step 4210:"
    )
    assert "3.0 h of GPU time per hour" in text


def test_what_is_not_known_is_not_told() -> None:
    """Neither a slowdown nor a step, nor a cost of nothing."""
    nothing = replace(VERDICT, slowdown=float("nan"), since_step=None, scope="run")
    text = sentence(nothing)
    assert "nan" not in text
    assert "since" not in text
    assert "loses" not in text


def test_late_arrivals_are_told_as_what_their_peers_wait() -> None:
    """Half a step."""
    assert "they wait 50 % of a step" in sentence(replace(VERDICT, cause="late_arrival"))


def test_an_imbalance_is_compared_with_equal_work_and_a_run_with_its_past() -> None:
    """They have no peers."""
    stage = replace(VERDICT, scope="role", cause="stage_imbalance", n_peers=3)
    run = replace(VERDICT, scope="run", cause="uniform_slowdown", n_peers=0)
    assert "if all did the same work" in sentence(stage)
    assert "as long as before" in sentence(run)


def test_what_cannot_be_localised_says_so() -> None:
    """Whatever the cause may be."""
    text = sentence(replace(VERDICT, scope="run", cause="unknown", is_localised=False))
    assert "cannot localize" in text


@pytest.mark.parametrize("evidence", ["events", "cupti"])
def test_what_the_gpu_told_stands_beside_the_cause(evidence: Evidence) -> None:
    """The host's clock is what everybody takes for granted."""
    assert sentence(replace(VERDICT, evidence=evidence)).endswith(f": slow GPU ({evidence}).")
    assert sentence(VERDICT).endswith(": slow GPU.")


def test_who_comes_late_with_a_gpu_that_is_not_slow_is_told_so() -> None:
    """Its kernels were looked at."""
    late = replace(VERDICT, cause="late_arrival", section="", evidence="cupti")
    assert "late arrival (cupti), its own work on the GPU is not slow." in sentence(late)


def test_a_rank_that_told_of_no_gpu_may_have_none() -> None:
    """A training on CPUs has no slow GPU; one that was timed on its GPU has one, told or not."""
    assert sentence(replace(VERDICT, on_gpu=False)).endswith(": slow GPU or host.")
    dear = replace(VERDICT, gpu_seconds_lost_per_hour=1440.0)
    assert sentence(dear).endswith("The job loses 24 min of GPU time per hour.")
    of_cpus = sentence(replace(dear, on_gpu=False), is_over=True)
    assert of_cpus.endswith("The job lost 24 min of rank time per hour.")
    timed = replace(VERDICT, on_gpu=False, evidence="events")
    assert sentence(timed).endswith(": slow GPU (events).")


def test_an_imbalance_of_experts_says_which() -> None:
    """One that is always the longest is placed badly; one after the other is routing."""
    reported = replace(
        VERDICT,
        scope="run",
        cause="expert_imbalance",
        detail="expert 2 the longest in 97 % of the steps",
    )
    for is_over in (False, True):
        text = sentence(reported, is_over=is_over)
        assert ": experts of unequal load, expert 2 the longest in 97 % of the steps." in text
