"""``configure()`` and ``shutdown()``: from instrument through record to export, in one process."""

from otel_straggler.client.session.process import (
    configure,
    current,
    flush,
    gpu_timing,
    set_gpu_timing,
    shutdown,
)
from otel_straggler.client.session.session import Session

__all__ = [
    "Session",
    "configure",
    "current",
    "flush",
    "gpu_timing",
    "set_gpu_timing",
    "shutdown",
]
