"""Operators of a slow rank and of its peer, for the report and the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from otel_straggler.collector.runs.profiles import ProfilePair
from otel_straggler.collector.views.numbers import number, seconds
from otel_straggler.model.operator_tables import OperatorTable
from otel_straggler.profiles.comparison import (
    OperatorDifference,
    compare_operators,
    difference_text,
)

Json = dict[str, Any]
MAX_OPERATORS: Final = 40
"""Of one pair: the first and the last, where the peer takes longer."""
_LAST: Final = 10


def profiles_json(pairs: Sequence[ProfilePair]) -> list[Json]:
    """The newest first. Cost: O(operators) of each."""
    return [_pair_json(pair) for pair in reversed(pairs)]


def _pair_json(pair: ProfilePair) -> Json:
    slow, peer = pair.slow, pair.peer
    differences: list[OperatorDifference] = []
    if isinstance(slow, OperatorTable) and isinstance(peer, OperatorTable):
        differences = compare_operators(slow, peer)
    shown = differences
    if len(differences) > MAX_OPERATORS:
        shown = [*differences[: MAX_OPERATORS - _LAST], *differences[-_LAST:]]
    return {
        "group": pair.group,
        "subject_id": pair.subject_id,
        "section": pair.section or None,
        "slow_rank": pair.slow_rank,
        "peer_rank": pair.peer_rank,
        "asked_at_s": seconds(pair.asked_at_s),
        "sentence": pair_text(pair),
        "slow_steps": _steps(slow),
        "peer_steps": _steps(peer),
        "operators": [_operator_json(each) for each in shown],
        "operators_left_out": len(differences) - len(shown),
    }


def pair_text(pair: ProfilePair) -> str:
    """One sentence: what differs, or why that is not known (yet)."""
    slow, peer = pair.slow, pair.peer
    if isinstance(slow, OperatorTable) and isinstance(peer, OperatorTable):
        return difference_text(slow, peer)
    whys = [
        f"Rank {rank} was not profiled: {why}."
        for rank, why in ((pair.slow_rank, slow), (pair.peer_rank, peer))
        if isinstance(why, str)
    ]
    if whys:
        return " ".join(whys)
    return f"Ranks {pair.slow_rank} and {pair.peer_rank} are asked to profile their next steps."


def _steps(table: OperatorTable | str | None) -> list[int] | None:
    """First and last step that were recorded."""
    if not isinstance(table, OperatorTable):
        return None
    return [table.first_step, table.first_step + table.n_steps - 1]


def _operator_json(each: OperatorDifference) -> Json:
    return {
        "name": each.name,
        "slow_s": number(each.slow_s),
        "peer_s": number(each.peer_s),
        "difference_s": number(each.difference_s),
        "ratio": None if each.ratio is None else number(each.ratio, 3),
        "slow_calls": number(each.slow_calls, 4),
        "peer_calls": number(each.peer_calls, 4),
        "on_gpu": each.on_device,
    }
