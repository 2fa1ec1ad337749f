"""Attributes of resources and spans, the values they may have, and other tools' names for them."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, get_args

from otel_straggler.semconv.names import Attribute

# --- resource: who sends -------------------------------------------------------------------
SERVICE_NAME: Final = Attribute("service.name", "job name")
SERVICE_INSTANCE_ID: Final = Attribute("service.instance.id", "run/attempt/group/rank")
HOST_NAME: Final = Attribute("host.name", "node")
SESSION_ID: Final = Attribute("straggler.session.id", "16 hex characters, new in every process")
PROCESS_PID: Final = Attribute(
    "process.pid", "of the rank, as it sees itself: in a container, the number in there"
)
RECORDER: Final = Attribute("straggler.recorder", "native or python: what records the sections")
RUN_ID: Final = Attribute("training.run.id", "one training run, over all its attempts")
RUN_ATTEMPT: Final = Attribute("training.run.attempt", "restart count of the launcher, from 0")
GROUP: Final = Attribute("training.group", "one of several worlds in a job; empty for one world")
RANK: Final = Attribute("training.rank", "global rank of the process")
LOCAL_RANK: Final = Attribute("training.local_rank", "rank within the node")
WORLD_SIZE: Final = Attribute("training.world_size", "ranks in the group")
RUN_PAGE: Final = Attribute(
    "training.run.page", "false: this run notifies nobody; absent where the user set nothing"
)
STRATEGY: Final = Attribute(
    "training.strategy", "how the training is distributed, such as ddp; for scalability reports"
)
TEAM: Final = Attribute("training.team", "whose run it is, for who routes alerts")

# --- rank description: late-bound, on straggler.rank.info and on the resource once known ----
ROLE: Final = Attribute("training.role", "peers are compared within a role")
PARALLEL_DIMENSIONS: Final = ("data", "tensor", "pipeline", "virtual_pipeline", "context", "expert")
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
    "why the tier is not cupti; docs/recipes/gpu-timing.md has the reasons",
)
RANK_ENDING: Final = Attribute(
    "straggler.rank.ending",
    "true: SIGTERM has come, and a handler of the user's decides when to end",
)
EXCEPTION_TYPE: Final = Attribute(
    "exception.type", "with the end of a rank: the exception that ended it, such as ValueError"
)
EXCEPTION_MESSAGE: Final = Attribute(
    "exception.message",
    "its first line, at most 200 characters, without what looks like a secret; absent with "
    "OTEL_STRAGGLER_FAILURE_MESSAGES=off",
)
FAILURE_KIND: Final = Attribute(
    "straggler.rank.failure",
    "how a rank failed: raised (an exception of its own), lost_peer (one that says that another "
    "rank is gone), exited (with an error code) or killed (by a signal)",
)
EXIT_CODE: Final = Attribute("process.exit.code", "of the process; absent after a signal")
RESTARTS_LEFT: Final = Attribute(
    "straggler.run.restarts_left", "how often torchelastic may still restart the run"
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
    "straggler.time_basis",
    "what tells the work of the run: cupti (kernels), events (busy time of the GPU only), "
    "collective (host time less waiting in collectives), host (host time alone)",
)
COLLECTIVE_WAIT_TIME: Final = Attribute(
    "straggler.collective.wait_time_ns",
    "time of the run that its thread waited in collectives, ns; the rest is the rank's own; with "
    "basis events, which have the waiting in them, it goes before these",
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

# --- event of a rank (OTLP log record): a file of a profile ---------------------------------
PROFILE_WRITTEN: Final = "straggler.profile.written"
"""Name of the event; its record has the trace and span of the step."""
PROFILE_KIND: Final = Attribute("straggler.profile.kind", "trace, operators, stacks or flops")
PROFILE_SHA256: Final = Attribute("straggler.profile.sha256", "of the file, hexadecimal")
FILE_PATH: Final = Attribute("file.path", "of the file, on the rank's host")
FILE_SIZE: Final = Attribute("file.size", "of the file, bytes")

DDP_FORWARD: Final = "ddp_forward"
DDP_BACKWARD: Final = "ddp_backward"
DDP_COMMUNICATION: Final = "ddp_communication"
DDP_TIMERS: Final = (DDP_FORWARD, DDP_BACKWARD, DDP_COMMUNICATION)
"""What DistributedDataParallel times on the GPU by CUDA events of its own: forward, backward up to
its last gradient, and communication after that. As names of sections behind that of the section
around them, as ``backward/ddp_backward``, with basis ``events``."""

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
SECTION_KINDS: Final[tuple[SectionKind, ...]] = get_args(SectionKind)
LISTED_KINDS: Final = frozenset({"compute", "data", "other"})
"""Kinds whose low scores are listed as stragglers; the others are scored only."""
PHASE_KINDS: Final[dict[str, SectionKind]] = {"checkpoint": "checkpoint", "eval": "eval"}
"""Kind of the span of a declared phase; every other phase is ``other``."""

HOST_BASIS: Final = "host"
EVENTS_BASIS: Final = "events"
CUPTI_BASIS: Final = "cupti"
COLLECTIVE_BASIS: Final = "collective"
"""Values of ``TIME_BASIS``."""

STEP_SPAN: Final = "step"
"""Name of the span that covers one step of one rank. It is scored as a section of this name if it
says so in ``SECTION``: no section ended in the step."""
FAULT_SPAN: Final = "fault.injection"
"""Name of the span of a fault that a rank was made to have. It is not scored."""
FAULT: Final = Attribute("straggler.fault", "the fault as its plan names it, of an injected one")
FAULT_KIND: Final = Attribute("straggler.fault.kind", "kind of an injected fault")
FAULT_REASON: Final = Attribute(
    "straggler.fault.reason", "why a fault could not be injected; absent if it was"
)
OTHER_SECTION: Final = "<other>"

# --- spans that a collector adds to the trace of a step that it forwards ---------------------
ROOT_SPAN: Final = "all ranks"
"""Name of the root of a step's trace, which a forwarder makes; the ``step`` spans are below it."""
SIMILAR_RANKS_SPAN: Final = "similar ranks"
"""Name of the span that stands for ranks that are left out and whose steps took as long."""
TRACE_RANKS: Final = Attribute(
    "straggler.trace.ranks", "of the root: ranks of the step; of a summary: ranks it stands for"
)
TRACE_RANK_LIST: Final = Attribute("straggler.trace.rank_list", "which ranks a span stands for")
TRACE_STEP_TIME: Final = Attribute(
    "straggler.trace.step_time_ns", "median of the steps of these ranks, ns"
)
TRACE_FLAGGED_RANKS: Final = Attribute(
    "straggler.trace.flagged_ranks",
    "of the root: ranks in the trace that a verdict or the newest window names",
)
TRACE_SPANS_LEFT_OUT: Final = Attribute(
    "straggler.trace.spans_left_out", "of the root: spans of the step that are not in the trace"
)
TRACE_STAND_IN: Final = Attribute(
    "straggler.trace.stand_in",
    "true: this span stands for a parent that did not come, from the first to the last of its "
    "children",
)

# --- kernel histogram: what a rank's GPU ran in an interval ----------------------------------
KERNEL: Final = Attribute(
    "straggler.kernel", "name of a CUDA kernel, demangled; `<other>` for all without a point"
)
KERNEL_CLASS: Final = Attribute("straggler.kernel.class", "one of KERNEL_CLASSES")
OTHER_KERNEL: Final = "<other>"
"""Kernels in which little time is spent, together; they are never scored."""

NCCL_KERNEL_MARKS: Final = (
    *("nccldev", "ncclkernel", "ncclsymk", "nvshmem", "deep_ep", "rccl", "msccl"),
    *("cross_device_reduce", "all_reduce_kernel", "allreducekernel", "allreduce_fusion"),
    *("multimem_", "userbuffers"),
)
"""Lower-case marks of communication kernels: all naming generations of NCCL and its kin; the custom
all-reduces of vLLM, PyTorch's symmetric memory, TensorRT-LLM and Transformer Engine."""
MEMORY_MARKS: Final = ("memcpy", "memset", "cuda memcpy", "cuda memset")
"""How the names of copies and fills begin, in lower case."""
KernelClass = Literal["compute", "nccl", "memory"]
KERNEL_CLASSES: Final[tuple[KernelClass, ...]] = get_args(KernelClass)

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
"""Keys that a restarted rank has new; NeMo Lens keeps ``service.instance.id``."""
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
    FAULT_SPAN,
)
"""Spans that last as long as the process (dd-trace ends ``pytorch.rank`` every 600 s and begins
another) or a whole step, which is equally long on all ranks that wait for each other; and kernels,
which have one name for all; and injected faults."""

GpuTier = Literal["off", "events", "cupti"]
GPU_TIERS: Final[tuple[GpuTier, ...]] = get_args(GpuTier)
"""Values of ``GPU_TIMING_TIER``, each worth more than the one before."""


class GpuReason(NamedTuple):
    """Why sections are not timed on the GPU as they could be: the cause, and what to do."""

    cause: str
    remedy: str


_REASON_TEXTS = {
    "auto": (
        "gpu_timing is 'auto', which times sections by CUDA events and no kernels",
        "for kernels set OTEL_STRAGGLER_GPU_TIMING=cupti or configure(gpu_timing='cupti')",
    ),
    "asked": ("it was asked for", "ask for another tier with set_gpu_timing()"),
    "not_configured": ("nothing is recorded in this process", "call configure()"),
    "no_extension": (
        "the native part of the package is not there",
        "install a wheel for this platform, or from source with a C++ compiler",
    ),
    "not_sent": (
        "no spans of this package's own are sent, and the application's provider gets host times",
        "name a collector in configure(endpoint=...), and unset OTEL_TRACES_EXPORTER",
    ),
    "no_torch": ("torch has not been imported yet", "none: retried every second"),
    "no_cuda": ("torch was built without CUDA, or sees no GPU", "install a torch for CUDA"),
    "cuda_unused": ("the process has not used CUDA yet", "none: retried every second"),
    "no_driver": ("no CUDA driver is loaded in this process", "none: retried every second"),
    "no_cupti": (
        "no libcupti was found",
        "install torch for CUDA, or put CUDA's extras/CUPTI/lib64 on LD_LIBRARY_PATH",
    ),
    "broken_cupti": (
        "the libcupti that was found cannot be used",
        "unset OTEL_STRAGGLER_CUPTI to use the one that torch brings, or reinstall that",
    ),
    "old_cupti": (
        "the libcupti that was found is older than that of CUDA 11.8",
        "use a torch for a newer CUDA",
    ),
    "not_initialized": ("CUPTI finds the driver not initialised", "none: retried every minute"),
    "not_compatible": ("another client uses CUPTI's newer interface in this process", "stop it"),
    "not_supported": (
        "this device or mode (MIG, vGPU, WSL, MPS) offers no kernel records",
        "time sections by events",
    ),
    "virtualized": (
        "the GPU is virtualised, and CUPTI or its host forbids tracing",
        "ask for vGPU profiling to be enabled, or time sections by events",
    ),
    "confidential": ("confidential computing forbids tracing", "time sections by events"),
    "insufficient_privileges": (
        "the driver lets administrators profile only",
        "load it with NVreg_RestrictProfilingToAdminUsers=0, or give the container CAP_SYS_ADMIN",
    ),
    "multiple_subscribers": (
        "another profiler holds CUPTI (Nsight, cuda-gdb, compute-sanitizer)",
        "run without it; retried every minute",
    ),
    "cupti_unknown": (
        "CUPTI finds no usable driver, or one older than itself",
        "compare nvidia-smi with torch.version.cuda",
    ),
    "cupti_failed": (
        "a call of CUPTI failed in an unexpected way",
        "report it with the versions of driver, CUDA and torch",
    ),
    "unproven": (
        "kernel records were asked for, and no kernel of a section has come back yet",
        "none, if sections launch kernels: it is decided within a second of the first ones",
    ),
    "no_marks": (
        "CUPTI gives kernels that cannot be attributed to sections",
        "report it with the versions of driver, CUDA and torch; set_gpu_timing() tries again",
    ),
    "no_memory": ("there is no address space for the buffers", "allow 64 MiB more (ulimit -v)"),
    "no_events": ("CUDA events cannot be used here", "ask for cupti"),
    "events_failed": (
        "a CUDA event failed, most likely after an error of the program's own",
        "look for a CUDA error in the program's log; set_gpu_timing('events') tries again",
    ),
    "forked": ("CUDA does not work in a forked child", "start it by spawn and configure() there"),
    "invalid_timestamps": (
        "CUPTI gave more than 1 % of kernels no valid timestamps, as some versions do in time",
        "use a torch with a newer CUDA; set_gpu_timing('cupti') tries again",
    ),
    "takeover": ("another profiler takes what CUPTI gives back", "none: retried every minute"),
    "kineto_active": ("torch.profiler is at work", "nothing: timing goes on when it has stopped"),
    "governor": (
        "timing cost more of the step than OTEL_STRAGGLER_GPU_OVERHEAD allows",
        "allow more, or live with the lower tier; set_gpu_timing() tries again",
    ),
}
GPU_TIMING_REASONS: Final = {code: GpuReason(*texts) for code, texts in _REASON_TEXTS.items()}
"""By code: all values of ``GPU_TIMING_REASON``."""
