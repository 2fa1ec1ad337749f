"""The answer about a rank, host, role, or whole run that is slow or suspect."""

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
    lower,
)
from otel_straggler.collector.views.numbers import number
from otel_straggler.collector.views.verdict_json import (
    SUBJECTS,
    cost_of,
    since_s,
    standing,
    text_of,
)
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.model.causes import CAUSES, cause_text, next_action
from otel_straggler.model.verdict import CALLED_SLOW, Verdict
from otel_straggler.semconv import STEP_SPAN

_BAD_SLOWDOWN: Final = 1.10
_CALLED_FOR_S: Final = 10.0
_SUSPECTED_FOR_S: Final = 30.0
"""So long a verdict has stood before it is the headline: one that goes again is nobody's business.
"""
_NOT_LOCALISED: Final = (
    "The run is slower than before; which rank is slow is unknown",
    "The run was slower than before; which rank was slow is unknown",
)
"""Where the times include waiting."""
MARK_SECTIONS: Final = (
    "Mark what a step consists of, on all ranks: with ots.section('data'), and the same for "
    "'forward', 'backward' and 'optimizer'."
)


def first_verdict(view: WorldView) -> Verdict | None:
    """Return the most important standing verdict; None if none stands."""
    stands = standing(view.current, view.run_verdicts.silenced)
    return next((v for v in stands if not _is_stale(view, v) and _has_lasted(view, v)), None)


def _is_stale(view: WorldView, verdict: Verdict) -> bool:
    """True for a suspicion from before a restart that this attempt has not renewed."""
    is_suspicion = verdict.state not in CALLED_SLOW
    return is_suspicion and view.has_verdicts and view.is_of_before(verdict)


def _has_lasted(view: WorldView, verdict: Verdict) -> bool:
    """Whether it has stood for long enough to be the headline, by the senders' clock; at the end
    what was confirmed need not."""
    is_called = verdict.state in CALLED_SLOW
    if view.is_of_before(verdict) or (is_called and view.has_ended):
        return True
    newest_s = (view.received_at_s or view.now_s) if view.has_ended else view.now_s
    newest_s -= view.clock_s
    if view.table is not None:
        newest_s = max(newest_s, view.table.end_ns / 1e9)
    return newest_s - verdict.at_ns / 1e9 >= (_CALLED_FOR_S if is_called else _SUSPECTED_FOR_S)


def verdict_answer(view: WorldView, verdict: Verdict) -> Json:
    head = headline(verdict)
    if view.is_of_before(verdict):
        head = f"{headline(verdict, is_over=True)} before the restart"
    return answer(view, _tone(view, verdict), _kind_of(verdict), head, **facts_of(view, verdict))


def facts_of(view: WorldView, verdict: Verdict) -> Json:
    """The fields of an answer about a verdict, except tone, kind, and headline."""
    return {
        "sentence": " ".join(filter(None, (_sentence(view, verdict), _as_well(view, verdict)))),
        "scope": verdict.scope,
        "rank": verdict.rank,
        "node": verdict.node or None,
        "section": verdict.section or None,
        "since_step": verdict.since_step,
        "since_s": since_s(verdict, view.clock_s),
        "cause": verdict.cause,
        "cause_text": cause_text(verdict.cause, on_gpu=verdict.is_on_gpu),
        "cost": cost(view, cost_of(verdict)),
        "peers": {
            "own_s": number(verdict.own_s),
            "peers_s": number(verdict.peers_s),
            "n_peers": verdict.n_peers,
            "slowdown": number(verdict.slowdown),
        },
        "evidence": verdict.evidence,
        "confidence": number(verdict.confidence, 3),
        "is_localised": verdict.is_localised,
        "advice": _advice(view, verdict),
        "commands": _commands(view, verdict),
    }


def _sentence(view: WorldView, verdict: Verdict) -> str:
    is_of_before = view.is_of_before(verdict)
    is_over = view.has_ended or is_of_before
    text = (
        as_sentence(text_of(verdict, is_over=is_over)) or f"{headline(verdict, is_over=is_over)}."
    )
    if is_of_before and not view.has_ended:
        text += " That was before the restart; since then too few steps have been compared."
    return text


def _as_well(view: WorldView, reported: Verdict) -> str:
    """Name the others that are slow: fixing one alone is not enough. Empty if none is."""
    others = [
        each
        for each in standing(view.current)
        if each.state in CALLED_SLOW and each.scope in SUBJECTS and not _is_same(each, reported)
    ]
    if not others:
        return ""
    if len(others) == 1:
        return f"{_who(others[0])} {'was' if view.has_ended else 'is'} slow, too."
    return f"{len(others):,} more {'were' if view.has_ended else 'are'} slow, too."


def _is_same(each: Verdict, reported: Verdict) -> bool:
    if each.rank is not None and each.rank == reported.rank:
        return True
    return each.subject_id == reported.subject_id or (
        reported.scope == "host" and each.node == reported.node
    )


def _kind_of(verdict: Verdict) -> AnswerKind:
    if verdict.scope in SUBJECTS:
        return "straggler"
    return "uniform" if verdict.cause == "uniform_slowdown" else "imbalance"


def headline(verdict: Verdict, *, is_over: bool = False) -> str:
    """
    >>> headline(Verdict(run_id="r", subject_id="x", scope="rank", rank=5, node="node-1",
    ...     section="forward", state="confirmed"))
    'Rank 5 on node-1 is slow in forward'
    """
    if verdict.scope == "run":
        is_reported = verdict.is_localised or verdict.cause != "unknown"
        of_cause = CAUSES[verdict.cause].headline if is_reported else None
        return _confirmed(verdict, (of_cause or _NOT_LOCALISED)[is_over])
    who = _who(verdict)
    if verdict.cause == "stage_imbalance":
        return _confirmed(verdict, f"{who} {'had' if is_over else 'has'} more work than the others")
    return f"{who} {_is_slow(verdict, is_over=is_over)}"


def _confirmed(verdict: Verdict, text: str) -> str:
    """The text, marked as unconfirmed if it is only suspected. That the culprit is unknown cannot
    be confirmed."""
    is_suspicion = verdict.state == "suspect" and verdict.is_localised
    return f"Unconfirmed: {lower(text)}" if is_suspicion else text


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
    again = "repeatedly " if verdict.state == "flapping" else ""
    return f"is {again}{what}{where}"


def _tone(view: WorldView, verdict: Verdict) -> Tone:
    """Bad if it pages or is large; ``watch`` if it is silenced or only suspected."""
    if verdict.state not in CALLED_SLOW or verdict.subject_id in view.run_verdicts.silenced:
        return "watch"
    is_large = verdict.slowdown >= _BAD_SLOWDOWN and verdict.cause != "checkpoint"
    return "bad" if verdict.pages or is_large else "watch"


def has_only_steps(view: WorldView) -> bool:
    """Whether ranks mark no sections, so that whole steps are compared."""
    return view.table is not None and {s.name for s in view.table.sections} == {STEP_SPAN}


def _advice(view: WorldView, verdict: Verdict) -> list[str]:
    text = [as_sentence(next_action(verdict.cause, on_gpu=verdict.is_on_gpu))]
    if verdict.state == "suspect" and not view.has_ended:
        text.insert(0, "Wait for confirmation; nothing needs to be done yet.")
    if has_only_steps(view):
        text.append(MARK_SECTIONS)
    if not verdict.is_localised:
        text.append(
            "These times do not tell the culprit from its victims: time GPUs (--gpu-timing), or "
            "put sections around whatever waits."
        )
    if verdict.subject_id in view.run_verdicts.silenced and not view.has_ended:
        text.append("It has been silenced: nobody will be notified.")
    return text[:3]


def _commands(view: WorldView, verdict: Verdict) -> list[str]:
    if not view.is_live:
        return []
    lines = [command("verdict", "explain", _subject(view, verdict), view=view)]
    is_silenced = verdict.subject_id in view.run_verdicts.silenced
    if verdict.state in CALLED_SLOW and not is_silenced and not view.has_ended:
        text = ("verdict", "dismiss", _subject(view, verdict), "--reason", "WHY")
        lines.append(command(*text, view=view))
    return lines


def _subject(view: WorldView, verdict: Verdict) -> str:
    """The argument of the command: a rank's number if only one verdict is about that rank."""
    if verdict.scope == "rank":
        same = [each for each in view.run_verdicts.current if each.rank == verdict.rank]
        if len(same) == 1:
            return str(verdict.rank)
    return verdict.subject_id
