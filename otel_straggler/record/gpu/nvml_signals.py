"""What NVML says of a GPU: readings, and the face of whoever reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuIdentity:
    """Which GPU it is.

    Attributes:
        uuid: with its prefix, ``GPU-`` or ``MIG-``.
        model, pci_id: "" if not known.
    """

    uuid: str
    model: str = ""
    pci_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """What changes from second to second. None or absent: this GPU does not say.

    Attributes:
        at_ns: monotonic time.
        throttle_reasons: bits of NVML's clocks event reasons, at this moment.
        throttled_ns: since the driver was loaded, by reason; a running total.
        sm_clock_hz, memory_clock_hz: now.
        power_w: now; an average over a second on GPUs that have no other.
        energy_j: since the driver was loaded.
        temperature_c, memory_temperature_c: now.
    """

    at_ns: int
    throttle_reasons: int | None = None
    throttled_ns: Mapping[str, int] = field(default_factory=dict)
    sm_clock_hz: int | None = None
    memory_clock_hz: int | None = None
    power_w: float | None = None
    energy_j: float | None = None
    temperature_c: int | None = None
    memory_temperature_c: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHealth:
    """What changes rarely: running totals of faults, by what went wrong; absent: not told.

    Attributes:
        at_ns: monotonic time.
        errors: by one of ``semconv.GPU_ERRORS``.
    """

    at_ns: int
    errors: Mapping[str, int] = field(default_factory=dict)


class SensorsGoneError(Exception):
    """There is nothing to read, now and later. The message says why and what to do."""


class GpuSensors(Protocol):
    """One GPU. Any method may raise :class:`SensorsGoneError`; then none is to be called again."""

    def identity(self) -> GpuIdentity:
        """Which GPU; asked once."""

    def reading(self, now_ns: int) -> GpuReading:
        """Cost: some 10 to 500 µs, most of it in the driver; the GIL is free meanwhile."""

    def health(self, now_ns: int) -> GpuHealth:
        """Cost: the same."""

    def next_xid(self, timeout_ms: int) -> int | None:
        """Wait for a critical error of the GPU; its number, None if there was none."""

    def close(self) -> None:
        """Give back what was taken."""
