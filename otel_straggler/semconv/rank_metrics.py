"""Metrics that ranks send."""

from __future__ import annotations

from typing import Final, Literal

from otel_straggler.semconv.attributes import (
    GPU_TIMING_REASON,
    GPU_TIMING_TIER,
    GPU_UUID,
    KERNEL,
    KERNEL_CLASS,
    LOCAL_RANK,
    PARALLEL_RANK,
    PHASE,
    RUN_ATTEMPT,
    SECTION,
    SECTION_KIND,
    SESSION_ID,
)
from otel_straggler.semconv.names import Attribute, Metric

Outcome = Literal["ok", "failed", "cancelled", "preempted", "unknown"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("ok", "failed", "cancelled", "preempted", "unknown")

# --- data-point attributes of what the collector publishes -----------------------------------
OUTCOME: Final = Attribute("outcome", "how the rank ended, one of OUTCOMES")
REASON: Final = Attribute(
    "reason", "why a record or span was not used, a GPU was held back, or time was not useful"
)


_DESCRIPTION: Final = (
    RUN_ATTEMPT,
    SESSION_ID,
    LOCAL_RANK,
    GPU_UUID,
    GPU_TIMING_TIER,
    GPU_TIMING_REASON,
    *PARALLEL_RANK.values(),
)

# --- from a rank ------------------------------------------------------------------------------
HEARTBEAT = Metric(
    "straggler.heartbeat.timestamp", "s", "gauge", "the rank's clock when sent", labels=None
)
PROGRESS = Metric(
    "straggler.progress.timestamp",
    "s",
    "gauge",
    "when the rank last progressed",
    labels=None,
    attributes=(PHASE,),
)
PROGRESS_STEP = Metric("straggler.progress.step", "{step}", "gauge", "last step begun", labels=None)
SECTION_OPEN = Metric(
    "straggler.section.open_time",
    "s",
    "gauge",
    "age of the open section; of section ``step``: since the last section of the open step ended",
    labels=None,
    attributes=(SECTION, PHASE),
)
RANK_FINISHED = Metric(
    "straggler.rank.finished.timestamp",
    "s",
    "gauge",
    "when the rank ended",
    labels=("outcome",),
    attributes=(OUTCOME,),
)
RECORDS_DROPPED = Metric(
    "straggler.records.dropped",
    "{record}",
    "counter",
    "records a rank lost, by reason",
    labels=("reason",),
    attributes=(REASON,),
)
RECORDS_FOLDED = Metric(
    "straggler.records.folded",
    "{record}",
    "counter",
    "section runs that a rank sent in spans for several, by section",
    labels=None,
    attributes=(SECTION,),
)
RANK_INFO = Metric(
    "straggler.rank.info", "{info}", "gauge", "rank description; always 1", labels=_DESCRIPTION
)
SECTION_DURATION = Metric(
    "straggler.section.duration",
    "s",
    "histogram",
    "section times of one rank",
    labels=None,
    attributes=(SECTION, SECTION_KIND),
)
KERNEL_DURATION = Metric(
    "straggler.kernel.duration",
    "s",
    "histogram",
    "times of CUDA kernels by kernel, class and section: exponential, delta, every 10 s",
    labels=None,
    attributes=(KERNEL, KERNEL_CLASS, SECTION),
)

# --- the GPU of a rank, passed through; only `simulate` sends them yet ----------------------------
# OpenTelemetry's conventions for hardware have no clock of a GPU and no time spent throttled.
HW_TYPE: Final = Attribute("hw.type", "kind of hardware: gpu")
HW_SENSOR: Final = Attribute("hw.sensor_location", "which part of the GPU: gpu, sm or memory")
ERROR_TYPE: Final = Attribute("error.type", "one of GPU_ERRORS, or xid_ and a number")
GPU_ERRORS: Final = (
    "ecc_corrected",
    "ecc_uncorrected",
    "rows_remapped_corrected",
    "rows_remapped_uncorrected",
    "row_remap_pending",
    "row_remap_failed",
    "pcie_replay",
)
HW_POWER = Metric("hw.power", "W", "gauge", "power of the GPU", labels=(GPU_UUID, HW_TYPE))
HW_ENERGY = Metric(
    "hw.energy",
    "J",
    "counter",
    "energy of the GPU since its driver was loaded",
    labels=(GPU_UUID, HW_TYPE),
)
HW_TEMPERATURE = Metric(
    "hw.temperature",
    "Cel",
    "gauge",
    "temperature of the GPU, by sensor",
    labels=(GPU_UUID, HW_TYPE, HW_SENSOR),
)
HW_ERRORS = Metric(
    "hw.errors",
    "{error}",
    "counter",
    "faults of the GPU, by error.type",
    labels=(GPU_UUID, HW_TYPE, ERROR_TYPE),
)
HW_GPU_UTILIZATION = Metric(
    "hw.gpu.utilization",
    "1",
    "gauge",
    "part of the time in which a kernel was at work on the GPU",
    labels=(GPU_UUID, HW_TYPE),
)
HW_GPU_MEMORY = Metric(
    "hw.gpu.memory.usage", "By", "gauge", "memory of the GPU in use", labels=(GPU_UUID, HW_TYPE)
)
HW_GPU_MEMORY_LIMIT = Metric(
    "hw.gpu.memory.limit", "By", "gauge", "memory that the GPU has", labels=(GPU_UUID, HW_TYPE)
)
GPU_CLOCK = Metric(
    "straggler.gpu.clock",
    "Hz",
    "gauge",
    "clock of the GPU, by part",
    labels=(GPU_UUID, HW_TYPE, HW_SENSOR),
)
GPU_THROTTLED = Metric(
    "straggler.gpu.throttled",
    "s",
    "counter",
    "time in which the GPU was held back, by reason",
    labels=(GPU_UUID, HW_TYPE, REASON),
)
HARDWARE_METRICS: Final = (
    HW_POWER,
    HW_ENERGY,
    HW_TEMPERATURE,
    HW_ERRORS,
    HW_GPU_UTILIZATION,
    HW_GPU_MEMORY,
    HW_GPU_MEMORY_LIMIT,
    GPU_CLOCK,
    GPU_THROTTLED,
)

# --- what a run got for its time, passed through; only `simulate` sends them yet ------------------
# One rank reports them for all; productive and lost time together are the time since the run began.
LOSSES: Final = (
    "start_up",
    "data",
    "checkpoint",
    "eval",
    "stragglers",
    "hang",
    "restart",
    "redone",
    "other",
)
"""Reasons of ``RUN_LOST``. ``redone``: steps done again after a restart; ``restart``: from the end
of an attempt to the first step of the next; ``stragglers``: what ranks waited for slower ones."""
RUN_GOODPUT = Metric(
    "straggler.run.goodput", "{ratio}", "gauge", "useful time / time since the run began"
)
RUN_PRODUCTIVE = Metric(
    "straggler.run.productive_time", "s", "counter", "time of the run in steps that count"
)
RUN_LOST = Metric(
    "straggler.run.lost_time",
    "s",
    "counter",
    "time of the run that was not useful, by reason",
    labels=(REASON,),
)
GOODPUT_METRICS: Final = (RUN_GOODPUT, RUN_PRODUCTIVE, RUN_LOST)
PASSTHROUGH_METRICS: Final = (*HARDWARE_METRICS, *GOODPUT_METRICS)
"""What the collector publishes as ranks report it."""
