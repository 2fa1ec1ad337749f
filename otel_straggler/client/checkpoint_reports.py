"""Sends what the saves and loads of this rank have cost: after each, and every 30 s from then on,
since the collector drops what is not repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from otel_straggler import semconv
from otel_straggler.client import sender
from otel_straggler.client.topology import RankContext
from otel_straggler.client.worker import THREAD_NAME, LogOnce, Worker
from otel_straggler.otlp.clients.client import client_for
from otel_straggler.otlp.encode_metrics import encode_numbers

if TYPE_CHECKING:
    from otel_straggler.client.checkpoints import CheckpointTotals

INTERVAL_S: Final = 30.0
_TIMEOUT_S: Final = 5.0


class CheckpointReports:
    """Of one session; its thread begins with the first save or load."""

    def __init__(self, rank: RankContext, totals: CheckpointTotals) -> None:
        self._rank = rank
        self._settings = rank.settings
        self._totals = totals
        self._started_at_s = rank.clock.wall_ns() / 1e9
        self._client: Any = None
        self._worker: Worker | None = None
        self._is_closed = False

    def wake(self) -> None:
        """The totals have changed: send them now. From any thread."""
        if self._is_closed:
            return
        if self._worker is None:
            log_error = LogOnce("the cost of checkpoints was not sent; training goes on")
            self._client = client_for(self._settings.metrics, "metrics")
            self._worker = Worker(self.tick, log_error, f"{THREAD_NAME}-checkpoints")
            self._worker.start()
        else:
            self._worker.wake()

    def stop(self, timeout_s: float) -> None:
        """Send what the last save has cost, within ``timeout_s``."""
        self._is_closed = True
        worker, self._worker = self._worker, None
        if worker is None:
            return
        if timeout_s > 0.0:
            worker.do(self._send, timeout_s)
        if worker.stop(timeout_s):
            self._client.close()

    def leave_to_parent(self) -> None:
        """In a forked child: there is no thread."""
        self._is_closed, self._worker = True, None

    def tick(self, now_s: float) -> float:
        """Send once; when to do so again."""
        self._send()
        return now_s + INTERVAL_S

    def _send(self) -> None:
        body = encode_numbers(
            [(metric, {}, value) for metric, value in numbers_of(self._totals).items()],
            resource=self._rank.resource(),
            now_s=self._rank.clock.wall_ns() / 1e9,
            started_at_s=self._started_at_s,
        )
        sender.post_metrics(self._client, self._settings, body, _TIMEOUT_S)


def numbers_of(totals: CheckpointTotals) -> dict[semconv.Metric, float]:
    """Without those that are unknown."""
    numbers: dict[semconv.Metric, float] = {
        semconv.CHECKPOINT_SAVES: totals.saves,
        semconv.CHECKPOINT_SAVE_TIME: totals.save_s,
        semconv.CHECKPOINT_WRITE_TIME: totals.write_s,
        semconv.CHECKPOINT_BLOCKING_TIME: totals.blocking_s,
        semconv.CHECKPOINT_SIZE: totals.size_bytes,
        semconv.CHECKPOINT_LOAD_TIME: totals.load_s,
    }
    if totals.step is not None:
        numbers[semconv.CHECKPOINT_STEP] = totals.step
    if totals.interval_s > 0.0:
        numbers[semconv.CHECKPOINT_INTERVAL] = totals.interval_s
        numbers[semconv.CHECKPOINT_MTBF] = totals.mtbf_s
    return numbers
