"""Families of runs: healthy ones, the same noises with planted faults, and changes of faults.

A family draws its parameters for every run, from the seed, its name, and the run's number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from benchmarks.detection.unseen import held_out, noises, reality, worlds
from benchmarks.detection.unseen.noises import MakeNoise
from benchmarks.detection.unseen.runs import (
    MIN_NAMED,
    Limits,
    Noise,
    Planted,
    Rng,
    UnseenRun,
    World,
    build,
    draw_world,
    ranks_of_host,
)
from otel_straggler.model.observation import Floats

SIZES = (1.10, 1.15, 1.25, 1.50)


class MakeRun(Protocol):
    """Draws a run."""

    def __call__(self, rng: Rng, limits: Limits) -> UnseenRun: ...


Origin = Literal["generated", "held out", "traces"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A kind of run.

    Attributes:
        runs: of it at the default dose.
        is_healthy: nobody may be named.
        origin: of its noise; what is held out is not for tuning.
    """

    name: str
    make: MakeRun
    runs: int
    is_healthy: bool
    origin: Origin = "generated"


def healthy(noise: MakeNoise, **world: Any) -> MakeRun:
    """Nothing but this noise."""

    def make(rng: Rng, limits: Limits) -> UnseenRun:
        shape = draw_world(rng, limits, **world)
        return build(rng, shape, noise(rng, shape))

    return make


# --- faults ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Who becomes slow, when, by how much, and what happens later.

    Attributes:
        onset: row of the first slow step.
        later: row from which the factors are ``later_size``, and ``others`` for all other ranks;
            0: never.
    """

    ranks: frozenset[int]
    size: float
    onset: int
    later: int = 0
    later_size: float = 1.0
    others: float = 1.0

    def factor(self, world: World) -> Floats:
        """(T, R) of the work."""
        factor = np.ones((world.steps, world.ranks))
        who = sorted(self.ranks)
        factor[self.onset :, who] = self.size
        if self.later:
            factor[self.later :] = self.others
            factor[self.later :, who] = self.later_size
        return factor

    def label(self, world: World) -> Planted:
        is_host = len(self.ranks) > 1
        recovers = self.later > 0 and self.later_size == 1.0
        return Planted(
            scope="host" if is_host else "rank",
            ranks=self.ranks,
            nodes=frozenset(f"host-{rank // world.per_host}" for rank in self.ranks),
            cause="slow_host" if is_host else "slow_gpu",
            onset_step=world.first_step + self.onset,
            end_step=world.first_step + self.later if recovers else None,
            size=self.size,
            final_size=(self.later_size if self.later else self.size) / self.others,
            ending=("well" if recovers else "slow") if self.later else "",
            is_required=world.ranks >= MIN_NAMED,
        )


def faulty(
    noise: MakeNoise, sizes: Sequence[float] = SIZES, *, of_host: bool = False, **world: Any
) -> MakeRun:
    """This noise, and a rank or host that becomes slow; one in eight is so from the start."""

    def make(rng: Rng, limits: Limits) -> UnseenRun:
        shape = draw_world(rng, limits, **world)
        drawn = noise(rng, shape)
        onset = 0 if rng.random() < 1 / 8 else _row(rng, shape, 0.25, 0.50)
        ranks = _subject(rng, shape, of_host=of_host)
        fault = Fault(ranks=ranks, size=float(rng.choice(sizes)), onset=onset)
        return plant(rng, shape, drawn, fault)

    return make


def changing(what: Literal["worse", "recovers", "others"]) -> MakeRun:
    """A slow rank that becomes slower, recovers, or stays as it is while the others slow down."""

    def make(rng: Rng, limits: Limits) -> UnseenRun:
        ranks = int(rng.choice([2, 4, 8, 16, 32]))
        shape = draw_world(rng, limits, ranks=(ranks, ranks))
        drawn = noises.ar(rng, shape, sd=(0.005, 0.03), correlation=(0.0, 0.9))
        fault = Fault(
            ranks=_subject(rng, shape),
            size={"worse": 1.2, "recovers": 1.3, "others": 1.5}[what],
            onset=_row(rng, shape, 0.2, 0.3),
            later=_row(rng, shape, 0.5, 0.6),
        )
        if what == "worse":
            fault = replace(fault, later_size=4.0)
        if what == "others":
            fault = replace(fault, later_size=fault.size, others=float(rng.uniform(1.1, 1.3)))
        return plant(rng, shape, drawn, fault)

    return make


def plant(
    rng: Rng, world: World, noise: Noise, fault: Fault, *, slows_data: bool = False
) -> UnseenRun:
    """A run with this fault."""
    labels, factor = (fault.label(world),), fault.factor(world)
    return build(rng, world, noise, factor, labels=labels, slows_data=slows_data, fault=fault)


def _row(rng: Rng, world: World, low: float, high: float) -> int:
    return int(rng.integers(int(low * world.steps), int(high * world.steps)))


def _subject(rng: Rng, world: World, *, of_host: bool = False) -> frozenset[int]:
    if not of_host:
        return frozenset((int(rng.integers(world.ranks)),))
    return ranks_of_host(world, int(rng.integers(world.ranks // world.per_host)))


# --- the detection limit -----------------------------------------------------------------------

CALIBRATED_RANKS = (2, 3, 4, 8, 16, 64)


def at_limit(ranks: int, rng: Rng, limits: Limits, size: float | None) -> UnseenRun:
    """A healthy run, or with ``size`` the same draw and a rank slower by that, from a quarter on.

    All local work of the rank becomes slower, which is what the limit is about.
    """
    shape = draw_world(rng, limits, ranks=(ranks, ranks))
    noise = noises.ar(rng, shape, sd=(0.005, 0.03), correlation=(0.0, 0.9))
    fault = Fault(ranks=_subject(rng, shape), size=size or 1.0, onset=shape.steps // 4)
    return plant(rng, shape, noise, fault, slows_data=True)


# --- all of them -------------------------------------------------------------------------------


def _healthy(name: str, make: MakeRun, runs: int, origin: Origin = "generated") -> Family:
    return Family(name=name, make=make, runs=runs, is_healthy=True, origin=origin)


def _faulty(name: str, make: MakeRun, runs: int, origin: Origin = "generated") -> Family:
    return Family(name=name, make=make, runs=runs, is_healthy=False, origin=origin)


SMALL: dict[str, Any] = {"ranks": (2, 8)}
REAL: dict[str, Any] = {"ranks": (8, 64), "has_one_section": False}
FAMILIES = (
    _healthy("healthy/ar", healthy(noises.ar), 60),
    _healthy("healthy/mixture", healthy(noises.mixture), 40),
    _healthy("healthy/regimes", healthy(noises.regimes), 40),
    _healthy("healthy/regimes-heavy", healthy(noises.heavy_regimes), 40),
    _healthy("healthy/bursts", healthy(noises.bursts), 40),
    _healthy("healthy/contention", healthy(noises.contention), 40),
    _healthy("healthy/volatile", healthy(noises.volatile), 40),
    _healthy("healthy/skewed", healthy(noises.skewed), 40),
    _healthy("healthy/hosts", healthy(noises.wandering_hosts, ranks=(16, 128)), 40),
    _healthy("healthy/small-white", healthy(noises.independent, **SMALL), 60),
    _healthy("healthy/small-ar", healthy(noises.ar, **SMALL), 60),
    _healthy("healthy/small-contention", healthy(noises.contention, **SMALL), 40),
    _healthy("healthy/loaders", worlds.loaders, 60),
    _healthy("healthy/idle-ranks", worlds.idle_ranks, 40),
    _healthy("healthy/chores", worlds.chores, 40),
    _healthy("healthy/no-layout", worlds.unknown_stages, 40),
    *(
        _faulty(f"fault/ar-{100 * size - 100:.0f}", faulty(noises.quiet_ar, (size,)), runs)
        for size, runs in zip(SIZES, (50, 50, 20, 20), strict=True)
    ),
    _faulty("fault/mixture", faulty(noises.quiet_mixture), 25),
    _faulty("fault/regimes", faulty(noises.regimes), 25),
    _faulty("fault/bursts", faulty(noises.bursts), 25),
    _faulty("fault/contention", faulty(noises.contention), 25),
    _faulty("fault/volatile", faulty(noises.volatile), 25),
    _faulty("fault/skewed", faulty(noises.skewed), 25),
    _faulty("fault/hosts", faulty(noises.wandering_hosts, ranks=(16, 128)), 25),
    _faulty("fault/small", faulty(noises.quiet_ar, ranks=(4, 8)), 40),
    _faulty("fault/host", faulty(noises.quiet_ar, of_host=True, ranks=(32, 128)), 20),
    _faulty("fault/loader", worlds.slow_loader, 25),
    _faulty("change/worse", changing("worse"), 20),
    _faulty("change/recovers", changing("recovers"), 20),
    _faulty("change/others", changing("others"), 20),
    _healthy("reality/healthy", healthy(reality.resampled, **REAL), 40, "traces"),
    _faulty("reality/fault", faulty(reality.resampled, **REAL), 30, "traces"),
    *(
        _healthy(f"held-out/{noise.__name__}", healthy(noise), 30, "held out")
        for noise in (
            held_out.octaves,
            held_out.cycles,
            held_out.shared,
            held_out.shuffled_lengths,
            held_out.pauses,
            held_out.ramps,
            held_out.migrations,
        )
    ),
    *(
        _healthy(f"held-out/small-{noise.__name__}", healthy(noise, **SMALL), 30, "held out")
        for noise in (held_out.pauses, held_out.ramps, held_out.migrations)
    ),
    *(
        _faulty(f"held-out/fault-{noise.__name__}", faulty(noise), 20, "held out")
        for noise in (
            held_out.octaves,
            held_out.cycles,
            held_out.shared,
            held_out.pauses,
            held_out.ramps,
            held_out.migrations,
        )
    ),
    _faulty(
        "held-out/small-fault-migrations",
        faulty(held_out.migrations, ranks=(4, 8)),
        20,
        "held out",
    ),
    _faulty(
        "held-out/host-fault-migrations",
        faulty(held_out.migrations, of_host=True, ranks=(32, 128)),
        20,
        "held out",
    ),
)
