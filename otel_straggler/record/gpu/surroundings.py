"""What this process has done with CUDA so far, without doing anything with it.

torch is looked at only if the user's program has imported it. Nothing here initialises CUDA: a
context that we made would take memory of the GPU, and break workers that are forked later.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from otel_straggler.record.gpu.reasons import Refusal


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
        """Where torch's wheels have their libcupti; empty: there is none."""
        version = str(getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", ""))
        major = version.partition(".")[0]
        inner = "cuda_cupti" if major in {"11", "12"} else f"cu{major}"
        for folder in sys.path:
            found = Path(folder or ".", "nvidia", inner, "lib")
            if found.is_dir():
                return str(found)
        return ""

    def driver_path(self) -> str:
        """By which name the loader knows the driver."""
        return "libcuda.so.1"

    def device(self) -> int | None:
        """The device that this thread uses; None: CUDA is not in use."""
        if self.why_not_yet() is not None:
            return None
        return int(sys.modules["torch"].cuda.current_device())

    def current_stream(self) -> Callable[[int], int] | None:
        """Tells the stream that the calling thread launches on, by device; None: nobody does."""
        found: Any = getattr(sys.modules.get("torch"), "_C", None)
        return getattr(found, "_cuda_getCurrentRawStream", None)

    def synchronize(self, device: int) -> None:
        """Wait until the device has ended all that was launched."""
        sys.modules["torch"].cuda.synchronize(device)
