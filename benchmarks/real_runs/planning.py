"""What is planted in each run."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Final

Json = dict[str, Any]
RANKS: Final = 4
PLACES: Final[Mapping[str, float]] = {
    "data": 0.006,
    "forward": 0.012,
    "backward": 0.018,
    "outside": 0.012,
}
"""Seconds per step that a rank that is well sleeps there; "outside" is in no section."""
SECTIONS: Final[Mapping[str, frozenset[str | None]]] = {
    "data": frozenset({"data_loading"}),
    "forward": frozenset({"forward"}),
    "backward": frozenset({"backward"}),
    "outside": frozenset({None}),
}
"""What a verdict on it may name; outside of all sections a rank is late."""
STEP_S: Final = 0.06
"""Of a run that is well, about: what it sleeps, and what four ranks compute on two cores."""
SIZES: Final = (0.15, 0.3, 0.6, 1.0, 2.0)
"""Seconds that the slow rank takes more / ``STEP_S``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A rank that takes ``seconds`` more at ``place`` from ``step`` on."""

    rank: int
    place: str
    step: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run; ``fault`` is None in a healthy one."""

    run_id: str
    steps: int
    fault: Fault | None
    endpoint: str = ""

    @classmethod
    def from_json(cls, plan: Json) -> Plan:
        fault = None if plan["fault"] is None else Fault(**plan["fault"])
        return cls(**{**plan, "fault": fault})

    def as_json(self) -> Json:
        return asdict(self)


def draw(n_healthy: int, n_faulty: int, seconds: float, seed: int) -> Iterator[Plan]:
    """Healthy and faulty runs in turn, as a machine is quiet at one time and busy at another; every
    place with every size equally often. A run lasts about ``seconds``; the onset is in its second
    quarter."""
    chance = random.Random(seed)
    deck = list(product(PLACES, SIZES))
    chance.shuffle(deck)
    for at in range(max(n_healthy, n_faulty)):
        if at < n_healthy:
            yield Plan(run_id=f"healthy-{at}", steps=round(seconds / STEP_S), fault=None)
        if at < n_faulty:
            place, size = deck[at % len(deck)]
            onset_s = seconds * chance.uniform(0.25, 0.5)
            fault = Fault(
                rank=chance.randrange(RANKS),
                place=place,
                step=round(onset_s / STEP_S),
                seconds=round(size * STEP_S, 4),
            )
            after = round((seconds - onset_s) / (STEP_S + fault.seconds))
            yield Plan(run_id=f"{place}-{at}", steps=fault.step + after, fault=fault)
