"""Because of whom a world stands still.

A rank that is lost keeps all others waiting. If all are alive, those with the least progress, by
(step, section), have not joined what the others wait in; where all have come equally far they have
joined and do not get on: the network, a GPU, or the storage they share. A rank that ended well
while others wait for it has left too early.

Source: scoring.md of the design's references (FT-HSDP, Aegis, MegaScale: it is the rank that does
*not* complain).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from otel_straggler.model.observation import Codes, Ints
from otel_straggler.score.hangs.signs import FINISHED, LATE, LOST, STUCK, Bools, Signs

HangKind = Literal["lost", "left_early", "never_joined", "joined_but_stuck"]


@dataclass(frozen=True, slots=True, eq=False)
class Blame:
    """Why a world stands still.

    Attributes:
        kind: see above.
        culprits: (R,) whom it waits for; none where all have joined.
        victims: (R,) who wait.
    """

    kind: HangKind
    culprits: Bools
    victims: Bools


def blame(signs: Signs, states: Codes) -> Blame | None:
    """None while nobody waits: no rank is stuck or lost.

    Args:
        states: (R,) of :func:`rank_states`.

    Cost: O(R).
    """
    is_stuck, is_lost = states == STUCK, states == LOST
    if not (is_stuck.any() or is_lost.any()):
        return None
    waits = is_stuck | (states == LATE)
    if is_lost.any():
        return Blame("lost", is_lost, waits)
    alive = states != FINISHED
    place = _places(signs)
    behind = alive & (place == place[alive].min())
    if behind.sum() < alive.sum():
        return Blame("never_joined", behind, waits & ~behind)
    if not alive.all():
        return Blame("left_early", ~alive, waits)
    return Blame("joined_but_stuck", np.zeros(len(signs), bool), waits)


def _places(signs: Signs) -> Ints:
    """How far each rank is: by step, then by section in the order of the step; in no section it is
    before the first. Comparable between ranks only."""
    width = len(signs.sections) + 1
    first = signs.step.min()
    places: Ints = (signs.step - first) * width + signs.section + 1
    return places
