"""Hangs of before, as ``/v1/report``, the page and people read them."""

from __future__ import annotations

import math
from typing import Any, Final

from otel_straggler.score.hangs.episodes import Hang
from otel_straggler.score.hangs.judge import Found

Json = dict[str, Any]
_DID: Final = {
    "lost": ("was silent", "were silent"),
    "left_early": ("had ended before the others", "had ended before the others"),
    "never_joined": ("did not join the others", "did not join the others"),
}
_THEN: Final = {
    "went_on": "it went on by itself",
    "restarted": "a new attempt began",
    "ended": "the run ended",
}


def earlier_hangs_json(found: Found) -> list[Json]:
    """Newest first; times are seconds since 1970."""
    return [hang_of_before(hang) for hang in reversed(found.before)]


def hang_of_before(hang: Hang) -> Json:
    """One of them."""
    return {
        "since_s": _known(hang.since_s),
        "until_s": hang.until_s,
        "duration_s": _known(hang.duration_s),
        "is_end_seen": hang.end is not None and hang.is_end_seen,
        "end": hang.end,
        "attempt": hang.attempt,
        "why": hang.kind,
        "culprits": list(hang.culprits),
        "nodes": [node or None for node in hang.nodes],
        "n_culprits": hang.n_culprits,
        "gpu_seconds_lost": round(hang.gpu_seconds_lost, 3) if hang.how == "idle" else None,
        "sentence": why_it_hung(hang),
        "then": what_came_then(hang),
    }


def why_it_hung(hang: Hang) -> str:
    """Whom it waited for.

    >>> why_it_hung(Hang(since_s=0.0, found_s=9.0, seen_s=9.0, kind="lost", culprits=(5,),
    ...     nodes=("node-1",), n_culprits=1))
    'Rank 5 on node-1 was silent.'
    """
    if hang.kind is None:
        return "Nothing got on."
    if hang.kind == "joined_but_stuck":
        return "All ranks waited, and none got on."
    was, were = _DID[hang.kind]
    others = "; the others went on." if hang.how == "goes_on" else "."
    return f"{_who(hang)} {was if hang.n_culprits == 1 else were}{others}"


def what_came_then(hang: Hang) -> str:
    """How it was over."""
    if hang.end is None:
        return "its end was not seen"
    then = _THEN[hang.end]
    return then if hang.is_end_seen else f"{then} while no collector looked"


def _who(hang: Hang) -> str:
    nodes = {node for node in hang.nodes if node}
    named = ", ".join(map(str, hang.culprits[:4]))
    more = hang.n_culprits - len(hang.culprits[:4])
    who = f"Rank{'s' * (hang.n_culprits != 1)} {named}" + (f" and {more:,} more" if more else "")
    is_one_place = len(nodes) == 1 and hang.n_culprits <= len(hang.nodes)
    return f"{who} on {nodes.pop()}" if is_one_place else who


def _known(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None
