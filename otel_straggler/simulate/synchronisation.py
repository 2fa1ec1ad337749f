"""From local work to measured times: which ranks wait, and in which section it shows.

A step of a rank: data loading; forward and backward of all microbatches through the pipeline; the
collective, which all leave when the last has arrived and the transfer is over; optimizer and
pauses. Ranks of one tensor and context group meet in every layer; pipeline stages keep the 1F1B
schedule: (M - 1) x slowest stage + sum over stages, per microbatch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from otel_straggler.model.observation import (
    COLLECTIVE,
    CUPTI,
    EVENTS,
    HOST,
    Bases,
    Bools,
    Floats,
    GpuTimes,
    Ints,
    Section,
)
from otel_straggler.model.step_table import GpuSeconds
from otel_straggler.simulate.plan import (
    BACKWARD,
    CHECKPOINT,
    DATA,
    EVAL,
    FORWARD,
    GC,
    OPTIMIZER,
    PIPELINE,
    SYNC,
    Layout,
    RunPlan,
)
from otel_straggler.simulate.work import PASSES, Work

OVERLAPPED = 0.8
"""Share of the transfer that overlaps backward, if collectives are inside it."""
PAUSES = (GC, CHECKPOINT, EVAL)


@dataclass(frozen=True, eq=False)
class Measured:
    """Consecutive steps as ranks measure them.

    Attributes:
        seconds: (steps, ranks) of each section; NaN where it did not run.
        begin_s: (steps, ranks) from the end of waiting in the step before to the start of this one.
        meet_s: (steps,) from the end of waiting in the step before to that in this one.
        gap_s: (steps, ranks) unmeasured, before the section ``gap_before``.
        carry_s: (ranks,) from the end of waiting in the last step to its end.
        gpu: by the code of what is reported: busy, nccl and kernel seconds (steps, ranks) of each
            section, or its seconds, those in collectives and NaN.
    """

    seconds: dict[Section, Floats]
    begin_s: Floats
    meet_s: Floats
    gap_s: Floats
    gap_before: Section
    carry_s: Floats
    gpu: dict[int, OfSections]


@dataclass(frozen=True, eq=False)
class _Meeting:
    """Times (steps, ranks) from the end of waiting in the step before."""

    begin_s: Floats
    loaded_s: Floats
    group_loaded_s: Floats
    arrived_s: Floats
    """End of the pipeline."""
    ready_s: Floats
    """Arrival at the collective."""
    meet_s: Floats
    after_s: Floats
    """From the end of waiting to the end of the step, (steps, ranks)."""


def measure(plan: RunPlan, work: Work, carry_s: Floats) -> Measured:
    """Times as the ranks measure them.

    Args:
        carry_s: (ranks,) ``Measured.carry_s`` of the steps before; 0 at a start.
    """
    passes = [section for section in PASSES if section in work.seconds]
    met = _meet(plan, work, carry_s, passes)
    if plan.timing == "asynchronous":
        seconds, gap_before = _asynchronous(work, met), SYNC
    elif plan.timing == "synchronised":
        seconds, gap_before = _synchronised(plan, work, met, passes), BACKWARD
    else:
        seconds, gap_before = _local(plan, work, met, passes), SYNC
    gpu = {COLLECTIVE: waited_in(plan, work, seconds)} if plan.report_collectives else {}
    elapsed = seconds
    if plan.gpu_timing != "off" and plan.timing == "asynchronous":
        # Launched work runs in order, collectives in backward.
        on_stream = _synchronised(plan, work, met, passes)
        elapsed = {**on_stream, OPTIMIZER: work.seconds[OPTIMIZER]}
    for code in _reported(plan):
        gpu[code] = measure_on_gpu(plan, work, elapsed, code)
    return Measured(
        seconds={section: seconds[section] for section in plan.sections},
        begin_s=met.begin_s,
        meet_s=met.meet_s,
        gap_s=work.late_s,
        gap_before=gap_before,
        carry_s=met.after_s[-1],
        gpu=gpu,
    )


def _meet(plan: RunPlan, work: Work, carry_s: Floats, passes: list[Section]) -> _Meeting:
    layout = plan.layout
    optimizer = work.seconds[OPTIMIZER]
    if plan.timing == "synchronised":  # its collective, such as that of the gradient's norm
        optimizer = _slowest_of_group(layout, optimizer)
    after = work.seconds[SYNC] + optimizer + work.between_s
    for section in PAUSES:
        if section in work.seconds:
            after = after + np.nan_to_num(work.seconds[section])
    begin = np.vstack([carry_s[None], after[:-1]])
    loaded = begin + work.seconds[DATA]
    group_loaded = _slowest_of_group(layout, loaded)
    group_work = sum(_slowest_of_group(layout, work.seconds[section]) for section in passes)
    arrived = _through_pipeline(plan, group_loaded, np.asarray(group_work))
    ready = arrived + work.late_s
    if work.launch:
        launched = loaded + sum(work.launch.values()) + work.late_s
        ready = np.maximum(arrived, launched)  # hidden behind the device as long as it is busy
    return _Meeting(begin, loaded, group_loaded, arrived, ready, ready.max(axis=1), after)


def _slowest_of_group(layout: Layout, values: Floats) -> Floats:
    """(steps, ranks) maximum over the ranks that meet in every layer."""
    if layout.inner == 1:
        return values
    grouped = values.reshape(len(values), -1, layout.inner).max(axis=2)
    return np.asarray(np.repeat(grouped, layout.inner, axis=1))


def _through_pipeline(plan: RunPlan, loaded: Floats, work: Floats) -> Floats:
    """(steps, ranks) time at which a pipeline has done all microbatches."""
    layout = plan.layout
    if layout.pp == 1:
        return np.asarray(loaded + work)
    shape = (len(work), layout.pp, layout.dp * layout.inner)
    each = work.reshape(shape) / plan.microbatches
    length = (plan.microbatches - 1) * each.max(axis=1) + each.sum(axis=1)
    end = loaded.reshape(shape).max(axis=1) + length
    return np.asarray(np.tile(end, (1, layout.pp)))


def _local(
    plan: RunPlan, work: Work, met: _Meeting, passes: list[Section]
) -> dict[Section, Floats]:
    """Sections hold work; waiting has sections of its own."""
    seconds = dict(work.seconds)
    own = sum(work.seconds[section] for section in passes)
    inside = met.arrived_s - met.loaded_s - own
    waited = met.meet_s[:, None] - met.ready_s
    if plan.layout.pp > 1:
        seconds[PIPELINE] = inside
        seconds[SYNC] = work.seconds[SYNC] + waited
    else:
        seconds[SYNC] = work.seconds[SYNC] + waited + inside
    return seconds


def _synchronised(
    plan: RunPlan, work: Work, met: _Meeting, passes: list[Section]
) -> dict[Section, Floats]:
    """Collectives run inside the sections: backward meets all ranks, the others the group."""
    layout = plan.layout
    seconds = dict(work.seconds)
    for section in (*passes, OPTIMIZER):
        seconds[section] = _slowest_of_group(layout, work.seconds[section])
    own = sum(seconds[section] for section in passes)
    if plan.layout.pp > 1:
        seconds[PIPELINE] = met.arrived_s - met.group_loaded_s - own
    seconds[FORWARD] = seconds[FORWARD] + met.group_loaded_s - met.loaded_s
    waited = met.meet_s[:, None] - met.ready_s
    seconds[BACKWARD] = seconds[BACKWARD] + waited + OVERLAPPED * work.seconds[SYNC]
    seconds[SYNC] = (1.0 - OVERLAPPED) * work.seconds[SYNC]
    return seconds


def _asynchronous(work: Work, met: _Meeting) -> dict[Section, Floats]:
    """Sections hold launches; the last one waits for the device."""
    seconds = {**work.seconds, **work.launch}
    launched = met.loaded_s + sum(work.launch.values()) + work.late_s
    left = met.meet_s[:, None] + work.seconds[SYNC]
    seconds[OPTIMIZER] = left - launched + work.seconds[OPTIMIZER]
    return seconds


OfSections: TypeAlias = dict[Section, tuple[Floats, Floats, Floats]]
HIDDEN = 0.8
BARE_EVENTS_S = 2e-6
"""Between two events with nothing on the stream between them."""


@dataclass(frozen=True, eq=False)
class OnGpu:
    """Consecutive steps as devices, or collectives, report them: (steps, ranks, sections); NaN
    where nothing is.

    Attributes:
        basis: codes of ``gpu_times``.
        busy_s, nccl_s, kernel_s: as in ``GpuTimes``.
    """

    basis: Bases
    busy_s: Floats
    nccl_s: Floats
    kernel_s: Floats

    def columns(self, at: Any, part: Floats) -> GpuTimes:
        """Rows of the cells ``at``, scaled by ``part``."""
        basis = self.basis[at]
        busy_s, nccl_s, kernel_s = (
            times[at] * part for times in (self.busy_s, self.nccl_s, self.kernel_s)
        )
        unknown = np.isnan(busy_s)
        # A run that waits in no collective reports nothing.
        unknown |= (basis == COLLECTIVE) & (nccl_s == 0.0)
        busy_s, nccl_s = (np.where(unknown, np.nan, times) for times in (busy_s, nccl_s))
        return GpuTimes(np.where(unknown, HOST, basis).astype(np.uint8), busy_s, nccl_s, kernel_s)

    def table(self) -> GpuSeconds:
        basis = np.where(np.isnan(self.busy_s), HOST, self.basis).astype(np.uint8)
        times = GpuTimes(basis, self.busy_s, self.nccl_s, self.kernel_s)
        return GpuSeconds(basis, times.own_s(), self.nccl_s)


def _reported(plan: RunPlan) -> tuple[int, ...]:
    """Codes of the times of the GPU."""
    if plan.gpu_timing == "cupti":
        return (CUPTI,) if plan.gpu_sample_every == 1 else (EVENTS, CUPTI)
    return (EVENTS,) if plan.gpu_timing == "events" else ()


def measure_on_gpu(
    plan: RunPlan, work: Work, elapsed_s: Mapping[Section, Floats], code: int
) -> OfSections:
    """Busy, nccl and kernel seconds (steps, ranks) of every section.

    Args:
        elapsed_s: how long each section is on the device, waiting included.
        code: whether events or kernels are timed.
    """
    result = {}
    for section in plan.sections:
        elapsed = elapsed_s[section]
        nothing = np.where(np.isnan(elapsed), np.nan, 0.0)
        if section in (*PASSES, OPTIMIZER):
            own = work.seconds[section]
            nccl = np.maximum(elapsed - own, 0.0)
            if section == BACKWARD and plan.timing != "local":
                nccl = nccl + HIDDEN * work.seconds[SYNC]
            result[section] = (elapsed, nccl, own + nccl)
        elif section in (PIPELINE, SYNC):
            result[section] = (elapsed, elapsed, elapsed)
        elif code == EVENTS and plan.timing == "asynchronous":
            result[section] = (nothing + BARE_EVENTS_S, nothing, nothing)
        else:
            bare = elapsed if code == EVENTS else nothing
            result[section] = (bare, nothing, nothing)
    return result


CALL_S = 2e-5
"""Of a collective that only launches a kernel."""


def waited_in(plan: RunPlan, work: Work, measured_s: Mapping[Section, Floats]) -> OfSections:
    """Seconds (steps, ranks) of every section, and of these in collectives.

    Args:
        measured_s: how long each section is by the host's clock.
    """
    result = {}
    for section in plan.sections:
        whole_s = np.maximum(measured_s[section], 1e-9)
        waited_s = np.zeros_like(whole_s)
        if plan.timing == "asynchronous":
            waited_s += CALL_S if section in (FORWARD, BACKWARD) else 0.0
        elif section in (PIPELINE, SYNC):
            waited_s = whole_s
        elif section in (*PASSES, OPTIMIZER):
            waited_s = np.maximum(whole_s - work.seconds[section], 0.0)
        result[section] = (whole_s, np.minimum(waited_s, whole_s), np.full_like(whole_s, np.nan))
    return result


def stack_on_gpu(
    plan: RunPlan,
    reported: Mapping[int, OfSections],
    is_there: Floats,
    steps: Ints,
    is_missing: Bools,
) -> OnGpu | None:
    """All sections stacked, None if nothing is reported; what did not end or did not arrive is NaN.

    Args:
        reported: by code of ``gpu_times``.
        is_there: (steps, ranks, sections) NaN there.
        steps: their numbers; is_missing: as ``is_there``, whose times of the GPU never came.
    """
    if not reported:
        return None
    usual = EVENTS if EVENTS in reported else CUPTI
    basis = np.full(is_there.shape, usual, np.uint8)
    if CUPTI in reported:
        basis[steps % plan.gpu_sample_every == 0] = CUPTI
    is_timed = usual in reported
    basis[is_missing if is_timed else ...] = COLLECTIVE if COLLECTIVE in reported else HOST
    times = [np.full(is_there.shape, np.nan) for _ in range(3)]
    for code, sections in reported.items():
        chosen = (basis == code) & ~np.isnan(is_there)
        for which in range(1 if code == EVENTS else 3):
            stacked = np.stack([sections[section][which] for section in plan.sections], axis=2)
            times[which][chosen] = np.maximum(stacked, 0.0)[chosen]
    return OnGpu(basis, *times)
