"""Noise of ranks at which nothing is wrong: with memory, in stretches, by host, or skewed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.detection.unseen.runs import (
    NO_NUMBER,
    Noise,
    Rng,
    World,
    correlated,
    count_hosts,
    fair,
    log_uniform,
    of_hosts,
    on_and_off,
    white,
)
from otel_straggler.model.observation import Floats

MakeNoise = Callable[[Rng, World], Noise]


def ar(
    rng: Rng,
    world: World,
    *,
    sd: tuple[float, float] = (0.005, 0.12),
    correlation: tuple[float, float] = (0.3, 0.97),
) -> Noise:
    """AR(1)."""
    size, rho = log_uniform(rng, *sd), float(rng.uniform(*correlation))
    log = size * correlated(rng, world.steps, world.ranks, rho)
    return Noise(log=log, sd=size, correlation=rho)


def quiet_ar(rng: Rng, world: World) -> Noise:
    """AR(1) of up to 3 %, two thirds of it with a correlation of at most 0.7."""
    correlation = (0.3, 0.7) if rng.random() < 2 / 3 else (0.7, 0.97)
    return ar(rng, world, sd=(0.005, 0.03), correlation=correlation)


def independent(rng: Rng, world: World) -> Noise:
    """No memory."""
    size = log_uniform(rng, 0.005, 0.12)
    return Noise(log=white(rng, world, size), sd=size, correlation=0.0)


def mixture(rng: Rng, world: World, *, sd: tuple[float, float] = (0.005, 0.08)) -> Noise:
    """Independent noise, and a slow part with a memory of 5 to 100 steps."""
    size, part = log_uniform(rng, *sd), float(rng.uniform(0.2, 0.8))
    rho = float(np.exp(-1.0 / rng.uniform(5.0, 100.0)))
    slow = np.sqrt(part) * correlated(rng, world.steps, world.ranks, rho)
    log = size * (slow + white(rng, world, np.sqrt(1.0 - part)))
    return Noise(log=log, sd=size, correlation=part * rho)


def quiet_mixture(rng: Rng, world: World) -> Noise:
    """Of up to 3 %."""
    return mixture(rng, world, sd=(0.005, 0.03))


def stretches(rng: Rng, world: World, mean_steps: float, draw: Callable[[int], Floats]) -> Floats:
    """(T, R) values that last a geometric number of steps, each rank with its own."""
    starts = rng.random((world.ranks, world.steps)) < 1.0 / mean_steps
    starts[:, 0] = True
    which = np.cumsum(starts.ravel()) - 1
    return draw(int(which[-1]) + 1)[which].reshape(starts.shape).T


def regimes(rng: Rng, world: World) -> Noise:
    """Work in stretches: a few buckets of sequence lengths, or any length; cv 3 to 8 %."""
    size, mean_steps = float(rng.uniform(0.03, 0.08)), float(rng.uniform(10.0, 40.0))
    if rng.random() < 0.5:
        buckets = _standard(rng.standard_normal(int(rng.integers(2, 7))))
        log = stretches(rng, world, mean_steps, lambda n: size * rng.choice(buckets, n))
    else:
        log = stretches(rng, world, mean_steps, lambda n: rng.normal(0.0, size, n))
    return _of_stretches(rng, world, log, size, mean_steps)


def heavy_regimes(rng: Rng, world: World) -> Noise:
    """Stretches of doubling lengths, of which each is rarer than the one before; cv 3 to 8 %."""
    size, mean_steps = float(rng.uniform(0.03, 0.08)), float(rng.uniform(10.0, 40.0))
    doublings = np.arange(int(rng.integers(4, 6)))
    part = float(rng.uniform(1.8, 3.0)) ** -doublings
    part /= part.sum()
    levels = 2.0**doublings
    mean = part @ levels
    levels = size * (levels - mean) / np.sqrt(part @ (levels - mean) ** 2)
    log = stretches(rng, world, mean_steps, lambda n: rng.choice(levels, n, p=part))
    return _of_stretches(rng, world, log, size, mean_steps)


def wandering_hosts(rng: Rng, world: World) -> Noise:
    """Hosts whose speed walks between two walls, at a standard deviation of 1 to 4 %."""
    size, own = float(rng.uniform(0.01, 0.04)), float(rng.uniform(0.003, 0.02))
    wall = size * np.sqrt(3.0)
    steps_across = rng.uniform(50.0, 300.0)
    n = count_hosts(world)
    moves = rng.normal(0.0, 2.0 * wall / np.sqrt(steps_across), (world.steps, n))
    moves[0] = rng.uniform(-wall, wall, n)
    walk = np.abs((np.cumsum(moves, axis=0) + wall) % (4.0 * wall) - 2.0 * wall) - wall
    log = of_hosts(world, walk) + white(rng, world, own)
    return Noise(log=log, sd=float(np.hypot(size, own)), correlation=NO_NUMBER)


def bursts(rng: Rng, world: World) -> Noise:
    """Each rank is disturbed now and then: 5 to 30 % for 2 to 8 steps, 1 to 10 % of the time."""
    height, steps = rng.uniform(0.05, 0.3), rng.uniform(2.0, 8.0)
    part = rng.uniform(0.01, 0.1)
    is_on = on_and_off(rng, world, part, steps)
    log = height * is_on + white(rng, world, rng.uniform(0.003, 0.02))
    return Noise(log=log, sd=float(log.std()), correlation=NO_NUMBER)


def contention(rng: Rng, world: World) -> Noise:
    """Other jobs on the network: now these ranks, now those are 1 to 15 % slower, all at once."""
    longest = round(log_uniform(rng, 3.0, 50.0))
    every = longest * log_uniform(rng, 0.4, 6.0)
    height, part = rng.uniform(0.02, 0.1), rng.uniform(0.05, 0.5)
    excess = np.zeros((world.steps + longest, world.ranks))
    for first in np.flatnonzero(rng.random(len(excess)) < 1.0 / every).tolist():
        n = min(world.ranks, max(2, int(rng.binomial(world.ranks, part))))
        who = rng.choice(world.ranks, n, replace=False)
        last = first + int(rng.integers(1, longest + 1))
        excess[first:last, who] += height * rng.uniform(0.5, 1.5) * rng.uniform(0.7, 1.0, n)
    own = correlated(rng, world.steps, world.ranks, float(rng.uniform(0.0, 0.8)))
    log = np.log1p(fair(excess[longest:])) + log_uniform(rng, 0.003, 0.015) * own
    return Noise(log=log, sd=float(log.std()), correlation=NO_NUMBER)


def volatile(rng: Rng, world: World) -> Noise:
    """AR noise with Student's tails, and ranks whose spread itself comes and goes."""
    size, rho = log_uniform(rng, 0.005, 0.04), float(rng.uniform(0.1, 0.9))
    spread = 0.5 * correlated(rng, world.steps, world.ranks, float(rng.uniform(0.9, 0.99)))
    tails = np.sqrt(rng.chisquare(4.0, (world.steps, world.ranks)) / 4.0)
    ar = correlated(rng, world.steps, world.ranks, rho)
    log = size * ar * np.exp(spread - 0.25) / np.maximum(tails, 0.2)
    return Noise(log=log, sd=size, correlation=NO_NUMBER)


def skewed(rng: Rng, world: World) -> Noise:
    """AR noise with an upper tail: no step is much faster than the machine allows."""
    size, rho = log_uniform(rng, 0.01, 0.06), float(rng.uniform(0.2, 0.97))
    normal = correlated(rng, world.steps, world.ranks, rho)
    log = size * (np.exp(0.5 * normal) - np.exp(0.5**2 / 2.0))
    return Noise(log=log, sd=float(log.std()), correlation=NO_NUMBER)


def _of_stretches(rng: Rng, world: World, log: Floats, sd: float, mean_steps: float) -> Noise:
    log = log + white(rng, world, 0.005)
    return Noise(log=log, sd=sd, correlation=1.0 - 1.0 / mean_steps)


def _standard(values: Floats) -> Floats:
    spread = float(values.std())
    return (values - values.mean()) / (spread if spread > 0 else 1.0)
