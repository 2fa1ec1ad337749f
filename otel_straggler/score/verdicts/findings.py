"""What an evaluation of a track finds, and how the findings of several windows become one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otel_straggler.model.observation import Floats, Ints

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Findings:
    """Of one evaluation; all (R, C).

    Attributes:
        beyond: in one window at least, the excess is unlikely and large.
        verified: CUSUM alarms, and what has passed since its onset is large enough.
        effect: the excess: of the shortest window that is beyond, else of the newest 20 steps.
        z: its distance from the peers, in robust standard deviations.
        floor: the least excess that counts in that window.
        recent: of the newest 20 steps at most.
        recent_error: (C,) its standard error.
        since: observed step (a count) at which the present rise began, -1 if there is none.
    """

    beyond: Flags
    verified: Flags
    effect: Floats
    z: Floats
    floor: Floats
    recent: Floats
    recent_error: Floats
    since: Ints


@dataclass(frozen=True, slots=True)
class Past:
    """(R, C) what is normal for each subject, NaN where nobody knows, and its standard error."""

    reference: Floats
    error: Floats


class Strongest:
    """The strongest finding per cell over windows; the shortest window that is beyond wins."""

    def __init__(self, shape: tuple[int, int], effect: Floats) -> None:
        self.beyond = np.zeros(shape, bool)
        self.effect = effect.copy()
        self.z = np.zeros(shape)
        self.floor = np.full(shape, np.inf)
        self.spread = np.full(shape[1], np.inf)

    def take(self, effect: Floats, z: Floats, floor: Floats, z_limit: float) -> None:
        with np.errstate(invalid="ignore"):
            is_beyond = (z >= z_limit) & (effect >= floor)
        new = is_beyond & ~self.beyond
        self.effect[new] = effect[new]
        self.floor[new] = floor[new]
        self.z = np.fmax(self.z, z)
        self.beyond |= is_beyond
