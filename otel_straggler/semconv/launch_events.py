"""What a launcher sends: events (OTLP log records) and the metrics of its restarts."""

from __future__ import annotations

from typing import Final, Literal, get_args

from otel_straggler.semconv.names import OF_RUN, Attribute, Metric
from otel_straggler.semconv.rank_metrics import (
    CHECKPOINT_METRICS,
    GOODPUT_METRICS,
    HARDWARE_METRICS,
    RANK_TIMED_OUT,
    REASON,
)

# --- event of a launcher (OTLP log record) ----------------------------------------------------
EVENT_NAME: Final = Attribute(
    "event.name", "name of the event, where the log record has no field for it"
)
LAUNCH_REASON: Final = Attribute(
    "straggler.launch.reason",
    "why: exit_0, exit_1, ..., SIGKILL, ..., membership (the nodes changed), max_jobs, finished",
)
LAUNCH_JOB: Final = Attribute(
    "straggler.launch.job", "start of torchrun by this launcher, from 1; see --until-finished"
)
LAUNCH_NODE_RANKS: Final = Attribute(
    "straggler.launch.ranks", "global ranks that were started on the node, as text: 0, 1"
)
EXIT_CODE: Final = Attribute("process.exit.code", "of the process; absent after a signal")

LaunchEventName = Literal[
    "straggler.job.started",
    "straggler.attempt.started",
    "straggler.rank.exited",
    "straggler.run.restarting",
    "straggler.attempt.ended",
    "straggler.job.ended",
]
LAUNCH_EVENTS: Final[tuple[LaunchEventName, ...]] = get_args(LaunchEventName)

# --- from a launcher, passed through ----------------------------------------------------------
_OF_NODE: Final = (*OF_RUN, "node")
RUN_ATTEMPTS = Metric(
    "straggler.run.attempts",
    "{attempt}",
    "counter",
    "attempts that the node's launcher has started",
    subject=_OF_NODE,
)
RUN_RESTARTS = Metric(
    "straggler.run.restarts",
    "{restart}",
    "counter",
    "restarts of the node's ranks, by reason",
    (REASON,),
    _OF_NODE,
)
RUN_RANK_EXITS = Metric(
    "straggler.run.rank_exits",
    "{exit}",
    "counter",
    "ranks of the node whose process failed, by reason",
    (REASON,),
    _OF_NODE,
)
LAUNCH_METRICS: Final = (RUN_ATTEMPTS, RUN_RESTARTS, RUN_RANK_EXITS)
PASSTHROUGH_METRICS: Final = (
    *HARDWARE_METRICS,
    *GOODPUT_METRICS,
    *CHECKPOINT_METRICS,
    RANK_TIMED_OUT,
    *LAUNCH_METRICS,
)
"""What the collector publishes as ranks and launchers report it."""
