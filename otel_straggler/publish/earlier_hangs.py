"""Hangs of before, as ``/v1/report``, the page and people read them."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Final

from otel_straggler.score.hangs.detector import HangStatus
from otel_straggler.score.hangs.episodes import Hang

Json = dict[str, Any]
BRIEF_S: Final = 120.0
"""Of a shorter one nobody asks on its own, where there are many."""
_MOST_BRIEF: Final = 3
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


def earlier_hangs_json(found: HangStatus) -> Json:
    """Those that are kept, newest first, how many more there were, and the brief ones in sum."""
    brief = [hang for hang in found.before if hang.duration_s < BRIEF_S]
    is_summed = len(brief) + found.before_left_out * bool(brief) > _MOST_BRIEF
    return {
        "earlier": [
            hang_of_before(hang) | {"is_brief": is_summed and hang.duration_s < BRIEF_S}
            for hang in reversed(found.before)
        ],
        "earlier_left_out": found.before_left_out,
        "earlier_brief": _in_sum(brief, found.before_left_out) if is_summed else None,
    }


def _in_sum(brief: list[Hang], left_out: int) -> Json:
    """Many brief ones, as after each checkpoint, would hide the long one among them. Those that
    were left out are no longer than any that is kept, so they are among these."""
    costs = [hang.gpu_seconds_lost for hang in brief if hang.how == "idle"]
    told: Json = {
        "n": len(brief) + left_out,
        "shorter_than_s": BRIEF_S,
        "duration_s": round(sum(hang.duration_s for hang in brief), 3),
        "gpu_seconds_lost": round(sum(costs), 3) if costs else None,
        "is_all": left_out == 0,
    }
    at_least = "" if left_out == 0 else "at least "
    together = f"{at_least}{in_minutes(told['duration_s'])} together"
    return told | {
        "sentence": f"{told['n']:,} shorter than {in_minutes(BRIEF_S)}, {together}{_mostly(brief)}."
    }


def _mostly(brief: list[Hang]) -> str:
    """Who was waited for in most of them; empty if nobody was."""
    alone = Counter(_who(hang) for hang in brief if hang.n_culprits == 1)
    who, n = alone.most_common(1)[0] if alone else ("", 0)
    return f"; {n:,} of them for {who[0].lower()}{who[1:]}" if 2 * n > len(brief) else ""


def in_minutes(seconds: float) -> str:
    """
    >>> in_minutes(42.0), in_minutes(2400.0), in_minutes(7260.0)
    ('42 s', '40 min', '2 h 1 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def hang_of_before(hang: Hang) -> Json:
    """One of them; times are seconds since 1970."""
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
        return "No rank got on."
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
