"""Local work of every rank: times without any waiting."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from otel_straggler.model.observation import Bools, Floats, Ints, Section
from otel_straggler.simulate.faults import Fault
from otel_straggler.simulate.plan import (
    BACKWARD,
    CHECKPOINT,
    DATA,
    EVAL,
    EXPERTS,
    FORWARD,
    GC,
    OPTIMIZER,
    PIPELINE,
    SYNC,
    RunPlan,
)
from otel_straggler.simulate.timeline import ActiveFault, Attempt, Draws, Timeline

SHARED = 0.8
"""Share of the variance of a rank's step common to forward and backward."""
DATA_SIGMA = 0.10
"""Step noise of data loading, unless the plan's is larger."""
LAUNCH_SIGMA = 0.05
LAUNCH_SHARE = 0.1
"""Host time of launching a section / its device time."""
BARE_LAUNCH_SHARE = 1e-3
"""Host time of launching a section that only communicates / step time."""
CHECKPOINT_SIGMA = 0.05
WARM_UP_TIMES = 4.0
"""A first step takes about this many times longer; for half of the ranks 3 to 5 times."""
WARM_UP_SIGMA = 0.4
SMALLEST_OFFSET, LARGEST_OFFSET = 0.003, 0.010
STALL_PART = 0.05
DAY_S = 86_400.0
PASSES = (FORWARD, EXPERTS, BACKWARD)
"""Sections that run for each microbatch."""
COMPUTE = (*PASSES, OPTIMIZER)


@dataclass(frozen=True, eq=False)
class Work:
    """Consecutive steps.

    Attributes:
        seconds: (steps, ranks) of each section; NaN where it did not run; of the collective, its
            transfer.
        launch: (steps, ranks) host seconds of launches; empty unless they are asynchronous.
        late_s: (steps, ranks) unmeasured, before the collective.
        between_s: (steps, ranks) unmeasured, after the step.
        parts: (steps, ranks, microbatches) share of each microbatch, sum 1; None with one
            microbatch.
        tokens: (steps, ranks, microbatches); None if not reported.
    """

    seconds: dict[Section, Floats]
    launch: dict[Section, Floats]
    late_s: Floats
    between_s: Floats
    parts: Floats | None
    tokens: Floats | None


class Workers:
    """Draws the local work of all ranks, a few steps at a time."""

    def __init__(self, plan: RunPlan, draws: Draws, timeline: Timeline) -> None:
        self._plan = plan
        self._draws = draws
        self._timeline = timeline
        slots = plan.nodes * plan.ranks_per_node
        offset = plan.rank_offset
        generator = draws.once("offset")
        drawn = generator.uniform(SMALLEST_OFFSET, LARGEST_OFFSET)
        sigma = drawn if offset is None else offset
        self._offset = np.exp(sigma * generator.standard_normal(slots))

    def work(self, attempt: Attempt, first_made: int, steps: int) -> Work:
        made = np.arange(first_made, first_made + steps)
        seconds = self._noisy(attempt, first_made, steps)
        self._add_spikes(seconds, first_made)
        warm_up = self._warm_up(attempt, made)
        for section in self._passes:
            seconds[section] *= warm_up
        self._make_unequal(seconds, first_made, steps)
        parts, tokens = self._microbatches(seconds, first_made, steps)
        outside_s = self._outside_s(first_made, steps)
        late_s = 0.5 * outside_s
        for fault in self._timeline.faults:
            self._apply(fault, attempt, made, seconds, late_s)
        self._add_pauses(attempt, made, seconds)
        launch = self._launches(warm_up, first_made, steps)
        return Work(seconds, launch, late_s, 0.5 * outside_s, parts, tokens)

    def _outside_s(self, first: int, steps: int) -> Floats:
        plan = self._plan
        shape = (steps, plan.layout.ranks)
        if not plan.outside_s:
            return np.zeros(shape)
        noise = np.exp(plan.sigma * self._draws.normals("outside", first, shape))
        return np.asarray(plan.outside_s * noise)

    @property
    def _passes(self) -> tuple[Section, ...]:
        return tuple(section for section in PASSES if section in self._plan.sections)

    def _noisy(self, attempt: Attempt, first: int, steps: int) -> dict[Section, Floats]:
        plan, ranks = self._plan, self._plan.layout.ranks
        local = (DATA, OPTIMIZER, *self._passes)
        normal = self._draws.normals("sections", first, (steps, 1 + len(local), ranks))
        common = self._common_factor(first, steps)[:, None] * self._offset[attempt.slot]
        own, shared = _mixture(plan, self._passes)
        seconds = {}
        for index, section in enumerate(local, 1):
            log = normal[:, index]
            log *= own if section in PASSES else _sigma(plan, section)
            if section in PASSES:
                log += shared * normal[:, 0]
            seconds[section] = plan.usual_s(section) * np.exp(log, out=log)
            if section != DATA:
                seconds[section] *= common
        seconds[SYNC] = self._transfer(first, steps)
        return seconds

    def _common_factor(self, first: int, steps: int) -> Floats:
        """(steps,) factor that all ranks share."""
        plan = self._plan
        common = np.exp(plan.common_mode * self._draws.normals("common", first, (steps,)))
        hour = np.arange(first, first + steps) * plan.step_s * (2 * math.pi / DAY_S)
        return np.asarray(common * (1.0 + plan.diurnal * np.sin(hour)))

    def _transfer(self, first: int, steps: int) -> Floats:
        layout = self._plan.layout
        groups = layout.inner * layout.pp
        noise = self._plan.sigma * self._draws.normals("transfer", first, (steps, groups))
        return np.asarray(self._plan.usual_s(SYNC) * np.exp(noise)[:, layout.data_group])

    def _add_spikes(self, seconds: dict[Section, Floats], first: int) -> None:
        """Pareto(3) on one section, in a small share of the steps of a rank."""
        part = self._plan.spikes
        if not part:
            return
        local = list(seconds)
        local.remove(SYNC)
        steps, ranks = seconds[DATA].shape
        drawn = self._draws.uniforms("spikes", first, (steps, 2, ranks))
        where = np.nonzero(drawn[:, 0] < part)
        size = (1.0 - drawn[:, 0][where] / part) ** (-1 / 3)
        which = (drawn[:, 1][where] * len(local)).astype(int)
        for index, section in enumerate(local):
            here = which == index
            seconds[section][where[0][here], where[1][here]] *= size[here]

    def _warm_up(self, attempt: Attempt, made: Ints) -> Floats:
        """(steps, ranks) factor; (1, 1) when it is over."""
        length = self._plan.warm_up_steps
        since = made - attempt.first_made
        if length == 0 or since[0] >= length:
            return np.ones((1, 1))
        normal = self._draws.once("warm_up", attempt.number).standard_normal(len(attempt.slot))
        fading = np.where(since < length, np.exp(-3.0 * since / length), 0.0)
        return np.asarray(1.0 + WARM_UP_TIMES * fading[:, None] * np.exp(WARM_UP_SIGMA * normal))

    def _make_unequal(self, seconds: dict[Section, Floats], first: int, steps: int) -> None:
        plan = self._plan
        if plan.stage_factor != 1.0:
            last = plan.layout.stage == plan.layout.pp - 1
            for section in self._passes:
                seconds[section][:, last] *= plan.stage_factor
        if plan.expert_cv:
            load = expert_load(plan, self._draws, first, steps)
            seconds[EXPERTS] *= load[:, plan.layout.expert_index]

    def _microbatches(
        self, seconds: dict[Section, Floats], first: int, steps: int
    ) -> tuple[Floats | None, Floats | None]:
        """Parts and tokens; sequences change ``seconds``."""
        plan = self._plan
        layout, count = plan.layout, plan.microbatches
        shape = (steps, layout.ranks, count)
        tokens = np.full(shape, SEQUENCES * TYPICAL_LENGTH) if plan.report_tokens else None
        parts: Floats = np.ones(shape)
        if count > 1:
            normal = self._draws.normals("microbatches", first, parts.shape)
            sigma = min(1.2 * plan.sigma, 0.06)  # far below the effect of sequences
            parts += sigma * np.clip(normal, -4.0, 4.0, out=normal)
        if plan.sequence_cv:
            work, drawn = draw_sequences(plan, self._draws, first, steps)
            if plan.report_tokens:
                tokens = drawn[:, layout.data_index]
            for section in self._passes:
                seconds[section] *= work.mean(axis=2)[:, layout.data_index]
            if plan.timing != "asynchronous":  # launches do not know how long a sequence is
                parts *= work[:, layout.data_index]
        parts /= parts.sum(axis=2, keepdims=True)
        return (parts if count > 1 else None), tokens

    def _apply(
        self,
        active: ActiveFault,
        attempt: Attempt,
        made: Ints,
        seconds: dict[Section, Floats],
        late_s: Floats,
    ) -> None:
        factors = active.factors(made)
        if (factors == 1.0).all():
            return
        who = np.flatnonzero(affected(self._plan, active, attempt))
        fault = active.fault
        if fault.kind in ("data", "data_stall", "late"):
            more = np.repeat(fault.size * (factors - 1.0)[:, None], len(who), axis=1)
            if fault.kind == "data_stall":
                drawn = self._draws.uniforms("faults", int(made[0]), late_s.shape)
                more *= drawn[:, who] < STALL_PART
            (late_s if fault.kind == "late" else seconds[DATA])[:, who] += more
        else:
            for section in sections_of(self._plan, fault):
                seconds[section][:, who] *= factors[:, None]

    def _add_pauses(self, attempt: Attempt, made: Ints, seconds: dict[Section, Floats]) -> None:
        plan, first = self._plan, int(made[0])
        shape = (len(made), plan.layout.ranks)
        if plan.gc_every_steps:
            every = plan.gc_every_steps
            phase = self._draws.once("phases", attempt.number).integers(every, size=shape[1])
            length = plan.gc_s * (0.4 + 1.6 * self._draws.uniforms("gc", first, shape))
            seconds[GC] = np.where((made[:, None] + phase) % every == 0, length, np.nan)
        steps = attempt.first_step + made - attempt.first_made
        for section, every in ((CHECKPOINT, plan.checkpoint_every), (EVAL, plan.eval_every)):
            if every:
                is_due = (steps % every == 0) & (steps > plan.first_step)
                seconds[section] = np.full(shape, np.nan)
                for row in np.flatnonzero(is_due).tolist():
                    normal = self._draws.at("phases", 2 * (first + row) + (section == EVAL))
                    noise = np.exp(CHECKPOINT_SIGMA * normal.standard_normal(shape[1]))
                    seconds[section][row] = plan.usual_s(section) * noise

    def _launches(self, warm_up: Floats, first: int, steps: int) -> dict[Section, Floats]:
        plan = self._plan
        if plan.timing != "asynchronous":
            return {}
        there = [s for s in (*PASSES, PIPELINE, SYNC) if s in plan.sections]
        shape = (steps, len(there), plan.layout.ranks)
        noise = np.exp(LAUNCH_SIGMA * self._draws.normals("launches", first, shape))
        launch = {}
        for index, section in enumerate(there):
            usual = LAUNCH_SHARE * plan.usual_s(section) * warm_up
            bare = np.full((1, 1), BARE_LAUNCH_SHARE * plan.step_s)
            launch[section] = (usual if section in PASSES else bare) * noise[:, index]
        return launch


def sections_of(plan: RunPlan, fault: Fault) -> tuple[Section, ...]:
    """The sections that a fault makes longer."""
    single = {"forward": FORWARD, "backward": BACKWARD, "link": SYNC}
    if fault.kind in single:
        return (single[fault.kind],)
    if fault.kind in ("data", "data_stall"):
        return (DATA,)
    if fault.kind == "late":
        return ()
    return tuple(section for section in COMPUTE if section in plan.sections)


def affected(plan: RunPlan, active: ActiveFault, attempt: Attempt) -> Bools:
    """(ranks,) whether the fault changes its times: of a link, all that share its collective."""
    ranks = active.ranks(plan, attempt)
    if active.fault.kind != "link":
        return ranks
    groups = plan.layout.data_group
    return np.asarray(np.isin(groups, groups[ranks]))


def _sigma(plan: RunPlan, section: Section) -> float:
    """A run without noise loads its data without noise, too."""
    return max(plan.sigma, DATA_SIGMA) if section == DATA and plan.sigma else plan.sigma


def _mixture(plan: RunPlan, passes: tuple[Section, ...]) -> tuple[float, float]:
    """Standard deviations of a section's own and of the shared noise, which add up to the
    plan's."""
    usual = np.array([plan.usual_s(section) for section in passes])
    own_part = (1.0 - SHARED) * float(((usual / usual.sum()) ** 2).sum())
    sigma = plan.sigma / math.sqrt(SHARED + own_part)
    return sigma * math.sqrt(1.0 - SHARED), sigma * math.sqrt(SHARED)


SEQUENCES = 4
"""Sequences in a microbatch."""
TYPICAL_LENGTH = 2048.0
"""Mean tokens of a sequence."""
QUADRATIC = 0.5
"""Share of the work of an average microbatch that grows with the squares of the lengths."""
HOT_STEPS = 10
"""Steps after which another expert is hot."""


def draw_sequences(plan: RunPlan, draws: Draws, first: int, steps: int) -> tuple[Floats, Floats]:
    """Work, mean 1, and tokens (steps, data ranks, microbatches).

    Log-normal lengths; work = a x sum of lengths + b x sum of their squares.

    The mean work is that of an infinite draw: a step is slow where its sequences are long.
    """
    shape = (steps, plan.layout.dp, plan.microbatches, SEQUENCES)
    variance = length_variance(plan.sequence_cv)
    sigma = math.sqrt(variance)
    length = np.exp(sigma * draws.normals("sequences", first, shape) - variance / 2)
    square = length * length / math.exp(variance)
    work = ((1 - QUADRATIC) * length + QUADRATIC * square).mean(axis=3)
    return work, np.rint(TYPICAL_LENGTH * length.sum(axis=3))


def length_variance(cv: float) -> float:
    """Variance of the log of the lengths that gives the work of a microbatch this CV.

    For one sequence of log-variance v: CV^2 = a^2 (e^v - 1) + 2ab (e^2v - 1) + b^2 (e^4v - 1),
    solved by bisection.
    """
    wanted = cv * cv * SEQUENCES
    a, b = 1 - QUADRATIC, QUADRATIC
    low, high = 0.0, 10.0
    for _ in range(80):
        v = (low + high) / 2
        have = a * a * math.expm1(v) + 2 * a * b * math.expm1(2 * v) + b * b * math.expm1(4 * v)
        low, high = (v, high) if have < wanted else (low, v)
    return low if cv else 0.0


def expert_load(plan: RunPlan, draws: Draws, first: int, steps: int) -> Floats:
    """(steps, experts) work of the experts, mean 1; one is hot, and changes.

    With h more work on one of E experts, CV = h sqrt(E - 1) / (E + h).
    """
    experts = plan.layout.ep
    more = plan.expert_cv * experts / (math.sqrt(experts - 1) - plan.expert_cv)
    load = np.ones((steps, experts))
    for index in range(steps):
        term = (first + index) // HOT_STEPS
        load[index, draws.once("experts", term).integers(experts)] += more
    return np.asarray(load / load.mean(axis=1, keepdims=True))
