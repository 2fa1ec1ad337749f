"""Plans of generated runs, and their parallel layouts."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from otel_straggler.errors import ConfigError
from otel_straggler.model.observation import Section
from otel_straggler.simulate.faults import HANG_KINDS, Fault
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
        layout: parallel dimensions; sections depend on them (``experts``, ``pipeline_wait``).
        steps: optimizer steps, counted from ``first_step``.
        noise: of a rank's compute time from step to step: a preset ("AR" 0.9 %, "ST" 2.4 %, "SE"
            11.6 %) or a standard deviation as a fraction.
        timing: content of the sections' times: "local" work apart from waiting; "synchronised",
            collectives inside backward; "asynchronous", host times of launches.
        gpu_timing: what the device reports: nothing, time between events, or kernel times.
        gpu_sample_every: kernels are timed in one step of so many, whose number it divides; the
            others have time between events.
        gpu_missing: share of the executions whose GPU times never come; they have what a rank
            reports that times no GPU.
        microbatches: executions of forward and backward in a step.
        step_s: usual seconds of a step without pipeline bubble.
        outside_s: usual seconds of each step that no section covers, half of them before the
            collective and half between steps.
        stage_factor: work of the last pipeline stage / of the others.
        sequence_cv: coefficient of variation of the work of microbatches, from sequence lengths.
        expert_cv: coefficient of variation of the load of experts; the hot one changes.
        gc_every_steps, gc_s: garbage collections of a rank and their usual seconds; 0: none.
        checkpoint_every, eval_every: steps between them; 0: none.
        warm_up_steps: slow steps after each start.
        diurnal: amplitude of the change of speed over a day.
        common_mode: standard deviation of the factor that all ranks share in a step.
        rank_offset: standard deviation of lasting differences between ranks; None: 0.3 to 1 %.
        spikes: share of the steps of a rank in which a section takes far longer.
        missing_reports: share of the steps of a rank that never arrive.
        clock_offset_s: standard deviation of the clocks of the nodes.
        report_topology: sources carry their position in the layout.
        report_tokens: rows carry tokens.
        report_hardware: ranks name their GPUs, whose sensors a replay sends.
        report_collectives: ranks report what they wait in collectives, as far as the host waits
            there: with asynchronous launches it hardly does.
        restart_at_step: a new attempt begins when this step is due (or after a hang), from the last
            checkpoint.
        renumbers: nodes get other ranks in the new attempt.
    """

    layout: Layout
    steps: int = 400
    seed: int = 0
    ranks_per_node: int = 8
    noise: str | float = "ST"
    timing: Timing = "local"
    gpu_timing: GpuTiming = "off"
    gpu_sample_every: int = 1
    gpu_missing: float = 0.0
    microbatches: int = 8
    step_s: float = 2.0
    faults: tuple[Fault, ...] = ()
    outside_s: float = 0.0
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
    report_topology: bool = True
    report_tokens: bool = False
    report_hardware: bool = False
    report_collectives: bool = False
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
        """Sections of a step, in order."""
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
        return -(-self.layout.ranks // self.ranks_per_node)

    def usual_s(self, section: Section) -> float:
        """Seconds of a section on a healthy rank; 0 for waiting and pauses."""
        shares = SHARES_WITH_EXPERTS if self.layout.ep > 1 else SHARES
        return shares.get(section, 0.0) * self.step_s


_MIN = {
    "steps": 1, "seed": 0, "ranks_per_node": 1, "microbatches": 1, "gc_every_steps": 0,
    "checkpoint_every": 0, "eval_every": 0, "warm_up_steps": 0, "first_step": 0, "start_ns": 0,
    "gpu_sample_every": 1,
}  # fmt: skip
_RANGES = {
    "step_s": (1e-3, 1e4),
    "outside_s": (0.0, 1e4),
    "stage_factor": (0.1, 10.0),
    "sequence_cv": (0.0, 2.0),
    "expert_cv": (0.0, 0.9),
    "gc_s": (1e-6, 1e3),
    "diurnal": (0.0, 0.5),
    "common_mode": (0.0, 0.5),
    "rank_offset": (0.0, 0.5),
    "spikes": (0.0, 1.0),
    "missing_reports": (0.0, 0.9),
    "gpu_missing": (0.0, 1.0),
    "clock_offset_s": (0.0, 3600.0),
}


def _check_ranges(plan: RunPlan) -> None:
    for name, minimum in _MIN.items():
        if getattr(plan, name) < minimum:
            _refuse(plan, name, f"at least {minimum}")
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
    if plan.report_collectives and plan.gpu_timing != "off" and not plan.gpu_missing:
        _refuse(plan, "report_collectives", "gpu_timing off, or gpu_missing: GPU times win")
    if plan.gpu_sample_every > 1 and plan.gpu_timing != "cupti":
        _refuse(plan, "gpu_sample_every", "1 unless kernels are timed (gpu_timing cupti)")
    if plan.gpu_missing and plan.gpu_timing == "off":
        _refuse(plan, "gpu_missing", "0 with gpu_timing off")
    end = plan.first_step + plan.steps
    at = plan.restart_at_step
    if at is not None and not plan.first_step < at < end:
        _refuse(plan, "restart_at_step", f"a step from {plan.first_step + 1} to {end - 1}")


def _check_fault(plan: RunPlan, fault: Fault) -> None:
    end = plan.first_step + plan.steps
    sizes = {"host": plan.nodes, "rail": plan.ranks_per_node, "stage": plan.layout.pp}
    named = [("rank", rank, plan.layout.ranks) for rank in fault.ranks]
    named += [(n, getattr(fault, n), maximum) for n, maximum in sizes.items()]
    for name, number, maximum in named:
        if number is not None and number >= maximum:
            _refuse_fault(fault, f"a {name} from 0 to {maximum - 1}")
    if not plan.first_step <= fault.onset_step < end:
        _refuse_fault(fault, f"an onset from step {plan.first_step} to {end - 1}")
    if fault.kind in HANG_KINDS and sum(f.kind in HANG_KINDS for f in plan.faults) > 1:
        _refuse_fault(fault, "one hang or crash in a run")


def _refuse(plan: RunPlan, name: str, expected: str) -> NoReturn:
    remedy = f"Change --{name.replace('_', '-')}."
    raise ConfigError.of(f"simulated run, {name}", getattr(plan, name), expected, remedy)


def _refuse_fault(fault: Fault, expected: str) -> NoReturn:
    remedy = "Change --fault, --layout, --steps or --ranks-per-node."
    raise ConfigError.of("simulated run, fault", str(fault), expected, remedy)


_PART = re.compile(r"(tp|cp|ep|pp|dp)=?(\d{1,9})")
_EXAMPLE = "parts such as tp8,pp4,dp32"
MAX_RANKS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Sizes of the parallel dimensions.

    Ranks are numbered as in Megatron: tensor fastest, then context, data, pipeline. ``ep``
    neighbors in the data dimension share the experts.

    >>> layout = Layout.parse("tp2,pp2,dp4")
    >>> layout.ranks, layout.index(5)
    (16, (('data', 2), ('tensor', 1), ('pipeline', 0)))
    """

    tp: int = 1
    cp: int = 1
    ep: int = 1
    pp: int = 1
    dp: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                _layout_refuse(getattr(self, field.name), f"{field.name} of at least 1")
        if self.dp % self.ep:
            _layout_refuse(str(self), f"dp that is a multiple of ep ({self.ep})")
        if self.ranks > MAX_RANKS:
            _layout_refuse(str(self), f"at most {MAX_RANKS:,} ranks")

    def __str__(self) -> str:
        sizes = ((f.name, getattr(self, f.name)) for f in fields(self))
        return ",".join(f"{name}{size}" for name, size in sizes if size > 1 or name == "dp")

    @classmethod
    def parse(cls, text: str, ranks: int | None = None) -> Layout:
        """Parse ``tp8,pp4,dp32``; with ``ranks``, dp may be left out.

        >>> Layout.parse("tp8,pp4", ranks=1024).dp
        32

        Raises:
            ConfigError: it is no layout, names a dimension twice, or has other than ``ranks``.
        """
        sizes: dict[str, int] = {}
        for part in text.replace(" ", "").lower().split(","):
            match = _PART.fullmatch(part)
            if match is None:
                _layout_refuse(text, _EXAMPLE)
            if match[1] in sizes:
                _layout_refuse(text, f"{match[1]} only once")
            sizes[match[1]] = int(match[2])
        layout = cls(**({"dp": sizes.get("ep", 1)} | sizes))
        if ranks is None:
            return layout
        if "dp" not in sizes:
            layout = cls(**sizes, dp=max(ranks // (layout.ranks // layout.dp), 1))
        if layout.ranks != ranks:
            _layout_refuse(text, f"a layout of {ranks} ranks, not {layout.ranks}")
        return layout

    @property
    def ranks(self) -> int:
        return self.tp * self.cp * self.dp * self.pp

    @property
    def inner(self) -> int:
        """Ranks that work on the same layers and data, and meet in every layer."""
        return self.tp * self.cp

    @cached_property
    def data_index(self) -> npt.NDArray[np.intp]:
        return np.arange(self.ranks) // self.inner % self.dp

    @cached_property
    def stage(self) -> npt.NDArray[np.intp]:
        return np.arange(self.ranks) // (self.inner * self.dp)

    @cached_property
    def expert_index(self) -> npt.NDArray[np.intp]:
        return self.data_index % self.ep

    @cached_property
    def inner_group(self) -> npt.NDArray[np.intp]:
        """Index of the group that meets in every layer."""
        return np.arange(self.ranks) // self.inner

    @cached_property
    def data_group(self) -> npt.NDArray[np.intp]:
        """Index of the group that sums up its gradients."""
        return self.stage * self.inner + np.arange(self.ranks) % self.inner

    def index(self, rank: int) -> tuple[tuple[str, int], ...]:
        """(dimension, index) of a rank: the data dimension, and those above size 1."""
        indices = (
            ("data", self.dp, int(self.data_index[rank])),
            ("tensor", self.tp, rank % self.tp),
            ("pipeline", self.pp, int(self.stage[rank])),
            ("context", self.cp, rank // self.tp % self.cp),
            ("expert", self.ep, int(self.expert_index[rank])),
        )
        return tuple((name, index) for name, size, index in indices if size > 1 or name == "data")


def _layout_refuse(value: object, expected: str) -> NoReturn:
    raise ConfigError.of("layout", value, expected, f"Change --layout; it takes {_EXAMPLE}.")
