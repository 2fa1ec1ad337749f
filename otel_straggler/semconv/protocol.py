"""What both ends agree on besides telemetry: versions, headers, paths, scalars."""

from __future__ import annotations

from typing import Final

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

FORMAT_VERSION: Final = 1
"""``schema_version`` of the JSON that ``score --json`` and ``/v1/report`` share."""

TRACKER_SCALARS: Final = {
    "worst_score": "time of the peers / time of the slowest rank: 1.0 = all alike, 0.5 = one "
    "takes twice as long",
    "worst_rank": "which rank that is",
    "slowdown": "time of the run / time if all ranks of a role and all stages were equal",
    "gpu_seconds_lost": "time of all ranks (of GPUs, where each has one) lost by waiting since the "
    "start",
    "gpu_seconds_lost_per_hour": "the same that is lost now, per hour",
    "step_s": "median seconds per step",
    "slowest_step_s": "seconds of own work per step, without waiting, of the rank with most of it",
    "ranks_called_slow": "ranks that are called slow, by a verdict on them or on their host",
    "ranks_reporting": "ranks with data in the newest window",
}
"""Scalars for experiment trackers, and what ``/v1/scalars`` has; a tracker gets them under
:data:`TRACKER_PREFIX`. Missing where not known."""
TRACKER_PREFIX: Final = "straggler/"
