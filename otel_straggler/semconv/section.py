"""Spans of sections: their attributes, their kinds, and spans for several runs."""

from __future__ import annotations

from typing import Final, Literal

from otel_straggler.semconv.names import Attribute

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

HOST_BASIS: Final = "host"
EVENTS_BASIS: Final = "events"
CUPTI_BASIS: Final = "cupti"
"""Values of ``TIME_BASIS``."""

STEP_SPAN: Final = "step"
"""Name of the span that covers one step of one rank. It is not scored."""
ROOT_SPAN: Final = "all ranks"
"""Name of the root of a step's trace, which a forwarder makes; the ``step`` spans are below it."""
OTHER_SECTION: Final = "<other>"
