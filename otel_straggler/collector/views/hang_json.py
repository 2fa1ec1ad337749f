"""The hang state of a world, as in ``/v1/report``, and the sentences about it."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import numpy as np

from otel_straggler.collector.views.collective_json import collective_json, hang_text
from otel_straggler.collector.views.numbers import duration, seconds
from otel_straggler.detect.hangs.detector import HangStatus
from otel_straggler.detect.hangs.episodes import Hang
from otel_straggler.detect.hangs.states import RANK_STATES, Blame
from otel_straggler.model.rank_names import ranks_text

Json = dict[str, Any]


def hang_json(group: str, hang: HangStatus, *, is_acknowledged: bool = False) -> Json:
    counts = np.bincount(hang.rank_states, minlength=len(RANK_STATES))
    blame = hang.blame
    return {
        "group": group,
        "state": hang.state,
        "since_s": hang.since_s,
        "acknowledged": is_acknowledged and hang.is_hung,
        "ranks": {state: int(n) for state, n in zip(RANK_STATES, counts, strict=True) if n},
        "why": None if blame is None else blame.kind,
        "culprits": [] if blame is None else hang.ranks[blame.culprits].tolist(),
        "victims": 0 if blame is None else int(blame.victims.sum()),
        "sentence": sentence(hang),
        "collective": collective_json(hang.findings),
        **earlier_hangs_json(hang),
    }


def sentence(hang: HangStatus) -> str | None:
    """Describe the hang; None while no rank waits."""
    blame = hang.blame
    if blame is None:
        return None
    if len(hang.ranks) == 1 and blame.kind == "joined_but_stuck":
        return f"Rank {hang.ranks[0]} makes no progress."  # no other rank waits
    by_records = hang_text(hang.findings, hang.ranks[blame.culprits].tolist())
    if by_records and blame.kind == "never_joined":
        return by_records
    who = _who(hang, blame)
    victims = int(blame.victims.sum())
    waits = f"{victims} {'rank waits' if victims == 1 else 'ranks wait'}"
    line = {
        "lost": f"{who}: no heartbeats",
        "left_early": f"{who}: exited while others are still working",
        "never_joined": f"{who}: behind all others, and no progress",
        "joined_but_stuck": "all ranks are at the same point, and none makes progress",
    }[blame.kind]
    text = f"{line}; {waits}." if victims else f"{line}."
    text = text[0].upper() + text[1:]
    return f"{text} {by_records}" if by_records else text


def _who(hang: HangStatus, blame: Blame) -> str:
    if hang.state == "lost" and len(hang.ranks) > 1 and blame.culprits.all():
        return f"all {len(hang.ranks):,} ranks"
    return ranks_text(hang.ranks[blame.culprits].tolist())


BRIEF_S: Final = 120.0
"""Shorter hangs are summed up where there are many."""
_MAX_BRIEF: Final = 3
_DID: Final = {
    "lost": ("was silent", "were silent"),
    "left_early": ("exited before the others", "exited before the others"),
    "never_joined": ("did not join the others", "did not join the others"),
}
_THEN: Final = {
    "went_on": "it resumed on its own",
    "restarted": "a new attempt started",
    "ended": "the run ended",
}


def earlier_hangs_json(hang: HangStatus) -> Json:
    """Earlier hangs, newest first, the number of dropped ones, and a sum of the brief ones."""
    brief = [each for each in hang.before if each.duration_s < BRIEF_S]
    is_summed = len(brief) + hang.before_left_out * bool(brief) > _MAX_BRIEF
    return {
        "earlier": [
            hang_of_before(each) | {"is_brief": is_summed and each.duration_s < BRIEF_S}
            for each in reversed(hang.before)
        ],
        "earlier_left_out": hang.before_left_out,
        "earlier_brief": _in_sum(brief, hang.before_left_out) if is_summed else None,
    }


def _in_sum(brief: list[Hang], left_out: int) -> Json:
    """Sum up brief hangs: many, as after each checkpoint, would hide a long one. Dropped hangs are
    shorter than those that are kept, so they count here."""
    costs = [hang.gpu_seconds_lost for hang in brief if hang.how == "idle"]
    summed: Json = {
        "n": len(brief) + left_out,
        "shorter_than_s": BRIEF_S,
        "duration_s": round(sum(hang.duration_s for hang in brief), 3),
        "gpu_seconds_lost": round(sum(costs), 3) if costs else None,
        "is_all": left_out == 0,
    }
    at_least = "" if left_out == 0 else "at least "
    total = f"{at_least}{duration(summed['duration_s'])} in total"
    shorter = f"{summed['n']:,} shorter than {duration(BRIEF_S)}"
    return summed | {"sentence": f"{shorter}, {total}{_mostly(brief)}."}


def _mostly(brief: list[Hang]) -> str:
    """Name the rank that caused most of them; empty if none did."""
    alone = Counter(_blamed(hang) for hang in brief if hang.n_culprits == 1)
    who, n = alone.most_common(1)[0] if alone else ("", 0)
    return f"; {n:,} of them caused by {who[0].lower()}{who[1:]}" if 2 * n > len(brief) else ""


def hang_of_before(hang: Hang) -> Json:
    """One earlier hang; times are seconds since 1970."""
    return {
        "since_s": seconds(hang.since_s),
        "until_s": hang.until_s,
        "duration_s": seconds(hang.duration_s),
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
    """
    >>> why_it_hung(Hang(since_s=0.0, detected_s=9.0, seen_s=9.0, kind="lost", culprits=(5,),
    ...     nodes=("node-1",), n_culprits=1))
    'Rank 5 on node-1 was silent.'
    """
    if hang.kind is None:
        return "The run made no progress."
    if hang.kind == "joined_but_stuck":
        return "No rank made progress."
    was, were = _DID[hang.kind]
    others = "; the others kept training." if hang.how == "goes_on" else "."
    return f"{_blamed(hang)} {was if hang.n_culprits == 1 else were}{others}"


def what_came_then(hang: Hang) -> str:
    if hang.end is None:
        return "its end was not observed"
    then = _THEN[hang.end]
    return then if hang.is_end_seen else f"{then} while no collector was running"


def _blamed(hang: Hang) -> str:
    nodes = {node for node in hang.nodes if node}
    named = ", ".join(map(str, hang.culprits[:4]))
    more = hang.n_culprits - len(hang.culprits[:4])
    who = f"Rank{'s' * (hang.n_culprits != 1)} {named}" + (f" and {more:,} more" if more else "")
    is_one_node = len(nodes) == 1 and hang.n_culprits <= len(hang.nodes)
    return f"{who} on {nodes.pop()}" if is_one_node else who
