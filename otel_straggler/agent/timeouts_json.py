"""Timeouts in JSON types: in messages, and in the state that a training saves (NVRx's format)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from otel_straggler.agent.beats import MAX_SECTIONS
from otel_straggler.agent.frames import ProtocolError
from otel_straggler.detect.hangs.rank_timeouts import HeartbeatTimeouts, SectionTimeouts

_MAX_S: Final = sys.float_info.max


def heartbeat_values(timeouts: HeartbeatTimeouts) -> dict[str, Any]:
    return {
        "initial": timeouts.initial,
        "subsequent": timeouts.subsequent,
        "were_calculated": timeouts.were_calculated,
    }


def section_values(timeouts: SectionTimeouts) -> dict[str, Any]:
    return {
        "section": dict(timeouts.section),
        "out_of_section": timeouts.out_of_section,
        "calculated_sections": sorted(timeouts.calculated_sections),
        "is_out_of_section_calculated": timeouts.is_out_of_section_calculated,
    }


def read_heartbeat(values: Any) -> HeartbeatTimeouts:
    """Raises: ProtocolError if it holds something else."""
    its = _mapping(values)
    return HeartbeatTimeouts(
        _timeout(its.get("initial")),
        _timeout(its.get("subsequent")),
        bool(its.get("were_calculated")),
    )


def read_section(values: Any) -> SectionTimeouts:
    """Raises: ProtocolError if it holds something else."""
    its = _mapping(values)
    section = _mapping(its.get("section"))
    calculated = its.get("calculated_sections", [])
    if len(section) > MAX_SECTIONS or not all(isinstance(name, str) for name in section):
        raise ProtocolError("timeouts", f"{section!r:.100} are no sections")
    if not isinstance(calculated, (list, tuple, set, frozenset)):
        raise ProtocolError("timeouts", f"{calculated!r:.100} are no names of sections")
    return SectionTimeouts(
        {name: _timeout(value) for name, value in section.items()},
        _timeout(its.get("out_of_section")),
        frozenset(map(str, calculated)) & frozenset(section),
        bool(its.get("is_out_of_section_calculated")),
    )


def _mapping(values: Any) -> Mapping[Any, Any]:
    if not isinstance(values, Mapping):
        raise ProtocolError("timeouts", f"{values!r:.100} are no timeouts")
    return values


def _timeout(value: Any) -> float | None:
    if value is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 < value <= _MAX_S:  # a whole number may be larger, NaN is neither
        raise ProtocolError("timeouts", f"{value!r:.100} is no timeout in seconds")
    return float(value)
