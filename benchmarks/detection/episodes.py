"""What a method says, in one form for all of them: episodes of a subject."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otel_straggler.model.observation import Floats
from otel_straggler.model.verdict import Scope


@dataclass(slots=True, kw_only=True)
class Episode:
    """A subject is called slow, from one step to another.

    Attributes:
        scope: what kind of subject it is.
        ranks: which are accused; empty for a role or a run.
        node: of a host.
        begin_step: newest step seen when it was said.
        end_step: newest step seen when it was taken back; None if never.
        strength: how sure or how large, in the method's own unit; the peak of the episode.
        section, cause, slowdown, sentence: as far as the method reports them.
    """

    scope: Scope
    ranks: frozenset[int]
    begin_step: int
    node: str = ""
    end_step: int | None = None
    strength: float = 0.0
    section: str = ""
    cause: str = ""
    slowdown: float = float("nan")
    sentence: str = ""


class FlagTracker:
    """Episodes of ranks from flags: flagged in consecutive evaluations is one episode."""

    def __init__(self) -> None:
        self._open: dict[int, Episode] = {}

    def take(
        self, ranks: Sequence[int], flagged: npt.NDArray[np.bool_], strength: Floats, step: int
    ) -> list[Episode]:
        """One evaluation at ``step``; the answer is the episodes that begin with it."""
        now = {ranks[at]: float(strength[at]) for at in np.flatnonzero(flagged)}
        for rank in self._open.keys() - now.keys():
            self._open.pop(rank).end_step = step
        begun = []
        for rank, its_strength in now.items():
            if episode := self._open.get(rank):
                episode.strength = max(episode.strength, its_strength)
                continue
            episode = Episode(
                scope="rank", ranks=frozenset((rank,)), begin_step=step, strength=its_strength
            )
            self._open[rank] = episode
            begun.append(episode)
        return begun
