"""What a generated run is to be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, NoReturn

from otel_straggler.errors import ConfigError, describe
from otel_straggler.model.observation import Section
from otel_straggler.simulate.faults import HANG_KINDS, Fault
from otel_straggler.simulate.layout import Layout
from otel_straggler.simulate.scenarios import NEW_YEAR_2026_NS

Timing = Literal["local", "synchronised", "asynchronous"]
TIMINGS: Final[tuple[Timing, ...]] = ("local", "synchronised", "asynchronous")
GpuTiming = Literal["off", "events", "cupti"]
GPU_TIMINGS: Final[tuple[GpuTiming, ...]] = ("off", "events", "cupti")

PRESETS: Final = {"AR": 0.009, "ST": 0.024, "SE": 0.116}
"""Standard deviation of the compute time of a rank from step to step / its mean, as measured on
three public traces of production jobs."""

DATA: Final = Section("data_loading", "data")
FORWARD: Final = Section("forward", "compute")
EXPERTS: Final = Section("experts", "compute")
PIPELINE: Final = Section("pipeline_wait", "wait")
BACKWARD: Final = Section("backward", "compute")
SYNC: Final = Section("gradient_sync", "wait")
OPTIMIZER: Final = Section("optimizer", "compute")
GC: Final = Section("gc", "other")
CHECKPOINT: Final = Section("checkpoint", "checkpoint")
EVAL: Final = Section("eval", "eval")

SHARES: Final = {
    DATA: 0.02, FORWARD: 0.30, EXPERTS: 0.0, BACKWARD: 0.575, SYNC: 0.03, OPTIMIZER: 0.075,
    CHECKPOINT: 2.0, EVAL: 4.0,
}  # fmt: skip
"""Usual time of a section / time of a step."""
SHARES_WITH_EXPERTS: Final = {**SHARES, FORWARD: 0.20, EXPERTS: 0.15, BACKWARD: 0.525}


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """One run. The same plan always gives the same numbers.

    Attributes:
        layout: ranks and their places; sections depend on it (``experts``, ``pipeline_wait``).
        steps: optimizer steps, counted from ``first_step``.
        seed: of all random numbers.
        ranks_per_node: ranks on a host.
        noise: of the compute time of a rank from step to step: a preset ("AR" 0.9 %, "ST" 2.4 %,
            "SE" 11.6 %) or a standard deviation as a fraction.
        timing: what the sections' times hold: "local" work apart from waiting; "synchronised",
            collectives inside backward; "asynchronous", host times of launches.
        gpu_timing: what the device tells beside the host's times: nothing, the time between events,
            or that of its kernels.
        microbatches: runs of forward and backward in a step.
        step_s: usual seconds of a step without pipeline bubble.
        faults: what goes wrong.
        stage_factor: work of the last pipeline stage / of the others.
        sequence_cv: standard deviation / mean of the work of single microbatches, from the lengths
            of sequences.
        expert_cv: standard deviation / mean of the load of experts; the hot one changes.
        gc_every_steps, gc_s: garbage collections of a rank and their usual seconds; 0: none.
        checkpoint_every, eval_every: steps between them; 0: none.
        warm_up_steps: slow steps after each start.
        diurnal: amplitude of the change of speed over a day.
        common_mode: standard deviation of the factor that all ranks share in a step.
        rank_offset: standard deviation of the lasting differences between ranks; None: 0.3 to 1 %,
            drawn.
        spikes: part of the steps of a rank in which a section takes up to several times as long.
        missing_reports: part of the steps of a rank that never arrive.
        clock_offset_s: standard deviation of the clocks of the nodes.
        tells_topology: sources carry their place in the layout.
        tells_tokens: rows carry tokens.
        tells_hardware: ranks name their GPUs, whose sensors a replay sends.
        first_step: number of the first step.
        restart_at_step: a new attempt begins when this step is due (or after a hang); it goes on
            from the last checkpoint.
        renumbers: the nodes get other ranks in the new attempt.
        run_id, start_ns: of the run.
    """

    layout: Layout
    steps: int = 400
    seed: int = 0
    ranks_per_node: int = 8
    noise: str | float = "ST"
    timing: Timing = "local"
    gpu_timing: GpuTiming = "off"
    microbatches: int = 8
    step_s: float = 2.0
    faults: tuple[Fault, ...] = ()
    stage_factor: float = 1.0
    sequence_cv: float = 0.0
    expert_cv: float = 0.0
    gc_every_steps: int = 0
    gc_s: float = 0.5
    checkpoint_every: int = 0
    eval_every: int = 0
    warm_up_steps: int = 0
    diurnal: float = 0.0
    common_mode: float = 0.03
    rank_offset: float | None = None
    spikes: float = 0.002
    missing_reports: float = 0.0
    clock_offset_s: float = 0.0
    tells_topology: bool = True
    tells_tokens: bool = False
    tells_hardware: bool = False
    first_step: int = 0
    restart_at_step: int | None = None
    renumbers: bool = False
    run_id: str = "simulated"
    start_ns: int = NEW_YEAR_2026_NS

    def __post_init__(self) -> None:
        _check_ranges(self)
        _check_combinations(self)
        for fault in self.faults:
            _check_fault(self, fault)

    @property
    def sigma(self) -> float:
        """Standard deviation of the step noise, as a fraction."""
        return PRESETS[self.noise] if isinstance(self.noise, str) else self.noise

    @property
    def sections(self) -> tuple[Section, ...]:
        """Sections of a step, in the order in which they run."""
        is_there = {
            EXPERTS: self.layout.ep > 1,
            PIPELINE: self.layout.pp > 1,
            GC: self.gc_every_steps > 0,
            CHECKPOINT: self.checkpoint_every > 0,
            EVAL: self.eval_every > 0,
        }
        order = (
            DATA, FORWARD, EXPERTS, PIPELINE, BACKWARD, SYNC, OPTIMIZER, GC, CHECKPOINT, EVAL,
        )  # fmt: skip
        return tuple(section for section in order if is_there.get(section, True))

    @property
    def nodes(self) -> int:
        """Hosts; the last may be partly filled."""
        return -(-self.layout.ranks // self.ranks_per_node)

    def usual_s(self, section: Section) -> float:
        """Seconds of a section on a healthy rank; 0 for waiting and pauses."""
        shares = SHARES_WITH_EXPERTS if self.layout.ep > 1 else SHARES
        return shares.get(section, 0.0) * self.step_s


_LEAST = {
    "steps": 1, "seed": 0, "ranks_per_node": 1, "microbatches": 1, "gc_every_steps": 0,
    "checkpoint_every": 0, "eval_every": 0, "warm_up_steps": 0, "first_step": 0, "start_ns": 0,
}  # fmt: skip
_RANGES = {
    "step_s": (1e-3, 1e4),
    "stage_factor": (0.1, 10.0),
    "sequence_cv": (0.0, 2.0),
    "expert_cv": (0.0, 0.9),
    "gc_s": (1e-6, 1e3),
    "diurnal": (0.0, 0.5),
    "common_mode": (0.0, 0.5),
    "rank_offset": (0.0, 0.5),
    "spikes": (0.0, 1.0),
    "missing_reports": (0.0, 0.9),
    "clock_offset_s": (0.0, 3600.0),
}


def _check_ranges(plan: RunPlan) -> None:
    for name, least in _LEAST.items():
        if getattr(plan, name) < least:
            _refuse(plan, name, f"at least {least}")
    for name, (lowest, highest) in _RANGES.items():
        value = getattr(plan, name)
        if value is not None and not lowest <= value <= highest:
            _refuse(plan, name, f"{lowest:g} to {highest:g}")
    if plan.microbatches > 10_000:
        _refuse(plan, "microbatches", "at most 10000")
    if isinstance(plan.noise, str):
        if plan.noise not in PRESETS:
            _refuse(plan, "noise", "a number, or one of " + ", ".join(PRESETS))
    elif not (math.isfinite(plan.noise) and 0.0 <= plan.noise <= 0.5):
        _refuse(plan, "noise", "0 to 0.5, or one of " + ", ".join(PRESETS))
    if plan.timing not in TIMINGS:
        _refuse(plan, "timing", "one of " + ", ".join(TIMINGS))
    if plan.gpu_timing not in GPU_TIMINGS:
        _refuse(plan, "gpu_timing", "one of " + ", ".join(GPU_TIMINGS))


def _check_combinations(plan: RunPlan) -> None:
    if plan.stage_factor != 1.0 and plan.layout.pp == 1:
        _refuse(plan, "stage_factor", "1 without pipeline stages (pp in the layout)")
    if plan.expert_cv and plan.layout.ep == 1:
        _refuse(plan, "expert_cv", "0 without experts (ep in the layout)")
    end = plan.first_step + plan.steps
    at = plan.restart_at_step
    if at is not None and not plan.first_step < at < end:
        _refuse(plan, "restart_at_step", f"a step from {plan.first_step + 1} to {end - 1}")


def _check_fault(plan: RunPlan, fault: Fault) -> None:
    end = plan.first_step + plan.steps
    sizes = {"host": plan.nodes, "rail": plan.ranks_per_node, "stage": plan.layout.pp}
    named = [("rank", rank, plan.layout.ranks) for rank in fault.ranks]
    named += [(n, getattr(fault, n), most) for n, most in sizes.items()]
    for name, number, most in named:
        if number is not None and number >= most:
            _refuse_fault(fault, f"a {name} from 0 to {most - 1}")
    if not plan.first_step <= fault.onset_step < end:
        _refuse_fault(fault, f"an onset from step {plan.first_step} to {end - 1}")
    if fault.kind in HANG_KINDS and sum(f.kind in HANG_KINDS for f in plan.faults) > 1:
        _refuse_fault(fault, "one hang or crash in a run")


def _refuse(plan: RunPlan, name: str, expected: str) -> NoReturn:
    where = f"simulated run, {name}"
    remedy = f"Change --{name.replace('_', '-')}."
    value = getattr(plan, name)
    raise ConfigError(describe(where=where, value=value, expected=expected, remedy=remedy))


def _refuse_fault(fault: Fault, expected: str) -> NoReturn:
    remedy = "Change --fault, --layout, --steps or --ranks-per-node."
    value = str(fault)
    where = "simulated run, fault"
    raise ConfigError(describe(where=where, value=value, expected=expected, remedy=remedy))
