"""Ranks that work and meet in every step, and what is planted in them.

Nothing in this folder comes from ``otel_straggler/simulate``, on which the detector was tuned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from scipy.signal import lfilter

from otel_straggler.model.causes import Cause
from otel_straggler.model.observation import Bools, Floats, Ints, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable
from otel_straggler.model.verdict import Scope

Rng = np.random.Generator
Ending = Literal["", "slow", "well"]
NO_NUMBER = float("nan")
MIN_NAMED = 4
"""In worlds of fewer ranks a verdict on the run is as good: times may not show who it is."""
LASTING, FAIR = 300, 0.012
"""Steps, and how far the mean of so many may be from that of the median rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """What is true of some ranks, as :class:`.matching.Truth` reads it.

    Attributes:
        size: time / usual time at the onset.
        final_size: the same at the end of the run.
        ending: what the newest verdict of the subject must say at the end; empty: either.
        is_required: it is missed if nobody names it; otherwise naming it is only no mistake.
        may_page: notifying people is right.
        wrong_causes: that must not be given.
    """

    scope: Scope
    ranks: frozenset[int]
    nodes: frozenset[str] = frozenset()
    cause: Cause = "slow_gpu"
    onset_step: int
    end_step: int | None = None
    size: float
    final_size: float = 1.0
    ending: Ending = ""
    is_required: bool = True
    may_page: bool = True
    wrong_causes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Shape of a run.

    Attributes:
        step_s: usual work of a rank in a step.
        per_host: ranks on a host.
        has_layout: ranks report their data-parallel index.
        has_one_section: all work is in one section; else data, forward, backward, and optimizer.
        first_step: number of the first step; 0: the start of the run is recorded.
    """

    ranks: int
    steps: int
    step_s: float = 2.0
    per_host: int = 8
    has_layout: bool = True
    has_one_section: bool = False
    first_step: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Largest runs that families draw."""

    ranks: int = 128
    steps: int = 800


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Log of time / usual time of every step and rank.

    Attributes:
        log: (T, R).
        sd: of a step; correlation: between a step and the next; NaN where no number describes it.
        by_section: (T, R) in single sections, in addition.
    """

    log: Floats
    sd: float
    correlation: float
    by_section: Mapping[str, Floats] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnseenRun:
    """One run: (T, R, S) seconds in sections, and (T, R) begin and end of steps.

    Attributes:
        facts: what was drawn, as ``--explain`` prints it.
    """

    world: World
    sources: tuple[Source, ...]
    sections: tuple[Section, ...]
    seconds: Floats
    begin_s: Floats
    end_s: Floats
    labels: tuple[Planted, ...] = ()
    sd: float = float("nan")
    correlation: float = float("nan")
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def hours(self) -> float:
        return float(self.end_s.max() - self.begin_s.min()) / 3600

    def tables(self, block_steps: int) -> Iterator[StepTable]:
        """Consecutive tables of ``block_steps`` steps."""
        for at in range(0, self.world.steps, block_steps):
            rows = slice(at, min(at + block_steps, self.world.steps))
            seconds = self.seconds[rows]
            yield StepTable(
                steps=np.arange(rows.start, rows.stop, dtype=np.int64) + self.world.first_step,
                sources=self.sources,
                sections=self.sections,
                seconds=seconds,
                runs=np.isfinite(seconds).astype(np.int32),
                run_cv=np.full(seconds.shape[1:], np.nan),
                tokens=np.full(seconds.shape[:2], np.nan),
                start_ns=_ns(self.begin_s[rows]),
                end_ns=_ns(self.end_s[rows]),
                world_size=self.world.ranks,
            )


START_NS = 1_700_000_000 * 10**9


def _ns(seconds: Floats) -> Ints:
    return START_NS + np.rint(seconds * 1e9).astype(np.int64)


def log_uniform(rng: Rng, low: float, high: float) -> float:
    """Even by its logarithm."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def draw_world(
    rng: Rng, limits: Limits, *, ranks: tuple[int, int] = (8, 128), **fixed: Any
) -> World:
    """A world of ordinary shape; ``ranks`` are drawn evenly by their logarithm."""
    low, high = ranks[0], max(ranks[0], min(ranks[1], limits.ranks))
    drawn = round(log_uniform(rng, low, high))
    steps = min(int(rng.integers(300, 801)), limits.steps)
    world = World(
        ranks=drawn,
        steps=steps,
        step_s=float(rng.uniform(1.0, 4.0)),
        per_host=int(rng.choice([4, 8])),
        has_layout=bool(rng.random() < 0.5),
        has_one_section=bool(rng.random() < 0.3),
        first_step=int(rng.choice([0, 1000])),
    )
    return replace(world, **fixed)


def make_sources(world: World) -> tuple[Source, ...]:
    """The ranks of a world, host by host."""
    return tuple(
        Source(
            run_id="unseen",
            rank=rank,
            node=f"host-{rank // world.per_host}",
            session_id=f"session-{rank}",
            local_rank=rank % world.per_host,
            world_size=world.ranks,
            parallel=(("data", rank),) if world.has_layout else (),
        )
        for rank in range(world.ranks)
    )


def white(rng: Rng, world: World, sd: float = 1.0) -> Floats:
    """(T, R) independent noise."""
    return rng.normal(0.0, sd, (world.steps, world.ranks))


def correlated(rng: Rng, steps: int, series: int, correlation: float) -> Floats:
    """(T, series) AR(1) with standard deviation 1, stationary from the first step."""
    drawn = rng.standard_normal((steps, series))
    moves = np.sqrt(1.0 - correlation**2)
    start = (drawn[0] * correlation)[None]
    rest = lfilter([moves], [1.0, -correlation], drawn[1:], axis=0, zi=start)[0]
    return np.concatenate([drawn[:1], rest])


def on_and_off(rng: Rng, world: World, part: float, steps: float) -> Bools:
    """(T, R) on for a ``part`` of the time, for ``steps`` on average; each rank on its own."""
    drawn = rng.random((world.steps, world.ranks))
    is_on = np.zeros((world.steps, world.ranks), bool)
    is_on[0] = drawn[0] < part
    begins, stays = part / (1.0 - part) / steps, 1.0 - 1.0 / steps
    for t in range(1, world.steps):
        is_on[t] = drawn[t] < np.where(is_on[t - 1], stays, begins)
    return is_on


def fair(excess: Floats) -> Floats:
    """Made smaller where a rank would be slower or faster than its peers for long."""
    steps = min(LASTING, len(excess))
    sums = np.cumsum(np.pad(excess, ((1, 0), (0, 0))), axis=0)
    means = (sums[steps:] - sums[:-steps]) / steps
    apart = float(np.abs(means - np.median(means, axis=1, keepdims=True)).max())
    return excess * (FAIR / max(FAIR, apart))


def of_hosts(world: World, by_host: Floats) -> Floats:
    """(T, hosts) to (T, R)."""
    return np.repeat(by_host, world.per_host, axis=1)[:, : world.ranks]


def count_hosts(world: World) -> int:
    return -(-world.ranks // world.per_host)


def ranks_of_host(world: World, host: int) -> frozenset[int]:
    first = host * world.per_host
    return frozenset(range(first, min(first + world.per_host, world.ranks)))


Parts = dict[Section, Floats]
SYNC = Section("sync", "wait")


def divide(
    rng: Rng,
    world: World,
    noise: Noise,
    factor: Floats | float = 1.0,
    *,
    slows_data: bool = False,
    offsets: float | None = None,
) -> tuple[Parts, Parts]:
    """Work of every step and rank in sections before and after the collective.

    Args:
        factor: (T, R) of all work but loading data; with ``slows_data`` of that too.
        offsets: standard deviation of lasting differences of ranks; None: drawn, up to 1 %.
    """
    if offsets is None:
        offsets = float(rng.choice([0.0, rng.uniform(0.0, 0.01)]))
    common = rng.normal(0.0, rng.uniform(0.0, 0.03), (world.steps, 1))
    log = noise.log + rng.normal(0.0, 1.0, world.ranks) * offsets + common
    work_s = world.step_s * np.exp(log) * factor
    if world.has_one_section:
        return {Section("step_compute"): work_s}, {}
    forward, optimizer = rng.uniform(0.25, 0.35), rng.uniform(0.03, 0.15)
    shares = {"forward": forward, "backward": 1.0 - forward - optimizer, "optimizer": optimizer}
    before: Parts = {Section("data", "data"): _data_s(rng, world)}
    after: Parts = {}
    if slows_data:
        before = {section: seconds * factor for section, seconds in before.items()}
    for name, share in shares.items():
        own = white(rng, world, 0.003) + noise.by_section.get(name, 0.0)
        (after if name == "optimizer" else before)[Section(name)] = share * work_s * np.exp(own)
    return before, after


def _data_s(rng: Rng, world: World) -> Floats:
    typical_s = world.step_s * rng.uniform(0.005, 0.04)
    return typical_s * np.exp(white(rng, world, rng.uniform(0.05, 0.3)))


def build(
    rng: Rng,
    world: World,
    noise: Noise,
    factor: Floats | float = 1.0,
    *,
    labels: Sequence[Planted] = (),
    slows_data: bool = False,
    **facts: Any,
) -> UnseenRun:
    """A data-parallel run: all ranks do their work and meet once a step."""
    before, after = divide(rng, world, noise, factor, slows_data=slows_data)
    collective_s = draw_collective(rng, world)
    return meet(world, before, after, collective_s, noise=noise, labels=tuple(labels), facts=facts)


def draw_collective(rng: Rng, world: World) -> Floats:
    """(T,) seconds of the collective once all are there: 1 to 6 % of a step."""
    return world.step_s * rng.uniform(0.01, 0.06) * np.exp(rng.normal(0.0, 0.1, world.steps))


def arrivals(world: World, before: Parts, after: Parts) -> tuple[Floats, Floats]:
    """(T, R) begin of the step and arrival, in seconds since the collective of the step before."""
    behind = total(world, after)
    late = np.concatenate([np.zeros((1, world.ranks)), behind[:-1]])
    return late, late + total(world, before)


def meet(
    world: World,
    before: Parts,
    after: Parts,
    collective_s: Floats,
    *,
    idle_s: Floats | float = 0.0,
    noise: Noise | None = None,
    **rest: Any,
) -> UnseenRun:
    """Let all ranks meet in the section ``sync`` of every step.

    Args:
        before, after: (T, R) seconds of the sections on both sides of it; NaN where there is none.
        collective_s: (T,) that it takes once the last rank is there.
        idle_s: (T, R) before it, in no section.
    """
    late, arrival = arrivals(world, before, after)
    arrival = arrival + idle_s
    apart = arrival.max(axis=1) + collective_s
    met_s = np.cumsum(apart)
    waits = np.maximum(apart[:, None] - arrival, 1e-9)
    return UnseenRun(
        world=world,
        sources=make_sources(world),
        sections=(*before, SYNC, *after),
        seconds=np.stack([*before.values(), waits, *after.values()], axis=2),
        begin_s=np.concatenate([[0.0], met_s[:-1]])[:, None] + late,
        end_s=met_s[:, None] + total(world, after),
        sd=noise.sd if noise else float("nan"),
        correlation=noise.correlation if noise else float("nan"),
        **rest,
    )


def total(world: World, parts: Parts) -> Floats:
    """(T, R) seconds of all sections."""
    return sum((np.nan_to_num(s) for s in parts.values()), np.zeros((world.steps, world.ranks)))
