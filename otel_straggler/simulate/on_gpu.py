"""What the GPUs of a generated run would say: kernels, and the time between events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from otel_straggler.model.observation import CUPTI, EVENTS, Floats, GpuTimes, Section
from otel_straggler.model.step_table import GpuSeconds
from otel_straggler.simulate.plan import BACKWARD, OPTIMIZER, PIPELINE, SYNC, RunPlan
from otel_straggler.simulate.work import PASSES, Work

HIDDEN = 0.8
"""Part of the transfer whose kernels run beside those of backward, so that busy time does not have
it and the sum of kernels does."""
BARE_EVENTS_S = 2e-6
"""Between two events with nothing on the stream between them."""


@dataclass(frozen=True, eq=False)
class OnGpu:
    """Of some consecutive steps: (steps, ranks, sections); NaN where nothing is told.

    Attributes:
        basis: code of ``gpu_times`` of all that is told.
        busy_s, nccl_s, kernel_s: as ``GpuTimes`` has them.
    """

    basis: int
    busy_s: Floats
    nccl_s: Floats
    kernel_s: Floats

    def columns(self, at: Any, part: Floats) -> GpuTimes:
        """Rows of the cells ``at``, each of which is so large a part of its cell."""
        busy_s, nccl_s, kernel_s = (
            times[at] * part for times in (self.busy_s, self.nccl_s, self.kernel_s)
        )
        basis = np.where(np.isnan(busy_s), 0, self.basis).astype(np.uint8)
        return GpuTimes(basis, busy_s, nccl_s, kernel_s)

    def table(self) -> GpuSeconds:
        """As layer 2 reads it."""
        cells = self.columns((...,), np.ones(1))
        return GpuSeconds(cells.basis, cells.own_s(), cells.nccl_s)


def measure_on_gpu(
    plan: RunPlan, work: Work, elapsed_s: Mapping[Section, Floats]
) -> dict[Section, tuple[Floats, Floats, Floats]]:
    """Busy, nccl and kernel seconds (steps, ranks) of every section.

    Args:
        plan: of the run.
        work: what every rank has to do itself.
        elapsed_s: how long each section is on the device, with its waiting.
    """
    found = {}
    for section in plan.sections:
        elapsed = elapsed_s[section]
        nothing = np.where(np.isnan(elapsed), np.nan, 0.0)
        if section in (*PASSES, OPTIMIZER):
            own = work.seconds[section]
            nccl = np.maximum(elapsed - own, 0.0)
            if section == BACKWARD and plan.timing != "local":
                nccl = nccl + HIDDEN * work.seconds[SYNC]
            found[section] = (elapsed, nccl, own + nccl)
        elif section in (PIPELINE, SYNC):
            found[section] = (elapsed, elapsed, elapsed)
        elif plan.gpu_timing == "events" and plan.timing == "asynchronous":
            found[section] = (nothing + BARE_EVENTS_S, nothing, nothing)
        else:
            bare = elapsed if plan.gpu_timing == "events" else nothing
            found[section] = (bare, nothing, nothing)
    return found


def stack_on_gpu(
    plan: RunPlan, told: Mapping[Section, tuple[Floats, Floats, Floats]], is_there: Floats
) -> OnGpu:
    """All sections side by side; what did not end or did not arrive is not told."""
    busy, nccl, kernel = (
        np.stack([told[section][which] for section in plan.sections], axis=2) for which in range(3)
    )
    gone = np.isnan(is_there)
    for times in (busy, nccl, kernel):
        np.maximum(times, 0.0, out=times)
        times[gone] = np.nan
    if plan.gpu_timing == "events":
        unknown = np.full_like(busy, np.nan)
        return OnGpu(EVENTS, busy, unknown, unknown)
    return OnGpu(CUPTI, busy, nccl, kernel)
