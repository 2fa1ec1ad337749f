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
_MIN_PEERS: Final = VerdictSettings().min_peers
_LOSES: Final = 1.05
_ENDS: Final = {
    "finished": "The run has finished",
    "cancelled": "The run was cancelled",
    "preempted": "The run was preempted",
    "failed": "The run has failed",
}
_OUTCOMES: Final = {"ok": "finished"}


def healthy_answer(view: WorldView) -> Json:
    """Nobody stands out; says how small a slowdown would have been seen."""
    world = view.world
    assert world is not None
    reporting, expected = view.reporting, view.expected
    if reporting < _QUORUM * expected:
        return _incomplete(view)
    if world.slowdown >= _LOSES:
        return _loses(view, world.waste)
    if reporting == 1:
        text = "One rank is training; there is nobody to compare it with."
        return answer(view, "good", "healthy", "One rank is training", sentence=text)
    heat = heat_of(view)
    if heat is not None and heat.stands_out:
        return _noticed(view, heat)
    if world.waits_inside:
        return _nobody_can_say(view, world.waits_inside)
    head = f"All {reporting:,} ranks are alike"
    text = f"{head}{_resolvable(world.resolvable_slowdown)}."
    return answer(view, "good", "healthy", head, sentence=text, cost=_cost_of_waste(view))


def _nobody_can_say(view: WorldView, section: str) -> Json:
    """All take equally long, because they wait for each other: no all-clear."""
    head = "A slow rank would not show"
    text = f"{head}: all {view.reporting:,} ranks take equally long, because they wait for each "
    return answer(
        view,
        "watch",
        "healthy",
        head,
        sentence=f"{text}other in {section}.",
        advice=[as_sentence(WAITS_INSIDE)],
    )


def _noticed(view: WorldView, heat: Heat) -> Json:
    """The matrix shows somebody, and nobody is called slow: too little of it, or for too short."""
    head = "Nobody is called slow"
    text = f"{head}; {who_is_hot(heat)} lately, which is too little or too short for a verdict."
    return answer(view, "good", "healthy", head, sentence=text, cost=_cost_of_waste(view))


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


def _incomplete(view: WorldView) -> Json:
    head = f"{view.reporting:,} of {view.expected:,} ranks report"
    heat = heat_of(view)
    alike = "those that do are alike"
    if heat is not None and heat.stands_out:
        alike = f"of those that do {who_is_hot(heat)}"
    return answer(
        view,
        "watch",
        "healthy",
        head,
        sentence=f"{head}; {alike}.",
        advice=[
            "Where a rank is missing, otel-straggler doctor says what keeps it from this collector."
        ],
        commands=["otel-straggler doctor"],
    )


def _loses(view: WorldView, waste: float) -> Json:
    head = f"Ranks wait for each other: {percent(waste)} of the time is lost"
    return answer(
        view,
        "watch",
        "healthy",
        head,
        sentence=f"{head}, and {_why_nobody(view)}.",
        cost=_cost_of_waste(view),
        advice=["Look at the ledger: the section with the longest exposed time is where to begin."],
    )


def _why_nobody(view: WorldView) -> str:
    """Of two ranks one is slower, and no third tells whether that is ordinary."""
    if view.reporting < _MIN_PEERS and view.table is not None:
        overall = view.table.slowdowns.overall
        if np.isfinite(overall).any():
            slower = int(view.table.ranks[int(np.nanargmax(overall))])
            return f"rank {slower} takes longer; two ranks are too few to call one of them slow"
    return "no rank, host or stage stands out enough to be named"


def _cost_of_waste(view: WorldView) -> Json:
    world = view.world
    waste = math.nan if world is None else world.waste
    return cost(view, waste * 3600.0 * max(view.expected, 1))


def waiting_answer(view: WorldView, before: Verdict | None = None) -> Json:
    """Too early: ranks are starting, or the first steps are not judged yet.

    Args:
        before: what stood in the attempt before this one.
    """
    reported = _waiting(view)
    if before is not None:
        was = _lower(headline(before, is_over=True))
        reported["sentence"] += f" Before the restart {was}."
    return reported


def _waiting(view: WorldView) -> Json:
    received = 0 if view.heartbeats is None else len(view.heartbeats.ranks)
    of_all = f"{max(received, view.reporting):,} of {view.expected:,} ranks"
    is_starting = view.hang is not None and view.hang.state == "starting"
    if is_starting:
        return answer(
            view,
            "unknown",
            "waiting",
            "The run is starting",
            sentence=f"The run is starting: {of_all} were heard of, and none has done a step.",
        )
    step = _furthest(view)
    if view.table is None and step > 0:  # this collector was restarted, or began later
        head = "Waiting for the first window of steps"
        text = f"{head}: {of_all} were heard of, and have come to step {step:,}."
        return answer(view, "unknown", "waiting", head, sentence=text)
    if view.table is None:
        text = f"Waiting for the first window of steps; {of_all} were heard of."
        return answer(view, "unknown", "waiting", "Waiting for the first steps", sentence=text)
    head = "Too early for a verdict"
    heat = heat_of(view)
    if heat is None or not np.isfinite(heat.cells).any():
        text = f"{head}: no times of the ranks can be compared yet."
        return answer(view, "unknown", "waiting", head, sentence=text)
    text = f"{head}: in the newest window {who_is_hot(heat)}; a verdict needs more than that."
    return answer(view, "unknown", "waiting", head, sentence=text)


def _furthest(view: WorldView) -> int:
    """The furthest step that a rank has told of; -1 if none has."""
    return -1 if view.heartbeats is None else max(view.heartbeats.step.tolist(), default=-1)


def awaited_answer(view: WorldView, awaited: Awaited, before: str) -> Json:
    """Nothing was heard since the collector was restarted: what is known is of before.

    Args:
        before: the headline of the picture of before.
    """
    last = f"What is shown is the last picture of before: {_lower(before)}."
    if not awaited.is_overdue:
        head = "Waiting for the run: the collector was restarted"
        text = f"The collector was restarted, and has heard nothing of this run since. {last}"
        return answer(view, "unknown", "waiting", head, sentence=text)
    head = "Nothing is heard since the collector was restarted"
    text = f"{head}: the run has ended, is dead, or is cut off. {last}"
    advice = list(OTHER_ADVICE["unheard"])
    return answer(view, "watch", "waiting", head, sentence=text, advice=advice)


def silent_answer(view: WorldView, silent_s: float, verdict: Verdict | None) -> Json:
    """Spans came, and come no more, of ranks that send no signs of life: no all-clear, and no
    accusation that would go on for ever.

    Args:
        verdict: that stood when it was last heard of; None if none did.
    """
    head = "Nothing comes of this run any more"
    text = f"Nothing has come of this run for {duration(silent_s)}: it has ended, hangs or is cut "
    text += "off. Its ranks send no signs of life, which would tell."
    of_that = ""
    if verdict is not None:
        of_that = headline(verdict, is_over=True)
        text += f" When it was last heard of, {_lower(of_that)}."
    return answer(
        view,
        "unknown",
        "waiting",
        f"{head}; {_lower(of_that)}" if of_that else head,
        sentence=text,
        since_s=view.received_at_s,
        advice=list(OTHER_ADVICE["unheard"]),
    )


def no_data_answer(view: WorldView) -> Json:
    """Nothing is known but the name."""
    return answer(
        view,
        "unknown",
        "no_data",
        "Nothing is known of this run",
        sentence="Nothing is known of this run but its name.",
        advice=["Run otel-straggler doctor where it trains."],
        commands=["otel-straggler doctor"],
    )


def forgotten_answer(view: WorldView) -> Json:
    """It hung when it was last heard of, long ago."""
    since = ""
    if view.received_at_s is not None:
        since = f" for {duration(max(view.now_s - view.received_at_s, 0.0))}"
    return answer(
        view,
        "unknown",
        "no_data",
        "Monitoring has given up on this run",
        sentence=f"Nothing was heard{since}; it was stuck or lost then, and nobody knows how it "
        "ended.",
        since_s=view.received_at_s,
    )


def ended_answer(view: WorldView, verdict: Verdict | None) -> Json:
    """How it ended, who went first if it failed, what it lost, and to whom.

    Args:
        verdict: that stood at the end and matters most; None if none did.
    """
    end = _end_of(view)
    head = _ENDS.get(end, "Nobody follows this run any more")
    text = as_sentence(head)
    if end not in _ENDS:
        text = f"{head}, and it never said how it ended."
    when = "At the end" if end in _ENDS else "When it was last heard of"
    is_hung = view.hang is not None and view.hang.is_hung
    first = (
        first_failure(view.heartbeats)
        if end == "failed" and view.heartbeats and not is_hung
        else None
    )
    of_that, facts = _of_the_end(view, verdict)
    if first is not None:
        text = f"{text} {as_sentence(first.sentence)}"
    if facts:
        text = f"{text} {when}: {_lower(facts['sentence'])}"
    if first is not None:
        of_that, facts = first.headline, first.facts()
    if of_that:
        head = f"{head}; {of_that}"
    lost = cost(view, None)["gpu_seconds_lost"]
    if lost and lost >= 1.0:
        text += f" In all it lost {duration(lost)} of {time_text(on_gpu=view.on_gpu)} to waiting."
    costs = {"gpu_seconds_lost_per_hour": None, "gpu_seconds_lost": lost}
    return answer(view, "ended", "ended", head, **facts | {"sentence": text, "cost": costs})


def _of_the_end(view: WorldView, verdict: Verdict | None) -> tuple[str, Json]:
    """What was wrong when it ended: as a part of a headline, and the facts; empty if nothing."""
    if view.hang is not None and view.hang.is_hung:
        hung = f"it hung: {_lower(hang_headline(view, view.hang, is_over=True))}"
        return hung, hang_facts(view, view.hang)
    if verdict is not None:
        return _lower(headline(verdict, is_over=True)), facts_of(view, verdict)
    return "", {}


def _end_of(view: WorldView) -> str:
    if view.hang is not None and view.hang.state in _ENDS:
        return view.hang.state
    return _OUTCOMES.get(view.outcome or "", view.outcome or "")


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]
