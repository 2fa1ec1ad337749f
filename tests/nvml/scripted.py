"""Sensors of a GPU that say what they are told to."""

from __future__ import annotations

import queue
from dataclasses import dataclass, field, replace

from otel_straggler.record.gpu.nvml_signals import (
    GpuHealth,
    GpuIdentity,
    GpuReading,
    SensorsGoneError,
)


@dataclass
class ScriptedSensors:
    """As much of ``GpuSensors`` as a script has: one answer for every question, until changed."""

    says: GpuReading = field(default_factory=lambda: GpuReading(at_ns=0))
    errors: dict[str, int] = field(default_factory=dict)
    gone: str = ""
    asked: list[tuple[str, int]] = field(default_factory=list)
    xids: queue.Queue[int] = field(default_factory=queue.Queue)
    is_closed: bool = False

    def identity(self) -> GpuIdentity:
        return GpuIdentity(uuid="GPU-1", model="NVIDIA H200", pci_id="00000000:3B:00.0")

    def reading(self, now_ns: int) -> GpuReading:
        self.asked.append(("reading", now_ns))
        if self.gone:
            raise SensorsGoneError(self.gone)
        return replace(self.says, at_ns=now_ns)

    def health(self, now_ns: int) -> GpuHealth:
        self.asked.append(("health", now_ns))
        return GpuHealth(at_ns=now_ns, errors=dict(self.errors))

    def next_xid(self, timeout_ms: int) -> int | None:
        try:
            found = self.xids.get(timeout=timeout_ms / 1e3)
        except queue.Empty:
            return None
        if found < 0:
            raise SensorsGoneError("the GPU has fallen off the bus")
        return found

    def close(self) -> None:
        self.is_closed = True
