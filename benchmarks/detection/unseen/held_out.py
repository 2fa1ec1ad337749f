"""Noise that the detector is not tuned on.

Who changes the detector neither runs these families nor inspects their runs: with the seeds for
tuning they are left out. Their parameters are drawn when a report is made, from wide ranges. If a
change of the detector is ever made because of one of them, it moves to :mod:`.noises` and another
takes its place here.
"""

from __future__ import annotations

import numpy as np

from benchmarks.detection.unseen.runs import (
    Noise,
    Rng,
    World,
    correlated,
    count_hosts,
    log_uniform,
    of_hosts,
    white,
)
from otel_straggler.model.observation import Floats

NO_NUMBER = float("nan")


def octaves(rng: Rng, world: World) -> Noise:
    """Memory at all time scales: 2 to 256 steps, in parts that are drawn."""
    size = log_uniform(rng, 0.005, 0.05)
    parts = rng.dirichlet(np.full(8, 0.7))
    log = np.zeros((world.steps, world.ranks))
    for part, steps in zip(parts.tolist(), 2.0 ** np.arange(1, 9), strict=True):
        log += np.sqrt(part) * correlated(rng, world.steps, world.ranks, float(np.exp(-1 / steps)))
    rho = float(parts @ np.exp(-1.0 / 2.0 ** np.arange(1, 9)))
    return Noise(log=size * log, sd=size, correlation=rho)


def bursts(rng: Rng, world: World) -> Noise:
    """Each rank is disturbed now and then: 5 to 30 % for 2 to 8 steps, 1 to 10 % of the time."""
    height, steps = rng.uniform(0.05, 0.3), rng.uniform(2.0, 8.0)
    part = rng.uniform(0.01, 0.1)
    drawn = rng.random((world.steps, world.ranks))
    is_on = np.zeros((world.steps, world.ranks), bool)
    is_on[0] = drawn[0] < part
    begins, stays = part / (1.0 - part) / steps, 1.0 - 1.0 / steps
    for t in range(1, world.steps):
        is_on[t] = drawn[t] < np.where(is_on[t - 1], stays, begins)
    log = height * is_on + white(rng, world, rng.uniform(0.003, 0.02))
    return Noise(log=log, sd=float(log.std()), correlation=NO_NUMBER)


def cycles(rng: Rng, world: World) -> Noise:
    """Fans, clocks, and neighbors that come and go: waves of 20 to 300 steps, 1 to 5 % high."""
    own = rng.uniform(0.9, 1.1, world.ranks)
    period, height = log_uniform(rng, 20.0, 300.0), rng.uniform(0.01, 0.05)
    phase = rng.uniform(0.0, 2.0 * np.pi, world.ranks)
    wave = np.sin(2.0 * np.pi * np.arange(world.steps)[:, None] / (period * own) + phase)
    noise = rng.uniform(0.003, 0.02)
    log = height * wave + white(rng, world, noise)
    return Noise(log=log, sd=float(log.std()), correlation=NO_NUMBER)


def volatile(rng: Rng, world: World) -> Noise:
    """AR noise with Student's tails, and ranks whose spread itself comes and goes."""
    size, rho = log_uniform(rng, 0.005, 0.04), float(rng.uniform(0.1, 0.9))
    spread = 0.5 * correlated(rng, world.steps, world.ranks, float(rng.uniform(0.9, 0.99)))
    tails = np.sqrt(rng.chisquare(4.0, (world.steps, world.ranks)) / 4.0)
    ar = correlated(rng, world.steps, world.ranks, rho)
    log = size * ar * np.exp(spread - 0.25) / np.maximum(tails, 0.2)
    return Noise(log=log, sd=size, correlation=NO_NUMBER)


def shared(rng: Rng, world: World) -> Noise:
    """AR noise of hosts and of ranks, one on the other."""
    of_host, own = log_uniform(rng, 0.003, 0.03), log_uniform(rng, 0.003, 0.03)
    slow, fast = float(rng.uniform(0.5, 0.99)), float(rng.uniform(0.0, 0.9))
    by_host = correlated(rng, world.steps, count_hosts(world), slow)
    by_rank = correlated(rng, world.steps, world.ranks, fast)
    log = of_host * of_hosts(world, by_host) + own * by_rank
    return Noise(log=log, sd=float(np.hypot(of_host, own)), correlation=NO_NUMBER)


def shuffled_lengths(rng: Rng, world: World) -> Noise:
    """Sequence lengths in stretches of fixed length, all ranks changing at the same steps."""
    size, steps = rng.uniform(0.02, 0.07), int(rng.integers(5, 60))
    shape = float(rng.uniform(2.0, 8.0))
    lengths = rng.gamma(shape, 1.0, (world.steps // steps + 2, world.ranks))
    log = size * (lengths - shape) / np.sqrt(shape)
    log = _each(log, steps, int(rng.integers(steps)))[: world.steps]
    return Noise(log=log + white(rng, world, 0.004), sd=float(size), correlation=1.0 - 1.0 / steps)


def skewed(rng: Rng, world: World) -> Noise:
    """AR noise with an upper tail: no step is much faster than the machine allows."""
    size, rho = log_uniform(rng, 0.01, 0.06), float(rng.uniform(0.2, 0.97))
    normal = correlated(rng, world.steps, world.ranks, rho)
    log = size * (np.exp(0.5 * normal) - np.exp(0.5**2 / 2.0))
    return Noise(log=log, sd=float(log.std()), correlation=NO_NUMBER)


def _each(values: Floats, steps: int, skipped: int) -> Floats:
    return np.repeat(values, steps, axis=0)[skipped:]
