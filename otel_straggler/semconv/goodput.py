"""Where the time of a run goes: productive steps, and the categories of badput."""

from __future__ import annotations

from typing import Final

from otel_straggler.semconv.names import Attribute

# --- goodput: on any span ---------------------------------------------------------------------
BADPUT_CATEGORY: Final = Attribute(
    "training.badput.category",
    "of a span: its time is badput of this category, one of BADPUT or a name of your own",
)

PRODUCTIVE: Final = "productive"
"""Time in steps that count, less what of them has a category of its own."""
EXCLUDED: Final = "excluded"
"""Time that counts neither as goodput nor as badput, such as planned maintenance."""
CUSTOM_PREFIX: Final = "custom:"
"""Begins the category of an activity with a name of the user's own."""

ACTIVITY_PREFIX: Final = "activity:"
"""Begins the name of a section that is an activity of a rank, where a reader asks for these: a
step, the life of a process, or a category that a span names by ``BADPUT_CATEGORY``."""

BADPUT: Final[dict[str, str]] = {
    "scheduling": "from the request for the run to its first process",
    "initialization": "device and process group, in phase('initialization')",
    "preparation": "model, optimizer, compilation, in phase('preparation')",
    "start_up": "all else from the first process to the first step, and what the first step "
    "takes longer than the others of its attempt",
    "data": "waiting for training data",
    "checkpoint": "training stands still while a checkpoint is saved",
    "checkpoint_load": "a checkpoint is loaded",
    "eval": "evaluation",
    "stragglers": "steps that wait for ranks or hosts with a confirmed verdict",
    "slow_steps": "what steps take longer than the reference step time, if one is given",
    "hang": "from the last progress of an attempt that failed to its end",
    "restart": "no process of the run is alive between two attempts",
    "reinitialization": "start_up of the attempts after the first",
    "redone": "steps that were done again after a restart, the first time",
    "replica_down": "the rank is in none of the processes of an attempt that others are in",
    "scale_up": "waiting for replicas that join, in phase('scale_up')",
    "shutdown": "from the last step of the last attempt to the end of the run",
    "other": "between steps, without a category of its own",
}
"""Categories of badput by name, with their meaning; besides these any of ``CUSTOM_PREFIX``."""

RECOVERY_CATEGORIES: Final = ("hang", "restart", "reinitialization")
"""Together the recovery of the infrastructure from disruptions."""
