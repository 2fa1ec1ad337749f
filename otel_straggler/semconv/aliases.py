"""Names of other instrumentations that are understood on input."""

from __future__ import annotations

from typing import Final

from otel_straggler.semconv.resource import (
    LOCAL_RANK,
    PARALLEL_RANK,
    RANK,
    ROLE,
    RUN_ID,
    SERVICE_INSTANCE_ID,
    SESSION_ID,
    WORLD_SIZE,
)
from otel_straggler.semconv.section import SECTION, STEP, SectionKind

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
