"""Which values a setting of the collector takes, in words and as a predicate."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

from otel_straggler.collector import commands_settings
from otel_straggler.collector.liveness_settings import LivenessSettings
from otel_straggler.collector.settings import AttributeSettings, MiB, SpanSettings


def _are_ascending(values: tuple[int, ...]) -> bool:
    return bool(values) and values[0] >= 1 and all(a < b for a, b in pairwise(values))


def _are_words(values: tuple[str, ...]) -> bool:
    return all(value and value == value.strip() for value in values)


def _is_base_url(value: str) -> bool:
    of_a_signal = value.rstrip("/").endswith(("/v1/traces", "/v1/metrics", "/v1/logs"))
    return value.startswith(("http://", "https://")) and not of_a_signal


RULES: dict[str, tuple[str, Any]] = {
    "max_body_bytes": ("an integer of at least 1024", lambda v: v >= 1024),
    "max_waiting_bytes": ("an integer of at least 1048576", lambda v: v >= MiB),
    "max_queue_bytes": ("an integer of at least 1048576", lambda v: v >= MiB),
    "series_budget": ("an integer of at least 100", lambda v: v >= 100),
    "keep_scores_seconds": ("a number above 0", lambda v: v > 0),
    "timeline_mib": ("an integer of at least 1", lambda v: v >= 1),
    "window_steps": ("an integer of at least 1", lambda v: v >= 1),
    "window_longest_seconds": ("a number above 0", lambda v: v > 0),
    "window_seconds": ("a number of at least 0.1", lambda v: v >= 0.1),
    "grace_seconds": ("a number of at least 0", lambda v: v >= 0),
    "idle_seconds": ("a number above 0", lambda v: v > 0),
    "threshold": ("a number above 0 and at most 1", lambda v: 0 < v <= 1),
    "min_reference_samples": ("an integer of at least 1", lambda v: v >= 1),
    "reference_half_life_seconds": ("a number above 0", lambda v: v > 0),
    "max_section_names": ("an integer of at least 1", lambda v: v >= 1),
    "max_runs": ("an integer of at least 1", lambda v: v >= 1),
    "max_groups": ("an integer of at least 1", lambda v: v >= 1),
    "forget_run_seconds": ("a number above 0", lambda v: v > 0),
    "block_steps": ("an integer of at least 1", lambda v: v >= 1),
    "block_seconds": ("a number of at least 0.1", lambda v: v >= 0.1),
    "windows_steps": ("a list of ascending integers of at least 1", _are_ascending),
    "least_slowdown": ("a number of at least 1", lambda v: v >= 1),
    "floor_of_resolvable": ("a number of at least 0", lambda v: v >= 0),
    "least_z": ("a number of at least 0", lambda v: v >= 0),
    "page_slowdown": ("a number of at least 1", lambda v: v >= 1),
    "page_loss": ("a number of 0 to 1", lambda v: 0 <= v <= 1),
    "least_share": ("a number of 0 to 1", lambda v: 0 <= v <= 1),
    "least_peers": ("an integer of at least 2", lambda v: v >= 2),
    "quorum": ("a number of 0 to 1", lambda v: 0 <= v <= 1),
    "warm_up_steps": ("an integer of at least 0", lambda v: v >= 0),
    "max_changes": ("an integer of at least 1", lambda v: v >= 1),
    **{
        f.name: ("a list of attribute keys without blanks around them", _are_words)
        for f in dataclasses.fields(AttributeSettings)
    },
    **{
        f.name: ("a list of patterns of span names, such as train.*", _are_words)
        for f in dataclasses.fields(SpanSettings)
    },
    **{f.name: ("a number above 0", lambda v: v > 0) for f in dataclasses.fields(LivenessSettings)},
    **commands_settings.RULES,
    "keep_days": ("a number above 0", lambda v: v > 0),
    "max_mib": ("an integer of at least 1", lambda v: v >= 1),
    "save_every_seconds": ("a number above 0", lambda v: v > 0),
    "mode": ('"off", "all" or "sampled"', lambda v: v in ("", "off", "all", "sampled")),
    "sample_one_in": ("an integer of at least 1", lambda v: v >= 1),
    "slow_step_ratio": ("a number above 1", lambda v: v > 1),
    "max_trace_spans": ("an integer of at least 1", lambda v: v >= 1),
    "max_held_bytes": ("an integer of at least 1048576", lambda v: v >= MiB),
    "hold_seconds": ("a number above 0", lambda v: v > 0),
    "url": (
        "an http:// or https:// URL to which /v1/traces can be added, e.g. http://gateway:4318",
        lambda v: not v or _is_base_url(v),
    ),
}
ADDRESSES = frozenset({"otlp_http", "otlp_grpc", "listen"})
"""Settings that are HOST:PORT."""
