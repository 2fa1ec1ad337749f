"""Noise that the detector is not tuned on.

Who changes the detector neither runs these families nor inspects their runs: with the seeds for
tuning they are left out. Their parameters are drawn when a report is made, from wide ranges. If a
change of the detector is ever made because of one of them, it moves to :mod:`.noises` and another
takes its place here.
"""

from __future__ import annotations

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


def octaves(rng: Rng, world: World) -> Noise:
    """Memory at all time scales: 2 to 256 steps, in parts that are drawn."""
    size = log_uniform(rng, 0.005, 0.05)
    parts = rng.dirichlet(np.full(8, 0.7))
    log = np.zeros((world.steps, world.ranks))
    for part, steps in zip(parts.tolist(), 2.0 ** np.arange(1, 9), strict=True):
        log += np.sqrt(part) * correlated(rng, world.steps, world.ranks, float(np.exp(-1 / steps)))
    rho = float(parts @ np.exp(-1.0 / 2.0 ** np.arange(1, 9)))
    return Noise(log=size * log, sd=size, correlation=rho)


def cycles(rng: Rng, world: World) -> Noise:
    """Fans, clocks, and neighbors that come and go: waves of 20 to 300 steps, 1 to 5 % high."""
    own = rng.uniform(0.9, 1.1, world.ranks)
    period, height = log_uniform(rng, 20.0, 300.0), rng.uniform(0.01, 0.05)
    phase = rng.uniform(0.0, 2.0 * np.pi, world.ranks)
    wave = np.sin(2.0 * np.pi * np.arange(world.steps)[:, None] / (period * own) + phase)
    noise = rng.uniform(0.003, 0.02)
    log = height * wave + white(rng, world, noise)
    return Noise(log=log, sd=float(log.std()), correlation=NO_NUMBER)


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


def pauses(rng: Rng, world: World) -> Noise:
    """Garbage is collected, or logs are written: 5 to 80 % of a step, every 8 to 100 steps."""
    every = log_uniform(rng, 8.0, 100.0)
    height = min(log_uniform(rng, 0.05, 0.8), 0.03 * every)
    own = height * rng.uniform(0.8, 1.2, world.ranks)
    spread = float(rng.uniform(0.0, 0.5))
    is_due = np.diff(np.floor(_rounds(rng, world, every)), axis=0, prepend=0.0) > 0.0
    excess = is_due * own * np.exp(white(rng, world, spread))
    log = np.log1p(fair(excess)) + white(rng, world, rng.uniform(0.003, 0.02))
    return Noise(log=log, sd=float(log.std()), correlation=NO_NUMBER)


def ramps(rng: Rng, world: World) -> Noise:
    """Memory that fragments, caches that fill: 1 to 8 % slower in 20 to 250 steps, then reset."""
    height, every = log_uniform(rng, 0.01, 0.08), log_uniform(rng, 20.0, 250.0)
    own = height * rng.uniform(0.8, 1.2, world.ranks)
    bend = log_uniform(rng, 0.4, 2.5)
    excess = own * (_rounds(rng, world, every) % 1.0) ** bend
    log = np.log1p(fair(excess)) + white(rng, world, log_uniform(rng, 0.002, 0.015))
    return Noise(log=log, sd=float(log.std()), correlation=NO_NUMBER)


def migrations(rng: Rng, world: World) -> Noise:
    """Ranks move between cores near and far from their memory: 1 to 3 % for 20 to 200 steps."""
    far, near = log_uniform(rng, 20.0, 200.0), log_uniform(rng, 20.0, 200.0)
    highest = 0.03 if world.ranks > 2 else 0.016  # that is between the two, not from a median
    own = rng.uniform(0.012, highest) * rng.uniform(0.85, 1.0, world.ranks)
    excess = own * on_and_off(rng, world, far / (far + near), far)
    log = np.log1p(fair(excess)) + white(rng, world, log_uniform(rng, 0.002, 0.012))
    return Noise(log=log, sd=float(log.std()), correlation=NO_NUMBER)


def _rounds(rng: Rng, world: World, every: float) -> Floats:
    """(T, R) rounds of about ``every`` steps; ranks begin more or less together and drift apart."""
    own = rng.uniform(0.9, 1.1, world.ranks) / every
    moves = own * rng.gamma(2.0, 0.5, (world.steps, world.ranks))
    return np.cumsum(moves, axis=0) + rng.uniform() * rng.uniform(0.0, 1.0, world.ranks)


def _each(values: Floats, steps: int, skipped: int) -> Floats:
    return np.repeat(values, steps, axis=0)[skipped:]
