"""The last numbers before a process ends, without waiting for a GPU that hangs."""

from __future__ import annotations

import logging
import time

from otel_straggler.record.gpu.surroundings import Surroundings
from otel_straggler.record.gpu.thread import TierThread
from otel_straggler.record.gpu.timer import Timer

_LOG = logging.getLogger("otel_straggler")


def settle(
    timer: Timer,
    thread: TierThread,
    surroundings: Surroundings,
    timeout_s: float,
    *,
    is_well: bool,
) -> bool:
    """Take what the GPU has ended, in ``thread``.

    Args:
        is_well: the process ends in order: wait until the GPU has ended all that was launched.

    Returns:
        Whether it has, and all of it was taken, within ``timeout_s``.
    """
    device = surroundings.device() if is_well else None  # a setting of this thread, not of that
    waited: list[bool] = []

    def take() -> None:
        if device is not None:
            surroundings.synchronize(device)
        timer.flush()
        timer.flush()  # what was full before the first one may come with the second
        waited.append(device is not None)

    deadline_s = time.monotonic() + timeout_s
    if thread.do(take, timeout_s):
        return bool(waited and waited[0])
    if is_well and time.monotonic() >= deadline_s:
        _LOG.warning(
            "the GPU has not ended its work within %.1f s; its last times are missing", timeout_s
        )
    return False
