"""Export in Python: the exporter, its thread and its share of the records."""

from __future__ import annotations

from collections.abc import Callable

from otel_straggler.config import ClientSettings
from otel_straggler.export.drops import INBOX_FULL
from otel_straggler.record.active import RECORDER
from otel_straggler.record.description import Topology
from otel_straggler.record.exporter_thread import Bystander, Exporter, ExporterThread
from otel_straggler.record.recording import RECORDING, Inbox
from otel_straggler.semconv import Outcome
from otel_straggler.wire.ids import SpanIds


class PythonExport:
    """Begins to record when it is made; see :class:`otel_straggler.record.exporting.Export`."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        topology: Callable[[], Topology],
        other_losses: Callable[[], dict[str, int]],
        bystander: Bystander | None,
        span_ids: SpanIds,
    ) -> None:
        self._other_losses = other_losses
        self._inbox = Inbox(RECORDING)
        self._exporter = Exporter(
            settings,
            RECORDER,
            take=self._inbox.take_batches,
            topology=topology,
            other_losses=self._losses,
            bystander=bystander,
            span_ids=span_ids,
        )
        self._thread = ExporterThread(self._exporter)

    @property
    def is_scorer(self) -> bool:
        return self._exporter.is_scorer

    @property
    def queued_requests(self) -> int:
        return self._exporter.queued_requests

    def start(self) -> None:
        self._thread.start()

    def flush(self, timeout_s: float, outcome: Outcome | None = None) -> bool:
        return self._thread.flush(timeout_s, outcome)

    def stop(self, timeout_s: float) -> None:
        self._thread.stop(timeout_s)
        self._exporter.close()
        self._inbox.close()

    def _losses(self) -> dict[str, int]:
        losses = self._other_losses()
        return {**losses, INBOX_FULL: self._inbox.lost} if self._inbox.lost else losses
