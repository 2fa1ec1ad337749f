"""The sentence that says who, since when, why, what it costs, and what to do."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from otel_straggler.collector.views.answer import answer_of
from otel_straggler.collector.views.answer_type import TONES
from otel_straggler.collector.views.page_json import ResponseMeta, page_json
from otel_straggler.collector.views.run_json import run_json, state_of
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.detect.hangs.states import ENDS
from otel_straggler.model.causes import cause_text
from otel_straggler.model.failure import Failure
from otel_straggler.model.observation import Section
from otel_straggler.model.rank import Source
from otel_straggler.model.verdict import RunVerdicts, State, hang_subject

from . import made

STAGE = made.verdict(
    subject_id="role/pipeline 3/stage_imbalance",
    scope="role",
    rank=None,
    node="",
    role="pipeline 3",
    section="",
    cause="stage_imbalance",
    since_step=None,
    gpu_seconds_lost_per_hour=9000.0,
    pages=False,
    sentence="role pipeline 3 takes 1.30x as long as it would: pipeline stages of unequal work.",
)
SEQUENCES = made.verdict(
    subject_id="run/sequence_imbalance",
    scope="run",
    rank=None,
    node="",
    section="backward",
    cause="sequence_imbalance",
    since_step=None,
    pages=False,
    sentence="the run takes 1.30x as long: sequences of unequal length.",
)


def kinds(result: dict[str, Any]) -> tuple[str, str]:
    return result["kind"], result["tone"]


def test_a_slow_rank_is_named_with_everything_that_is_known() -> None:
    """Who, where, since when, why, compared with whom, what it costs, what to do."""
    result = answer_of(made.seen(made.verdict()))
    assert kinds(result) == ("straggler", "bad")
    assert result["headline"] == "Rank 5 on node-0 is slow in forward"
    assert result["sentence"].startswith("Rank 5 on node-0 takes 1.30x as long as its 7 peers")
    assert (result["scope"], result["rank"], result["node"]) == ("rank", 5, "node-0")
    assert (result["since_step"], result["since_s"]) == (40, made.NOW_S - 60)
    assert (result["cause"], result["cause_text"]) == ("slow_gpu", "slow GPU")
    assert result["cost"] == {"gpu_seconds_lost_per_hour": 4000.0, "gpu_seconds_lost": 3.0}
    assert result["peers"] == {"own_s": 0.13, "peers_s": 0.1, "n_peers": 7, "slowdown": 1.3}
    assert result["advice"][0].startswith("Compare its clocks")
    assert result["commands"][0] == "otel-straggler verdict explain 5 --run run"


def test_the_dearest_rank_goes_first_and_a_suspect_after_all_that_are_called_slow() -> None:
    cheap = made.verdict(subject_id="a", rank=1, gpu_seconds_lost_per_hour=10.0)
    dear = made.verdict(subject_id="b", rank=2, gpu_seconds_lost_per_hour=99.0)
    suspect = made.verdict(
        subject_id="c", rank=3, gpu_seconds_lost_per_hour=999.0, state="suspect", pages=False
    )
    assert answer_of(made.seen(cheap, suspect, dear))["rank"] == 2
    only = answer_of(made.seen(suspect))
    assert kinds(only) == ("straggler", "watch")
    assert only["headline"] == "Rank 3 on node-0 may be slow in forward"


def test_others_that_are_slow_too_are_told_of() -> None:
    """To cordon the first alone would not help; ranks of a slow host are not others."""
    first = made.verdict(gpu_seconds_lost_per_hour=9000.0)
    second = made.verdict(subject_id="b", rank=2)
    two = answer_of(made.seen(first, second))["sentence"]
    assert two.endswith(" Rank 2 on node-0 is slow, too.")
    third = made.verdict(subject_id="c", scope="host", rank=None, node="node-3")
    assert answer_of(made.seen(first, second, third))["sentence"].endswith(" 2 more are slow, too.")
    host = made.verdict(subject_id="h", scope="host", rank=None, gpu_seconds_lost_per_hour=1e5)
    again = made.verdict(subject_id="d", section="backward", gpu_seconds_lost_per_hour=1.0)
    suspect = made.verdict(subject_id="e", rank=7, state="suspect")
    for alone in ((host, second), (first, again), (first, suspect), (first, STAGE)):
        assert "as well" not in answer_of(made.seen(*alone))["sentence"]


def test_who_notifies_people_goes_before_what_costs_more() -> None:
    """Then slow ranks and hosts, then the whole run, then suspicions."""
    pages = made.verdict(gpu_seconds_lost_per_hour=1.0)
    slow = made.verdict(
        subject_id="b", rank=2, pages=False, gpu_seconds_lost_per_hour=2.0, slowdown=1.09
    )
    suspect = made.verdict(
        subject_id="c", rank=3, state="suspect", pages=False, gpu_seconds_lost_per_hour=9e4
    )
    order = [pages, slow, STAGE, suspect]
    for at, first in enumerate(order):
        result = answer_of(made.seen(*reversed(order[at:])))
        assert (result["rank"], result["scope"]) == (first.rank, first.scope)
    world = made.seen(*reversed(order))
    listed = page_json(world, ResponseMeta(version="1"))["verdicts"]
    assert [each["subject_id"] for each in listed] == [each.subject_id for each in order]
    silenced = made.run_verdicts(*order, silenced=frozenset({pages.subject_id}))
    assert answer_of(made.seen(run_verdicts=silenced))["rank"] == 2


def test_a_suspicion_about_the_run_is_marked_as_one() -> None:
    """Nobody acts on what is not confirmed."""
    suspect = replace(SEQUENCES, state="suspect")
    head = "Unconfirmed: sequences of unequal length keep ranks waiting"
    assert answer_of(made.seen(suspect))["headline"] == head


@pytest.mark.parametrize(("state", "after_s"), [("confirmed", 10.0), ("suspect", 30.0)])
def test_a_verdict_must_last_to_be_the_headline(state: State, after_s: float) -> None:
    """One that goes again at once is nobody's business; at the end of a run none is to come."""
    for stood_s, kind in ((after_s - 1.0, "healthy"), (after_s + 1.0, "straggler")):
        verdict = made.verdict(state=state, at_ns=int((made.NOW_S - stood_s) * 1e9))
        assert answer_of(made.seen(verdict))["kind"] == kind
    new = made.verdict(at_ns=int(made.NOW_S * 1e9))
    over = answer_of(made.seen(new, finished_at_s=made.NOW_S))
    assert over["headline"].endswith("; rank 5 on node-0 was slow in forward")


@pytest.mark.parametrize(
    ("reported", "kind", "headline"),
    [
        (STAGE, "imbalance", "Pipeline stage 3 has more work than the others"),
        (SEQUENCES, "imbalance", "Sequences of unequal length keep ranks waiting"),
        (
            replace(SEQUENCES, cause="expert_imbalance"),
            "imbalance",
            "Experts of unequal load keep ranks waiting",
        ),
        (
            replace(SEQUENCES, cause="uniform_slowdown"),
            "uniform",
            "All ranks are slower than before",
        ),
        (
            replace(SEQUENCES, cause="link"),
            "imbalance",
            "All ranks wait longer than before",
        ),
        (
            replace(SEQUENCES, cause="unknown"),
            "imbalance",
            "Some of the ranks are slower than before",
        ),
        (
            replace(SEQUENCES, cause="unknown", is_localised=False),
            "imbalance",
            "The run is slower than before; which rank is slow is unknown",
        ),
        (
            made.verdict(scope="host", rank=None, section="", cause="slow_host"),
            "straggler",
            "Host node-0 is slow",
        ),
        (made.verdict(cause="late_arrival", section=""), "straggler", "Rank 5 on node-0 is late"),
        (
            made.verdict(state="flapping", section=""),
            "straggler",
            "Rank 5 on node-0 is repeatedly slow",
        ),
        (
            made.verdict(is_localised=False, section=""),
            "straggler",
            "Rank 5 on node-0 is slow, or waits for one that is",
        ),
    ],
)
def test_each_subject_has_its_words(reported: Any, kind: str, headline: str) -> None:
    result = answer_of(made.seen(reported))
    assert (result["kind"], result["headline"]) == (kind, headline)
    assert result["cause_text"] == cause_text(reported.cause, on_gpu=reported.on_gpu)
    assert 1 <= len(result["advice"]) <= 3


def test_what_a_person_has_silenced_is_watched_and_not_bad() -> None:
    reported = made.verdict(pages=False)
    run_verdicts = made.run_verdicts(reported, silenced=frozenset({reported.subject_id}))
    result = answer_of(made.seen(run_verdicts=run_verdicts))
    assert kinds(result) == ("straggler", "watch")
    assert "silenced" in " ".join(result["advice"])
    assert len(result["commands"]) == 1  # it need not be dismissed twice


def test_a_subject_is_quoted_for_the_shell() -> None:
    """Names come from the network: a command that is copied must not run anything else."""
    reported = made.verdict(
        scope="host", rank=None, node="n;rm -rf /", subject_id="host/n;rm -rf /"
    )
    result = answer_of(made.seen(reported, run_id="r$(id)"))
    expected = "otel-straggler verdict explain 'host/n;rm -rf /' --run 'r$(id)'"
    assert result["commands"][0] == expected


def test_a_hang_goes_before_every_verdict() -> None:
    """Nothing is slower than what stands still."""
    result = answer_of(
        made.seen(made.verdict(), hang=made.result_of(8, "stuck", "never_joined", [5]))
    )
    assert kinds(result) == ("hang", "bad")
    assert result["headline"] == "Rank 5 on node-0 does not join the others"
    assert (result["rank"], result["node"], result["section"]) == (5, "node-0", "forward")
    assert "7 ranks wait" in result["sentence"]
    assert result["commands"][0] == "otel-straggler hang stacks --pid PID"
    assert not any("hang ask" in each for each in result["commands"])


def test_commands_to_ranks_are_offered_where_the_collector_passes_them_on() -> None:
    """After what works without enabling anything."""
    hung = {"hang": made.result_of(8, "stuck", "never_joined", [5]), "takes_commands": True}
    assert answer_of(made.seen(made.verdict(), **hung))["commands"][:2] == [
        "otel-straggler hang stacks --pid PID",
        "otel-straggler hang ask dump_stacks --rank 5 --run run",
    ]


@pytest.mark.parametrize(
    ("state", "kind", "culprits", "headline"),
    [
        ("partly_lost", "lost", [5], "Rank 5 on node-0 is silent"),
        ("partly_lost", "lost", [4, 5], "Ranks 4 and 5 are silent"),
        ("lost", "lost", list(range(8)), "The whole run is silent"),
        ("stuck", "left_early", [1], "Rank 1 on node-0 exited before the others"),
        ("stuck", "joined_but_stuck", [], "All ranks wait, and none makes progress"),
        ("stuck", None, [], "The run makes no progress"),
    ],
)
def test_every_kind_of_hang_has_its_words(
    state: Any, kind: Any, culprits: list[int], headline: str
) -> None:
    result = answer_of(made.seen(hang=made.result_of(8, state, kind, culprits)))
    assert (result["kind"], result["headline"]) == ("hang", headline)
    assert result["advice"]


def test_a_hang_that_somebody_has_taken_note_of_is_watched() -> None:
    result = answer_of(
        made.seen(
            hang=made.result_of(8, "stuck", "never_joined", [5]),
            is_acknowledged=True,
            run_verdicts=RunVerdicts(silenced=frozenset({hang_subject("")})),
        )
    )
    assert kinds(result) == ("hang", "watch")


def test_where_all_wait_in_the_section_that_holds_their_work_there_is_no_all_clear() -> None:
    """Nobody stands out there; what to do about it stands beside it."""
    nothing = {"slowdown": math.nan, "waste": math.nan, "resolvable_slowdown": math.nan}
    world = made.summary(waits_inside="step", waits_unseen=True, **nothing)
    result = answer_of(made.seen(world=world))
    assert kinds(result) == ("healthy", "watch")
    assert result["sentence"] == (
        "A slow rank would not be visible: all 8 ranks take equally long because they wait for "
        "each other in step."
    )
    assert [each for each in result["advice"] if 'kind="wait"' in each]


@pytest.mark.parametrize(
    ("hidden", "text"),
    [
        (
            {"waits_unseen": True},
            (
                "where all 8 ranks wait for each other is not known, and one that is slow there "
                "looks like the others."
            ),
        ),
        (
            {"waits_inside": "backward"},
            (
                "all 8 ranks wait for each other in backward, which holds much of a step: one that "
                "is slow there looks like the others."
            ),
        ),
    ],
)
def test_where_waiting_is_hidden_nothing_sounds_healthy(hidden: dict[str, Any], text: str) -> None:
    """Neither the sentence nor its tone, whatever else is said."""
    world = made.summary(resolvable_slowdown=math.nan, **hidden)
    result = answer_of(made.seen(world=world))
    assert kinds(result) == ("healthy", "watch")
    assert result["sentence"] == f"A slow rank might not be visible: {text}"
    assert "OTEL_STRAGGLER_COLLECTIVES=on" in result["advice"][0]
    hot = answer_of(made.seen(world=world, table=made.table_of(slow={5: 1.5})))
    assert hot["tone"] == "watch"
    some = answer_of(made.seen(world=world, world_size=16))
    assert some["sentence"] == f"8 of 16 ranks are reporting; {text}"
    for each in (result, hot, some):
        for claim in ("are alike", "detection limit"):
            assert claim not in each["sentence"] + each["headline"]


def test_all_alike_says_what_would_have_been_seen() -> None:
    """ "Healthy" is worth as much as the smallest slowdown that would have shown."""
    result = answer_of(made.seen())
    assert kinds(result) == ("healthy", "good")
    assert result["sentence"] == ("All 8 ranks are alike; the detection limit is 1.7 %.")
    assert result["cost"]["gpu_seconds_lost_per_hour"] == pytest.approx(0.0099 * 8 * 3600)


def test_who_is_seen_in_the_matrix_is_told_before_there_is_a_verdict() -> None:
    """The sentence and the chart below it are read together."""
    slow = made.table_of(slow={5: 1.5})
    early = answer_of(made.seen(table=slow, run_verdicts=RunVerdicts()))
    assert "in the newest window rank 5 takes 1.50x as long as the others" in early["sentence"]
    slow = made.table_of(slow={5: 1.06})
    never = answer_of(made.seen(table=slow))
    assert (*kinds(never), never["headline"]) == ("healthy", "good", "No rank is confirmed slow")
    assert "rank 5 takes 1.06x as long as the others recently" in never["sentence"]
    several = answer_of(made.seen(table=made.table_of(16, slow={5: 1.3, 6: 1.2})))
    assert "2 workers take longer than the others, up to 1.30x as long" in several["sentence"]
    nothing = replace(slow, own_s=np.full_like(slow.own_s, np.nan))
    none = answer_of(made.seen(table=nothing, run_verdicts=RunVerdicts()))
    assert "no rank times can be compared yet" in none["sentence"]


def test_missing_ranks_are_no_health() -> None:
    result = answer_of(made.seen(world_size=10))
    assert kinds(result) == ("healthy", "watch")
    assert result["headline"] == "8 of 10 ranks are reporting"
    assert result["commands"] == ["otel-straggler doctor"]
    one_is_slow = answer_of(made.seen(world_size=10, table=made.table_of(8, slow={2: 1.4})))
    assert one_is_slow["sentence"] == (
        "8 of 10 ranks are reporting; of those, rank 2 takes 1.40x as long as the others."
    )


def test_a_loss_that_nobody_is_to_blame_for_is_said() -> None:
    result = answer_of(made.seen(world=made.summary(slowdown=1.25, waste=0.2)))
    assert kinds(result) == ("healthy", "watch")
    assert result["headline"] == "Ranks wait for each other"


def test_two_ranks_are_too_few_to_call_one_slow_and_the_slower_is_told() -> None:
    lost = made.summary(slowdown=1.25, waste=0.2)
    reported = answer_of(made.seen(world=lost, table=made.table_of(2, slow={1: 1.5})))["sentence"]
    assert "rank 1 takes longer; two ranks are too few" in reported
    reported = answer_of(made.seen(world=lost, table=made.table_of(3, slow={1: 1.5})))["sentence"]
    assert "no rank, host, or stage" in reported


def test_a_single_rank_has_nobody_to_be_compared_with() -> None:
    result = answer_of(made.seen(table=made.table_of(1)))
    assert "no peer to compare" in result["sentence"]


def test_before_the_first_verdicts_one_waits() -> None:
    """No green light before anything was measured."""
    nothing = RunVerdicts()
    received = made.heartbeats_of(made.table_of())
    starting = answer_of(
        made.seen(table=None, heartbeats=received, hang=made.result_of(8, "starting"))
    )
    assert (*kinds(starting), starting["headline"]) == ("waiting", "unknown", "The run is starting")
    first = answer_of(made.seen(table=None, heartbeats=received, hang=made.result_of(8)))
    assert first["headline"] == "Waiting for the first window of steps"
    assert (
        "have reported, up to step 61" in first["sentence"]
    )  # it does not begin: a collector does
    begun = made.heartbeats_of(made.table_of(), step=np.zeros(8, np.int64))
    fresh = answer_of(made.seen(table=None, heartbeats=begun, hang=made.result_of(8)))
    assert fresh["headline"] == "Waiting for the first steps"
    early = answer_of(made.seen(run_verdicts=nothing))
    assert (*kinds(early), early["headline"]) == ("waiting", "unknown", "Too early for a verdict")
    assert "no rank stands out" in early["sentence"]
    assert kinds(answer_of(made.seen(table=None, run_verdicts=nothing))) == ("no_data", "unknown")


def test_where_whole_steps_are_compared_the_answer_says_how_to_see_inside() -> None:
    """Whether a rank is slow or none is; not where sections are marked."""
    steps = made.table_of(sections=[Section("step", "compute")])
    slow = made.verdict(section="step")
    for view in (made.seen(table=steps), made.seen(slow, table=steps)):
        assert "with ots.section('data')" in answer_of(view)["advice"][-1]
    for view in (made.seen(), made.seen(made.verdict())):
        assert not any("ots.section" in text for text in answer_of(view)["advice"])


def test_steps_without_sections_are_shown_with_what_would_say_more() -> None:
    """Not "after some steps" at step 399; a collector that has just come waits for a window."""
    table = made.table_of()
    step_s = np.full(8, 0.2)
    counted = {"step": np.full(8, 399), "step_s": step_s, "open_section": [""] * 8}
    heartbeats = made.heartbeats_of(table, **counted, observed_steps=np.full(8, 399))
    shown = {"table": None, "hang": made.result_of(8), "began_at_s": made.NOW_S - 80.0}
    result = answer_of(made.seen(**shown, heartbeats=heartbeats))
    assert kinds(result) == ("waiting", "watch")
    assert result["headline"] == "Steps are reported, but no sections to compare"
    assert "up to step 399; a step takes 0.2 s on average." in result["sentence"]
    assert "'backward'" in result["advice"][0]
    step_s[5] = 0.3
    assert (
        "on rank 5 1.50x as long"
        in answer_of(made.seen(**shown, heartbeats=heartbeats))["sentence"]
    )
    counted["step"][2] = 380  # heard of 1.25 s ago, which is 6 steps
    assert (
        "; rank 2 is 12 steps behind."
        in answer_of(
            made.seen(
                **shown,
                heartbeats=made.heartbeats_of(table, **counted, observed_steps=counted["step"]),
            )
        )["sentence"]
    )
    few = made.heartbeats_of(table, **counted, observed_steps=np.full(8, 30))
    assert kinds(answer_of(made.seen(**shown, heartbeats=few))) == ("waiting", "unknown")


def test_processes_that_all_take_themselves_for_the_only_rank_are_counted() -> None:
    """As where configure() runs before init_process_group(): "One rank is training" hides them."""
    others = [Source(run_id="run", rank=0, session_id=f"{n:016x}", world_size=1) for n in range(3)]
    result = answer_of(made.seen(clashes=others, world_size=1))
    assert result["headline"] == "4 processes report as rank 0 of 1"
    assert (result["tone"], "torchrun" in result["advice"][0]) == ("watch", True)
    of_a_world = answer_of(made.seen(clashes=others, world_size=8))
    assert "processes" not in of_a_world["headline"]


def test_silence_of_ranks_without_signs_of_life_is_no_health() -> None:
    """Plain spans come until they do not: nobody can tell an end from a hang."""
    quiet = made.seen(received_at_s=made.NOW_S - 300, hang=None)
    result = answer_of(quiet)
    assert (*kinds(result), result["headline"]) == (
        "waiting",
        "unknown",
        "The run has stopped sending data",
    )
    assert "No data from this run for 5 min: it has ended, hangs, or is cut" in result["sentence"]
    assert result["since_s"] == made.NOW_S - 300
    assert state_of(quiet) == "unknown"
    slow = answer_of(made.seen(made.verdict(), received_at_s=made.NOW_S - 300, hang=None))
    assert slow["headline"].endswith("sending data; rank 5 on node-0 was slow in forward")
    assert slow["cost"] == {"gpu_seconds_lost_per_hour": None, "gpu_seconds_lost": 3.0}


@pytest.mark.parametrize(
    "changes",
    [
        {"received_at_s": made.NOW_S - 60, "hang": None},
        {"received_at_s": made.NOW_S - 300, "hang": None, "world": made.summary(step_s=60.0)},
        {"received_at_s": made.NOW_S - 300, "hang": made.result_of(8)},
    ],
    ids=["may be a batch on its way", "steps take as long", "heartbeats tell"],
)
def test_a_pause_is_no_silence(changes: Any) -> None:
    seen = made.seen(**changes)
    assert (kinds(answer_of(seen)), state_of(seen)) == (("healthy", "good"), "training")


@pytest.mark.parametrize("state", ENDS)
def test_an_end_is_said_with_who_was_slow(state: Any) -> None:
    result = answer_of(made.seen(made.verdict(), hang=made.result_of(8, state)))
    assert kinds(result) == ("ended", "ended")
    assert result["headline"].endswith("; rank 5 on node-0 was slow in forward")
    assert "At the end: rank 5 on node-0 took 1.30x as long as its 7 peers" in result["sentence"]
    assert "The job lost 1.1 h of GPU time per hour. In total it lost 3 s" in result["sentence"]
    assert not {"loses", "takes", "is"} & set(result["sentence"].split())
    assert (result["rank"], result["cause"]) == (5, "slow_gpu")
    assert result["cost"] == {"gpu_seconds_lost_per_hour": None, "gpu_seconds_lost": 3.0}


def test_what_only_the_history_knows_is_over_however_it_ended() -> None:
    """Nobody follows it any more; commands for a collector would find nothing."""
    result = answer_of(made.seen(STAGE, is_live=False))
    head = "No rank is reporting anymore"  # it may go on, for all that anybody knows
    assert result["headline"] == f"{head}; pipeline stage 3 had more work than the others"
    assert "how the run ended is unknown" in result["sentence"]
    assert result["commands"] == []
    hung = made.result_of(8, "stuck", "never_joined", [5])
    reported = answer_of(made.seen(is_live=False, hang=hung))
    assert reported["headline"] == (f"{head}; it hung: rank 5 on node-0 did not join the others")


def test_a_run_that_was_given_up_is_no_all_clear() -> None:
    result = answer_of(made.seen(hang=made.result_of(8, "forgotten")))
    assert result["tone"] == "unknown"
    assert "how it ended is unknown" in result["sentence"]


def test_every_answer_has_the_same_fields_and_is_json() -> None:
    """A page reads each without asking whether it is there; NaN is no JSON."""
    nan = made.verdict(slowdown=math.nan, own_s=math.nan, gpu_seconds_lost_per_hour=math.nan)
    worlds = [
        made.seen(),
        made.seen(nan),
        made.seen(SEQUENCES),
        made.seen(hang=made.result_of(8, "stuck", "never_joined", [5])),
        made.seen(hang=made.result_of(8, "finished")),
        made.seen(table=None, run_verdicts=RunVerdicts()),
        made.seen(world=made.summary(slowdown=math.nan, resolvable_slowdown=math.nan)),
    ]
    result = [answer_of(each) for each in worlds]
    assert all(each.keys() == result[0].keys() for each in result)
    assert all(each["tone"] in TONES for each in result)
    assert all(each["sentence"].endswith(".") for each in result)
    json.dumps(result, allow_nan=False)


def test_a_suspicion_of_before_a_restart_is_no_answer_once_the_new_attempt_is_judged() -> None:
    """The book of changes keeps it until some steps have passed without; nothing says it now."""
    old = made.verdict(state="suspect", attempt=0)
    world = made.seen(old, world=made.summary(attempt=1), attempt=1)
    assert answer_of(world)["kind"] == "healthy"
    reported = page_json(world, ResponseMeta(version="1"))["verdicts"][0]["sentence"]
    assert reported.startswith("rank 5 on node-0 took 1.30x as long as its 7 peers")
    new = made.verdict(state="suspect", attempt=1)
    again = made.seen(new, world=made.summary(attempt=1), attempt=1)
    assert answer_of(again)["headline"] == "Rank 5 on node-0 may be slow in forward"


def test_who_was_called_slow_before_a_restart_is_told_to_have_been() -> None:
    """It stands until it is seen to be well, but the new attempt has not looked yet."""
    world = made.seen(made.verdict(attempt=0), world=made.summary(attempt=1), attempt=1)
    result = answer_of(world)
    assert result["headline"] == "Rank 5 on node-0 was slow in forward before the restart"
    assert "since then too few steps have been compared" in result["sentence"]
    assert "took 1.30x" in result["sentence"]


# --- notes ---------------------------------------------------------------------------------------

FAILURE = Failure(
    stage="verdicts",
    since_s=made.NOW_S - 90.0,
    count=3,
    error="IndexError: index 2 is out of bounds",
    where="detect/verdicts/peer_engine.py:146 (_were_named)",
)
FAILED = (
    "Scoring has failed since 2026-09-21 14:11:50 UTC, 3 times: IndexError: index 2 is out of "
    "bounds in detect/verdicts/peer_engine.py:146 (_were_named)."
)


def notes(view: WorldView) -> list[tuple[str, str]]:
    """As the page has them."""
    page = page_json(view, ResponseMeta(version="1"))
    return [(note["kind"], note["text"]) for note in page.get("notes", ())]


def test_a_run_that_cannot_be_evaluated_says_since_when_and_what_is_known() -> None:
    """It is no all-clear; a hang and an end are still told first, with the failure as a note."""
    view = replace(made.seen(), failure=FAILURE)
    result = answer_of(view)
    assert (result["headline"], result["tone"]) == ("Scoring has failed", "watch")
    assert result["since_s"] == FAILURE.since_s
    assert result["sentence"].startswith(FAILED)
    assert result["sentence"].endswith("What is known so far: all 8 ranks are alike.")
    assert notes(view) == [("scoring_failed", FAILED)]
    hung = replace(view, hang=made.result_of(state="stuck", kind="never_joined", culprits=[3]))
    assert answer_of(hung)["kind"] == "hang"
    assert notes(hung) == [("scoring_failed", FAILED)]
    assert notes(made.seen()) == []


@pytest.mark.parametrize(
    ("per_gpu", "text"),
    [
        (8, "Ranks 0 to 7 share a GPU. "),
        (2, "8 ranks share 4 GPUs, such as ranks 0 and 1. "),
        (7, "Ranks 0 to 6 share a GPU. "),
    ],
)
def test_ranks_that_share_a_gpu_are_told_once(per_gpu: int, text: str) -> None:
    """With what it means; their verdicts rest on the host's times, whatever times the GPU."""
    table = replace(made.table_of(8), devices=[f"GPU-{rank // per_gpu}" for rank in range(8)])
    heartbeats = made.heartbeats_of(table, gpu_tier=["cupti"] * 8)
    view = replace(made.seen(), table=table, heartbeats=heartbeats)
    [(kind, told)] = notes(view)
    assert kind == "shared_gpu"
    assert told == (
        f"{text}Their kernels slow one another down, so their GPU times are not comparable: "
        "verdicts on them rest on host times and waiting in collectives."
    )
    assert run_json(view)["time_basis"] == ("mixed" if per_gpu == 7 else "host")
    of_a_window = replace(view, heartbeats=None)
    assert notes(of_a_window) == [(kind, told)]
