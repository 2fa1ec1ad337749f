"""Faults: where a rank becomes slow, by how much, and what it has to sleep for that."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from benchmarks.inside_backward.rows import Row
from benchmarks.inside_backward.work import LAYERS
from otel_straggler.detect.verdicts.peer_engine import SMALL_GROUP

Json = dict[str, Any]
WHERE: Final = {
    "forward": ("forward",),
    "backward": ("backward",),
    "layer": ("forward", "backward"),
    "data loading": ("data_loading",),
}
"""What a fault makes slower; of a layer, forward and backward of that one alone."""
DOSES: Final = (0.10, 0.15, 0.30)
"""Of the own time of a section on a rank that is well."""
DOSES_OF_FEW: Final = (0.12, 0.15, 0.30)
"""The same where 10 % is the very limit below which nobody is named."""
ONSETS: Final = range(70, 80)
_LAYER = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What was planted.

    Attributes:
        where: of ``WHERE``.
        dose: part of the own time of the section.
        rank: that becomes slow.
        onset: first step in which it is.
        added_s: by section, seconds per step.
        sleeps: what the rank is told, see ``Pace.plan``.
    """

    where: str
    dose: float
    rank: int
    onset: int
    added_s: Mapping[str, float]
    sleeps: Json


def draw(row: Row, base_s: Mapping[str, float], n_runs: int, seed: str) -> list[Fault]:
    """So many faults: every place with every dose equally often, in an order drawn by ``seed``.

    Args:
        base_s: own time by section, seconds per step, of ranks that are well.
    """
    chance = random.Random(seed)
    kinds: list[tuple[str, float]] = []
    while len(kinds) < n_runs:
        deck = list(product(WHERE, DOSES if row.ranks >= SMALL_GROUP else DOSES_OF_FEW))
        chance.shuffle(deck)
        kinds += deck
    return [
        plant(row, base_s, where, dose, chance.randrange(row.ranks), chance.choice(ONSETS))
        for where, dose in kinds[:n_runs]
    ]


def plant(
    row: Row, base_s: Mapping[str, float], where: str, dose: float, rank: int, onset: int
) -> Fault:
    """Each section in which it happens takes longer by the dose."""
    works = WHERE[where]
    parts = Counter(row.sections[work] for work in works)
    each_s = {work: dose * base_s[row.sections[work]] / parts[row.sections[work]] for work in works}
    added_s = {section: dose * base_s[section] for section in parts}
    if row.repeats_forward and "forward" in each_s:
        section = row.sections["backward"]
        added_s[section] = added_s.get(section, 0.0) + each_s["forward"]
    layers = [_LAYER] if where == "layer" else range(LAYERS)
    sleeps = {
        "onset": onset,
        "data_s": each_s.get("data_loading", 0.0) / row.executions,
        "forward_s": _spread(each_s.get("forward", 0.0) / row.executions, layers),
        "backward_s": _spread(each_s.get("backward", 0.0) / row.executions, layers),
    }
    return Fault(where=where, dose=dose, rank=rank, onset=onset, added_s=added_s, sleeps=sleeps)


def _spread(seconds: float, layers: Sequence[int]) -> list[float]:
    return [seconds / len(layers) if at in layers else 0.0 for at in range(LAYERS)]
