"""CUDA kernels: attributes of their histogram, and the classes they are put in."""

from __future__ import annotations

from typing import Final, Literal

from otel_straggler.semconv.names import Attribute

# --- kernel histogram: what a rank's GPU ran in an interval ----------------------------------
KERNEL: Final = Attribute(
    "straggler.kernel", "name of a CUDA kernel, demangled; `<other>` for all without a point"
)
KERNEL_CLASS: Final = Attribute("straggler.kernel.class", "one of KERNEL_CLASSES")
OTHER_KERNEL: Final = "<other>"
"""Kernels in which little time is spent, together; they are never scored."""

NCCL_KERNEL_MARKS: Final = ("nccldev", "ncclkernel", "ncclsymk", "nvshmem", "deep_ep", "rccl")
"""Lower-case marks of communication kernels, over all naming generations of NCCL and its kin."""
MEMORY_MARKS: Final = ("memcpy", "memset", "cuda memcpy", "cuda memset")
"""How the names of copies and fills begin, in lower case."""
KernelClass = Literal["compute", "nccl", "memory"]
KERNEL_CLASSES: Final[tuple[KernelClass, ...]] = ("compute", "nccl", "memory")
