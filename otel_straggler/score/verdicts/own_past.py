"""A whole group of peers against its own past: what no comparison with peers can see.

Quantities are logarithms or parts of a step, by group of peers. The past is the mean of its blocks,
frozen while a rise is seen. Alone it never calls anybody: a longer sequence or a colder data centre
looks the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otel_straggler.model.observation import Floats
from otel_straggler.score.verdicts.comparison import SIGMA_OF_MAD
from otel_straggler.score.verdicts.grouping import median_of_rows

LEAST_RISES = np.array([0.05, 0.03, 0.05])
"""Of local work, of waiting (a part of the work), and of the step; logarithms."""
LEAST_BLOCKS = 8
"""Blocks (40 steps) before there is a past, ..."""
MOST_BLOCKS = 400
"""... and after which older ones fade."""
NEWEST = 4
"""Blocks (20 steps) whose median is compared with it."""
SIGMAS = 4.0
"""A rise below so many standard errors does not count."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rises:
    """(G, C) rise of the newest 20 steps over the past; its least that counts; who is beyond; (C,)
    the standard error of a rise."""

    rise: Floats
    least: Floats
    beyond: npt.NDArray[np.bool_]
    error: Floats


class OwnPast:
    """Memory of G groups (or ranks) and C quantities.

    Args:
        shape: (G, C).
        least_rises: (C,) as far as given; of local work, least wait and step.
    """

    def __init__(self, shape: tuple[int, int], least_rises: Floats = LEAST_RISES) -> None:
        self.shape = shape
        self._least_rises = least_rises
        self.reference = np.full(shape, np.nan)
        self.blocks = np.zeros(shape, np.int64)
        self._sigma = np.full(shape[1], np.nan)
        self._newest: list[Floats] = []

    def seed(self, reference: Floats) -> None:
        """Go on from what was normal before; (G, C), NaN where nothing is known."""
        known = np.isfinite(reference)
        self.reference = np.where(known, reference, self.reference)
        self.blocks = np.where(known, LEAST_BLOCKS, self.blocks)

    def take(self, values: Floats) -> Rises:
        """The next block, (T, G, C); NaN where unknown. Cost: O(T G C)."""
        block = median_of_rows(values)
        if self._newest:
            moved = np.abs(block - self._newest[-1])
            sigma = SIGMA_OF_MAD / math.sqrt(2.0) * median_of_rows(moved)
            old = self._sigma
            mixed = np.where(np.isnan(old), sigma, old + 0.125 * (sigma - old))
            self._sigma = np.where(np.isnan(sigma), old, mixed)
        self._newest = [*self._newest[-(NEWEST - 1) :], block]
        rises = self._rises()
        self._learn(block, rises)
        return rises

    def _rises(self) -> Rises:
        newest = median_of_rows(np.array(self._newest))
        rise = np.where(self.blocks >= LEAST_BLOCKS, newest - self.reference, np.nan)
        error = np.nan_to_num(self._sigma, nan=1.0) / math.sqrt(len(self._newest))
        least = np.broadcast_to(np.maximum(self._least_rises, SIGMAS * error), self.shape)
        with np.errstate(invalid="ignore"):
            return Rises(rise=rise, least=least, beyond=rise >= least, error=error)

    def _learn(self, block: Floats, rises: Rises) -> None:
        is_past = self.blocks >= LEAST_BLOCKS
        with np.errstate(invalid="ignore"):
            rising = (rises.rise >= 0.5 * rises.least) | (block - self.reference >= rises.least)
        # Until the noise is known nobody can tell whether a past that was given still holds.
        learns = np.isfinite(block) & ~(is_past & (rising | np.isnan(self._sigma)))
        self.blocks = np.minimum(self.blocks + learns, MOST_BLOCKS)
        known = np.where(np.isnan(self.reference), block, self.reference)
        moved = known + (block - known) / np.maximum(self.blocks, 1)
        self.reference = np.where(learns, moved, self.reference)
