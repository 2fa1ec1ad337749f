"""The states of a world, as ``/v1/report`` and people read them."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Final

import numpy as np

from otel_straggler.detect.hangs.detector import HangStatus
from otel_straggler.detect.hangs.episodes import Hang
from otel_straggler.detect.hangs.states import RANK_STATES, Blame

MAX_NAMED = 20
"""Ranks that are named; the rest is counted."""
Json = dict[str, Any]


def hang_json(group: str, result: HangStatus, *, is_acknowledged: bool = False) -> Json:
    """One world: its state, how many ranks are in which, and because of whom it waits.

    Args:
        is_acknowledged: a person has said that nobody is to be called for it.
    """
    counts = np.bincount(result.rank_states, minlength=len(RANK_STATES))
    blame = result.blame
    return {
        "group": group,
        "state": result.state,
        "since_s": result.since_s,
        "acknowledged": is_acknowledged and result.is_hung,
        "ranks": {state: int(n) for state, n in zip(RANK_STATES, counts, strict=True) if n},
        "why": None if blame is None else blame.kind,
        "culprits": [] if blame is None else result.ranks[blame.culprits].tolist(),
        "victims": 0 if blame is None else int(blame.victims.sum()),
        "sentence": sentence(result),
        **earlier_hangs_json(result),
    }


def sentence(result: HangStatus) -> str | None:
    """For people; None while nobody waits."""
    blame = result.blame
    if blame is None:
        return None
    who = _who(result, blame)
    victims = int(blame.victims.sum())
    waits = f"{victims} {'rank waits' if victims == 1 else 'ranks wait'}"
    line = {
        "lost": f"{who}: no sign of life",
        "left_early": f"{who}: ended while others still work",
        "never_joined": f"{who}: behind all others, and no progress",
        "joined_but_stuck": "all ranks have come equally far, and none gets on",
    }[blame.kind]
    if len(result.ranks) == 1 and blame.kind == "joined_but_stuck":
        return f"Rank {result.ranks[0]} does not get on."  # nobody else is there to wait
    text = f"{line}; {waits}." if victims else f"{line}."
    return text[0].upper() + text[1:]


def _who(result: HangStatus, blame: Blame) -> str:
    """The culprits; of a run of which nothing is heard nobody in particular."""
    if result.state == "lost" and len(result.ranks) > 1 and blame.culprits.all():
        return f"all {len(result.ranks):,} ranks"
    return ranks_text(result.ranks[blame.culprits].tolist())


def ranks_text(ranks: list[int]) -> str:
    """Numbers of ranks for people; at most 20 runs of them, the rest counted.

    >>> ranks_text([3]), ranks_text([5, 6]), ranks_text([0, 1, 2, 3, 7]), ranks_text([])
    ('rank 3', 'ranks 5 and 6', 'ranks 0 to 3 and 7', 'no rank')
    """
    if not ranks:
        return "no rank"
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    runs = [part for run in runs for part in ([run] if len(run) > 2 else [[rank] for rank in run])]
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
    left_out = sum(map(len, runs[MAX_NAMED:]))
    texts = texts[:MAX_NAMED] + ([f"{left_out} more"] if left_out else [])
    text = texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {text}"


BRIEF_S: Final = 120.0
"""Of a shorter one nobody asks on its own, where there are many."""
_MAX_BRIEF: Final = 3
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


def earlier_hangs_json(result: HangStatus) -> Json:
    """Those that are kept, newest first, how many more there were, and the brief ones in sum."""
    brief = [hang for hang in result.before if hang.duration_s < BRIEF_S]
    is_summed = len(brief) + result.before_left_out * bool(brief) > _MAX_BRIEF
    return {
        "earlier": [
            hang_of_before(hang) | {"is_brief": is_summed and hang.duration_s < BRIEF_S}
            for hang in reversed(result.before)
        ],
        "earlier_left_out": result.before_left_out,
        "earlier_brief": _in_sum(brief, result.before_left_out) if is_summed else None,
    }


def _in_sum(brief: list[Hang], left_out: int) -> Json:
    """Many brief ones, as after each checkpoint, would hide the long one among them. Those that
    were left out are no longer than any that is kept, so they are among these."""
    costs = [hang.gpu_seconds_lost for hang in brief if hang.how == "idle"]
    reported: Json = {
        "n": len(brief) + left_out,
        "shorter_than_s": BRIEF_S,
        "duration_s": round(sum(hang.duration_s for hang in brief), 3),
        "gpu_seconds_lost": round(sum(costs), 3) if costs else None,
        "is_all": left_out == 0,
    }
    at_least = "" if left_out == 0 else "at least "
    together = f"{at_least}{in_minutes(reported['duration_s'])} together"
    shorter = f"{reported['n']:,} shorter than {in_minutes(BRIEF_S)}"
    return reported | {"sentence": f"{shorter}, {together}{_mostly(brief)}."}


def _mostly(brief: list[Hang]) -> str:
    """Who was waited for in most of them; empty if nobody was."""
    alone = Counter(_blamed(hang) for hang in brief if hang.n_culprits == 1)
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

    >>> why_it_hung(Hang(since_s=0.0, detected_s=9.0, seen_s=9.0, kind="lost", culprits=(5,),
    ...     nodes=("node-1",), n_culprits=1))
    'Rank 5 on node-1 was silent.'
    """
    if hang.kind is None:
        return "Nothing got on."
    if hang.kind == "joined_but_stuck":
        return "No rank got on."
    was, were = _DID[hang.kind]
    others = "; the others went on." if hang.how == "goes_on" else "."
    return f"{_blamed(hang)} {was if hang.n_culprits == 1 else were}{others}"


def what_came_then(hang: Hang) -> str:
    """How it was over."""
    if hang.end is None:
        return "its end was not seen"
    then = _THEN[hang.end]
    return then if hang.is_end_seen else f"{then} while no collector looked"


def _blamed(hang: Hang) -> str:
    nodes = {node for node in hang.nodes if node}
    named = ", ".join(map(str, hang.culprits[:4]))
    more = hang.n_culprits - len(hang.culprits[:4])
    who = f"Rank{'s' * (hang.n_culprits != 1)} {named}" + (f" and {more:,} more" if more else "")
    is_one_index = len(nodes) == 1 and hang.n_culprits <= len(hang.nodes)
    return f"{who} on {nodes.pop()}" if is_one_index else who


def _known(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None
