"""Attempts of a run, and when and where its faults are active.

Steps are counted as they are made, from 0: a restart goes back to the last checkpoint, but a slow
device stays slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from otel_straggler.model.observation import Bools, Floats, Ints
from otel_straggler.simulate.faults import HANG_KINDS, Fault
from otel_straggler.simulate.plan import RunPlan

RAMP_STEPS = 100
FLAP_STEPS = 30
SHORTEST_TRANSIENT, LONGEST_TRANSIENT = 10, 30
FOREVER = 2**62


@dataclass(frozen=True, kw_only=True, eq=False)
class Attempt:
    """One start of the job.

    Attributes:
        steps: started steps; the last one is not finished if ``hang`` is set.
        first_made: steps made before it, over all attempts.
        slot: (ranks,) node x ranks per node + local rank.
        hang: the fault that ends it.
    """

    number: int
    first_step: int
    steps: int
    first_made: int
    slot: npt.NDArray[np.intp]
    hang: Fault | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class ActiveFault:
    """A fault with its interval in steps made, and its location.

    Attributes:
        slots: that have it; None if it belongs to a stage or to all.
    """

    fault: Fault
    first_made: int
    end_made: int
    slots: npt.NDArray[np.intp] | None

    def ranks(self, plan: RunPlan, attempt: Attempt) -> Bools:
        """(ranks,) whether each has it in the attempt."""
        if self.slots is not None:
            return np.isin(attempt.slot, self.slots)
        if self.fault.stage is not None:
            return np.asarray(plan.layout.stage == self.fault.stage)
        return np.ones(plan.layout.ranks, bool)

    def factors(self, made: Ints) -> Floats:
        """(steps,) factor of the fault; 1 while it is inactive. For faults in seconds: 1
        off, 2 on."""
        since = made - self.first_made
        is_on = (since >= 0) & (made < self.end_made)
        size = 2.0 if self.fault.kind in ("data", "data_stall", "late") else self.fault.size
        factors = np.full(len(made), size)
        if self.fault.kind == "ramp":
            factors = 1.0 + (size - 1.0) * np.clip((since + 1) / RAMP_STEPS, 0.0, 1.0)
        if self.fault.kind == "flap":
            is_on &= since // FLAP_STEPS % 2 == 0
        return np.asarray(np.where(is_on, factors, 1.0))


@dataclass(frozen=True, kw_only=True, eq=False)
class Timeline:
    """Attempts in order, and faults in the order of the plan (without hangs)."""

    attempts: tuple[Attempt, ...]
    faults: tuple[ActiveFault, ...]

    def step_of(self, made: int) -> int:
        """Number of a step by its index among the steps made."""
        attempt = [a for a in self.attempts if a.first_made <= made][-1]
        return attempt.first_step + made - attempt.first_made


def build_timeline(plan: RunPlan, draws: Draws) -> Timeline:
    attempts = _attempts(plan, draws)
    faults = tuple(
        _active(plan, draws, attempts, number, fault)
        for number, fault in enumerate(plan.faults)
        if fault.kind not in HANG_KINDS
    )
    return Timeline(attempts=attempts, faults=faults)


def find_slots(plan: RunPlan, fault: Fault, attempt: Attempt) -> npt.NDArray[np.intp] | None:
    """Slots that have the fault, by the numbering of an attempt; None: not tied to slots."""
    every = plan.ranks_per_node
    if fault.ranks:
        return attempt.slot[list(fault.ranks)]
    if fault.host is not None:
        return np.sort(attempt.slot[attempt.slot // every == fault.host])
    if fault.rail is not None:
        return np.sort(attempt.slot[attempt.slot % every == fault.rail])
    return None


def attempt_at(attempts: tuple[Attempt, ...], plan: RunPlan, step: int) -> Attempt:
    """The attempt in which a step is planned to happen first."""
    is_first = plan.restart_at_step is None or step < plan.restart_at_step
    return attempts[0 if is_first else -1]


def _attempts(plan: RunPlan, draws: Draws) -> tuple[Attempt, ...]:
    end = plan.first_step + plan.steps
    stop = plan.restart_at_step
    slot = np.arange(plan.layout.ranks)
    if stop is None:
        return (_attempt(plan, 0, plan.first_step, end, 0, slot),)
    first = _attempt(plan, 0, plan.first_step, stop, 0, slot)
    moved = _renumbered(plan, draws, slot) if plan.renumbers else slot
    made = stop - plan.first_step
    return first, _attempt(plan, 1, _resume_step(plan, stop), end, made, moved)


def _attempt(
    plan: RunPlan, number: int, first: int, end: int, made: int, slot: npt.NDArray[np.intp]
) -> Attempt:
    planned_from = first if number == 0 else plan.restart_at_step or first
    hangs = [f for f in plan.faults if f.kind in HANG_KINDS and planned_from <= f.onset_step < end]
    steps = hangs[0].onset_step - first + 1 if hangs else end - first
    hang = hangs[0] if hangs else None
    return Attempt(
        number=number, first_step=first, steps=steps, first_made=made, slot=slot, hang=hang
    )


def _resume_step(plan: RunPlan, stop: int) -> int:
    """The step after the last checkpoint; without checkpoints nothing is lost."""
    every = plan.checkpoint_every
    if not every:
        return stop
    last = (stop - 1) // every * every
    return last + 1 if last > plan.first_step else plan.first_step


def _renumbered(plan: RunPlan, draws: Draws, slot: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Permute full nodes; local ranks stay."""
    every = plan.ranks_per_node
    full = len(slot) // every
    order = np.concatenate([draws.once("renumbering").permutation(full), [full]])
    return np.asarray(order[slot // every] * every + slot % every, np.intp)


def _active(
    plan: RunPlan, draws: Draws, attempts: tuple[Attempt, ...], number: int, fault: Fault
) -> ActiveFault:
    attempt = attempt_at(attempts, plan, fault.onset_step)
    first = attempt.first_made + fault.onset_step - attempt.first_step
    end = FOREVER
    if fault.end_step is not None:
        end = first + fault.end_step - fault.onset_step
    elif fault.kind == "transient":
        generator = draws.once("faults", number)
        end = first + int(generator.integers(SHORTEST_TRANSIENT, LONGEST_TRANSIENT + 1))
    return ActiveFault(
        fault=fault, first_made=first, end_made=end, slots=find_slots(plan, fault, attempt)
    )


STREAMS: Final = (
    "offset", "sections", "common", "spikes", "microbatches", "sequences", "experts", "gc",
    "phases", "warm_up", "missing", "clocks", "renumbering", "faults", "launches", "transfer",
    "gpu_missing", "outside",
)  # fmt: skip


class Draws:
    """Random generators by stream and step."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def once(self, stream: str, number: int = 0) -> np.random.Generator:
        return np.random.default_rng((self._seed, STREAMS.index(stream), number, 1))

    def at(self, stream: str, step: int) -> np.random.Generator:
        """``step`` counts the steps made."""
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
