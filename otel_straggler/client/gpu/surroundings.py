"""The state of CUDA in this process, read without touching it.

torch is looked at only if the user's program has imported it. Nothing here initialises CUDA: a
context of ours would take memory of the GPU, and break workers that are forked later.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from otel_straggler.client.gpu.reasons import Refusal


class Surroundings:
    """Torch and CUDA in this process."""

    def why_not_yet(self) -> Refusal | None:
        """Why no tier can be tried now; None: the GPU is in use."""
        torch = sys.modules.get("torch")
        cuda: Any = getattr(torch, "cuda", None)
        if cuda is None:  # or torch is being imported at this moment, by another thread
            return Refusal("no_torch")
        if not getattr(getattr(torch, "version", None), "cuda", None):
            return Refusal("no_cuda")
        is_initialized = getattr(cuda, "is_initialized", None)
        if is_initialized is None or not is_initialized():
            return Refusal("cuda_unused")
        return None

    def cupti_folder(self) -> str:
        """Of torch's wheels; empty: there is none."""
        version = getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None)
        return cupti_folder_of(str(version or ""))

    def driver_path(self) -> str:
        return "libcuda.so.1"

    def device(self) -> int | None:
        """The device that this thread uses; None: CUDA is not in use."""
        if self.why_not_yet() is not None:
            return None
        return int(sys.modules["torch"].cuda.current_device())

    def current_stream(self) -> Callable[[int], int] | None:
        """The calling thread's stream by device, if torch has such a function."""
        result: Any = getattr(sys.modules.get("torch"), "_C", None)
        return getattr(result, "_cuda_getCurrentRawStream", None)

    def synchronize(self, device: int) -> None:
        sys.modules["torch"].cuda.synchronize(device)


def cupti_folder_of(cuda: str) -> str:
    """Folder of libcupti among NVIDIA's wheels for this version of CUDA, which torch loads it from;
    empty: there is none. Nothing is loaded."""
    major = cuda.partition(".")[0]
    inner = "cuda_cupti" if major in {"11", "12"} else f"cu{major}"
    for folder in sys.path:
        result = Path(folder or ".", "nvidia", inner, "lib")
        if major and result.is_dir():
            return str(result)
    return ""


class GpuIdentity(NamedTuple):
    """Which GPU it is; empty = not known. The UUID has its prefix, ``GPU-`` or ``MIG-``."""

    uuid: str
    model: str
    pci_id: str


def own_gpu() -> GpuIdentity | None:
    """The device that the process computes on; None where CUDA is not in use (yet), or after a
    fork. Cost: below a microsecond until CUDA is in use, then some."""
    torch = sys.modules.get("torch")
    cuda: Any = getattr(torch, "cuda", None)
    try:
        if cuda is None or not cuda.is_initialized() or cuda._is_in_bad_fork():  # noqa: SLF001
            return None
        result = cuda.get_device_properties(_device(cuda))
    except (
        AttributeError,
        RuntimeError,
        AssertionError,
    ):  # half imported, or a device that is lost
        return None
    uuid = str(getattr(result, "uuid", ""))
    prefixed = uuid if not uuid or uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    return GpuIdentity(uuid=prefixed, model=str(result.name), pci_id=_pci_id(result))


def _device(cuda: Any) -> int:
    """The device with most memory of the process: which one is current is known in the training
    thread only."""
    count, reserved = int(cuda.device_count()), getattr(cuda, "memory_reserved", None)
    if count > 1 and reserved is not None:
        return max(range(count), key=reserved)
    return int(cuda.current_device())


def pci_id_of_driver(uuid: str) -> str:
    """By NVML; empty without ``nvidia-ml-py``, or where NVML does not know it. Some 10 ms."""
    try:
        import pynvml
    except ImportError:
        return ""
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())
            pci_id = pynvml.nvmlDeviceGetPciInfo(handle).busId
            return pci_id.decode() if isinstance(pci_id, bytes) else str(pci_id)
        finally:
            pynvml.nvmlShutdown()
    return ""


def _pci_id(result: Any) -> str:
    """As NVML writes it; empty for a PyTorch that does not say."""
    domain, bus, device = (
        getattr(result, f"pci_{part}_id", None) for part in ("domain", "bus", "device")
    )
    if not (isinstance(domain, int) and isinstance(bus, int) and isinstance(device, int)):
        return ""
    return f"{domain:08X}:{bus:02X}:{device:02X}.0"
