"""The rows of the table: what is trained, by how many ranks."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field

from benchmarks.inside_backward.trainings import MICROBATCHES

_APART = {name: name for name in ("data_loading", "forward", "backward")}
_AS_ONE = {**_APART, "forward": "forward_backward", "backward": "forward_backward"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One kind of training.

    Attributes:
        title: in the table.
        training: of ``ranks.py``.
        ranks: how many.
        executions: of each section in a step.
        scale: of all times: collectives of a CPU cost it a millisecond each, which is not the
            training that they stand for.
        repeats_forward: backward runs the forward of the layers again.
        sections: that loading, forward and backward are part of.
        package: that is needed; this project does not install it.
    """

    title: str
    training: str
    ranks: int = 4
    executions: int = 1
    scale: float = 1.0
    repeats_forward: bool = False
    sections: dict[str, str] = field(default_factory=lambda: dict(_APART))
    package: str = ""

    @property
    def why_not(self) -> str:
        """Why it cannot run here; empty if it can."""
        if not self.package or importlib.util.find_spec(self.package):
            return ""
        return f"{self.package} is not installed"


ROWS = {
    "ddp-3": Row(title="DDP, 3 ranks", training="ddp", ranks=3),
    "ddp-4": Row(title="DDP, 4 ranks", training="ddp"),
    "ddp-8": Row(title="DDP, 8 ranks", training="ddp", ranks=8),
    "no-sync": Row(
        title=f"DDP, no_sync, {MICROBATCHES} microbatches",
        training="accumulated",
        executions=MICROBATCHES,
        scale=0.5,
    ),
    "static-graph": Row(title="DDP, static graph", training="static_graph"),
    "find-unused": Row(title="DDP, find_unused_parameters", training="find_unused"),
    "two-modules": Row(title="two DDP modules", training="two_modules"),
    "checkpointing": Row(
        title="DDP, activation checkpointing", training="checkpointed", repeats_forward=True
    ),
    "compiled": Row(title="DDP, torch.compile", training="compiled"),
    "fsdp2": Row(title="FSDP2 (fully_shard)", training="sharded", scale=4.0),
    "tensor-parallel": Row(
        title="tensor parallel (DTensor)", training="tensor_parallel", scale=3.0
    ),
    "transformers": Row(
        title="Hugging Face Trainer",
        training="transformers",
        sections=dict(_AS_ONE),
        package="transformers",
    ),
    "lightning": Row(title="Lightning", training="lightning", scale=4.0, package="lightning"),
}
"""By name."""
