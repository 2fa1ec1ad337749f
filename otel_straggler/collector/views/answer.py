"""The answer about a run: its health, the culprit, since when, why, the cost, and what to do.

Only the most important finding is reported: a hang, then what notifies people, then the costliest
slow rank or host, then an imbalance of the run, then a suspicion, then "all alike".
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from otel_straggler.collector.views.answer_hang import OTHER_ADVICE, hang_facts, hang_headline
from otel_straggler.collector.views.answer_type import (
    Json,
    Tone,
    answer,
    as_sentence,
    cost,
    lower,
    run_cost_per_hour,
)
from otel_straggler.collector.views.answer_verdict import (
    MARK_SECTIONS,
    facts_of,
    first_verdict,
    has_only_steps,
    headline,
    verdict_answer,
)
from otel_straggler.collector.views.first_failure import first_failure
from otel_straggler.collector.views.heat import Heat, heat_of
from otel_straggler.collector.views.notes import failure_text
from otel_straggler.collector.views.numbers import duration, percent
from otel_straggler.collector.views.world_view import Awaited, RankHeartbeats, WorldView
from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.model.failure import Failure
from otel_straggler.model.hidden_waiting import HOW_TO_SEE, hidden_text
from otel_straggler.model.rank_names import ranks_text
from otel_straggler.model.verdict import Verdict, WorldSummary, time_text

_STARTS_S: Final = 60.0
_QUORUM: Final = 0.999
_MIN_PEERS: Final = VerdictSettings().min_peers
_LOSES: Final = 1.05
_STEPS_WITHOUT_SECTIONS: Final = 40
_SECONDS_WITHOUT_SECTIONS: Final = 20.0
"""Two windows, and the time in which the first is closed and shown."""
_BEHIND_STEPS: Final = 2
_ENDS: Final = {
    "finished": "The run has finished",
    "cancelled": "The run was cancelled",
    "preempted": "The run was preempted",
    "failed": "The run has failed",
    "ended": "The run has ended; its outcome was not reported",
}
_OUTCOMES: Final = {"ok": "finished", "unknown": "ended"}
_WITHOUT_OUTCOME: Final = "Its programs exited normally, without the call that reports how."
_REPORT_OUTCOME: Final = "Call otel_straggler.shutdown() at the end of the program."


def answer_of(view: WorldView) -> Json:
    """The block ``answer``. Cost: O(changes of verdicts)."""
    if view.awaited is not None:
        before = answer_of(replace(view, awaited=None, is_live=True))
        return _awaited(view, view.awaited, before["headline"])
    verdict = first_verdict(view)
    if view.has_ended:
        return _ended(view, verdict)
    if view.hang is not None and view.hang.state == "forgotten":
        return _forgotten(view)
    if view.hang is not None and view.hang.is_hung:
        tone: Tone = "watch" if view.is_acknowledged else "bad"
        head = hang_headline(view, view.hang)
        return answer(view, tone, "hang", head, **hang_facts(view, view.hang))
    if view.failure is not None:
        before = answer_of(replace(view, failure=None))
        return _failing(view, view.failure, before["headline"])
    if view.table is None and view.heartbeats is None:
        return _no_data(view)
    if view.silent_s is not None:
        return _silent(view, view.silent_s, verdict)
    if processes := lone_processes(view):
        return _lone(view, processes)
    if verdict is not None and (view.has_verdicts or verdict.attempt >= view.attempt):
        return verdict_answer(view, verdict)
    if view.table is None and view.heartbeats is not None and _has_no_sections(view):
        return _without_sections(view, view.heartbeats)
    if view.table is None or not view.has_verdicts:
        return _waiting_after(view, verdict)
    result = _healthy(view)
    if view.settled is not None:
        result |= dict(zip(("headline", "tone"), view.settled, strict=True))
    if has_only_steps(view):
        result["advice"] = [*result["advice"], MARK_SECTIONS]
    return result


# --- no rank is called slow ----------------------------------------------------------------------


def _healthy(view: WorldView) -> Json:
    world = view.world
    assert world is not None
    if view.reporting < _QUORUM * view.expected:
        return _incomplete(view, world)
    if world.slowdown >= _LOSES:
        return _loses(view, world)
    if view.reporting == 1:
        text = "One rank is training; there is no peer to compare it with."
        return answer(view, "good", "healthy", "One rank is training", sentence=text)
    heat = heat_of(view)
    costs = cost(view, run_cost_per_hour(view, world))
    if heat is not None and heat.stands_out:
        head = "No rank is confirmed slow"
        text = f"{head}; {_hottest_text(heat)} recently, but not enough or not long enough for a"
        tone: Tone = "watch" if world.hides_waiting else "good"
        return answer(view, tone, "healthy", head, sentence=f"{text} verdict.", cost=costs)
    if world.hides_waiting:
        return _hidden(view, world)
    head = text = f"All {view.reporting:,} ranks are alike"
    if math.isfinite(world.resolvable_slowdown):
        text += f"; the detection limit is {percent(world.resolvable_slowdown - 1.0)}"
    return answer(view, "good", "healthy", head, sentence=f"{text}.", cost=costs)


def _hidden(view: WorldView, world: WorldSummary) -> Json:
    would = "would" if world.waits_inside and world.waits_unseen else "might"
    head = f"A slow rank {would} not be visible"
    text = f"{head}: {_hidden_text(view, world)}."
    advice = [as_sentence(HOW_TO_SEE)]
    return answer(view, "watch", "healthy", head, sentence=text, advice=advice)


def _hidden_text(view: WorldView, world: WorldSummary) -> str:
    ranks = f"all {view.reporting:,} ranks"
    return hidden_text(world.waits_inside, is_unseen=world.waits_unseen, ranks=ranks)


def _hottest_text(heat: Heat) -> str:
    if not heat.stands_out:
        return "no rank stands out"
    ranks, n_hot, slowdown = heat.hottest()
    if n_hot > 1:
        longer = f"{n_hot:,} workers take longer than the others"
        if heat.base == "peers":
            return f"{longer}, up to {slowdown:.2f}x as long"
        return f"{longer}, and the step up to {slowdown:.2f}x as long"
    who, s = ranks_text(ranks), "s" if len(ranks) == 1 else ""
    if heat.base == "peers":
        return f"{who} take{s} {slowdown:.2f}x as long as the others"
    return f"{who} make{s} the step {slowdown:.2f}x as long"


def _incomplete(view: WorldView, world: WorldSummary) -> Json:
    head = f"{view.reporting:,} of {view.expected:,} ranks are reporting"
    heat = heat_of(view)
    alike = _hidden_text(view, world) if world.hides_waiting else "those are alike"
    if heat is not None and heat.stands_out:
        alike = f"of those, {_hottest_text(heat)}"
    facts = {
        "sentence": f"{head}; {alike}.",
        "advice": [
            "Run otel-straggler doctor on the host of a missing rank to see why it cannot report."
        ],
        "commands": ["otel-straggler doctor"],
    }
    return answer(view, "watch", "healthy", head, **facts)


def _loses(view: WorldView, world: WorldSummary) -> Json:
    head = "Ranks wait for each other"
    lost = f"{head}: {percent(world.waste)} of the time is lost"
    facts = {
        "sentence": f"{lost}, and {_why_nobody(view)}.",
        "cost": cost(view, run_cost_per_hour(view, world)),
        "advice": ["Look at the ledger: start with the section with the longest exposed time."],
    }
    return answer(view, "watch", "healthy", head, **facts)


def _why_nobody(view: WorldView) -> str:
    if view.reporting < _MIN_PEERS and view.table is not None:
        overall = view.table.slowdowns.overall
        if np.isfinite(overall).any():
            slower = int(view.table.ranks[int(np.nanargmax(overall))])
            return f"rank {slower} takes longer; two ranks are too few to call one of them slow"
    return "no rank, host, or stage stands out enough to be named"


# --- not enough data -----------------------------------------------------------------------------


def _waiting_after(view: WorldView, before: Verdict | None) -> Json:
    """Too early; ``before`` stood in the previous attempt."""
    head, text = _waiting(view)
    if before is not None:
        text += f" Before the restart, {lower(headline(before, is_over=True))}."
    return answer(view, "unknown", "waiting", head, sentence=text)


def _waiting(view: WorldView) -> tuple[str, str]:
    received = 0 if view.heartbeats is None else len(view.heartbeats.ranks)
    of_all = f"{max(received, view.reporting):,} of {view.expected:,} ranks"
    if view.hang is not None and view.hang.state == "starting":
        head = "The run is starting"
        return head, f"{head}: {of_all} have reported, and none has completed a step."
    if view.table is None:
        head = "Waiting for the first window of steps"
        steps = [] if view.heartbeats is None else view.heartbeats.step.tolist()
        step = max(steps, default=-1)
        if step > 0:  # or this collector was restarted, or started later
            head = "The run is starting" if _is_new(view) else head
            return head, f"{head}: {of_all} have reported, up to step {step:,}."
        return "Waiting for the first steps", f"{head}; {of_all} have reported."
    head = "The run is starting" if _is_new(view) else "Too early for a verdict"
    heat = heat_of(view)
    if heat is None or not np.isfinite(heat.cells).any():
        return head, f"{head}: no rank times can be compared yet."
    return head, f"{head}: in the newest window {_hottest_text(heat)}; a verdict needs more data."


def _is_new(view: WorldView) -> bool:
    return view.began_at_s is not None and view.now_s - view.began_at_s < _STARTS_S


def lone_processes(view: WorldView) -> int:
    """How many processes take themselves for the only rank of this run; 0 if at most one does."""
    if view.world_size > 1 or any(source.rank for source in view.clashes):
        return 0
    return len(view.clashes) + 1 if view.clashes else 0


def _lone(view: WorldView, processes: int) -> Json:
    head = f"{processes:,} processes report as rank 0 of 1"
    text = (
        f"{head}: they do not know their rank, as when configure() runs before "
        "init_process_group() and no launcher sets RANK. Only one of them is shown."
    )
    advice = [
        "Start them with torchrun, or call configure(rank=..., world_size=...).",
        "If these are separate runs, give each its own OTEL_STRAGGLER_RUN_ID.",
    ]
    return answer(view, "watch", "waiting", head, sentence=text, advice=advice)


def _has_no_sections(view: WorldView) -> bool:
    """Whether so many steps were seen that sections, if there were any, had been, too."""
    heartbeats = view.heartbeats
    if heartbeats is None or heartbeats.observed_steps is None or any(heartbeats.open_section):
        return False
    lasted_s = view.now_s - (view.began_at_s or view.now_s)
    enough = heartbeats.observed_steps >= _STEPS_WITHOUT_SECTIONS
    return lasted_s >= _SECONDS_WITHOUT_SECTIONS and bool(enough.all())


def _without_sections(view: WorldView, heartbeats: RankHeartbeats) -> Json:
    """Only ``step()`` is called: step times, and what would show more."""
    head = "Steps are reported, but no sections to compare"
    text = f"{head}: {len(heartbeats.ranks):,} of {view.expected:,} ranks have reported, up to step"
    text += f" {heartbeats.step.max():,}"
    step_s = heartbeats.step_s
    if step_s is not None and np.isfinite(step_s).any():
        usual_s, at = float(np.nanmedian(step_s)), int(np.nanargmax(step_s))
        text += f"; a step takes {usual_s:.3g} s on average"
        if step_s[at] > _LOSES * usual_s:
            slower = step_s[at] / usual_s
            text += f", on rank {heartbeats.ranks[at]} {slower:.2f}x as long"
        # What a rank has done since its last heartbeat is not behind.
        since = np.nan_to_num(heartbeats.heartbeat_age_s / step_s)
        behind = heartbeats.step.max() - heartbeats.step - since
        last = int(np.argmax(behind))
        if behind[last] >= _BEHIND_STEPS:
            text += f"; rank {heartbeats.ranks[last]} is {int(behind[last]):,} steps behind"
    text += ". Ranks that wait for each other have equal steps, whoever is slow."
    return answer(view, "watch", "waiting", head, sentence=text, advice=[MARK_SECTIONS])


def _awaited(view: WorldView, awaited: Awaited, before: str) -> Json:
    """Answer for a run of before a restart of the collector; ``before`` was its headline."""
    last = f"The last known state is shown: {lower(before)}."
    if not awaited.is_overdue:
        head = "Waiting for the run: the collector was restarted"
        text = f"The collector was restarted and has received nothing from this run since. {last}"
        return answer(view, "unknown", "waiting", head, sentence=text)
    head = "No data since the collector was restarted"
    text = f"{head}: the run has ended, is dead, or is cut off. {last}"
    advice = list(OTHER_ADVICE["unheard"])
    return answer(view, "watch", "waiting", head, sentence=text, advice=advice)


def _failing(view: WorldView, failure: Failure, before: str) -> Json:
    """Answer while the collector fails to evaluate the run; ``before`` is all that is known."""
    text = f"{failure_text(failure)}. It is tried again with the next steps, and training is not"
    text += f" affected. What is known so far: {lower(before)}."
    advice = ["Read the traceback in the collector's log, and report it to otel-straggler."]
    facts = {"sentence": text, "since_s": failure.since_s, "advice": advice}
    return answer(view, "watch", "no_data", "Scoring has failed", **facts)


def _silent(view: WorldView, silent_s: float, verdict: Verdict | None) -> Json:
    """Answer for a run without heartbeats whose spans have stopped; ``verdict`` stood then."""
    head = "The run has stopped sending data"
    text = f"No data from this run for {duration(silent_s)}: it has ended, hangs, or is cut off. "
    text += "Its ranks send no heartbeats, which would tell."
    if verdict is not None:
        of_that = lower(headline(verdict, is_over=True))
        head = f"{head}; {of_that}"
        text += f" When it last reported, {of_that}."
    facts = {"since_s": view.received_at_s, "advice": list(OTHER_ADVICE["unheard"])}
    return answer(view, "unknown", "waiting", head, sentence=text, **facts)


def _no_data(view: WorldView) -> Json:
    facts = {
        "sentence": "Only the name of this run is known.",
        "advice": ["Run otel-straggler doctor where it trains."],
        "commands": ["otel-straggler doctor"],
    }
    return answer(view, "unknown", "no_data", "Nothing is known about this run", **facts)


def _forgotten(view: WorldView) -> Json:
    since = ""
    if view.received_at_s is not None:
        since = f" for {duration(max(view.now_s - view.received_at_s, 0.0))}"
    text = f"No data{since}; the run was stuck or lost at the time, and how it ended is unknown."
    head = "Monitoring has given up on this run"
    return answer(view, "unknown", "no_data", head, sentence=text, since_s=view.received_at_s)


# --- ended ---------------------------------------------------------------------------------------


def _ended(view: WorldView, verdict: Verdict | None) -> Json:
    """Outcome, the first failure, the loss, and the culprit; ``verdict`` stood at the end."""
    end = _end_of(view)
    head = _ENDS.get(end, "No rank is reporting anymore")
    text = as_sentence(head)
    if end not in _ENDS:
        text = f"{head}, and how the run ended is unknown."
    if end == "ended":
        text = f"{text} {_WITHOUT_OUTCOME}"
    when = "At the end" if end in _ENDS else "When it last reported"
    first = None
    if end == "failed" and view.heartbeats and not view.is_hung:
        first = first_failure(view.heartbeats)
    of_that, facts = _of_the_end(view, verdict)
    if end == "ended" and not facts:
        facts = {"advice": [_REPORT_OUTCOME]}
    if first is not None:
        text = f"{text} {as_sentence(first.sentence)}"
    if "sentence" in facts:
        text = f"{text} {when}: {lower(facts['sentence'])}"
    if view.run_failure is not None and view.now_s < view.run_failure.final_at_s:
        text += " Its launcher is expected to restart it."
    if first is not None:
        of_that, facts = first.headline, first.facts()
    if of_that:
        head = f"{head}; {of_that}"
    lost = cost(view, None)["gpu_seconds_lost"]
    if lost and lost >= 1.0:
        text += f" In total it lost {duration(lost)} of {time_text(on_gpu=view.on_gpu)} to waiting."
    costs = {"gpu_seconds_lost_per_hour": None, "gpu_seconds_lost": lost}
    return answer(view, "ended", "ended", head, **facts | {"sentence": text, "cost": costs})


def _of_the_end(view: WorldView, verdict: Verdict | None) -> tuple[str, Json]:
    """Part of a headline, and facts, about the problem at the end; empty without one."""
    if view.hang is not None and view.hang.is_hung:
        hung = f"it hung: {lower(hang_headline(view, view.hang, is_over=True))}"
        return hung, hang_facts(view, view.hang)
    if verdict is not None:
        return lower(headline(verdict, is_over=True)), facts_of(view, verdict)
    return "", {}


def _end_of(view: WorldView) -> str:
    if view.hang is not None and view.hang.state in _ENDS:
        return view.hang.state
    return _OUTCOMES.get(view.outcome or "", view.outcome or "")
