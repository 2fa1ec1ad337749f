"""Which GPU this rank computes on, from PyTorch, without ever initialising CUDA."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from otel_straggler.record.description import Topology
from otel_straggler.record.gpu.nvml_signals import GpuIdentity, SensorsGoneError


def own_gpu() -> GpuIdentity | None:
    """The device that the process computes on; None where CUDA is not in use (yet), or after a
    fork.

    Cost: below a microsecond until CUDA is in use, then some.
    """
    torch = sys.modules.get("torch")
    cuda: Any = getattr(torch, "cuda", None)
    try:
        if cuda is None or not cuda.is_initialized() or cuda._is_in_bad_fork():  # noqa: SLF001
            return None
        found = cuda.get_device_properties(_device(cuda))
    except (
        AttributeError,
        RuntimeError,
        AssertionError,
    ):  # half imported, or a device that is lost
        return None
    uuid = str(getattr(found, "uuid", ""))
    prefixed = uuid if not uuid or uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    return GpuIdentity(uuid=prefixed, model=str(found.name), pci_id=_pci_id(found))


def _device(cuda: Any) -> int:
    """The device on which the process holds most memory. Which one is current is known in the
    thread that trains only, and this is asked in another."""
    count, reserved = int(cuda.device_count()), getattr(cuda, "memory_reserved", None)
    if count > 1 and reserved is not None:
        return max(range(count), key=reserved)
    return int(cuda.current_device())


def gpu_of_driver(uuid: str) -> GpuIdentity | None:
    """By NVML; None without ``nvidia-ml-py``, or where NVML does not know it. Some 10 ms."""
    from otel_straggler.record.gpu.nvml import NvmlSensors

    try:
        sensors = NvmlSensors(uuid)
    except SensorsGoneError:
        return None
    try:
        return sensors.identity()
    except SensorsGoneError:
        return None
    finally:
        sensors.close()


class GpuDescription:
    """Adds the GPU to what is known of the rank, once it can be known.

    Args:
        ask_driver: for what PyTorch does not tell, by UUID; once, and it may find nothing.
    """

    def __init__(self, ask_driver: Callable[[str], GpuIdentity | None] | None = None) -> None:
        self._ask_driver = ask_driver or gpu_of_driver
        self._known: Topology | None = None

    def add_to(self, told: Topology) -> Topology:
        """``told`` with the GPU; what the user has told goes first."""
        if self._known is None and (gpu := own_gpu()) is not None:
            told_too = self._ask_driver(gpu.uuid) if gpu.uuid and not gpu.pci_id else None
            pci_id = gpu.pci_id if told_too is None else told_too.pci_id
            self._known = Topology(gpu_uuid=gpu.uuid, gpu_model=gpu.model, gpu_pci_id=pci_id)
        return told if self._known is None else self._known.merged(told)


def _pci_id(found: Any) -> str:
    """As NVML writes it; empty for a PyTorch that does not tell."""
    domain, bus, device = (
        getattr(found, f"pci_{part}_id", None) for part in ("domain", "bus", "device")
    )
    if not (isinstance(domain, int) and isinstance(bus, int) and isinstance(device, int)):
        return ""
    return f"{domain:08X}:{bus:02X}:{device:02X}.0"
