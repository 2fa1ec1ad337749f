"""NVML through ``nvidia-ml-py``: the sensors of this rank's own GPU.

Asked are cheap signals only, in few calls: lists of processes, fans and PCIe throughput take
milliseconds and hold a lock of the driver. What a GPU does not support is not asked for again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from otel_straggler import semconv

_T = TypeVar("_T")
_SM, _MEMORY = 1, 2
_GPU_TEMPERATURE = 0
_POWER_AVERAGE, _POWER_INSTANT, _ENERGY, _MEMORY_TEMPERATURE = 185, 186, 83, 82
_THROTTLE_FIELDS = {"power": 74, "thermal": 75, "sync_boost": 76, "board": 77, "reliability": 79}
_VIOLATIONS = {"power": 0, "thermal": 1, "sync_boost": 2, "board": 3, "reliability": 5}
"""The same counters on GPUs that do not have them as fields."""
_HEALTH_FIELDS = dict(zip(semconv.GPU_ERRORS, (3, 4, 142, 143, 144, 145, 94), strict=True))
_READ_FIELDS = (
    *_THROTTLE_FIELDS.values(),
    _POWER_INSTANT,
    _POWER_AVERAGE,
    _ENERGY,
    _MEMORY_TEMPERATURE,
)
_NO_ANSWER = frozenset({2, 3, 6, 13, 21, 25, 29})
"""Codes that say "not this signal": invalid argument, not supported, not found, no such function,
no data, other version, invalid state."""
_TIMEOUT = 10
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
    """Values that change from second to second. None or absent: not supported by this GPU.

    Attributes:
        at_ns: monotonic time.
        throttle_reasons: bits of NVML's clocks event reasons, at this moment.
        throttled_ns, energy_j: since the driver was loaded; the first by reason.
        power_w: an average over a second on GPUs that have no other.
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


class SensorsGoneError(Exception):
    """There is nothing to read, now and later. The message says why and what to do."""


class NvmlSensors:
    """The GPU with this UUID. Where a method raises, none is to be called again.

    Args:
        uuid: as PyTorch or NVML says it, with or without prefix.

    Raises:
        SensorsGoneError: there is no NVML, or no such GPU.
    """

    def __init__(self, uuid: str) -> None:
        self._nvml = _module()
        self._process = os.getpid()
        self._unsupported: set[object] = set()
        self._is_open = False
        self._ask("nvmlInit")
        self._is_open = True
        try:
            self.uuid, self._handle = self._find(uuid)
        except SensorsGoneError:
            self.close()
            raise

    def identity(self) -> GpuIdentity:
        nvml, handle = self._nvml, self._handle
        model = self._try("model", lambda: nvml.nvmlDeviceGetName(handle))
        pci = self._try("pci", lambda: nvml.nvmlDeviceGetPciInfo(handle))
        return GpuIdentity(
            uuid=self.uuid, model=_text(model), pci_id="" if pci is None else _text(pci.busId)
        )

    def reading(self, now_ns: int) -> GpuReading:
        nvml, handle = self._nvml, self._handle
        result = self._fields(_READ_FIELDS)
        power_mw = result.get(_POWER_INSTANT, result.get(_POWER_AVERAGE))
        if power_mw is None:
            power_mw = self._try("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        energy_mj = result.get(_ENERGY)
        if energy_mj is None:
            energy_mj = self._try(
                "energy", lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
            )
        return GpuReading(
            at_ns=now_ns,
            throttle_reasons=self._reasons(),
            throttled_ns=self._throttled(result),
            sm_clock_hz=self._clock(_SM),
            memory_clock_hz=self._clock(_MEMORY),
            power_w=None if power_mw is None else power_mw / 1e3,
            energy_j=None if energy_mj is None else energy_mj / 1e3,
            temperature_c=self._try(
                "temperature", lambda: int(nvml.nvmlDeviceGetTemperature(handle, _GPU_TEMPERATURE))
            ),
            memory_temperature_c=_whole(result.get(_MEMORY_TEMPERATURE)),
        )

    def errors(self) -> dict[str, int]:
        """Running totals of faults, by one of ``semconv.GPU_ERRORS``; absent: not known."""
        result = self._fields(tuple(_HEALTH_FIELDS.values()))
        return {name: int(result[at]) for name, at in _HEALTH_FIELDS.items() if at in result}

    def close(self) -> None:
        """NVML counts who has begun it. Nothing in a child."""
        if not self._is_open or os.getpid() != self._process:
            return
        self._is_open = False
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _clock(self, which: int) -> int | None:
        clock = self._nvml.nvmlDeviceGetClockInfo
        mhz = self._try(("clock", which), lambda: clock(self._handle, which))
        return None if mhz is None else int(mhz) * 1_000_000

    def _reasons(self) -> int | None:
        for what in ("Event", "Throttle"):  # the older name of the same
            name = f"nvmlDeviceGetCurrentClocks{what}Reasons"
            if ask := getattr(self._nvml, name, None):
                result = self._try(name, lambda ask=ask: int(ask(self._handle)))  # type: ignore[misc]
                if result is not None:
                    return int(result)
        return None

    def _throttled(self, result: dict[int, float]) -> dict[str, int]:
        counters: dict[str, int] = {}
        for reason, number in _THROTTLE_FIELDS.items():
            nanoseconds: float | None = result.get(number)
            if nanoseconds is None:
                nanoseconds = self._violation(reason)
            if nanoseconds is not None:
                counters[reason] = int(nanoseconds)
        return counters

    def _violation(self, reason: str) -> int | None:
        ask = self._nvml.nvmlDeviceGetViolationStatus
        policy = _VIOLATIONS[reason]
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

    def _ask(self, name: str) -> None:
        try:
            getattr(self._nvml, name)()
        except self._nvml.NVMLError as error:
            raise _gone(name, error) from error


def _module() -> Any:
    try:
        import pynvml
    except ImportError:
        raise SensorsGoneError(
            "nvidia-ml-py is not installed; pip install 'otel-straggler[gpu]' reads the GPU's "
            "clocks, power and throttling"
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


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _text(value: Any) -> str:
    """NVML's texts are bytes in some versions of the binding."""
    if value is None:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
