"""Reads the sensors of a GPU at their pace, and keeps what a window wants to know."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from otel_straggler import semconv
from otel_straggler.record.gpu.nvml_signals import (
    GpuHealth,
    GpuIdentity,
    GpuReading,
    GpuSensors,
    SensorsGoneError,
)
from otel_straggler.semconv import Metric

READ_EVERY_NS = 1_000_000_000
HEALTH_EVERY_NS = 30_000_000_000
_KEPT = 600
"""Readings: ten minutes."""
_XID_WAIT_MS = 1_000
_LOG = logging.getLogger("otel_straggler")
Point = tuple[Metric, Mapping[str, str], float]
"""A metric, the attributes of the point, its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttling:
    """How much of a window the GPU was held back.

    Attributes:
        window_ns: between the readings that were compared.
        throttled_ns: of that, by reason; reasons may overlap.
    """

    window_ns: int
    throttled_ns: Mapping[str, int]


class GpuWatch:
    """One GPU, for one process. Call :meth:`tick` as often as is convenient.

    It asks at most once a second, and for what changes rarely every 30 s. What goes wrong is logged
    once, with its remedy; then nothing is asked any more. In a forked child it is silent.

    Args:
        open_sensors: opens them; called at the first tick.
        offset_ns: by which its readings are later, so that the ranks of a node do not ask at once.
    """

    def __init__(self, open_sensors: Callable[[], GpuSensors], offset_ns: int = 0) -> None:
        self._open = open_sensors
        self._offset_ns = offset_ns % READ_EVERY_NS
        self._process = os.getpid()
        self._sensors: GpuSensors | None = None
        self._readings: deque[GpuReading] = deque(maxlen=_KEPT)
        self._first_ns: int | None = None
        self._health_due_ns = 0
        self._xids: Counter[int] = Counter()
        self._xid_thread: threading.Thread | None = None
        self._lock = threading.Lock()  # one tick, or one end, at a time
        self.is_gone = False
        self.identity: GpuIdentity | None = None
        self.health: GpuHealth | None = None

    @property
    def latest(self) -> GpuReading | None:
        """The newest reading."""
        return self._readings[-1] if self._readings else None

    def tick(self, now_ns: int) -> None:
        """Read what is due."""
        if self.is_gone or os.getpid() != self._process:
            return
        if self._first_ns is None:
            self._first_ns = now_ns + self._offset_ns
        newest = self.latest
        due_ns = self._first_ns if newest is None else newest.at_ns + READ_EVERY_NS
        if now_ns < due_ns:
            return
        with self._lock:
            try:
                self._read(now_ns)
            except SensorsGoneError as error:
                self._give_up(error)

    def watch_xids(self) -> None:
        """Wait for critical errors in a thread of its own, from after the first reading on."""
        if self._sensors is None or self._xid_thread is not None:
            return
        self._xid_thread = threading.Thread(
            target=self._count_xids, name="otel-stragg-xid", daemon=True
        )
        self._xid_thread.start()

    def xids(self) -> dict[int, int]:
        """Critical errors so far, by number."""
        return dict(self._xids)

    def throttling(self, since_ns: int) -> Throttling | None:
        """Between the last reading not after ``since_ns``, else the oldest, and the newest.
        None before two readings, or where the GPU does not count."""
        readings = list(self._readings)
        if len(readings) < 2:
            return None
        early = next((r for r in reversed(readings) if r.at_ns <= since_ns), readings[0])
        late = readings[-1]
        both = early.throttled_ns.keys() & late.throttled_ns.keys()
        if late.at_ns <= early.at_ns or not both:
            return None
        grown = {r: max(0, late.throttled_ns[r] - early.throttled_ns[r]) for r in sorted(both)}
        return Throttling(window_ns=late.at_ns - early.at_ns, throttled_ns=grown)

    def points(self) -> list[Point]:
        """The newest of everything as metrics of :mod:`otel_straggler.semconv`."""
        if self.identity is None or self.latest is None:
            return []
        who = {str(semconv.GPU_UUID): self.identity.uuid, str(semconv.HW_TYPE): "gpu"}
        return [(metric, {**who, **more}, value) for metric, more, value in self._bare_points()]

    def close(self) -> None:
        """Stop, and give NVML back."""
        self.is_gone = True
        if os.getpid() != self._process:
            return
        if self._xid_thread is not None:
            self._xid_thread.join(2 * _XID_WAIT_MS / 1e3)
        with self._lock:
            if self._sensors is not None:
                self._sensors.close()
                self._sensors = None

    def _read(self, now_ns: int) -> None:
        if self._sensors is None:
            self._sensors = self._open()
            self.identity = self._sensors.identity()
        self._readings.append(self._sensors.reading(now_ns))
        if now_ns >= self._health_due_ns:
            self.health = self._sensors.health(now_ns)
            self._health_due_ns = now_ns + HEALTH_EVERY_NS

    def _give_up(self, error: SensorsGoneError) -> None:
        if self.is_gone:
            return
        self.is_gone = True
        _LOG.warning("the GPU's sensors are not read any more: %s", error)

    def _count_xids(self) -> None:
        while not self.is_gone and (sensors := self._sensors) is not None:
            try:
                xid = sensors.next_xid(_XID_WAIT_MS)
            except SensorsGoneError as error:
                self._give_up(error)
                return
            if xid is not None:
                self._xids[xid] += 1
                _LOG.warning("the GPU reports XID %d: see NVIDIA's list of Xid errors", xid)

    def _bare_points(self) -> list[Point]:
        now, health = self.latest, self.health
        assert now is not None
        sensor = str(semconv.HW_SENSOR)
        gauges: list[tuple[Metric, Mapping[str, str], float | None]] = [
            (semconv.GPU_CLOCK, {sensor: "sm"}, now.sm_clock_hz),
            (semconv.GPU_CLOCK, {sensor: "memory"}, now.memory_clock_hz),
            (semconv.HW_POWER, {}, now.power_w),
            (semconv.HW_ENERGY, {}, now.energy_j),
            (semconv.HW_TEMPERATURE, {sensor: "gpu"}, now.temperature_c),
            (semconv.HW_TEMPERATURE, {sensor: "memory"}, now.memory_temperature_c),
        ]
        gauges += [
            (semconv.GPU_THROTTLED, {str(semconv.REASON): reason}, spent_ns / 1e9)
            for reason, spent_ns in now.throttled_ns.items()
        ]
        kind = str(semconv.ERROR_TYPE)
        counted = dict(health.errors) if health is not None else {}
        gauges += [(semconv.HW_ERRORS, {kind: name}, n) for name, n in counted.items()]
        gauges += [(semconv.HW_ERRORS, {kind: f"xid_{x}"}, n) for x, n in self.xids().items()]
        return [(metric, more, value) for metric, more, value in gauges if value is not None]
