"""Measuring waits for one session: put into torch once that is loaded, and taken out at its end."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from otel_straggler.client.collectives.backward import replace_backward
from otel_straggler.client.collectives.calls import (
    FUNCTIONAL,
    replace_broadcast,
    replace_wait_tensor,
    replace_work_wait,
)
from otel_straggler.client.collectives.ddp_logger import replace_pre_forward
from otel_straggler.client.collectives.replacing import Restorable
from otel_straggler.client.collectives.waits import Waits
from otel_straggler.client.imports import ImportWatch

_LOG = logging.getLogger("otel_straggler")


@dataclass(frozen=True, slots=True)
class Source:
    """A place where torch waits.

    Attributes:
        module: what has to be imported before it can be replaced.
        name: of the waits, for people.
        replace: replaces it, or raises.
    """

    module: str
    name: str
    replace: Callable[[Waits], Restorable]


SOURCES = (
    Source("torch", "at the end of backward() (DDP, FSDP)", replace_backward),
    Source("torch", "in collectives called from Python", replace_work_wait),
    Source("torch", "for buffers that DDP broadcasts in forward()", replace_broadcast),
    Source(FUNCTIONAL, "in functional collectives (DTensor)", replace_wait_tensor),
)
TIMERS = (
    Source("torch", "for gradients of models on GPUs (DDP's own timers)", replace_pre_forward),
)
"""These send spans of their own, of times on the GPU, which an application's provider does not get.
"""


class CollectiveWaits:
    """Measures waits from ``start()`` to ``close()``. Torch is never imported from here."""

    def __init__(self, sources: tuple[Source, ...] = (*SOURCES, *TIMERS)) -> None:
        self._waits = Waits()
        self._lock = threading.Lock()  # torch may be imported in another thread
        self._replaced: list[Restorable] = []
        self._watches = [
            ImportWatch(source.module, lambda source=source: self._install(source))  # type: ignore[misc]
            for source in sources
        ]

    def start(self) -> None:
        for watch in self._watches:
            watch.start()

    def close(self) -> None:
        """Leave torch as it was. What others have wrapped meanwhile stays, and does nothing."""
        self._waits.is_on = False
        for watch in self._watches:
            watch.stop()
        with self._lock:
            while self._replaced:
                self._replaced.pop().restore()

    def leave_to_parent(self) -> None:
        """In a forked child, which records nothing: as if we had never been here."""
        self._lock = threading.Lock()  # a thread of the parent may hold it
        self.close()

    def _install(self, source: Source) -> None:
        with self._lock:
            if not self._waits.is_on or not _has_collectives():
                return
            try:
                self._replaced.append(source.replace(self._waits))
            except Exception as error:  # noqa: BLE001  an unknown version of torch
                _LOG.warning(
                    "waiting %s is not measured with this torch and counts as work (%s: %s)",
                    source.name,
                    type(error).__name__,
                    error,
                )


def _has_collectives() -> bool:
    """Whether torch was built with ``torch.distributed``."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    return distributed is not None and bool(distributed.is_available())
