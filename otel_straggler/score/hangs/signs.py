"""What the ranks of one world last said of themselves, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from otel_straggler.model.observation import Codes, Floats, Ints
from otel_straggler.semconv import OUTCOMES

RankState = Literal["starting", "ok", "late", "stuck", "lost", "finished"]
RANK_STATES: tuple[RankState, ...] = ("starting", "ok", "late", "stuck", "lost", "finished")
STARTING, OK, LATE, STUCK, LOST, FINISHED = range(len(RANK_STATES))

Bools: TypeAlias = npt.NDArray[np.bool_]

NOT_ENDED = -1
NO_OPEN_SECTION = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Signs:
    """R ranks of one world (run, group, newest attempt). Times are ages on the collector's clock.

    Attributes:
        ranks: (R,) ascending.
        silent_s: (R,) since the newest heartbeat; NaN: never heard of, though expected.
        stalled_s: (R,) since the newest progress; NaN: never told of any.
        step: (R,) last step begun, ``NO_STEP`` if none.
        section: (R,) code of the innermost open section, ``NO_OPEN_SECTION`` if none is open.
        sections: their names, with the phase, in the order in which they run within a step as far
            as that is known.
        is_working: (R,) a section or a step is open.
        ended: (R,) index into ``OUTCOMES``, ``NOT_ENDED`` while it has not.
        ended_s: (R,) since it ended, NaN while it has not.
        node: (R,) a number for each node: the place of its name in ``nodes``, if that is told.
        began_s: (R,) since its session began; NaN: never heard of.
        first_step: (R,) the first step that it told of in its session, ``NO_STEP`` if none.
        nodes: names of nodes; may be empty.
    """

    ranks: Ints
    silent_s: Floats
    stalled_s: Floats
    step: Ints
    section: Codes
    sections: Sequence[str]
    is_working: Bools
    ended: Codes
    ended_s: Floats
    node: Codes
    began_s: Floats
    first_step: Ints
    nodes: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.ranks)

    @property
    def has_ended(self) -> Bools:
        """Whether a rank said that it ends, and how; who does not know how has not said it."""
        known: Bools = (self.ended != NOT_ENDED) & (self.ended != _UNKNOWN)
        return known


_UNKNOWN = OUTCOMES.index("unknown")
