"""Worlds of another kind: queueing loaders, ranks nobody waits for, chores, unknown pipelines."""

from __future__ import annotations

import numpy as np

from benchmarks.detection.unseen.noises import ar, quiet_ar
from benchmarks.detection.unseen.runs import (
    MIN_NAMED,
    Limits,
    Parts,
    Planted,
    Rng,
    UnseenRun,
    World,
    arrivals,
    divide,
    draw_collective,
    draw_world,
    meet,
    total,
    white,
)
from otel_straggler.model.observation import Floats, Section

PREFETCHED = 2
"""Batches per worker that a loader keeps ready or under way."""


def loaders(rng: Rng, limits: Limits) -> UnseenRun:
    """Loader processes that all are alike; the ranks wait for them more or less often."""
    return _with_loaders(rng, limits, busy=float(rng.uniform(0.7, 1.2)), excess=1.0)


def slow_loader(rng: Rng, limits: Limits) -> UnseenRun:
    """One rank's loaders become too slow for its steps, by 25 to 60 %."""
    busy, wanted = float(rng.uniform(0.5, 0.8)), float(rng.uniform(1.25, 1.6))
    return _with_loaders(rng, limits, busy=busy, excess=wanted / busy)


def _with_loaders(rng: Rng, limits: Limits, busy: float, excess: float) -> UnseenRun:
    """``busy`` is the part of a step that a rank's loaders need for a batch."""
    world = draw_world(rng, limits, ranks=(3, 16), has_one_section=False)
    workers, cv = int(rng.integers(1, 9)), float(rng.uniform(0.3, 1.0))
    noise = ar(rng, world, sd=(0.005, 0.02), correlation=(0.0, 0.9))
    before, after = divide(rng, world, noise)
    collective_s = draw_collective(rng, world)
    sigma = np.sqrt(np.log1p(cv**2))
    batches_s = busy * workers * world.step_s * np.exp(white(rng, world, sigma) - sigma**2 / 2)
    labels: tuple[Planted, ...] = ()
    if excess > 1.0:
        rank, onset = int(rng.integers(world.ranks)), int(world.steps * rng.uniform(0.25, 0.5))
        batches_s[onset:, rank] *= excess
        labels = (_loader_label(world, rank, onset, busy * excess),)
    data = next(iter(before))
    before[data] = before[data] + _blocked_s(world, before, after, collective_s, batches_s, workers)
    facts = {"workers": workers, "cv": cv, "busy": busy, "labels": labels}
    return meet(world, before, after, collective_s, noise=noise, labels=labels, facts=facts)


def _loader_label(world: World, rank: int, onset: int, size: float) -> Planted:
    return Planted(
        scope="rank",
        ranks=frozenset((rank,)),
        cause="slow_host",
        onset_step=world.first_step + onset,
        size=size,
        is_required=world.ranks >= MIN_NAMED,
    )


def _blocked_s(
    world: World, before: Parts, after: Parts, collective_s: Floats, batches_s: Floats, workers: int
) -> Floats:
    """(T, R) seconds that a rank waits for its next batch.

    Batch k is made by worker k modulo their number, not before batch k - 2 x workers was taken; the
    batches are taken in order. All ranks meet once a step, which gives queues time to fill.
    """
    work_s, after_s = total(world, before), total(world, after)
    free_s = np.zeros((workers, world.ranks))
    taken_s = np.zeros((world.steps, world.ranks))
    blocked_s = np.zeros((world.steps, world.ranks))
    begin_s = np.zeros(world.ranks)
    for k in range(world.steps):
        earlier = k - PREFETCHED * workers
        ordered_s = taken_s[earlier] if earlier >= 0 else np.zeros(world.ranks)
        ready_s = np.maximum(free_s[k % workers], ordered_s) + batches_s[k]
        free_s[k % workers] = ready_s
        taken_s[k] = np.maximum(begin_s, ready_s)
        blocked_s[k] = taken_s[k] - begin_s
        begin_s = (taken_s[k] + work_s[k]).max() + collective_s[k] + after_s[k]
    return blocked_s


def idle_ranks(rng: Rng, limits: Limits) -> UnseenRun:
    """Ranks with less work that idle outside any section, and then are not the last to arrive."""
    world = draw_world(rng, limits, ranks=(8, 64))
    noise = ar(rng, world, sd=(0.01, 0.08), correlation=(0.0, 0.5))
    n = int(rng.integers(1, max(2, world.ranks // 8 + 1)))
    idle = np.arange(n) if rng.random() < 0.5 else rng.choice(world.ranks, n, replace=False)
    factor = np.ones((world.steps, world.ranks))
    factor[:, idle] = rng.uniform(0.7, 0.95)
    before, after = divide(rng, world, noise, factor)
    _, arrival = arrivals(world, before, after)
    others = np.delete(arrival, idle, axis=1).max(axis=1, keepdims=True)
    margin_s = world.step_s * rng.uniform(0.005, 0.02, (world.steps, n))
    idle_s = np.zeros_like(arrival)
    idle_s[:, idle] = np.maximum(others - margin_s - arrival[:, idle], 0.0)
    facts = {"idle": sorted(idle.tolist())}
    collective_s = draw_collective(rng, world)
    return meet(world, before, after, collective_s, idle_s=idle_s, noise=noise, facts=facts)


def chores(rng: Rng, limits: Limits) -> UnseenRun:
    """Rank 0 saves or logs for 1 to 5 s every 20 to 100 steps, in a section of work or its own."""
    world = draw_world(rng, limits, ranks=(4, 64))
    noise = quiet_ar(rng, world)
    before, after = divide(rng, world, noise)
    every, seconds = int(rng.integers(20, 101)), float(rng.uniform(1.0, 5.0))
    due = np.zeros((world.steps, world.ranks), bool)
    due[every - 1 :: every, 0] = True
    took_s = seconds * np.exp(white(rng, world, 0.1))
    has_own = bool(rng.random() < 0.5)
    if has_own:
        after[Section("save", "other")] = np.where(due, took_s, np.nan)
    else:
        parts = after or before
        section = next(reversed(parts))
        parts[section] = parts[section] + np.where(due, took_s, 0.0)
    label = Planted(
        scope="rank",
        ranks=frozenset((0,)),
        cause="unknown",
        onset_step=world.first_step,
        size=1.0 + seconds / every / world.step_s,
        is_required=False,
        may_page=False,
        wrong_causes=("slow_gpu", "slow_host"),
    )
    facts = {"every": every, "seconds": seconds, "own section": has_own}
    collective_s = draw_collective(rng, world)
    return meet(world, before, after, collective_s, noise=noise, labels=(label,), facts=facts)


def unknown_stages(rng: Rng, limits: Limits) -> UnseenRun:
    """Pipeline stages, the last one long, of ranks that do not report their layout."""
    stages, data = int(rng.integers(2, 5)), int(rng.integers(1, 9))
    ranks = stages * max(1, min(data, limits.ranks // stages))
    world = draw_world(rng, limits, ranks=(ranks, ranks), has_layout=False, has_one_section=False)
    noise = ar(rng, world, sd=(0.005, 0.03), correlation=(0.0, 0.9))
    longer = np.exp(rng.normal(0.0, 0.02, stages))
    longer[-1] = rng.uniform(1.1, 1.6)
    data = world.ranks // stages
    before, after = divide(rng, world, noise, np.repeat(longer, data)[None, :])
    microbatches = int(rng.integers(4, 17))
    own_s = total(world, before)
    pipelines = own_s.reshape(world.steps, stages, data)
    filled_s = pipelines.sum(axis=1, keepdims=True) / microbatches
    whole_s = filled_s + pipelines.max(axis=1, keepdims=True) * (1.0 - 1.0 / microbatches)
    waits_s = np.maximum(np.repeat(whole_s, stages, axis=1).reshape(own_s.shape) - own_s, 1e-6)
    before[Section("pipeline", "wait")] = waits_s
    facts = {"stages": longer.round(3).tolist(), "data": data, "microbatches": microbatches}
    collective_s = draw_collective(rng, world)
    last = range(world.ranks - data, world.ranks)
    label = Planted(
        scope="rank",
        ranks=frozenset(last),
        cause="slow_gpu",
        onset_step=world.first_step,
        size=float(longer[-1]),
        is_required=False,
        may_page=False,
    )
    return meet(world, before, after, collective_s, noise=noise, labels=(label,), facts=facts)
