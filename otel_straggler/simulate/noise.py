"""Random numbers of a run: one stream for each source of noise, so that none disturbs another.

Numbers of a step depend on seed, source and step alone: not on how many steps are made at once,
nor on which other sources are switched on.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from otel_straggler.model.observation import Floats

SHARED: Final = 0.8
"""Part of the variance of a rank's step that forward and backward share."""

STREAMS: Final = (
    "offset", "sections", "common", "spikes", "microbatches", "sequences", "experts", "gc",
    "phases", "warm_up", "missing", "clocks", "renumbering", "faults", "launches", "transfer",
)  # fmt: skip


class Draws:
    """Generators of random numbers by name and step."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def once(self, stream: str, number: int = 0) -> np.random.Generator:
        """For what is drawn once in a run."""
        return np.random.default_rng((self._seed, STREAMS.index(stream), number, 1))

    def at(self, stream: str, step: int) -> np.random.Generator:
        """For what is drawn in every step; ``step`` counts the steps made, not their numbers."""
        return np.random.default_rng((self._seed, STREAMS.index(stream), step))

    def normals(self, stream: str, first: int, shape: tuple[int, ...]) -> Floats:
        """Standard normal numbers; the first axis is steps from ``first`` on."""
        values: Floats = np.empty(shape)
        for index in range(shape[0]):
            self.at(stream, first + index).standard_normal(out=values[index : index + 1])
        return values

    def uniforms(self, stream: str, first: int, shape: tuple[int, ...]) -> Floats:
        """Numbers in [0, 1); the first axis is steps from ``first`` on."""
        values: Floats = np.empty(shape)
        for index in range(shape[0]):
            self.at(stream, first + index).random(out=values[index : index + 1])
        return values


def microbatch_sigma(sigma: float) -> float:
    """Of single microbatches, for a step noise of ``sigma``: far below what sequences cause."""
    return min(1.2 * sigma, 0.06)
