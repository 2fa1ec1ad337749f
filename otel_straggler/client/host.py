"""Load of this host through ``psutil``: CPUs, memory, disks, network."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from otel_straggler import semconv
from otel_straggler.client.gpu.nvml import Reading, SensorsGoneError

_PRESSURE = Path("/proc/pressure/memory")
_DCGM = frozenset({"nv-hostengine", "dcgm-exporter"})


class HostSensors:
    """Raises: SensorsGoneError: psutil is not installed."""

    def __init__(self, pressure: Path = _PRESSURE) -> None:
        try:
            import psutil
        except ImportError:
            raise SensorsGoneError(
                "psutil is not installed; pip install 'otel-straggler[gpu]' reads the host's load"
            ) from None
        self._psutil: Any = psutil
        self._pressure = pressure
        self._busy_ms: dict[str, int] = {}
        self._busy_at_s: float | None = None
        psutil.cpu_percent()  # the next call says what has been used since this one

    def read(self, now_s: float) -> Iterator[Reading]:
        """What the host says now (monotonic seconds). Cost: some 100 µs, and 10 µs a disk."""
        psutil = self._psutil
        yield semconv.HOST_LOAD, {}, psutil.getloadavg()[0]
        yield semconv.HOST_CPUS, {}, psutil.cpu_count() or 1
        yield semconv.HOST_CPU, {}, psutil.cpu_percent() / 100
        yield semconv.HOST_MEMORY, {}, psutil.virtual_memory().available
        pressure = memory_pressure(self._pressure)
        if pressure is not None:
            yield semconv.HOST_MEMORY_PRESSURE, {}, pressure
        yield from self._disks(now_s)
        yield from self._network()

    def _disks(self, now_s: float) -> Iterator[Reading]:
        disks = self._psutil.disk_io_counters(perdisk=True) or {}
        direction = str(semconv.DISK_DIRECTION)
        for name, field in (("read", "read_bytes"), ("write", "write_bytes")):
            total = sum(getattr(disk, field) for disk in disks.values())
            yield semconv.HOST_DISK_IO, {direction: name}, total
        busy_ms = {name: getattr(disk, "busy_time", 0) for name, disk in disks.items()}
        before, self._busy_ms = self._busy_ms, busy_ms
        before_s, self._busy_at_s = self._busy_at_s, now_s
        if before_s is not None and now_s > before_s and busy_ms:
            spent_ms = max(ms - before.get(name, ms) for name, ms in busy_ms.items())
            yield semconv.HOST_DISK_BUSY, {}, min(1.0, max(0, spent_ms) / 1e3 / (now_s - before_s))

    def _network(self) -> Iterator[Reading]:
        by_name = self._psutil.net_io_counters(pernic=True) or {}
        interfaces = [each for name, each in by_name.items() if name != "lo"]
        direction = str(semconv.NETWORK_DIRECTION)
        for name, of_bytes, of_errors in (
            ("transmit", "bytes_sent", ("errout", "dropout")),
            ("receive", "bytes_recv", ("errin", "dropin")),
        ):
            total = sum(getattr(each, of_bytes) for each in interfaces)
            yield semconv.HOST_NETWORK_IO, {direction: name}, total
            errors = sum(getattr(each, field) for each in interfaces for field in of_errors)
            yield semconv.HOST_NETWORK_ERRORS, {direction: name}, errors


def memory_pressure(path: Path) -> float | None:
    """Part of the last 10 s in which some task waited for memory; None where the kernel does not
    say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in path.read_text().splitlines():
            kind, average = line.split()[:2]
            if kind == "some":
                return float(average.removeprefix("avg10=")) / 100
    return None


def finds_dcgm(processes: Path = Path("/proc")) -> bool:
    """Whether NVIDIA's DCGM runs on this host, as far as this process sees it."""
    for name in processes.glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if name.read_text().strip() in _DCGM:
                return True
    return False
