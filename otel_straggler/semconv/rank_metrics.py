"""Metrics that ranks send."""

from __future__ import annotations

from typing import Final, Literal, get_args

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
from otel_straggler.semconv.names import OF_RANK, Attribute, counter, gauge, sent

Outcome = Literal["ok", "failed", "cancelled", "preempted", "unknown"]
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)

# --- data-point attributes of what the collector publishes -----------------------------------
OUTCOME: Final = Attribute("outcome", "how the rank ended, one of OUTCOMES")
REASON: Final = Attribute(
    "reason", "why a record or span was not used, a GPU was held back, or time was not useful"
)
GPU_MISSING: Final = "gpu_missing"
GPU_LOSSES: Final = ("gpu_dropped", "gpu_invalid", "gpu_lost", "gpu_late")
"""Values of ``REASON`` of ``RECORDS_DROPPED`` of which no span is lost: the first counts executions
without GPU times, the others what the GPU has done that is in no execution."""
BY_LIMIT: Final = ("span_budget", "sdk_rate")
"""Values of it for what a setting of the user's leaves out."""
NO_LOSS: Final = (GPU_MISSING, *GPU_LOSSES, *BY_LIMIT)
"""Values of it that are no reason for an alert."""


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
HEARTBEAT = sent("gauge", "straggler.heartbeat.timestamp", "s", "the rank's clock when sent")
PROGRESS = sent(
    "gauge", "straggler.progress.timestamp", "s", "when the rank last progressed", PHASE
)
PROGRESS_STEP = sent("gauge", "straggler.progress.step", "{step}", "last step begun")
SECTION_OPEN = sent(
    "gauge",
    "straggler.section.open_time",
    "s",
    "age of the open section; of ``step``: since the last section of the open step ended",
    SECTION,
    PHASE,
)
RANK_FINISHED = sent(
    "gauge",
    "straggler.rank.finished.timestamp",
    "s",
    "when the rank ended",
    OUTCOME,
    labels=("outcome",),
)
RECORDS_DROPPED = sent(
    "counter",
    "straggler.records.dropped",
    "{record}",
    "records a rank lost, by reason",
    REASON,
    labels=("reason",),
)
RECORDS_FOLDED = sent(
    "counter", "straggler.records.folded", "{record}", "executions sent in folded spans", SECTION
)
RANK_INFO = gauge("straggler.rank.info", "{info}", "rank description; always 1", *_DESCRIPTION)
SECTION_DURATION = sent(
    "histogram",
    "straggler.section.duration",
    "s",
    "section times of one rank",
    SECTION,
    SECTION_KIND,
)
KERNEL_DURATION = sent(
    "histogram",
    "straggler.kernel.duration",
    "s",
    "kernel times: exponential, delta, every 10 s",
    KERNEL,
    KERNEL_CLASS,
    SECTION,
)

# --- what scalability reports read where an application sends it ---------------------------------
SAMPLES_TOTAL: Final = "training.samples"
"""Counter ({sample}) of what a rank has trained on."""
TOKENS_TOTAL: Final = "training.tokens"
"""Counter ({token}) of what a rank has trained on."""

# --- the GPU of a rank and its host, passed through ---------------------------------------------
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
    "nvlink_crc",
    "nvlink_replay",
    "nvlink_recovery",
)
HW_POWER = gauge("hw.power", "W", "power of the GPU", GPU_UUID, HW_TYPE)
HW_ENERGY = counter(
    "hw.energy", "J", "energy of the GPU since its driver was loaded", GPU_UUID, HW_TYPE
)
HW_TEMPERATURE = gauge(
    "hw.temperature", "Cel", "temperature of the GPU, by sensor", GPU_UUID, HW_TYPE, HW_SENSOR
)
HW_ERRORS = counter(
    "hw.errors", "{error}", "faults of the GPU, by error.type", GPU_UUID, HW_TYPE, ERROR_TYPE
)
HW_GPU_UTILIZATION = gauge(
    "hw.gpu.utilization", "1", "part of the time in which a kernel ran", GPU_UUID, HW_TYPE
)
HW_GPU_MEMORY = gauge("hw.gpu.memory.usage", "By", "memory of the GPU in use", GPU_UUID, HW_TYPE)
HW_GPU_MEMORY_LIMIT = gauge(
    "hw.gpu.memory.limit", "By", "memory that the GPU has", GPU_UUID, HW_TYPE
)
GPU_CLOCK = gauge(
    "straggler.gpu.clock", "Hz", "clock of the GPU, by part", GPU_UUID, HW_TYPE, HW_SENSOR
)
GPU_THROTTLED = counter(
    "straggler.gpu.throttled", "s", "time throttled, by reason", GPU_UUID, HW_TYPE, REASON
)
GPU_PCIE_WIDTH = gauge(
    "straggler.gpu.pcie.width", "{lane}", "lanes of the link to the host", GPU_UUID, HW_TYPE
)
NETWORK_DIRECTION: Final = Attribute("network.io.direction", "transmit or receive")
DISK_DIRECTION: Final = Attribute("disk.io.direction", "read or write")
HW_GPU_IO = counter("hw.gpu.io", "By", "bytes over PCIe", GPU_UUID, HW_TYPE, NETWORK_DIRECTION)
HOST_LOAD = gauge(
    "system.cpu.load_average.1m", "{thread}", "of the host of the rank, one rank a host"
)
HOST_CPUS = gauge("system.cpu.logical.count", "{cpu}", "of the host")
HOST_CPU = gauge("system.cpu.utilization", "1", "part of the time in which the host's CPUs worked")
HOST_MEMORY_PRESSURE = gauge(
    "straggler.host.memory.pressure",
    "1",
    "part of 10 s in which a task waited for memory (PSI)",
    subject=OF_RANK,
)
HOST_MEMORY = gauge("system.linux.memory.available", "By", "memory that the host can give")
HOST_DISK_BUSY = gauge(
    "straggler.host.disk.busy",
    "1",
    "part of the time in which the busiest disk worked",
    subject=OF_RANK,
)
HOST_DISK_IO = counter("system.disk.io", "By", "of all disks of the host", DISK_DIRECTION)
HOST_NETWORK_IO = counter(
    "system.network.io", "By", "of all interfaces of the host", NETWORK_DIRECTION
)
HOST_NETWORK_ERRORS = counter(
    "system.network.errors", "{error}", "of all interfaces of the host", NETWORK_DIRECTION
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
    GPU_PCIE_WIDTH,
    HW_GPU_IO,
    HOST_LOAD,
    HOST_CPUS,
    HOST_CPU,
    HOST_MEMORY_PRESSURE,
    HOST_MEMORY,
    HOST_DISK_BUSY,
    HOST_DISK_IO,
    HOST_NETWORK_IO,
    HOST_NETWORK_ERRORS,
)

# --- what a run got for its time -------------------------------------------------------------
# The collector computes it; of a run without steps that it scores, one rank may report the first
# three for all. Gauges: steps that are done again after a restart were productive before.
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
"""Reasons of ``RUN_LOST`` that simulated runs report, categories of BADPUT."""
RUN_GOODPUT = gauge("straggler.run.goodput", "{ratio}", "useful time / time since the run began")
RUN_PRODUCTIVE = gauge(
    "straggler.run.productive_time", "s", "time of the run in steps that count, since it began"
)
RUN_LOST = gauge(
    "straggler.run.lost_time",
    "s",
    "time of the run that was not useful, since it began, by a category of BADPUT or of the user's",
    REASON,
)
RUN_ROLLING_GOODPUT = gauge(
    "straggler.run.rolling_goodput",
    "{ratio}",
    "goodput of the newest time of the run: window is 3600 or 86400 seconds; absent while the run "
    "is younger",
    "window",
)
GOODPUT_METRICS: Final = (RUN_GOODPUT, RUN_PRODUCTIVE, RUN_LOST)

# --- what the agent of a node sends about its ranks -----------------------------------------------
RANK_TIMED_OUT = gauge(
    "straggler.rank.timed_out",
    "s",
    "how long the rank had exceeded what its node's agent waits for, when that acted; for as long "
    "as it lasts, and a minute more",
    REASON,
    subject=OF_RANK,
)

# --- saves of checkpoints on a rank, passed through -----------------------------------------------
CHECKPOINT_STEP = gauge("straggler.checkpoint.step", "{step}", "step of the rank's newest save")
CHECKPOINT_SAVES = counter(
    "straggler.checkpoint.saves", "{checkpoint}", "saves that the rank took part in"
)
CHECKPOINT_SAVE_TIME = counter(
    "straggler.checkpoint.save.time", "s", "from the begin of saves until they were complete"
)
CHECKPOINT_WRITE_TIME = counter(
    "straggler.checkpoint.write.time", "s", "of that, writing the rank's own part"
)
CHECKPOINT_BLOCKING_TIME = counter(
    "straggler.checkpoint.blocking.time", "s", "of that, the training of the rank stood still"
)
CHECKPOINT_SIZE = counter("straggler.checkpoint.size", "By", "that the rank wrote")
CHECKPOINT_LOAD_TIME = counter("straggler.checkpoint.load.time", "s", "in loads of checkpoints")
CHECKPOINT_INTERVAL = gauge(
    "straggler.checkpoint.interval", "s", "between saves; where it is computed (Daly), by one rank"
)
CHECKPOINT_MTBF = gauge(
    "straggler.checkpoint.mtbf", "s", "expected between failures of the run, for that interval"
)
CHECKPOINT_METRICS: Final = (
    CHECKPOINT_STEP,
    CHECKPOINT_SAVES,
    CHECKPOINT_SAVE_TIME,
    CHECKPOINT_WRITE_TIME,
    CHECKPOINT_BLOCKING_TIME,
    CHECKPOINT_SIZE,
    CHECKPOINT_LOAD_TIME,
    CHECKPOINT_INTERVAL,
    CHECKPOINT_MTBF,
)
