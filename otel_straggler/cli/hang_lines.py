"""Findings from flight records, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from otel_straggler.collector.views.hang_json import ranks_text
from otel_straggler.detect.hangs.collectives import Cause, HangFindings


def hang_lines(result: HangFindings) -> Iterator[str]:
    """Messages for people, the culprits first."""
    for cause in result.causes:
        yield _sentence(cause)
    for call in result.stuck_together:
        yield (
            f"All ranks of {call.group} ({ranks_text(list(call.group.ranks))}) are in {call.name} "
            f"#{call.sequence}, and none gets through: look at the network and the GPUs between "
            "them, not at the program."
        )
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
    if result.missing:
        yield (
            f"No dump of {ranks_text(list(result.missing))}: a rank that cannot write one was "
            "killed, stopped, or holds the GIL. That is a finding, not a gap."
        )
    is_clear = result.causes or result.stuck_together or result.circles or result.mismatches
    if not is_clear and not result.missing:
        yield "No collective is pending: these ranks wait for nothing that PyTorch records."


def hang_json(result: HangFindings) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "ranks": list(result.ranks),
        "missing": list(result.missing),
        "culprits": [
            {
                "rank": cause.rank,
                "why": cause.why,
                "call": str(cause.call),
                "waiting": list(cause.waiting),
                "is_silent": cause.is_silent,
                "sentence": _sentence(cause),
            }
            for cause in result.causes
        ],
        "stuck_together": [
            {"call": str(call), "ranks": list(call.group.ranks)} for call in result.stuck_together
        ],
        "circles": [list(circle) for circle in result.circles],
        "mismatches": [
            {
                "group": str(one.group),
                "sequence": one.sequence,
                "calls": {str(rank): name for rank, name in sorted(one.names.items())},
            }
            for one in result.mismatches
        ],
        "sentences": list(hang_lines(result)),
    }


def _sentence(cause: Cause) -> str:
    who = f"Rank {cause.rank}"
    waiting = (
        f"{ranks_text(list(cause.waiting))} {'waits' if len(cause.waiting) == 1 else 'wait'} for it"
    )
    return f"{who} {_WHAT[cause.why].format(call=cause.call)}; {waiting}. {_remedy(cause)}"


_WHAT = {
    "no_dump": "left no dump, and is waited for in {call}",
    "not_through": "does not get through {call}, which others of the group have completed",
    "never_joined": "did not join {call}",
    "other_end": "is waited for at the other end of {call}",
}


def _remedy(cause: Cause) -> str:
    if cause.why == "not_through":
        return "Its GPU does not get on: look for XID errors there, and take the host out."
    if cause.is_silent:
        return "It had launched nothing: look at its Python stack (py-spy), or whether it lives."
    return "It was busy elsewhere: look at its Python stack (py-spy) and its last section."
