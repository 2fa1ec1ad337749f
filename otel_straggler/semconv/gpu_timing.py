"""Tiers of GPU timing, and why a rank has not the highest."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

GpuTier = Literal["off", "events", "cupti"]
GPU_TIERS: Final[tuple[GpuTier, ...]] = ("off", "events", "cupti")
"""Values of ``GPU_TIMING_TIER``, each worth more than the one before."""


class GpuReason(NamedTuple):
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
