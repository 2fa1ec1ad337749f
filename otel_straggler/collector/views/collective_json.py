"""Which rank has not entered which collective, by flight records: sentences, and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from otel_straggler.detect.hangs.collectives import Cause, HangFindings, Why
from otel_straggler.model.rank_names import ranks_text

Json = dict[str, Any]
_WHY: Final[dict[Why, str]] = {
    "no_dump": "left no dump, and is waited for in {call}",
    "not_through": "does not get through {call}, which others of the group have completed",
    "never_joined": "did not join {call}",
    "other_end": "is waited for at the other end of {call}",
}
_LIVE: Final[dict[Why, str]] = {
    **_WHY,
    "no_dump": "does not answer, and is waited for in {call}",
    "never_joined": "has not entered {call}",
}
MAX_SENTENCES: Final = 20
MAX_CAUSES: Final = 2
"""Culprits with a sentence of their own in the message of a hang."""


def findings_lines(result: HangFindings) -> Iterator[str]:
    """The culprits first, then what else is known."""
    for cause in result.causes:
        yield f"{cause_text(cause, is_live=result.is_live)} {_remedy(cause, result.is_live)}"
    yield from _together_lines(result)
    for circle in result.circles:
        yield (
            f"Ranks {' → '.join(map(str, (*circle, circle[0])))} wait for each other in a circle: "
            "their sends, receives or collectives are called in different orders."
        )
    for mismatch in result.mismatches:
        calls = ", ".join(f"rank {r}: {name}" for r, name in sorted(mismatch.names.items()))
        yield (
            f"#{mismatch.sequence} of {mismatch.group} is not the same call on all ranks "
            f"({calls}): the program took different branches."
        )
    for one in result.uncertain:
        yield (
            f"Ranks wait in {one.call}; whether {ranks_text(list(one.ranks))} has entered is not "
            "in the flight record: it was overwritten, or the group has been replaced there."
        )
    if not result.is_live:
        yield from _missing_lines(result)


def _together_lines(result: HangFindings) -> Iterator[str]:
    for call in result.stuck_together:
        yield (
            f"All ranks of {call.group} ({ranks_text(list(call.group.ranks))}) are in {call.name} "
            f"#{call.sequence}, and none gets through: look at the network and the GPUs between "
            "them, not at the program."
        )


def _missing_lines(result: HangFindings) -> Iterator[str]:
    if result.missing:
        yield (
            f"No dump of {ranks_text(list(result.missing))}: a rank that cannot write one was "
            "killed, stopped, or holds the GIL. That is a finding, not a gap."
        )
    elif not result.has_any:
        yield "No collective is pending: these ranks wait for nothing that PyTorch records."


def hang_text(result: HangFindings | None, culprits: list[int]) -> str:
    """One or two sentences about a live hang; empty if flight records say nothing.

    Args:
        culprits: of the hang; if flight records name them, nothing else is said.
    """
    if result is None or not result.has_any:
        return ""
    of_culprits = [cause for cause in result.causes if cause.rank in culprits]
    causes = of_culprits or list(result.causes)
    texts = [cause_text(cause, is_live=True) for cause in causes[:MAX_CAUSES]]
    if len(causes) > MAX_CAUSES:
        texts.append(f"{len(causes) - MAX_CAUSES} more ranks have not entered theirs.")
    return " ".join(texts) if texts else next(findings_lines(result), "")


def cause_text(cause: Cause, *, is_live: bool) -> str:
    """Which rank has not entered which collective, where it is, and which ranks wait."""
    waits = "waits" if len(cause.waiting) == 1 else "wait"
    what = (_LIVE if is_live else _WHY)[cause.why].format(call=cause.call)
    waiting = ranks_text(list(cause.waiting))
    return f"Rank {cause.rank} {what}{_place(cause)}; {waiting} {waits} for it."


def _place(cause: Cause) -> str:
    """Where a rank is by its heartbeats."""
    section = f"in section {cause.section}" if cause.section else ""
    step = "" if cause.step is None else f"step {cause.step}"
    if section and step:
        return f" (it is {section} of {step})"
    return f" (it is {section}{step and 'at '}{step})" if section or step else ""


def _remedy(cause: Cause, is_live: bool) -> str:
    if cause.why == "not_through":
        return "Its GPU makes no progress: look for XID errors there, and take the host out."
    if cause.is_silent and cause.why == "no_dump" and is_live:
        return "It was killed, stopped, or holds the GIL: look at its host."
    if cause.is_silent:
        return "It had launched nothing: look at its Python stack (py-spy), or whether it lives."
    return "It was busy elsewhere: look at its Python stack (py-spy) and its last section."


def findings_json(result: HangFindings) -> Json:
    """The same for programs; ``schema_version`` 1."""
    return {
        "schema_version": 1,
        "ranks": list(result.ranks),
        "missing": list(result.missing),
        "culprits": [_cause_json(cause, result) for cause in result.causes],
        "stuck_together": [
            {"call": str(call), "ranks": list(call.group.ranks)} for call in result.stuck_together
        ],
        "circles": list(map(list, result.circles)),
        "mismatches": [
            {
                "group": str(one.group),
                "sequence": one.sequence,
                "calls": {str(rank): name for rank, name in sorted(one.names.items())},
            }
            for one in result.mismatches
        ],
        "uncertain": [
            {"call": str(one.call), "ranks": list(one.ranks)} for one in result.uncertain
        ],
        "ignored_entries": dict(result.ignored),
        "sentences": list(findings_lines(result))[:MAX_SENTENCES],
    }


def _cause_json(cause: Cause, result: HangFindings) -> Json:
    call = cause.call
    text = cause_text(cause, is_live=result.is_live)
    return {
        **asdict(cause),
        "section": cause.section or None,
        "call": str(call),
        "operation": call.name,
        "sequence": call.sequence,
        "process_group": str(call.group),
        "sentence": f"{text} {_remedy(cause, result.is_live)}",
    }


def collective_json(result: HangFindings | None) -> Json | None:
    """Part of the report about a live hang; None while no flight record says anything."""
    return None if result is None or not result.has_any else findings_json(result)
