"""NVRx's fault tolerance: ``from otel_straggler import fault_tolerance`` is all that a script
written for ``nvidia_resiliency_ext.fault_tolerance`` has to change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from otel_straggler.agent.client import RankMonitorClient
from otel_straggler.agent.config import FaultToleranceConfig
from otel_straggler.agent.frames import RankMonitorClientError
from otel_straggler.detect.hangs.rank_timeouts import HeartbeatTimeouts, SectionTimeouts

__all__ = [
    "FaultToleranceConfig",
    "HeartbeatTimeouts",
    "RankMonitorClient",
    "RankMonitorClientError",
    "SectionTimeouts",
    "WorkloadAction",
    "WorkloadControlRequest",
]


class WorkloadAction(Enum):
    """What a rank may ask of NVRx's launcher; torchrun has no such requests."""

    Continue = 0
    ExcludeThisNode = 1
    ShutdownWorkload = 2


@dataclass
class WorkloadControlRequest:
    """A request with its reason."""

    action: WorkloadAction
    description: str = "<not set>"
