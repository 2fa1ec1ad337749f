"""Verdicts as sentences: who comes first, what stands out, what a run loses."""

from __future__ import annotations

from typing import Any

import pytest
from rich.text import Text

from otel_straggler.cli.verdict_lines import (
    MAX_VERDICTS,
    NEWEST_CHANGES,
    history_lines,
    run_line,
    verdict_lines,
)
from otel_straggler.collector.views.report_json import RunReport, report_json
from otel_straggler.model.causes import CAUSES, next_action

NAN = float("nan")


def run_of(run_verdicts: Any) -> Any:
    """A run of the report."""
    return report_json({"run": RunReport(run_verdicts=run_verdicts)})["runs"]["run"]


def lines(run_verdicts: Any) -> list[str]:
    return [line.plain for line in verdict_lines(run_of(run_verdicts))]


def styles(run_verdicts: Any) -> list[str]:
    return [str(line.style) for line in verdict_lines(run_of(run_verdicts))]


def test_a_verdict_is_its_sentence_after_its_state(by_hand: Any) -> None:
    """And whether somebody is called for it, readable without colours."""
    quiet = by_hand.verdict(subject_id="b", pages=False, gpu_seconds_lost_per_hour=1.0)
    reported = f"{by_hand.sentence} Do: {next_action('slow_gpu', on_gpu=True)}."
    assert lines(by_hand.run_verdicts(by_hand.verdict(), quiet)) == [
        f"confirmed, pages: {reported}",
        f"confirmed: {reported}",
    ]


def test_every_cause_has_a_next_action_and_a_suspicion_has_none(by_hand: Any) -> None:
    """Who is called at night must not have to think of one."""
    assert all(info.action and info.reason for info in CAUSES.values())
    assert next_action("slow_gpu", on_gpu=False).startswith("compare load and clocks of its CPU")
    [line] = lines(by_hand.run_verdicts(by_hand.verdict("suspect", pages=False)))
    assert line == f"suspect: {by_hand.sentence}"


def test_who_notifies_people_comes_first_then_what_loses_most_and_suspects_last(
    by_hand: Any,
) -> None:
    """Who is called slow stands out; a suspicion is dim."""
    run_verdicts = by_hand.run_verdicts(
        by_hand.verdict("suspect", subject_id="1", gpu_seconds_lost_per_hour=9e9, sentence="four"),
        by_hand.verdict(subject_id="2", gpu_seconds_lost_per_hour=10.0, sentence="two"),
        by_hand.verdict(
            "flapping", subject_id="3", gpu_seconds_lost_per_hour=20.0, sentence="three"
        ),
        by_hand.verdict(subject_id="4", gpu_seconds_lost_per_hour=30.0, sentence="one"),
    )
    reported = [line.split(": ")[1].removesuffix(" Do") for line in lines(run_verdicts)]
    assert reported == ["one", "two", "three", "four"]
    assert styles(run_verdicts) == ["bold red"] * 3 + ["dim"]


def test_only_the_newest_verdict_of_a_subject_is_told(by_hand: Any) -> None:
    """Those who have recovered share one line; those who are fine are not named."""
    changes = [
        by_hand.verdict(state, subject_id=str(n), rank=n)
        for n in range(7)
        for state in ("confirmed", "recovered")
    ]
    fine = by_hand.verdict("ok", subject_id="fine", rank=8)
    [line] = lines(by_hand.run_verdicts(*changes, fine))
    named = ", ".join(f"rank {n} on node-1" for n in range(5))
    assert line == f"recovered: {named} and 2 more"


def test_many_verdicts_are_counted(by_hand: Any) -> None:
    """The dearest are told."""
    called = [by_hand.verdict(subject_id=f"c{n}") for n in range(MAX_VERDICTS + 2)]
    suspects = [by_hand.verdict("suspect", subject_id=f"s{n}") for n in range(31)]
    result = lines(by_hand.run_verdicts(*suspects, *called))
    assert len(result) == MAX_VERDICTS + 1
    assert result[-1] == "and 2 confirmed and 31 suspect that lose less"


def test_a_name_cannot_steer_the_terminal(by_hand: Any) -> None:
    """Neither in a sentence nor anywhere else."""
    bad = "\x1b[2J\x07\r\n\u202e\x9b"
    run_verdicts = by_hand.run_verdicts(
        by_hand.verdict(sentence=f"rank 5 ({bad})"),
        by_hand.verdict(subject_id="2", sentence="", section=bad, node=bad),
        by_hand.verdict("recovered", subject_id="3", node=bad),
        *[by_hand.verdict("recovered", subject_id="4", rank=None, scope="host", node=bad)] * 9,
        worlds=(by_hand.world(cause=bad),),
    )
    run = run_of(run_verdicts)
    reported = "".join(t.plain for t in (*verdict_lines(run), *run_line(run), *history_lines(run)))
    assert "rank 5 (?[2J" in reported
    assert reported.isprintable()


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"scope": "rank", "group": "actor"}, "rank actor/5 on node-1: forward 1.52x, slow GPU"),
        ({"scope": "host", "rank": None}, "host node-1: forward 1.52x, slow GPU"),
        ({"scope": "role", "slowdown": NAN}, "role default: forward, slow GPU"),
        ({"scope": "run", "section": ""}, "the run: whole step 1.52x, slow GPU"),
    ],
)
def test_a_subject_is_named_in_words(by_hand: Any, changes: Any, reported: str) -> None:
    """Also where a sentence is missing."""
    [line] = lines(by_hand.run_verdicts(by_hand.verdict(sentence="", pages=False, **changes)))
    assert line == f"confirmed: {reported}. Do: {next_action('slow_gpu', on_gpu=True)}."


def test_what_the_run_loses_is_one_line(by_hand: Any) -> None:
    """How slow, why, where, how dear, and what could be seen at all."""
    [line] = run_line(run_of(by_hand.run_verdicts(worlds=(by_hand.world(),))))
    assert line.plain == (
        "the run takes 1.18x as long as it could: stage imbalance, 100 % of that by the last"
        " stage, 12 GPU-hours lost so far, smallest slowdown that can be shown 3 %"
    )
    assert line.style == "bold"
    [of_cpus] = run_line(run_of(by_hand.run_verdicts(worlds=(by_hand.world(on_gpu=False),))))
    assert "12 rank-hours lost so far" in of_cpus.plain


def test_a_run_line_leaves_out_what_is_not_known(by_hand: Any) -> None:
    """And is not there if nothing is."""
    world = by_hand.world(
        slowdown=1.004, cause="", m_w=NAN, m_s=NAN, resolvable_slowdown=NAN, gpu_seconds_lost=0.0
    )
    [line] = run_line(run_of(by_hand.run_verdicts(worlds=(world,))))
    assert line == Text("the run takes 1.00x as long as it could")
    assert list(run_line(run_of(by_hand.run_verdicts()))) == []
    unknown = by_hand.run_verdicts(worlds=(by_hand.world(slowdown=NAN),))
    [line] = run_line(run_of(unknown))
    assert line == Text("12 GPU-hours lost so far, smallest slowdown that can be shown 3 %")


@pytest.mark.parametrize(
    ("hidden", "text"),
    [
        (
            {"waits_inside": "step", "waits_unseen": True},
            "all ranks take equally long because they wait for each other in step. To see it, ",
        ),
        (
            {"waits_inside": "backward"},
            (
                "all ranks wait for each other in backward, which holds much of a step: one that "
                "is slow there looks like the others. To see it, "
            ),
        ),
        (
            {"waits_unseen": True},
            (
                "where all ranks wait for each other is not known, and one that is slow there "
                "looks like the others. To see it, "
            ),
        ),
    ],
)
def test_a_run_whose_ranks_wait_where_they_work_is_told_what_to_do(
    hidden: dict[str, Any], text: str, by_hand: Any
) -> None:
    """And nothing of a slowdown that would show."""
    world = by_hand.world(
        slowdown=NAN,
        m_w=NAN,
        m_s=NAN,
        resolvable_slowdown=NAN,
        gpu_seconds_lost=0.0,
        **hidden,
    )
    [line] = run_line(run_of(by_hand.run_verdicts(worlds=(world,))))
    assert line.plain.startswith(f"a slow rank might not show: {text}")
    assert "OTEL_STRAGGLER_COLLECTIVES=on" in line.plain
    assert 'kind="wait"' in line.plain


def test_a_long_history_is_told_by_its_newest_changes(by_hand: Any) -> None:
    """Few changes need none."""
    states = ["suspect", "confirmed", "recovered"] * 5
    changes = [by_hand.verdict(s, at_step=1000 * n) for n, s in enumerate(states)]
    assert list(history_lines(run_of(by_hand.run_verdicts(*changes[:5])))) == []
    head, *reported = (line.plain for line in history_lines(run_of(by_hand.run_verdicts(*changes))))
    assert head == "15 changes of state, the newest 8:"
    assert len(reported) == NEWEST_CHANGES
    assert reported[-1] == (
        "   step 14,000  recovered  rank 5 on node-1: forward 1.52x, slow GPU"
    )  # fmt: skip


def test_what_is_over_is_told_in_the_past(by_hand: Any) -> None:
    """Verdicts, and what the run loses; a world that goes on beside it is told as it is."""
    other = by_hand.verdict(subject_id="2", group="critic")
    run = run_of(by_hand.run_verdicts(by_hand.verdict(), other, worlds=(by_hand.world(),)))
    run["liveness"] = [
        {"group": "", "state": "finished"},
        {"group": "critic", "state": "training"},
    ]
    ended, goes_on = (line.plain for line in verdict_lines(run))
    assert "rank 5 on node-1 took 1.52x as long as its 7 peers" in ended
    assert "The job lost 2.4 h" in ended
    assert by_hand.sentence in goes_on
    stalls = by_hand.verdict(detail="in about 1 of 10 steps, by 0.5 s each time")
    [line] = verdict_lines({**run_of(by_hand.run_verdicts(stalls)), "liveness": run["liveness"]})
    assert "in about 1 of 10 steps, by 0.5 s each time" in line.plain
    [line] = run_line(run)
    assert "the run took 1.18x" in line.plain
    assert "12 GPU-hours lost in all" in line.plain


def test_the_cause_of_the_run_is_that_of_its_verdict(by_hand: Any) -> None:
    """Whether there is a GPU is known of ranks."""
    world = by_hand.world(cause="slow_gpu")
    for on_gpu, text in ((True, "slow GPU,"), (False, "slow GPU or host,")):
        reported = by_hand.verdict(on_gpu=on_gpu, evidence="host")
        [line] = run_line(run_of(by_hand.run_verdicts(reported, worlds=(world,))))
        assert f"as long as it could: {text}" in line.plain


@pytest.mark.parametrize(
    ("workers", "reported"), [(8, "the worst worker"), (100, "the 3 worst workers")]
)
def test_the_worst_workers_are_as_many_as_there_are(
    by_hand: Any, workers: int, reported: str
) -> None:
    """Three in a hundred, at least one: 3 % of eight would be a quarter of a rank."""
    heat = tuple((0, data, 1.0) for data in range(workers))
    [line] = run_line(run_of(by_hand.run_verdicts(worlds=(by_hand.world(m_w=0.98, heat=heat),))))
    assert f"98 % of that by {reported}," in line.plain
