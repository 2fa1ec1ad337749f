"""NVML through ``nvidia-ml-py``: the sensors of this rank's own GPU.

Only cheap signals are read, in few calls: lists of processes, fans, and PCIe throughput take
milliseconds and hold a lock of the driver. What a GPU does not support is not asked for again.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from otel_straggler import semconv
from otel_straggler.semconv import Metric

_T = TypeVar("_T")
Reading = tuple[Metric, dict[str, str], float]
"""A metric, its attributes except those of the GPU, and a value in its unit."""
_CLOCKS = {"sm": 1, "memory": 2}
_GPU_TEMPERATURE = 0
_POWER_AVERAGE, _POWER_INSTANT, _ENERGY, _MEMORY_TEMPERATURE = 185, 186, 83, 82
_THROTTLE_FIELDS = {"power": 74, "thermal": 75, "sync_boost": 76, "board": 77, "reliability": 79}
_VIOLATIONS = {"power": 0, "thermal": 1, "sync_boost": 2, "board": 3, "reliability": 5}
"""The same counters on GPUs that do not have them as fields."""
_ERROR_FIELDS = dict(
    zip(semconv.GPU_ERRORS, (3, 4, 142, 143, 144, 145, 94, 38, 52, 59), strict=True)
)
_IO_FIELDS = {"transmit": 197, "receive": 198}
_FIELDS = (
    *_THROTTLE_FIELDS.values(),
    *_IO_FIELDS.values(),
    *_ERROR_FIELDS.values(),
    _POWER_INSTANT,
    _POWER_AVERAGE,
    _ENERGY,
    _MEMORY_TEMPERATURE,
)
_NO_ANSWER = frozenset({2, 3, 6, 13, 21, 25, 29})
"""Codes that say "not this signal": invalid argument, not supported, not found, no such function,
no data, other version, invalid state."""
_TIMEOUT, _CRITICAL_XID = 10, 8
_MAX_EVENTS = 100
"""Of one reading."""
_REMEDIES = {
    1: "other code in this process has shut NVML down",
    4: "this user may not read the GPU; give the container the utility capability "
    "(NVIDIA_DRIVER_CAPABILITIES=compute,utility)",
    9: "the NVIDIA driver is not loaded",
    12: "libnvidia-ml.so.1 is missing; give the container the utility capability "
    "(NVIDIA_DRIVER_CAPABILITIES=compute,utility)",
    _TIMEOUT: "the driver did not answer in time; nvidia-smi shows whether it does now",
    15: "the GPU has fallen off the bus; drain the node and reset or replace the GPU",
    16: "the GPU needs a reset; drain the node and run nvidia-smi --gpu-reset",
    18: "driver and NVML library differ, as after an update without a restart; restart the node "
    "or the container",
}


class SensorsGoneError(Exception):
    """There is nothing to read, now and later. The message says why and what to do."""


class NvmlSensors:
    """The GPU with this UUID. Where a method raises, none may be called again.

    Args:
        uuid: as PyTorch or NVML writes it, with or without prefix.

    Raises:
        SensorsGoneError: there is no NVML, or no such GPU.
    """

    def __init__(self, uuid: str) -> None:
        self._nvml = _module()
        self._process = os.getpid()
        self._unsupported: set[object] = set()
        self._xids: Counter[int] = Counter()
        self._is_open = False
        self._call("nvmlInit", self._nvml.nvmlInit)
        self._is_open = True
        try:
            self.uuid, self._handle = self._find(uuid)
            self._events = self._listen()
        except SensorsGoneError:
            self.close()
            raise

    def read(self) -> Iterator[Reading]:
        """What the GPU says now. Cost: some 100 µs, most of it in the driver, without the GIL."""
        fields = self._fields(_FIELDS)
        yield from self._clocks()
        yield from self._power(fields)
        yield from self._temperatures(fields)
        yield from self._load()
        yield from self._link(fields)
        for reason, number in _THROTTLE_FIELDS.items():
            spent_ns = fields.get(number)
            if spent_ns is None:
                spent_ns = self._violation_ns(reason)
            if spent_ns is not None:
                yield semconv.GPU_THROTTLED, {str(semconv.REASON): reason}, spent_ns / 1e9
        kind = str(semconv.ERROR_TYPE)
        for name, number in _ERROR_FIELDS.items():
            if number in fields:
                yield semconv.HW_ERRORS, {kind: name}, fields[number]
        self._count_xids()
        for xid, count in self._xids.items():
            yield semconv.HW_ERRORS, {kind: f"xid_{xid}"}, count

    def close(self) -> None:
        """NVML counts who has begun it. Does nothing in a child."""
        if not self._is_open or os.getpid() != self._process:
            return
        self._is_open = False
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _clocks(self) -> Iterator[Reading]:
        for part, which in _CLOCKS.items():
            mhz = self._clock_mhz(which)
            if mhz is not None:
                yield semconv.GPU_CLOCK, {str(semconv.HW_SENSOR): part}, mhz * 1e6

    def _clock_mhz(self, which: int) -> int | None:
        ask = self._nvml.nvmlDeviceGetClockInfo
        return self._try(("clock", which), lambda: int(ask(self._handle, which)))

    def _power(self, fields: dict[int, float]) -> Iterator[Reading]:
        nvml, handle = self._nvml, self._handle
        power_mw = fields.get(_POWER_INSTANT, fields.get(_POWER_AVERAGE))
        if power_mw is None:
            power_mw = self._try("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        energy_mj = fields.get(_ENERGY)
        if energy_mj is None:
            energy_mj = self._try(
                "energy", lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
            )
        if power_mw is not None:
            yield semconv.HW_POWER, {}, power_mw / 1e3
        if energy_mj is not None:
            yield semconv.HW_ENERGY, {}, energy_mj / 1e3

    def _temperatures(self, fields: dict[int, float]) -> Iterator[Reading]:
        ask = self._nvml.nvmlDeviceGetTemperature
        by_part = {
            "gpu": self._try("temperature", lambda: ask(self._handle, _GPU_TEMPERATURE)),
            "memory": fields.get(_MEMORY_TEMPERATURE) or None,
        }
        for part, celsius in by_part.items():
            if celsius is not None:
                yield semconv.HW_TEMPERATURE, {str(semconv.HW_SENSOR): part}, celsius

    def _load(self) -> Iterator[Reading]:
        nvml, handle = self._nvml, self._handle
        load = self._try("utilization", lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        memory = self._try("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        if load is not None:
            yield semconv.HW_GPU_UTILIZATION, {}, load.gpu / 100
        if memory is not None:
            yield semconv.HW_GPU_MEMORY, {}, memory.used
            yield semconv.HW_GPU_MEMORY_LIMIT, {}, memory.total

    def _link(self, fields: dict[int, float]) -> Iterator[Reading]:
        """To the host."""
        nvml, handle = self._nvml, self._handle
        width = self._try("width", lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle))
        if width is not None:
            yield semconv.GPU_PCIE_WIDTH, {}, width
        for direction, number in _IO_FIELDS.items():
            if number in fields:
                yield semconv.HW_GPU_IO, {str(semconv.NETWORK_DIRECTION): direction}, fields[number]

    def _violation_ns(self, reason: str) -> int | None:
        ask, policy = self._nvml.nvmlDeviceGetViolationStatus, _VIOLATIONS[reason]
        return self._try(
            ("violation", policy), lambda: int(ask(self._handle, policy).violationTime)
        )

    def _fields(self, numbers: Sequence[int]) -> dict[int, float]:
        """Values by field, in one call; fields without one are left out from now on."""
        wanted = [n for n in numbers if n not in self._unsupported]
        if not wanted:
            return {}
        values = self._try(
            "fields", lambda: self._nvml.nvmlDeviceGetFieldValues(self._handle, wanted)
        )
        result = {}
        for value in values if values is not None else ():
            if value.nvmlReturn == 0:
                result[int(value.fieldId)] = _value(value)
            elif value.nvmlReturn in _NO_ANSWER:
                self._unsupported.add(int(value.fieldId))
            else:
                error = self._nvml.NVMLError(value.nvmlReturn)
                raise _gone(f"nvmlDeviceGetFieldValues({value.fieldId})", error)
        return result

    def _listen(self) -> Any:
        """An event set for critical errors (XIDs); None where they cannot be had."""
        nvml = self._nvml
        supported = self._try(
            "events", lambda: int(nvml.nvmlDeviceGetSupportedEventTypes(self._handle))
        )
        if not (supported or 0) & _CRITICAL_XID:
            return None
        events = self._try("event set", nvml.nvmlEventSetCreate)
        if events is None:
            return None
        register = nvml.nvmlDeviceRegisterEvents
        self._try("register", lambda: register(self._handle, _CRITICAL_XID, events))
        return None if "register" in self._unsupported else events

    def _count_xids(self) -> None:
        """Those that have come since the last reading. XIDs of other processes count, too."""
        if self._events is None:
            return
        for _ in range(_MAX_EVENTS):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
            except self._nvml.NVMLError as error:
                if error.value == _TIMEOUT:
                    return
                raise _gone("nvmlEventSetWait_v2", error) from error
            self._xids[int(event.eventData)] += 1

    def _find(self, uuid: str) -> tuple[str, Any]:
        bare = uuid.removeprefix("GPU-").removeprefix("MIG-")
        for name in dict.fromkeys((uuid, f"GPU-{bare}", f"MIG-{bare}")):
            try:
                return name, self._nvml.nvmlDeviceGetHandleByUUID(name.encode())
            except self._nvml.NVMLError as error:
                if error.value not in _NO_ANSWER:
                    raise _gone("nvmlDeviceGetHandleByUUID", error) from error
        raise SensorsGoneError(f"NVML knows no GPU {uuid}; is another driver's library loaded?")

    def _try(self, signal: object, ask: Callable[[], _T]) -> _T | None:
        """None where this GPU has no such signal; it is not asked for again."""
        if signal in self._unsupported:
            return None
        try:
            return ask()
        except self._nvml.NVMLError as error:
            if error.value not in _NO_ANSWER:
                raise _gone(str(signal), error) from error
            self._unsupported.add(signal)
            return None

    def _call(self, name: str, ask: Callable[[], object]) -> None:
        try:
            ask()
        except self._nvml.NVMLError as error:
            raise _gone(name, error) from error


def _module() -> Any:
    try:
        import pynvml
    except ImportError:
        raise SensorsGoneError(
            "nvidia-ml-py is not installed; pip install 'otel-straggler[gpu]' reads the GPU's "
            "clocks, power, and throttling"
        ) from None
    return pynvml


def _gone(what: str, error: Any) -> SensorsGoneError:
    remedy = _REMEDIES.get(error.value, "unexpected; please report it with the driver's version")
    return SensorsGoneError(f"NVML: {what} gave {error.value}: {remedy}")


def _value(field: Any) -> float:
    """By its type: double, or one of the whole ones."""
    names = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
    value = getattr(field.value, names.get(field.valueType, "ullVal"))
    return float(value) if field.valueType == 0 else int(value)
