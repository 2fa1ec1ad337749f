"""The states of a world, as ``/v1/report`` and people read them."""

from __future__ import annotations

from typing import Any

import numpy as np

from otel_straggler.publish.earlier_hangs import earlier_hangs_json
from otel_straggler.score.hangs.detector import HangStatus
from otel_straggler.score.hangs.states import RANK_STATES, Blame

MOST_NAMED = 20
"""Ranks that are named; the rest is counted."""
Json = dict[str, Any]


def hang_json(group: str, found: HangStatus, *, is_acknowledged: bool = False) -> Json:
    """One world: its state, how many ranks are in which, and because of whom it waits.

    Args:
        is_acknowledged: a person has said that nobody is to be called for it.
    """
    counts = np.bincount(found.rank_states, minlength=len(RANK_STATES))
    blame = found.blame
    return {
        "group": group,
        "state": found.state,
        "since_s": found.since_s,
        "acknowledged": is_acknowledged and found.is_hung,
        "ranks": {state: int(n) for state, n in zip(RANK_STATES, counts, strict=True) if n},
        "why": None if blame is None else blame.kind,
        "culprits": [] if blame is None else found.ranks[blame.culprits].tolist(),
        "victims": 0 if blame is None else int(blame.victims.sum()),
        "sentence": sentence(found),
        **earlier_hangs_json(found),
    }


def sentence(found: HangStatus) -> str | None:
    """For people; None while nobody waits."""
    blame = found.blame
    if blame is None:
        return None
    who = _who(found, blame)
    victims = int(blame.victims.sum())
    waits = f"{victims} {'rank waits' if victims == 1 else 'ranks wait'}"
    said = {
        "lost": f"{who}: no sign of life",
        "left_early": f"{who}: ended while others still work",
        "never_joined": f"{who}: behind all others, and no progress",
        "joined_but_stuck": "all ranks have come equally far, and none gets on",
    }[blame.kind]
    if len(found.ranks) == 1 and blame.kind == "joined_but_stuck":
        return f"Rank {found.ranks[0]} does not get on."  # nobody else is there to wait
    text = f"{said}; {waits}." if victims else f"{said}."
    return text[0].upper() + text[1:]


def _who(found: HangStatus, blame: Blame) -> str:
    """The culprits; of a run of which nothing is heard nobody in particular."""
    if found.state == "lost" and len(found.ranks) > 1 and blame.culprits.all():
        return f"all {len(found.ranks):,} ranks"
    return ranks_text(found.ranks[blame.culprits].tolist())


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
    left_out = sum(map(len, runs[MOST_NAMED:]))
    texts = texts[:MOST_NAMED] + ([f"{left_out} more"] if left_out else [])
    text = texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {text}"
