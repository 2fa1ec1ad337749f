"""What a tier is to whoever switches it on and off."""

from __future__ import annotations

from typing import Any, Protocol

from otel_straggler.record.gpu.reasons import Refusal
from otel_straggler.semconv import GpuTier


class Timer(Protocol):
    """Times sections on the GPU, between ``start()`` and ``stop()``, again and again."""

    tier: GpuTier

    @property
    def native(self) -> Any:
        """The object in C++ that recorder and exporter use; None until it was prepared."""

    @property
    def about(self) -> str:
        """What it works with, for a log."""

    def prepare(self) -> Refusal | None:
        """Load what is needed; nothing is switched on. Why it cannot be had, or None."""

    def start(self) -> Refusal | None:
        """Set everything up from scratch, once prepared; why it cannot be had, or None: it
        works."""

    def stop(self, deadline_ns: int) -> None:
        """Give back what was taken; wait for what is under way until ``deadline_ns``
        (monotonic)."""

    def flush(self) -> None:
        """Take what the GPU has ended."""

    def end(self) -> None:
        """End the threads; it is stopped, and is not started again."""

    def trouble(self) -> Refusal | None:
        """Why it must not go on, though it works; None: it is well."""

    def counts(self) -> dict[str, int]:
        """By name; empty until it was prepared."""
