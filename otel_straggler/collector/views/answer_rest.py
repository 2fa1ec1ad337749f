"""The answers where nobody is called slow: all is well, too early to say, over, or unknown."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from otel_straggler.collector.views.answer_hang import OTHER_ADVICE, hang_facts, hang_headline
from otel_straggler.collector.views.answer_type import (
    Json,
    answer,
    as_sentence,
    cost,
    duration,
    percent,
)
from otel_straggler.collector.views.answer_verdict import facts_of, headline
from otel_straggler.collector.views.first_failure import first_failure
from otel_straggler.collector.views.hang_json import ranks_text
from otel_straggler.collector.views.heat import Heat, heat_of
from otel_straggler.collector.views.world_view import Awaited, WorldView
from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.model.verdict import WAITS_INSIDE, Verdict, time_text

_QUORUM: Final = 0.999
_LEAST_PEERS: Final = VerdictSettings().least_peers
_LOSES: Final = 1.05
_ENDS: Final = {
    "finished": "The run has finished",
    "cancelled": "The run was cancelled",
    "preempted": "The run was preempted",
    "failed": "The run has failed",
}
_OUTCOMES: Final = {"ok": "finished"}


def healthy_answer(seen: WorldView) -> Json:
    """Nobody stands out; says how small a slowdown would have been seen."""
    world = seen.world
    assert world is not None
    reporting, expected = seen.reporting, seen.expected
    if reporting < _QUORUM * expected:
        return _incomplete(seen)
    if world.slowdown >= _LOSES:
        return _loses(seen, world.waste)
    if reporting == 1:
        said = "One rank is training; there is nobody to compare it with."
        return answer(seen, "good", "healthy", "One rank is training", sentence=said)
    heat = heat_of(seen)
    if heat is not None and heat.stands_out:
        return _noticed(seen, heat)
    if world.waits_inside:
        return _nobody_can_say(seen, world.waits_inside)
    head = f"All {reporting:,} ranks are alike"
    said = f"{head}{_resolvable(world.resolvable_slowdown)}."
    return answer(seen, "good", "healthy", head, sentence=said, cost=_cost_of_waste(seen))


def _nobody_can_say(seen: WorldView, section: str) -> Json:
    """All take equally long, because they wait for each other: no all-clear."""
    head = "A slow rank would not show"
    said = f"{head}: all {seen.reporting:,} ranks take equally long, because they wait for each "
    return answer(
        seen,
        "watch",
        "healthy",
        head,
        sentence=f"{said}other in {section}.",
        advice=[as_sentence(WAITS_INSIDE)],
    )


def _noticed(seen: WorldView, heat: Heat) -> Json:
    """The matrix shows somebody, and nobody is called slow: too little of it, or for too short."""
    head = "Nobody is called slow"
    said = f"{head}; {who_is_hot(heat)} lately, which is too little or too short for a verdict."
    return answer(seen, "good", "healthy", head, sentence=said, cost=_cost_of_waste(seen))


def who_is_hot(heat: Heat) -> str:
    """In words, as part of a sentence; "nobody stands out" if nobody does."""
    if not heat.stands_out:
        return "nobody stands out"
    ranks, n_hot, slowdown = heat.hottest()
    times = f"{slowdown:.2f}x as long as the others"
    if n_hot > 1:
        return f"{n_hot:,} workers take longer than the others, up to {slowdown:.2f}x as long"
    who = "takes" if len(ranks) == 1 else "take"
    return f"{ranks_text(ranks)} {who} {times}"


def _resolvable(smallest: float) -> str:
    if not math.isfinite(smallest):
        return ""
    return f"; the smallest slowdown that would show is {percent(smallest - 1.0)}"


def _incomplete(seen: WorldView) -> Json:
    head = f"{seen.reporting:,} of {seen.expected:,} ranks report"
    heat = heat_of(seen)
    alike = "those that do are alike"
    if heat is not None and heat.stands_out:
        alike = f"of those that do {who_is_hot(heat)}"
    return answer(
        seen,
        "watch",
        "healthy",
        head,
        sentence=f"{head}; {alike}.",
        advice=[
            "Where a rank is missing, otel-straggler doctor says what keeps it from this collector."
        ],
        commands=["otel-straggler doctor"],
    )


def _loses(seen: WorldView, waste: float) -> Json:
    head = f"Ranks wait for each other: {percent(waste)} of the time is lost"
    return answer(
        seen,
        "watch",
        "healthy",
        head,
        sentence=f"{head}, and {_why_nobody(seen)}.",
        cost=_cost_of_waste(seen),
        advice=["Look at the ledger: the section with the longest exposed time is where to begin."],
    )


def _why_nobody(seen: WorldView) -> str:
    """Of two ranks one is slower, and no third tells whether that is ordinary."""
    if seen.reporting < _LEAST_PEERS and seen.table is not None:
        overall = seen.table.slowdowns.overall
        if np.isfinite(overall).any():
            slower = int(seen.table.ranks[int(np.nanargmax(overall))])
            return f"rank {slower} takes longer; two ranks are too few to call one of them slow"
    return "no rank, host or stage stands out enough to be named"


def _cost_of_waste(seen: WorldView) -> Json:
    world = seen.world
    waste = math.nan if world is None else world.waste
    return cost(seen, waste * 3600.0 * max(seen.expected, 1))


def waiting_answer(seen: WorldView, before: Verdict | None = None) -> Json:
    """Too early: ranks are starting, or the first steps are not judged yet.

    Args:
        before: what stood in the attempt before this one.
    """
    told = _waiting(seen)
    if before is not None:
        was = _lower(headline(before, is_over=True))
        told["sentence"] += f" Before the restart {was}."
    return told


def _waiting(seen: WorldView) -> Json:
    heard = 0 if seen.signs is None else len(seen.signs.ranks)
    of_all = f"{max(heard, seen.reporting):,} of {seen.expected:,} ranks"
    is_starting = seen.found is not None and seen.found.state == "starting"
    if is_starting:
        return answer(
            seen,
            "unknown",
            "waiting",
            "The run is starting",
            sentence=f"The run is starting: {of_all} were heard of, and none has done a step.",
        )
    step = _furthest(seen)
    if seen.table is None and step > 0:  # this collector was restarted, or began later
        head = "Waiting for the first window of steps"
        said = f"{head}: {of_all} were heard of, and have come to step {step:,}."
        return answer(seen, "unknown", "waiting", head, sentence=said)
    if seen.table is None:
        said = f"Waiting for the first window of steps; {of_all} were heard of."
        return answer(seen, "unknown", "waiting", "Waiting for the first steps", sentence=said)
    head = "Too early for a verdict"
    heat = heat_of(seen)
    if heat is None or not np.isfinite(heat.cells).any():
        said = f"{head}: no times of the ranks can be compared yet."
        return answer(seen, "unknown", "waiting", head, sentence=said)
    said = f"{head}: in the newest window {who_is_hot(heat)}; a verdict needs more than that."
    return answer(seen, "unknown", "waiting", head, sentence=said)


def _furthest(seen: WorldView) -> int:
    """The furthest step that a rank has told of; -1 if none has."""
    return -1 if seen.signs is None else max(seen.signs.step.tolist(), default=-1)


def awaited_answer(seen: WorldView, awaited: Awaited, before: str) -> Json:
    """Nothing was heard since the collector was restarted: what is known is of before.

    Args:
        before: the headline of the picture of before.
    """
    last = f"What is shown is the last picture of before: {_lower(before)}."
    if not awaited.is_overdue:
        head = "Waiting for the run: the collector was restarted"
        said = f"The collector was restarted, and has heard nothing of this run since. {last}"
        return answer(seen, "unknown", "waiting", head, sentence=said)
    head = "Nothing is heard since the collector was restarted"
    said = f"{head}: the run has ended, is dead, or is cut off. {last}"
    advice = list(OTHER_ADVICE["unheard"])
    return answer(seen, "watch", "waiting", head, sentence=said, advice=advice)


def silent_answer(seen: WorldView, silent_s: float, verdict: Verdict | None) -> Json:
    """Spans came, and come no more, of ranks that send no signs of life: no all-clear, and no
    accusation that would go on for ever.

    Args:
        verdict: that stood when it was last heard of; None if none did.
    """
    head = "Nothing comes of this run any more"
    said = f"Nothing has come of this run for {duration(silent_s)}: it has ended, hangs or is cut "
    said += "off. Its ranks send no signs of life, which would tell."
    of_that = ""
    if verdict is not None:
        of_that = headline(verdict, is_over=True)
        said += f" When it was last heard of, {_lower(of_that)}."
    return answer(
        seen,
        "unknown",
        "waiting",
        f"{head}; {_lower(of_that)}" if of_that else head,
        sentence=said,
        since_s=seen.heard_at_s,
        advice=list(OTHER_ADVICE["unheard"]),
    )


def no_data_answer(seen: WorldView) -> Json:
    """Nothing is known but the name."""
    return answer(
        seen,
        "unknown",
        "no_data",
        "Nothing is known of this run",
        sentence="Nothing is known of this run but its name.",
        advice=["Run otel-straggler doctor where it trains."],
        commands=["otel-straggler doctor"],
    )


def forgotten_answer(seen: WorldView) -> Json:
    """It hung when it was last heard of, long ago."""
    since = ""
    if seen.heard_at_s is not None:
        since = f" for {duration(max(seen.now_s - seen.heard_at_s, 0.0))}"
    return answer(
        seen,
        "unknown",
        "no_data",
        "Monitoring has given up on this run",
        sentence=f"Nothing was heard{since}; it was stuck or lost then, and nobody knows how it "
        "ended.",
        since_s=seen.heard_at_s,
    )


def ended_answer(seen: WorldView, verdict: Verdict | None) -> Json:
    """How it ended, who went first if it failed, what it lost, and to whom.

    Args:
        verdict: that stood at the end and matters most; None if none did.
    """
    end = _end_of(seen)
    head = _ENDS.get(end, "Nobody follows this run any more")
    said = as_sentence(head)
    if end not in _ENDS:
        said = f"{head}, and it never said how it ended."
    when = "At the end" if end in _ENDS else "When it was last heard of"
    is_hung = seen.found is not None and seen.found.is_hung
    first = first_failure(seen.signs) if end == "failed" and seen.signs and not is_hung else None
    of_that, facts = _of_the_end(seen, verdict)
    if first is not None:
        said = f"{said} {as_sentence(first.sentence)}"
    if facts:
        said = f"{said} {when}: {_lower(facts['sentence'])}"
    if first is not None:
        of_that, facts = first.headline, first.facts()
    if of_that:
        head = f"{head}; {of_that}"
    lost = cost(seen, None)["gpu_seconds_lost"]
    if lost and lost >= 1.0:
        said += f" In all it lost {duration(lost)} of {time_text(on_gpu=seen.on_gpu)} to waiting."
    costs = {"gpu_seconds_lost_per_hour": None, "gpu_seconds_lost": lost}
    return answer(seen, "ended", "ended", head, **facts | {"sentence": said, "cost": costs})


def _of_the_end(seen: WorldView, verdict: Verdict | None) -> tuple[str, Json]:
    """What was wrong when it ended: as a part of a headline, and the facts; empty if nothing."""
    if seen.found is not None and seen.found.is_hung:
        hung = f"it hung: {_lower(hang_headline(seen, seen.found, is_over=True))}"
        return hung, hang_facts(seen, seen.found)
    if verdict is not None:
        return _lower(headline(verdict, is_over=True)), facts_of(seen, verdict)
    return "", {}


def _end_of(seen: WorldView) -> str:
    if seen.found is not None and seen.found.state in _ENDS:
        return seen.found.state
    return _OUTCOMES.get(seen.outcome or "", seen.outcome or "")


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]
