"""Ranks in sentences."""

from __future__ import annotations

MAX_NAMED = 20
"""Ranks that are named; the others are counted."""


def ranks_text(ranks: list[int]) -> str:
    """Name ranks; beyond 20 ranges the rest is counted.

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
