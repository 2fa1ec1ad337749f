"""Families of runs for `unseen`: healthy ones, and the same noises with planted faults.

A family draws its parameters anew for every run. Those of :mod:`.unseen_noise` are here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.signal import lfilter

from benchmarks.detection.unseen_runs import (
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

MakeRun = Callable[[Rng, Limits], UnseenRun]
MakeNoise = Callable[[Rng, World], Noise]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A kind of run.

    Attributes:
        runs: of it at the default dose.
        is_healthy: nobody may be named.
        is_held_out: its noise is not for tuning.
    """

    name: str
    make: MakeRun
    runs: int
    is_healthy: bool
    is_held_out: bool = False


# --- noises ------------------------------------------------------------------------------------


def correlated(rng: Rng, world: World, sd: float, correlation: float) -> Floats:
    """(T, R) AR(1) with this standard deviation of a step, stationary from the first."""
    drawn = white_matrix(rng, world)
    start = drawn[0] * correlation
    moved = np.sqrt(1.0 - correlation**2)
    rest = lfilter([moved], [1.0, -correlation], drawn[1:], axis=0, zi=start[None])[0]
    return sd * np.concatenate([drawn[:1], rest])


def white_matrix(rng: Rng, world: World) -> Floats:
    return rng.standard_normal((world.steps, world.ranks))


def ar(
    rng: Rng,
    world: World,
    *,
    sd: tuple[float, float] = (0.005, 0.12),
    correlation: tuple[float, float] = (0.3, 0.97),
) -> Noise:
    """AR(1), the standard deviation drawn evenly by its logarithm."""
    size = float(np.exp(rng.uniform(np.log(sd[0]), np.log(sd[1]))))
    rho = float(rng.uniform(*correlation))
    return Noise(log=correlated(rng, world, size, rho), sd=size, correlation=rho)


def independent(rng: Rng, world: World) -> Noise:
    size = float(np.exp(rng.uniform(np.log(0.005), np.log(0.12))))
    return Noise(log=size * white_matrix(rng, world), sd=size, correlation=0.0)


def mixture(rng: Rng, world: World, *, sd: tuple[float, float] = (0.005, 0.08)) -> Noise:
    """Independent noise, and a slow part that is forgotten in 5 to 100 steps."""
    size = float(np.exp(rng.uniform(np.log(sd[0]), np.log(sd[1]))))
    part = float(rng.uniform(0.2, 0.8))
    rho = float(np.exp(-1.0 / rng.uniform(5.0, 100.0)))
    slow = correlated(rng, world, 1.0, rho)
    log = size * (np.sqrt(part) * slow + np.sqrt(1.0 - part) * white_matrix(rng, world))
    return Noise(log=log, sd=size, correlation=part * rho)


def stretches(rng: Rng, world: World, mean_steps: float, draw: Callable[[int], Floats]) -> Floats:
    """(T, R) values that last a geometric number of steps, each rank its own."""
    starts = rng.random((world.steps, world.ranks)) < 1.0 / mean_steps
    starts[0] = True
    which = np.cumsum(starts.T.ravel()) - 1
    return draw(int(which[-1]) + 1)[which].reshape(world.ranks, world.steps).T


def regimes(rng: Rng, world: World, *, cv: tuple[float, float] = (0.03, 0.08)) -> Noise:
    """Work in stretches: a few buckets of sequence lengths, or any length."""
    size, mean_steps = float(rng.uniform(*cv)), float(rng.uniform(10.0, 40.0))
    if rng.random() < 0.5:
        buckets = _standard(rng.standard_normal(int(rng.integers(2, 7))))
        log = stretches(rng, world, mean_steps, lambda n: size * rng.choice(buckets, n))
    else:
        log = stretches(rng, world, mean_steps, lambda n: rng.normal(0.0, size, n))
    log = log + 0.005 * white_matrix(rng, world)
    return Noise(log=log, sd=size, correlation=1.0 - 1.0 / mean_steps)


def heavy_regimes(rng: Rng, world: World) -> Noise:
    """Stretches of which few are very long: Pareto lengths, cut at 12 times the spread."""
    size, mean_steps = float(rng.uniform(0.03, 0.08)), float(rng.uniform(10.0, 40.0))
    tail = float(rng.uniform(2.2, 4.0))
    spread = np.sqrt(tail / (tail - 2.0)) / (tail - 1.0)

    def draw(n: int) -> Floats:
        return size * np.minimum(rng.pareto(tail, n) / spread, 12.0)

    log = stretches(rng, world, mean_steps, draw) + 0.005 * white_matrix(rng, world)
    return Noise(log=log, sd=size, correlation=1.0 - 1.0 / mean_steps)


def wandering_hosts(rng: Rng, world: World) -> Noise:
    """Hosts whose speed walks between two walls; it is 1 to 4 % off as a standard deviation."""
    size, own = float(rng.uniform(0.01, 0.04)), float(rng.uniform(0.003, 0.02))
    wall = size * np.sqrt(3.0)
    hosts = -(-world.ranks // world.per_host)
    crossing = rng.uniform(50.0, 300.0)  # steps from wall to wall, as the walk spreads
    moves = rng.normal(0.0, 2.0 * wall / np.sqrt(crossing), (world.steps, hosts))
    moves[0] = rng.uniform(-wall, wall, hosts)
    walk = np.abs((np.cumsum(moves, axis=0) + wall) % (4.0 * wall) - 2.0 * wall) - wall
    log = np.repeat(walk, world.per_host, axis=1)[:, : world.ranks]
    log = log + own * white_matrix(rng, world)
    return Noise(log=log, sd=float(np.hypot(size, own)), correlation=float("nan"))


def _standard(values: Floats) -> Floats:
    spread = values.std()
    return (values - values.mean()) / (spread if spread > 0 else 1.0)


# --- healthy -----------------------------------------------------------------------------------


def healthy(noise: MakeNoise, **world: Any) -> MakeRun:
    """Nothing but this noise."""

    def make(rng: Rng, limits: Limits) -> UnseenRun:
        shape = draw_world(rng, limits, **world)
        return build(rng, shape, noise(rng, shape))

    return make


# --- faults ------------------------------------------------------------------------------------

SIZES = (1.10, 1.15, 1.25, 1.50)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Who becomes slow, when, by how much, and what happens later.

    Attributes:
        onset: row of the first slow step; 0: from the start.
        later: row at which ``later_size`` or the slowdown of all others begins; 0: never.
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
            factor[self.later :, who] = self.later_size
            rest = np.setdiff1d(np.arange(world.ranks), who)
            factor[self.later :, rest] = self.others
        return factor

    def label(self, world: World) -> Planted:
        hosts = frozenset(f"host-{rank // world.per_host}" for rank in self.ranks)
        is_host = len(self.ranks) > 1
        recovers = self.later > 0 and self.later_size == 1.0
        return Planted(
            scope="host" if is_host else "rank",
            ranks=self.ranks,
            nodes=hosts,
            cause="slow_host" if is_host else "slow_gpu",
            onset_step=world.first_step + self.onset,
            end_step=world.first_step + self.later if recovers else None,
            size=self.size,
            final_size=(self.later_size if self.later else self.size) / self.others,
            ending=("well" if recovers else "slow") if self.later else "",
        )


def faulty(
    noise: MakeNoise, sizes: Sequence[float] = SIZES, *, of_host: bool = False, **world: Any
) -> MakeRun:
    """This noise, and a rank or host that becomes slow; one in eight is so from the start."""

    def make(rng: Rng, limits: Limits) -> UnseenRun:
        shape = draw_world(rng, limits, **world)
        drawn = noise(rng, shape)
        onset = 0 if rng.random() < 1 / 8 else _row(rng, shape, 0.25, 0.50)
        fault = Fault(
            ranks=_subject(rng, shape, of_host=of_host), size=float(rng.choice(sizes)), onset=onset
        )
        return _with_fault(rng, shape, drawn, fault)

    return make


def changing(what: str) -> MakeRun:
    """A slow rank that becomes slower, recovers, or stays as it is while the others slow down."""

    def make(rng: Rng, limits: Limits) -> UnseenRun:
        ranks = int(rng.choice([2, 4, 8, 16, 32]))
        shape = draw_world(rng, limits, ranks=(ranks, ranks))
        drawn = ar(rng, shape, sd=(0.005, 0.03), correlation=(0.0, 0.9))
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
        return _with_fault(rng, shape, drawn, fault)

    return make


def _with_fault(rng: Rng, world: World, noise: Noise, fault: Fault) -> UnseenRun:
    return build(
        rng, world, noise, factor=fault.factor(world), labels=(fault.label(world),), fault=fault
    )


def _row(rng: Rng, world: World, low: float, high: float) -> int:
    return int(rng.integers(int(low * world.steps), int(high * world.steps)))


def _subject(rng: Rng, world: World, *, of_host: bool = False) -> frozenset[int]:
    if not of_host:
        return frozenset((int(rng.integers(world.ranks)),))
    return ranks_of_host(world, int(rng.integers(world.ranks // world.per_host)))


def quiet_ar(rng: Rng, world: World) -> Noise:
    """AR(1) of up to 3 %, two thirds of it with a correlation of at most 0.7."""
    correlation = (0.3, 0.7) if rng.random() < 2 / 3 else (0.7, 0.97)
    return ar(rng, world, sd=(0.005, 0.03), correlation=correlation)


def quiet_mixture(rng: Rng, world: World) -> Noise:
    return mixture(rng, world, sd=(0.005, 0.03))


def _small(rng: Rng, world: World) -> Noise:
    return quiet_ar(rng, world)


SMALL = {"ranks": (2, 8)}
FAMILIES = (
    Family(name="healthy/ar", make=healthy(ar), runs=60, is_healthy=True),
    Family(name="healthy/mixture", make=healthy(mixture), runs=40, is_healthy=True),
    Family(name="healthy/regimes", make=healthy(regimes), runs=40, is_healthy=True),
    Family(name="healthy/regimes-heavy", make=healthy(heavy_regimes), runs=40, is_healthy=True),
    Family(
        name="healthy/hosts", make=healthy(wandering_hosts, ranks=(16, 128)), runs=40,
        is_healthy=True,
    ),
    Family(name="healthy/small-white", make=healthy(independent, **SMALL), runs=40, is_healthy=True),
    Family(name="healthy/small-ar", make=healthy(ar, **SMALL), runs=40, is_healthy=True),
    *(
        Family(
            name=f"fault/ar-{100 * size - 100:.0f}", make=faulty(quiet_ar, (size,)), runs=30,
            is_healthy=False,
        )
        for size in SIZES
    ),
    Family(name="fault/mixture", make=faulty(quiet_mixture), runs=30, is_healthy=False),
    Family(name="fault/regimes", make=faulty(regimes), runs=30, is_healthy=False),
    Family(name="fault/small", make=faulty(quiet_ar, ranks=(4, 8)), runs=30, is_healthy=False),
    Family(
        name="fault/host", make=faulty(quiet_ar, of_host=True, ranks=(32, 128)), runs=30,
        is_healthy=False,
    ),
    *(
        Family(name=f"change/{what}", make=changing(what), runs=20, is_healthy=False)
        for what in ("worse", "recovers", "others")
    ),
)  # fmt: skip
