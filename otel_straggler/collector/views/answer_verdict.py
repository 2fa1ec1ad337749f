"""The answer where a rank, a host, a role or the run as a whole is called slow, or suspected."""

from __future__ import annotations

from typing import Final

from otel_straggler.collector.views.answer_type import (
    AnswerKind,
    Json,
    Tone,
    answer,
    as_sentence,
    command,
    cost,
)
from otel_straggler.collector.views.numbers import number
from otel_straggler.collector.views.verdict_json import (
    PLACES,
    cost_of,
    said_of,
    since_s_of,
    standing,
)
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.model.causes import CAUSES, cause_text, next_action
from otel_straggler.model.verdict import CALLED_SLOW, Verdict

_BAD_SLOWDOWN: Final = 1.10
_NOT_LOCALISED: Final = (
    "The run is slower than before, and who is slow cannot be told",
    "The run was slower than before, and who was slow could not be told",
)
"""Where the times at hand hold waiting, too."""


def verdict_answer(seen: WorldView, verdict: Verdict) -> Json:
    """All that is known of it, and what to do."""
    head = headline(verdict)
    if seen.is_of_before(verdict):
        head = f"{headline(verdict, is_over=True)} before the restart"
    return answer(seen, _tone(seen, verdict), kind_of(verdict), head, **facts_of(seen, verdict))


def facts_of(seen: WorldView, verdict: Verdict) -> Json:
    """The fields of an answer that a verdict fills, but for tone, kind and headline."""
    return {
        "sentence": " ".join(filter(None, (_sentence(seen, verdict), _as_well(seen, verdict)))),
        "scope": verdict.scope,
        "rank": verdict.rank,
        "node": verdict.node or None,
        "section": verdict.section or None,
        "since_step": verdict.since_step,
        "since_s": since_s_of(seen.changes, verdict, seen.clock_s),
        "cause": verdict.cause,
        "cause_text": cause_text(verdict.cause, on_gpu=verdict.is_on_gpu),
        "cost": cost(seen, cost_of(verdict)),
        "peers": {
            "own_s": number(verdict.own_s),
            "peers_s": number(verdict.peers_s),
            "n_peers": verdict.n_peers,
            "slowdown": number(verdict.slowdown),
        },
        "evidence": verdict.evidence,
        "confidence": number(verdict.confidence, 3),
        "is_localised": verdict.is_localised,
        "advice": _advice(seen, verdict),
        "commands": _commands(seen, verdict),
    }


def _sentence(seen: WorldView, verdict: Verdict) -> str:
    """What the verdict itself says, or else its headline."""
    is_of_before = seen.is_of_before(verdict)
    is_over = seen.has_ended or is_of_before
    said = (
        as_sentence(said_of(verdict, is_over=is_over)) or f"{headline(verdict, is_over=is_over)}."
    )
    if is_of_before and not seen.has_ended:
        said += " That was before the restart; since then too few steps have been compared."
    return said


def _as_well(seen: WorldView, told: Verdict) -> str:
    """Who else is called slow: to mend one of them alone would not do. Empty if nobody is."""
    others = [
        each
        for each in standing(seen.current)
        if each.state in CALLED_SLOW and each.scope in PLACES and not _is_same(each, told)
    ]
    if not others:
        return ""
    if len(others) == 1:
        return f"{_who(others[0])} {'was' if seen.has_ended else 'is'} called slow as well."
    return f"{len(others):,} more {'were' if seen.has_ended else 'are'} called slow as well."


def _is_same(each: Verdict, told: Verdict) -> bool:
    """Whether it is about the same rank, or about one on the host that is told of."""
    if each.rank is not None and each.rank == told.rank:
        return True
    return each.subject_id == told.subject_id or (told.scope == "host" and each.node == told.node)


def kind_of(verdict: Verdict) -> AnswerKind:
    if verdict.scope in PLACES:
        return "straggler"
    return "uniform" if verdict.cause == "uniform_slowdown" else "imbalance"


def headline(verdict: Verdict, *, is_over: bool = False) -> str:
    """Who is slow in what.

    >>> headline(Verdict(run_id="r", subject_id="x", scope="rank", rank=5, node="node-1",
    ...     section="forward", state="confirmed"))
    'Rank 5 on node-1 is slow in forward'
    """
    if verdict.scope == "run":
        is_told = verdict.is_localised or verdict.cause != "unknown"
        of_cause = CAUSES[verdict.cause].headline if is_told else None
        return (of_cause or _NOT_LOCALISED)[is_over]
    who = _who(verdict)
    if verdict.cause == "stage_imbalance":
        return f"{who} {'had' if is_over else 'has'} more work than the others"
    return f"{who} {_is_slow(verdict, is_over=is_over)}"


def _who(verdict: Verdict) -> str:
    if verdict.scope == "rank":
        return f"Rank {verdict.rank}" + (f" on {verdict.node}" if verdict.node else "")
    if verdict.scope == "host":
        return f"Host {verdict.node}"
    stage = verdict.role.removeprefix("pipeline ")
    return f"Pipeline stage {stage}" if stage != verdict.role else f"Role {verdict.role}"


def _is_slow(verdict: Verdict, *, is_over: bool) -> str:
    what = "late" if verdict.cause == "late_arrival" else "slow"
    if verdict.cause == "link":
        what = "slowed down by a link"
    where = f" in {verdict.section}" if verdict.section and what == "slow" else ""
    if not verdict.is_localised and verdict.scope == "rank":
        where += ", or waits for one that is"
    if is_over:
        return f"{'may have been' if verdict.state == 'suspect' else 'was'} {what}{where}"
    if verdict.state == "suspect":
        return f"may be {what}{where}"
    again = " again and again" if verdict.state == "flapping" else ""
    return f"is {what}{again}{where}"


def _tone(seen: WorldView, verdict: Verdict) -> Tone:
    """Bad if somebody is, or would be, called; what is silenced or only suspected is to be
    watched."""
    if verdict.state not in CALLED_SLOW or verdict.subject_id in seen.judged.silenced:
        return "watch"
    is_large = verdict.slowdown >= _BAD_SLOWDOWN
    return "bad" if verdict.pages or is_large else "watch"


def _advice(seen: WorldView, verdict: Verdict) -> list[str]:
    said = [as_sentence(next_action(verdict.cause, on_gpu=verdict.is_on_gpu))]
    if verdict.state == "suspect" and not seen.has_ended:
        said.insert(0, "Wait for it to be confirmed; nothing needs to be done yet.")
    if not verdict.is_localised:
        said.append(
            "The times at hand do not tell culprit from victims: time GPUs (--gpu-timing), or put "
            "sections around what waits."
        )
    if verdict.subject_id in seen.judged.silenced and not seen.has_ended:
        said.append("Somebody has silenced it: nobody is called.")
    return said[:3]


def _commands(seen: WorldView, verdict: Verdict) -> list[str]:
    if not seen.is_live:
        return []
    lines = [command("verdict", "explain", _subject(seen, verdict), seen=seen)]
    is_silenced = verdict.subject_id in seen.judged.silenced
    if verdict.state in CALLED_SLOW and not is_silenced and not seen.has_ended:
        words = ("verdict", "dismiss", _subject(seen, verdict), "--reason", "WHY")
        lines.append(command(*words, seen=seen))
    return lines


def _subject(seen: WorldView, verdict: Verdict) -> str:
    """What the command line takes: a rank's number or a node's name where one verdict has it."""
    if verdict.scope == "rank":
        same = [each for each in seen.judged.current if each.rank == verdict.rank]
        if len(same) == 1:
            return str(verdict.rank)
    return verdict.subject_id
