"""Every name on the wire, once: attributes, metrics, kinds, outcomes, reasons.

Encoder, decoder, collector, dashboards and alerts read the names from here. The package's own
namespaces are ``training.*`` (the job) and ``straggler.*`` (this product); names of OpenTelemetry's
semantic conventions are used as they are. Importing this module costs nothing but itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
SCOPE_NAME: Final = "otel_straggler"
SCORER_HEADER: Final = "otel-straggler-scorer"
"""Response header of a collector that scores; its value is the wire version."""
WIRE_VERSION: Final = "1"
COMMANDS_PATH: Final = "/v1/commands"
"""Where a rank asks its collector what it wants (OTLP/HTTP), and a person asks the collector."""
COMMANDS_TOKEN_HEADER: Final = "otel-straggler-token"  # noqa: S105  a name, no secret
"""Request header of both; a header of its own, since ``authorization`` may be a gateway's."""
DUMP_STACKS: Final = "dump_stacks"
VERBS: Final = (DUMP_STACKS,)
"""All that a collector can ask of a rank."""


class Attribute(str):
    """An attribute key that knows its meaning. It is a plain ``str`` to everybody else."""

    __slots__ = ("meaning",)
    meaning: str

    def __new__(cls, key: str, meaning: str) -> Attribute:
        self = super().__new__(cls, key)
        self.meaning = meaning
        return self


# --- resource: who sends -------------------------------------------------------------------
SERVICE_NAME: Final = Attribute("service.name", "job name")
SERVICE_INSTANCE_ID: Final = Attribute("service.instance.id", "run/attempt/group/rank")
HOST_NAME: Final = Attribute("host.name", "node")
SESSION_ID: Final = Attribute("straggler.session.id", "16 hex characters, new in every process")
RECORDER: Final = Attribute("straggler.recorder", "native or python: what records the sections")
RUN_ID: Final = Attribute("training.run.id", "one training run, over all its attempts")
RUN_ATTEMPT: Final = Attribute("training.run.attempt", "restart count of the launcher, from 0")
GROUP: Final = Attribute("training.group", "one of several worlds in a job; empty for one world")
RANK: Final = Attribute("training.rank", "global rank of the process")
LOCAL_RANK: Final = Attribute("training.local_rank", "rank within the node")
WORLD_SIZE: Final = Attribute("training.world_size", "ranks in the group")
RUN_PAGE: Final = Attribute(
    "training.run.page", "false: nobody is called for this run; absent where the user said nothing"
)
TEAM: Final = Attribute("training.team", "whose run it is, for who routes alerts")

# --- rank description: late-bound, on straggler.rank.info and on the resource once known ----
ROLE: Final = Attribute("training.role", "peers are compared within a role")
PARALLEL_DIMENSIONS: Final = (
    "data",
    "tensor",
    "pipeline",
    "virtual_pipeline",
    "context",
    "expert",
)
PARALLEL_RANK: Final = {
    d: Attribute(f"training.parallel.{d}.rank", f"rank in the {d.replace('_', ' ')} dimension")
    for d in PARALLEL_DIMENSIONS
}
PARALLEL_SIZE: Final = {
    d: Attribute(f"training.parallel.{d}.size", f"size of the {d.replace('_', ' ')} dimension")
    for d in PARALLEL_DIMENSIONS
}
GPU_MODEL: Final = Attribute("hw.model", "GPU model")
GPU_UUID: Final = Attribute("hw.id", "GPU UUID; joins DCGM exporter")
GPU_PCI_ID: Final = Attribute("hw.pci.id", "GPU PCI bus id")
POD_NAME: Final = Attribute("k8s.pod.name", "Kubernetes pod")
GPU_TIMING_TIER: Final = Attribute(
    "straggler.gpu.timing.tier", "off, events or cupti: what times sections on the rank's GPU"
)
GPU_TIMING_REASON: Final = Attribute(
    "straggler.gpu.timing.reason",
    "why the tier is not cupti; docs/gpu-timing.md has the reasons",
)
RANK_ENDING: Final = Attribute(
    "straggler.rank.ending",
    "true: SIGTERM has come, and a handler of the user's decides when to end",
)
DEFAULT_ROLE: Final = "default"

# --- section span ---------------------------------------------------------------------------
SECTION: Final = Attribute("straggler.section", "section name")
SECTION_KIND: Final = Attribute("straggler.section.kind", "one of SECTION_KINDS")
SECTION_PARENT: Final = Attribute(
    "straggler.section.parent", "name of the section around it; absent for a top-level one"
)
STEP: Final = Attribute("training.step", "optimizer step")
MICROBATCH: Final = Attribute("training.microbatch", "microbatch within the step")
TOKENS: Final = Attribute("training.tokens", "work size of the section run")
SEQ: Final = Attribute("straggler.seq", "runs of this section in this session, from 0")
PHASE: Final = Attribute("straggler.phase", "declared phase the section ran in")
TIME_BASIS: Final = Attribute(
    "straggler.time_basis", "what timed the GPU: cupti, events (busy time only), host: nothing"
)
GPU_KERNEL_TIME: Final = Attribute(
    "straggler.gpu.kernel_time_ns", "time of all kernels of the run together, ns"
)
GPU_BUSY_TIME: Final = Attribute(
    "straggler.gpu.busy_time_ns", "time in which at least one kernel of the run was at work, ns"
)
GPU_NCCL_TIME: Final = Attribute(
    "straggler.gpu.nccl_time_ns", "time of communication kernels of the run, ns"
)
GPU_KERNEL_COUNT: Final = Attribute("straggler.gpu.kernel_count", "kernels of the run")

# --- kernel histogram: what a rank's GPU ran in an interval ----------------------------------
KERNEL: Final = Attribute(
    "straggler.kernel", "name of a CUDA kernel, demangled; `<other>` for all without a point"
)
KERNEL_CLASS: Final = Attribute("straggler.kernel.class", "one of KERNEL_CLASSES")
OTHER_KERNEL: Final = "<other>"
"""Kernels in which little time is spent, together; they are never scored."""

# --- folded span: several runs of a section in one step ------------------------------------
FOLD_COUNT: Final = Attribute(
    "straggler.fold.count",
    "runs that the span stands for; their `straggler.seq` are its own and those that follow",
)
FOLD_SUM: Final = Attribute("straggler.fold.sum_ns", "time of all of them together, exactly, ns")
FOLD_MIN: Final = Attribute("straggler.fold.min_ns", "the shortest, exactly, ns")
FOLD_MAX: Final = Attribute("straggler.fold.max_ns", "the longest, exactly, ns")
FOLD_SKETCH: Final = Attribute(
    "straggler.fold.sketch",
    "how long they were, to 0.4 %: pairs of varints, one for each bucket that holds some, "
    "ascending: its distance from the bucket before (from 0), and how many. A length below 512 ns "
    "is its own bucket; of a longer one the bucket is 256 e + (length >> e), with 9 bits left",
)

SectionKind = Literal["compute", "data", "wait", "checkpoint", "eval", "other"]
SECTION_KINDS: Final[tuple[SectionKind, ...]] = (
    "compute",
    "data",
    "wait",
    "checkpoint",
    "eval",
    "other",
)
LISTED_KINDS: Final = frozenset({"compute", "data", "other"})
"""Kinds whose low scores are listed as stragglers; the others are scored only."""
PHASE_KINDS: Final[dict[str, SectionKind]] = {"checkpoint": "checkpoint", "eval": "eval"}
"""Kind of the span of a declared phase; every other phase is ``other``."""

GpuTier = Literal["off", "events", "cupti"]
GPU_TIERS: Final[tuple[GpuTier, ...]] = ("off", "events", "cupti")
"""Values of ``GPU_TIMING_TIER``, each worth more than the one before."""


@dataclass(frozen=True, slots=True)
class GpuReason:
    """Why sections are not timed on the GPU as they could be: the cause, and what to do."""

    cause: str
    remedy: str


GPU_TIMING_REASONS: Final[dict[str, GpuReason]] = {
    "auto": GpuReason(
        "gpu_timing is 'auto', which takes no tier as long as nobody has measured one on a GPU",
        "set OTEL_STRAGGLER_GPU_TIMING=cupti or configure(gpu_timing='cupti')",
    ),
    "asked": GpuReason("it was asked for", "ask for another tier with set_gpu_timing()"),
    "not_configured": GpuReason("nothing is recorded in this process", "call configure()"),
    "no_extension": GpuReason(
        "the native part of the package is not there",
        "install a wheel for this platform, or from source with a C++ compiler",
    ),
    "not_sent": GpuReason(
        "no spans of this package's own are sent, and the application's provider gets host times",
        "name a collector in configure(endpoint=...), and unset OTEL_TRACES_EXPORTER",
    ),
    "no_torch": GpuReason(
        "torch has not been imported yet", "nothing: it is looked at again every second"
    ),
    "no_cuda": GpuReason(
        "torch was built without CUDA, or sees no GPU", "install a torch for CUDA"
    ),
    "cuda_unused": GpuReason(
        "the process has not used CUDA yet", "nothing: it is looked at again every second"
    ),
    "no_driver": GpuReason(
        "no CUDA driver is loaded in this process", "nothing: it is looked at again every second"
    ),
    "no_cupti": GpuReason(
        "no libcupti was found",
        "install torch for CUDA, or put CUDA's extras/CUPTI/lib64 on LD_LIBRARY_PATH",
    ),
    "broken_cupti": GpuReason(
        "the libcupti that was found cannot be used",
        "unset OTEL_STRAGGLER_CUPTI to use the one that torch brings, or reinstall that",
    ),
    "old_cupti": GpuReason(
        "the libcupti that was found is older than that of CUDA 11.8",
        "use a torch for a newer CUDA",
    ),
    "not_initialized": GpuReason(
        "CUPTI finds the driver not initialised", "nothing: it is tried again every minute"
    ),
    "not_compatible": GpuReason(
        "another client uses CUPTI's newer interface in this process", "stop it"
    ),
    "not_supported": GpuReason(
        "this device or mode (MIG, vGPU, WSL, MPS) offers no kernel records",
        "time sections by events",
    ),
    "virtualized": GpuReason(
        "the GPU is virtualised, and CUPTI or its host forbids tracing",
        "ask for vGPU profiling to be enabled, or time sections by events",
    ),
    "confidential": GpuReason("confidential computing forbids tracing", "time sections by events"),
    "insufficient_privileges": GpuReason(
        "the driver lets administrators profile only",
        "load it with NVreg_RestrictProfilingToAdminUsers=0, or give the container CAP_SYS_ADMIN",
    ),
    "multiple_subscribers": GpuReason(
        "another profiler holds CUPTI (Nsight, cuda-gdb, compute-sanitizer)",
        "run without it; it is tried again every minute",
    ),
    "cupti_unknown": GpuReason(
        "CUPTI finds no usable driver, or one older than itself",
        "compare nvidia-smi with torch.version.cuda",
    ),
    "cupti_failed": GpuReason(
        "a call of CUPTI failed in an unexpected way",
        "report it with the versions of driver, CUDA and torch",
    ),
    "no_memory": GpuReason(
        "there is no address space for the buffers", "allow 64 MiB more (ulimit -v)"
    ),
    "no_events": GpuReason("CUDA events cannot be used here", "ask for cupti"),
    "events_failed": GpuReason(
        "a CUDA event failed, most likely after an error of the program's own",
        "look for a CUDA error in the program's log; set_gpu_timing('events') tries again",
    ),
    "forked": GpuReason(
        "CUDA does not work in a forked child", "start it by spawn and configure() there"
    ),
    "invalid_timestamps": GpuReason(
        "CUPTI gave more than 1 % of kernels no valid timestamps, as some versions do after "
        "millions of kernels",
        "use a torch with a newer CUDA; set_gpu_timing('cupti') tries again",
    ),
    "takeover": GpuReason(
        "another profiler takes what CUPTI gives back", "nothing: it is tried again every minute"
    ),
    "kineto_active": GpuReason(
        "torch.profiler is at work", "nothing: timing goes on when it has stopped"
    ),
    "governor": GpuReason(
        "timing cost more of the step than OTEL_STRAGGLER_GPU_OVERHEAD allows",
        "allow more, or live with the lower tier; set_gpu_timing() tries again",
    ),
}
"""By code: all values of ``GPU_TIMING_REASON``."""

HOST_BASIS: Final = "host"
EVENTS_BASIS: Final = "events"
CUPTI_BASIS: Final = "cupti"
"""Values of ``TIME_BASIS``."""

STEP_SPAN: Final = "step"
"""Name of the span that covers one step of one rank. It is not scored."""
ROOT_SPAN: Final = "all ranks"
"""Name of the root of a step's trace, which a forwarder makes; the ``step`` spans are below it."""
OTHER_SECTION: Final = "<other>"

# Aliases accepted on input, first match wins; the product's own name comes first.
RANK_ALIASES: Final = (str(RANK), "nv.dl.rank", "dl.rank", "rank")
WORLD_SIZE_ALIASES: Final = (str(WORLD_SIZE), "nv.dl.world_size", "dl.world_size", "world_size")
LOCAL_RANK_ALIASES: Final = (
    str(LOCAL_RANK),
    "nv.dl.local_rank",
    "dl.local_rank",
    "local_rank",
    "pytorch.local_rank",
)
RUN_ID_ALIASES: Final = (
    str(RUN_ID),
    "nv.dl.run_id",
    "dl.run_id",
    "nemo.run.id",
    "nv.dl.job.uuid",
    "training_job.id",
)
STEP_ALIASES: Final = (
    str(STEP),
    "nv.dl.iteration",
    "dl.iteration",
    "megatron.iteration",
    "iteration",
    "global_step",
    "step",
)
ROLE_ALIASES: Final = (str(ROLE), "nv.dl.role")
SECTION_ALIASES: Final = (str(SECTION),)
SESSION_ALIASES: Final = (str(SESSION_ID), "nv.dl.run.uuid", str(SERVICE_INSTANCE_ID))
"""What tells a restarted rank from the one before; NeMo Lens keeps ``service.instance.id``."""
PARALLEL_RANK_ALIASES: Final = {
    d: (str(key), f"dl.{d}_parallel.rank") for d, key in PARALLEL_RANK.items()
}
SPAN_TRUNCATED: Final = "nemo.span.truncated"
"""NeMo Lens sets it on a span that was still open at shutdown: its end says nothing."""

# Spans of known instrumentations, by patterns of their names: NeMo Lens in Megatron-LM, dd-trace.
KNOWN_KINDS: Final[dict[SectionKind, tuple[str, ...]]] = {
    "wait": (
        "pytorch.allreduce",
        "pytorch.allgather*",
        "pytorch.broadcast",
        "pytorch.reducescatter*",
        "pytorch.barrier",
        "pytorch.grad_comm",
        "megatron.p2p.*",
        "megatron.pp.*",
        "megatron.grad_sync.*",
    ),
    "data": ("pytorch.data_load",),
    "checkpoint": ("megatron.save_checkpoint*", "megatron.load_checkpoint*"),
    "eval": ("megatron.evaluate*",),
    "other": ("megatron.model_init",),
}
UNSCORED_SPANS: Final = (
    "pytorch.rank",
    "pytorch.step",
    "pytorch.kernel",
    "megatron.pretrain",
    "megatron.train",
    "megatron.train_step",
)
"""Spans that last as long as the process (dd-trace ends ``pytorch.rank`` every 600 s and begins it
anew) or a whole step, which is equally long on all ranks that wait for each other; and kernels,
which have one name for all."""

Outcome = Literal["ok", "failed", "cancelled", "preempted", "unknown"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("ok", "failed", "cancelled", "preempted", "unknown")

# --- data-point attributes of what the collector publishes -----------------------------------
OUTCOME: Final = Attribute("outcome", "how the rank ended, one of OUTCOMES")
REASON: Final = Attribute(
    "reason", "why a record or span was not used, a GPU was held back, or time was not useful"
)

MetricKind = Literal["gauge", "counter", "histogram"]
_UNIT_SUFFIX: Final = {
    "s": "_seconds",
    "By": "_bytes",
    "W": "_watts",
    "J": "_joules",
    "Cel": "_celsius",
    "Hz": "_hertz",
    "1": "_ratio",
}


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its OTLP name, UCUM unit and meaning.

    ``prometheus_name`` follows OpenTelemetry's translator (UnderscoreEscapingWithSuffixes), so a
    metric has one name whether it is scraped here or arrives through an OTLP endpoint.

    >>> Metric("straggler.caused_wait", "s", "counter", "...").prometheus_name
    'straggler_caused_wait_seconds_total'
    """

    name: str
    unit: str
    kind: MetricKind
    meaning: str

    @property
    def prometheus_name(self) -> str:
        base = self.name.replace(".", "_") + _UNIT_SUFFIX.get(self.unit, "")
        return base + "_total" if self.kind == "counter" else base

    @property
    def prometheus_labels(self) -> tuple[str, ...]:
        """Labels that its points get from their own attributes, where it is shown as told."""
        return tuple(key.replace(".", "_") for key in AS_TOLD.get(self, ()))


# --- from a rank ------------------------------------------------------------------------------
HEARTBEAT = Metric("straggler.heartbeat.timestamp", "s", "gauge", "the rank's clock when sent")
PROGRESS = Metric("straggler.progress.timestamp", "s", "gauge", "when the rank last progressed")
PROGRESS_STEP = Metric("straggler.progress.step", "{step}", "gauge", "last step begun")
SECTION_OPEN = Metric(
    "straggler.section.open_time",
    "s",
    "gauge",
    "age of the open section; of section ``step``: since the last section of the open step ended",
)
RANK_FINISHED = Metric("straggler.rank.finished.timestamp", "s", "gauge", "when the rank ended")
RECORDS_DROPPED = Metric(
    "straggler.records.dropped", "{record}", "counter", "records a rank lost, by reason"
)
RECORDS_FOLDED = Metric(
    "straggler.records.folded",
    "{record}",
    "counter",
    "section runs that a rank sent in spans for several, by section",
)
RANK_INFO = Metric("straggler.rank.info", "{info}", "gauge", "rank description; always 1")
SECTION_DURATION = Metric(
    "straggler.section.duration", "s", "histogram", "section times of one rank"
)
KERNEL_DURATION = Metric(
    "straggler.kernel.duration",
    "s",
    "histogram",
    "times of CUDA kernels by kernel, class and section: exponential, delta, every 10 s",
)

# --- the GPU of a rank, shown as told; only `simulate` sends them yet ----------------------------
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
HW_POWER = Metric("hw.power", "W", "gauge", "power of the GPU")
HW_ENERGY = Metric("hw.energy", "J", "counter", "energy of the GPU since its driver was loaded")
HW_TEMPERATURE = Metric("hw.temperature", "Cel", "gauge", "temperature of the GPU, by sensor")
HW_ERRORS = Metric("hw.errors", "{error}", "counter", "faults of the GPU, by error.type")
HW_GPU_UTILIZATION = Metric(
    "hw.gpu.utilization", "1", "gauge", "part of the time in which a kernel was at work on the GPU"
)
HW_GPU_MEMORY = Metric("hw.gpu.memory.usage", "By", "gauge", "memory of the GPU in use")
HW_GPU_MEMORY_LIMIT = Metric("hw.gpu.memory.limit", "By", "gauge", "memory that the GPU has")
GPU_CLOCK = Metric("straggler.gpu.clock", "Hz", "gauge", "clock of the GPU, by part")
GPU_THROTTLED = Metric(
    "straggler.gpu.throttled", "s", "counter", "time in which the GPU was held back, by reason"
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

# --- what a run got for its time, shown as told; only `simulate` sends them yet ------------------
# One rank tells them for all; productive and lost time together are the time since the run began.
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
    "straggler.run.lost_time", "s", "counter", "time of the run that was not useful, by reason"
)
GOODPUT_METRICS: Final = (RUN_GOODPUT, RUN_PRODUCTIVE, RUN_LOST)
AS_TOLD: Final[dict[Metric, tuple[Attribute, ...]]] = {
    **dict.fromkeys(HARDWARE_METRICS, (GPU_UUID, HW_TYPE)),
    HW_TEMPERATURE: (GPU_UUID, HW_TYPE, HW_SENSOR),
    GPU_CLOCK: (GPU_UUID, HW_TYPE, HW_SENSOR),
    HW_ERRORS: (GPU_UUID, HW_TYPE, ERROR_TYPE),
    GPU_THROTTLED: (GPU_UUID, HW_TYPE, REASON),
    RUN_GOODPUT: (),
    RUN_PRODUCTIVE: (),
    RUN_LOST: (REASON,),
}
"""What the collector shows as ranks tell it, and the attributes of its points."""

# --- from the collector -----------------------------------------------------------------------
SECTION_RELATIVE = Metric(
    "straggler.section.relative_score", "{score}", "gauge", "best rank's median / own median"
)
SECTION_INDIVIDUAL = Metric(
    "straggler.section.individual_score", "{score}", "gauge", "own best median / own median"
)
GPU_RELATIVE = Metric(
    "straggler.gpu.relative_score", "{score}", "gauge", "kernel times against the best rank"
)
GPU_INDIVIDUAL = Metric(
    "straggler.gpu.individual_score", "{score}", "gauge", "kernel times against own best"
)
KERNEL_TIME = Metric(
    "straggler.kernel.time",
    "s",
    "counter",
    "time of a kernel on the rank's GPU, of the 10 kernels that took most",
)
KERNEL_RUNS = Metric(
    "straggler.kernel.runs", "{kernel}", "counter", "how often the same kernels ran on the rank"
)
SECTION_MEDIAN = Metric("straggler.section.median", "s", "gauge", "median time in the window")
SECTION_SLOWDOWN = Metric(
    "straggler.section.slowdown", "{ratio}", "gauge", "own median / median of the role"
)
SECTION_INFO = Metric(
    "straggler.section.info",
    "{info}",
    "gauge",
    "kind of a section of the newest window; always 1",
)
RANK_STRAGGLING = Metric(
    "straggler.rank.straggling",
    "{flag}",
    "gauge",
    "1 if the verdict on the rank is confirmed or flapping",
)
HOST_STRAGGLING = Metric(
    "straggler.host.straggling",
    "{flag}",
    "gauge",
    "1 if the verdict on the node is confirmed or flapping",
)
VERDICT_INFO = Metric(
    "straggler.verdict.info",
    "{info}",
    "gauge",
    "a verdict that is suspect, confirmed or flapping; always 1",
)
VERDICT_SLOWDOWN = Metric(
    "straggler.verdict.slowdown",
    "{ratio}",
    "gauge",
    "own time / time of the peers, of a confirmed or flapping verdict",
)
VERDICT_LOSS = Metric(
    "straggler.verdict.gpu_time_lost_rate",
    "{gpu}",
    "gauge",
    "GPU time that the job waits for the subject, per time: so many GPUs are lost",
)
VERDICT_PAGES = Metric(
    "straggler.verdict.pages", "{flag}", "gauge", "1 if somebody should be called"
)
VERDICT_SILENCED = Metric(
    "straggler.verdict.silenced",
    "{flag}",
    "gauge",
    "1 if somebody has dismissed or muted the verdict, so that nobody is told of it",
)
CAUSED_WAIT = Metric(
    "straggler.caused_wait", "s", "counter", "what its peers waited for the rank that came last"
)
SUFFERED_WAIT = Metric("straggler.suffered_wait", "s", "counter", "what the rank waited for others")
LAST_HEARTBEAT = Metric(
    "straggler.last_heartbeat.timestamp", "s", "gauge", "newest heartbeat, on the collector's clock"
)
LAST_PROGRESS = Metric(
    "straggler.last_progress.timestamp", "s", "gauge", "newest progress, on the collector's clock"
)
RUN_OLDEST_HEARTBEAT = Metric(
    "straggler.run.oldest_heartbeat.timestamp",
    "s",
    "gauge",
    "newest heartbeat of the rank that was not heard for longest, of those that have not ended",
)
RUN_OLDEST_PROGRESS = Metric(
    "straggler.run.oldest_progress.timestamp",
    "s",
    "gauge",
    "newest progress of the rank that has made none for longest, of those that have not ended",
)
RUN_STEP = Metric("straggler.run.step", "{step}", "gauge", "newest step that any rank reported")
RANK_LAST_SCORED = Metric(
    "straggler.rank.last_scored.timestamp", "s", "gauge", "when the rank last got scores"
)
RANK_STEP = Metric("straggler.rank.step", "{step}", "gauge", "newest step the rank reported")
RANK_STATE = Metric(
    "straggler.rank.state",
    "{state}",
    "gauge",
    "1 for the state that the rank is in: starting, ok, late, stuck, lost or finished",
)
RANK_TIMEOUT = Metric(
    "straggler.rank.timeout",
    "s",
    "gauge",
    "what the rank may take for what it does before it is stuck",
)
RANK_CULPRIT = Metric(
    "straggler.rank.culprit",
    "{flag}",
    "gauge",
    "1 for a rank that a hang waits for, by why: lost, never_joined or left_early; at most 20 of "
    "a run",
)
RUN_STATE = Metric(
    "straggler.run.state",
    "{state}",
    "gauge",
    "1 for the state that the run is in: starting, training, stuck, partly_lost, lost, finished, "
    "cancelled, preempted, failed or forgotten; 0 for the others",
)
RUN_HUNG = Metric(
    "straggler.run.hung",
    "{flag}",
    "gauge",
    "1 while the run as a whole does not get on and nobody has acknowledged it",
)
RUN_HANG_INFO = Metric(
    "straggler.run.hang_info",
    "{info}",
    "gauge",
    "why the ranks of a run wait, and the same as a sentence; always 1",
)
RUN_RANKS = Metric("straggler.run.ranks", "{rank}", "gauge", "ranks of the run, by their state")
RUN_PAGES = Metric(
    "straggler.run.pages", "{flag}", "gauge", "1 if alerts about the run may call somebody"
)
RUN_INFO = Metric("straggler.run.info", "{info}", "gauge", "team and attempt; always 1")
MAINTENANCE_UNTIL = Metric(
    "straggler.maintenance.until.timestamp", "s", "gauge", "when maintenance of the node ends"
)
RUN_STARTED = Metric(
    "straggler.run.start.timestamp",
    "s",
    "gauge",
    "when the newest attempt of the run was first heard of, on the collector's clock",
)
RUN_CHECKPOINT = Metric(
    "straggler.run.last_checkpoint.timestamp",
    "s",
    "gauge",
    "when a section of kind checkpoint last ended on any rank, on that rank's clock",
)
RUN_OPEN_SECTIONS = Metric(
    "straggler.run.open_sections",
    "{rank}",
    "gauge",
    "ranks that have not ended, by the section that they last said was open; at most 20 sections, "
    "the others as `<other>`",
)
RUN_WORLD_SIZE = Metric("straggler.run.world_size", "{rank}", "gauge", "ranks expected")
RUN_RANKS_REPORTING = Metric(
    "straggler.run.ranks_reporting", "{rank}", "gauge", "ranks in the newest window"
)
RUN_FINISHED = Metric(
    "straggler.run.finished.timestamp", "s", "gauge", "when the last rank of the run ended"
)
RUN_COVERAGE = Metric(
    "straggler.run.coverage", "{ratio}", "gauge", "ranks scored / ranks expected, newest window"
)
RUN_SLOWDOWN = Metric(
    "straggler.run.slowdown",
    "{ratio}",
    "gauge",
    "time of the run / time if all ranks of a role and all stages were equal",
)
RUN_WASTE = Metric("straggler.run.waste", "{ratio}", "gauge", "1 - 1 / slowdown of the run")
RUN_M_W = Metric(
    "straggler.run.loss_by_worst_workers",
    "{ratio}",
    "gauge",
    "M_W: part of the loss that goes if the worst 3 % of the workers were as the others",
)
RUN_M_S = Metric(
    "straggler.run.loss_by_last_stage",
    "{ratio}",
    "gauge",
    "M_S: part of the loss that goes if the last pipeline stage were as the others",
)
RUN_GPU_TIME_LOST = Metric(
    "straggler.run.gpu_time_lost", "s", "counter", "GPU time lost to inequality, all ranks"
)
RUN_STEP_TIME = Metric(
    "straggler.run.step_time", "s", "gauge", "time of a step: median over ranks and newest steps"
)
RUN_SLOWEST_STEP = Metric(
    "straggler.run.slowest_step_time",
    "s",
    "gauge",
    "time of a step of the slowest rank: median over the newest steps",
)
RUN_RESOLVABLE = Metric(
    "straggler.run.resolvable_slowdown",
    "{ratio}",
    "gauge",
    "smallest slowdown that 20 steps can show",
)
SECTION_EXPOSED = Metric(
    "straggler.section.exposed_time",
    "s",
    "gauge",
    "what the section adds to the step on the slowest path, per step",
)
WORKER_SLOWDOWN = Metric(
    "straggler.worker.slowdown",
    "{ratio}",
    "gauge",
    "slowdown of the run if only this cell of data rank and pipeline stage were as it is",
)
RUN_IDENTITY_CLASHES = Metric(
    "straggler.run.identity_clashes", "{rank}", "gauge", "ranks claimed by two live sessions"
)

# --- the collector about itself ---------------------------------------------------------------
COLLECTOR_SPANS = Metric(
    "straggler.collector.spans", "{span}", "counter", "spans received, by fate"
)
COLLECTOR_REQUESTS = Metric(
    "straggler.collector.requests", "{request}", "counter", "requests, by signal and answer"
)
COLLECTOR_RUNS = Metric("straggler.collector.runs", "{run}", "gauge", "runs in memory")
COLLECTOR_WINDOWS = Metric(
    "straggler.collector.windows", "{window}", "counter", "windows closed, by cause"
)
COLLECTOR_QUEUE = Metric(
    "straggler.collector.queue", "By", "gauge", "request bytes that wait to be scored"
)
COLLECTOR_SERIES_FOLDED = Metric(
    "straggler.collector.series_folded", "{series}", "gauge", "series folded by the budget"
)
COLLECTOR_FORWARDED = Metric(
    "straggler.collector.forwarded", "{request}", "counter", "requests forwarded, by outcome"
)
COLLECTOR_START = Metric(
    "straggler.collector.start.timestamp", "s", "gauge", "when this collector started"
)
COLLECTOR_PAGES = Metric(
    "straggler.collector.pages", "{flag}", "gauge", "1 if this collector's alerts may call somebody"
)
COLLECTOR_ROWS = Metric(
    "straggler.collector.rows", "{row}", "counter", "section runs, by what became of them"
)
COLLECTOR_POINTS = Metric(
    "straggler.collector.points", "{point}", "counter", "data points received, by use"
)
COLLECTOR_SECTION_TIMES = Metric(
    "straggler.collector.section_times",
    "{point}",
    "counter",
    "points of section histograms, by what became of them",
)
COLLECTOR_KERNEL_TIMES = Metric(
    "straggler.collector.kernel_times",
    "{point}",
    "counter",
    "points of kernel histograms, by what became of them",
)
COLLECTOR_FORWARD_QUEUE = Metric(
    "straggler.collector.forward_queue", "By", "gauge", "request bytes that wait to be forwarded"
)
COLLECTOR_FORWARD_SPANS = Metric(
    "straggler.collector.forward_spans",
    "{span}",
    "counter",
    "spans that sampled forwarding kept or left out, by reason",
)
COLLECTOR_FORWARD_HELD = Metric(
    "straggler.collector.forward_held",
    "By",
    "gauge",
    "requests that sampled forwarding holds until their steps are scored",
)
COLLECTOR_HISTORY_SIZE = Metric(
    "straggler.collector.history.size", "By", "gauge", "size of the history's file and its log"
)
COLLECTOR_HISTORY_OLDEST = Metric(
    "straggler.collector.history.oldest.timestamp",
    "s",
    "gauge",
    "when the oldest window or verdict of the history was written",
)
COLLECTOR_HISTORY_FAILURES = Metric(
    "straggler.collector.history.failures",
    "{item}",
    "counter",
    "states, verdicts and windows that the history could not keep, by reason",
)
COLLECTOR_DECISIONS = Metric(
    "straggler.collector.decisions",
    "{decision}",
    "counter",
    "verdicts that people dismissed, muted or restored, by the verdict's cause",
)
COLLECTOR_COMMANDS = Metric(
    "straggler.collector.commands",
    "{command}",
    "counter",
    "what ranks were asked for, by what came of it; outcome asked counts all",
)
COLLECTOR_NOTIFICATIONS = Metric(
    "straggler.collector.notifications",
    "{request}",
    "counter",
    "requests that told a receiver of alerts, by outcome; of dropped ones, alerts",
)
COLLECTOR_HTTP_ANSWERS = Metric(
    "straggler.collector.http_answers", "{answer}", "counter", "OTLP/HTTP answers, by status"
)
COLLECTOR_RECEIVER_RESTARTS = Metric(
    "straggler.collector.receiver_restarts",
    "{restart}",
    "counter",
    "receiver processes that ended and were started again",
)
COLLECTOR_GPU_TIMES_REFUSED = Metric(
    "straggler.collector.gpu_times_refused",
    "{time}",
    "counter",
    "GPU times on spans that make no sense; their sections go by the host's clock",
)
COLLECTOR_FAILURES = Metric(
    "straggler.collector.failures",
    "{failure}",
    "counter",
    "mistakes of ours, survived; see the log",
)
# --- from the collector, for ranks folded by the series budget ---------------------------------
OVER_RANKS: Final = {
    metric.name: Metric(
        f"{metric.name}.over_ranks", metric.unit, "gauge", f"quantiles over ranks: {metric.meaning}"
    )
    for metric in (
        SECTION_RELATIVE,
        SECTION_INDIVIDUAL,
        SECTION_MEDIAN,
        SECTION_SLOWDOWN,
        GPU_RELATIVE,
        GPU_INDIVIDUAL,
        WORKER_SLOWDOWN,
    )
}
"""What stands for the ranks whose series were folded by the budget; label ``quantile``."""

FORMAT_VERSION: Final = 1
"""``schema_version`` of the JSON that ``score --json`` and ``/v1/report`` share."""

TRACKER_SCALARS: Final = {
    "worst_score": "time of the peers / time of the slowest rank: 1.0 = all alike, 0.5 = one "
    "takes twice as long",
    "worst_rank": "which rank that is",
    "slowdown": "time of the run / time if all ranks of a role and all stages were equal",
    "gpu_seconds_lost": "GPU time lost by waiting since the start",
    "gpu_seconds_lost_per_hour": "GPU time that is lost by waiting now, per hour",
    "step_s": "median seconds per step",
    "slowest_step_s": "seconds of own work per step, without waiting, of the rank with most of it",
    "ranks_called_slow": "ranks that are called slow, by a verdict on them or on their host",
    "ranks_reporting": "ranks with data in the newest window",
}
"""Scalars for experiment trackers, and what ``/v1/scalars`` has; a tracker gets them under
:data:`TRACKER_PREFIX`. Missing where not known."""
TRACKER_PREFIX: Final = "straggler/"

NCCL_KERNEL_MARKS: Final = ("nccldev", "ncclkernel", "ncclsymk", "nvshmem", "deep_ep", "rccl")
"""Lower-case marks of communication kernels, over all naming generations of NCCL and its kin."""
MEMORY_MARKS: Final = ("memcpy", "memset", "cuda memcpy", "cuda memset")
"""How the names of copies and fills begin, in lower case."""
KernelClass = Literal["compute", "nccl", "memory"]
KERNEL_CLASSES: Final[tuple[KernelClass, ...]] = ("compute", "nccl", "memory")
