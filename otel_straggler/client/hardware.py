"""Sends what the GPU of this rank says, and what its host says: from one rank of each host.

A thread of its own, as a driver in trouble may not answer for seconds. It takes at most
:data:`MAX_SHARE` of a CPU: where a reading costs more, the next one comes later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from otel_straggler import semconv
from otel_straggler.client import sender
from otel_straggler.client.gpu.nvml import NvmlSensors, Reading, SensorsGoneError
from otel_straggler.client.host import HostSensors, finds_dcgm
from otel_straggler.client.topology import RankContext
from otel_straggler.client.worker import THREAD_NAME, LogOnce, Worker
from otel_straggler.otlp.clients.client import client_for
from otel_straggler.otlp.encode_metrics import encode_numbers

INTERVAL_S = 10.0
MAX_SHARE = 0.001
"""Of a CPU's time."""
_SPREAD = 0.618
"""Part of an interval between the first readings of neighboring ranks: not all at once."""
_STOP_S = 0.5
_LOG = logging.getLogger("otel_straggler")


class _Host(Protocol):
    def read(self, now_s: float) -> Iterator[Reading]: ...


class HardwareReports:
    """Of one session. Where something cannot be read, one line says why, and the rest goes on.

    Args:
        gpu, host: make the sensors; tests give their own.
        has_dcgm: GPUs that DCGM reads are not read twice.
    """

    def __init__(
        self,
        rank: RankContext,
        *,
        gpu: Callable[[str], NvmlSensors] = NvmlSensors,
        host: Callable[[], _Host] = HostSensors,
        has_dcgm: Callable[[], bool] = finds_dcgm,
    ) -> None:
        self._rank = rank
        self._settings = rank.settings
        self._make_gpu, self._make_host, self._has_dcgm = gpu, host, has_dcgm
        self._gpu: NvmlSensors | None = None
        self._host: _Host | None = None
        self._needs_gpu = True
        self._needs_host = rank.settings.local_rank in (-1, 0)
        self._started_at_s = rank.clock.wall_ns() / 1e9
        self._client: Any = None
        self._is_first = True
        log_error = LogOnce("sensors of this host could not be read; training goes on")
        self._worker = Worker(self.tick, log_error, f"{THREAD_NAME}-hardware")

    def start(self) -> None:
        self._client = client_for(self._settings.metrics, "metrics")
        self._worker.start()

    def stop(self, timeout_s: float = _STOP_S) -> None:
        if self._worker.stop(timeout_s):
            self._close_gpu()
            self._client.close()

    def leave_to_parent(self) -> None:
        """In a forked child: there is no thread, and NVML is the parent's."""
        self._gpu, self._needs_gpu, self._needs_host = None, False, False

    def tick(self, now_s: float) -> float:
        """Read and send once; when to do so again. The first time is an interval after the start:
        training begins without us."""
        if self._is_first:
            self._is_first = False
            return now_s + INTERVAL_S * (1.0 + _SPREAD * self._settings.rank % 1.0)
        began_s = time.thread_time()
        uuid = self._rank.topology().gpu_uuid
        readings = [*self._of_gpu(uuid), *self._of_host(now_s)]
        if readings:
            body = encode_numbers(
                readings,
                resource=self._rank.resource(),
                now_s=self._rank.clock.wall_ns() / 1e9,
                started_at_s=self._started_at_s,
            )
            sender.post_metrics(self._client, self._settings, body, INTERVAL_S / 2)
        return now_s + max(INTERVAL_S, (time.thread_time() - began_s) / MAX_SHARE)

    def _of_gpu(self, uuid: str) -> list[Reading]:
        if not self._needs_gpu or not uuid:
            return []
        try:
            if self._gpu is None:
                if self._has_dcgm():
                    _LOG.info("DCGM runs on this host: GPU sensors are left to it")
                    self._needs_gpu = False
                    return []
                self._gpu = self._make_gpu(uuid)
            who = {str(semconv.GPU_UUID): self._gpu.uuid, str(semconv.HW_TYPE): "gpu"}
            return [(metric, {**who, **own}, value) for metric, own, value in self._gpu.read()]
        except SensorsGoneError as error:
            _LOG.info("no sensors of the GPU: %s", error)
            self._needs_gpu = False
            self._close_gpu()
            return []

    def _of_host(self, now_s: float) -> list[Reading]:
        if not self._needs_host:
            return []
        try:
            if self._host is None:
                self._host = self._make_host()
            return list(self._host.read(now_s))
        except SensorsGoneError as error:
            _LOG.info("no sensors of the host: %s", error)
            self._needs_host = False
            return []

    def _close_gpu(self) -> None:
        gpu, self._gpu = self._gpu, None
        if gpu is not None:
            gpu.close()
