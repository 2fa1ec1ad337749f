"""Section histograms on their way to an endpoint that is no scorer, beside the exporter in C++."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from otel_straggler.config import ClientSettings
from otel_straggler.export.sender import PROTOBUF
from otel_straggler.record.clock import Clock
from otel_straggler.record.description import Topology
from otel_straggler.record.heartbeats import HeartbeatMaker
from otel_straggler.record.histograms import SectionHistograms
from otel_straggler.record.recorder import Record, Recorder
from otel_straggler.transport.client import client_for, encoded_body


class HistogramExport:
    """Counts records and sends the counts now and then; a request that fails is not repeated, the
    next one holds the same counts and more.

    Args:
        settings: identity, endpoint and interval.
        recorder: knows the session.
        clock: time.
        topology: what is known of the rank now.
    """

    def __init__(
        self,
        settings: ClientSettings,
        recorder: Recorder,
        clock: Clock,
        topology: Callable[[], Topology],
    ) -> None:
        self._settings = settings
        self._histograms = SectionHistograms()
        self._maker = HeartbeatMaker(settings, recorder, clock, topology, dict)
        self._client = client_for(settings.metrics, "metrics")
        self._next_s = clock.monotonic_s() + settings.histogram_s

    def add(self, records: Sequence[Record]) -> None:
        """Count ``records``."""
        self._histograms.add(records)

    def send_if_due(self, now_s: float) -> None:
        """Send what is counted if ``now_s`` (monotonic) is the time for it."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + self._settings.histogram_s
        endpoint = self._settings.metrics
        body, encoding = encoded_body(endpoint, self._maker.histograms(self._histograms))
        self._client.post(
            body,
            content_type=PROTOBUF,
            content_encoding=encoding,
            timeout_s=self._settings.heartbeat_s,
        )
