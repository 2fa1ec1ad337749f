"""The application's TracerProvider as a place where records go; wires the parts of that sink."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from opentelemetry.sdk.trace import TracerProvider

from otel_straggler.config import ClientSettings
from otel_straggler.export.drops import SDK_ERROR, Drops
from otel_straggler.export.sdk import SpanBuilder
from otel_straggler.record.active import WHY_PYTHON
from otel_straggler.record.description import Topology
from otel_straggler.record.exporter_thread import ExporterThread
from otel_straggler.record.recorder import Record
from otel_straggler.record.sdk_feed import SdkFeed
from otel_straggler.record.sdk_traces import SdkTraces
from otel_straggler.wire.ids import SpanIds

if TYPE_CHECKING:
    from otel_straggler.record.propagation import Propagation

THREAD_NAME = "otel-straggler-sdk"
_LOG = logging.getLogger("otel_straggler")


class SdkSink:
    """From records to spans of the application's SDK; see the modules of the parts.

    Args:
        settings: what ``configure()`` decided.
        ids: span ids, shared with the wire.
        topology: what is known of the rank now.

    Raises:
        ConfigError: the provider's tracers are not the SDK's.
    """

    def __init__(
        self, settings: ClientSettings, ids: SpanIds, topology: Callable[[], Topology]
    ) -> None:
        assert isinstance(settings.tracer_provider, TracerProvider)
        self._settings = settings
        self._drops = Drops()
        self._has_logged_error = False
        self._builder = SpanBuilder(settings.tracer_provider, self._note_error)
        self._traces = SdkTraces(settings, self._builder, ids, topology)
        self._propagation: Propagation | None = None
        if settings.propagate_context and not WHY_PYTHON:
            from otel_straggler.record.propagation import Propagation

            self._propagation = Propagation(self._traces, self._note_error)
        elif settings.propagate_context:
            _LOG.warning(
                "propagate_context has no effect: it needs the native part; %s", WHY_PYTHON
            )
        self._thread: ExporterThread | None = None
        self._feed: SdkFeed | None = None
        self._flushed: threading.Event | None = None

    def start(self, generation: int) -> None:
        """Build spans of records of this generation from now on."""
        self._feed = SdkFeed(
            self._builder,
            self._traces,
            generation,
            self._drops,
            flush_s=self._settings.flush_s,
            spends=self._propagation is None,
        )
        self._thread = ExporterThread(self._feed, THREAD_NAME)
        self._thread.start()
        if self._propagation is not None:
            self._propagation.install()

    def put(self, records: Sequence[Record]) -> None:
        """Take records from the exporter thread. Never waits."""
        if self._feed is not None:
            self._feed.put(records)

    def begin_flush(self, deadline_s: float) -> None:
        """Have all that was put built and sent by the application's processors."""
        if self._thread is not None:
            self._flushed = self._thread.begin_flush(deadline_s)

    def wait_for_flush(self, deadline_s: float) -> bool:
        """Whether what ``begin_flush`` began was done by ``deadline_s``."""
        flushed = self._flushed
        return flushed is not None and flushed.wait(max(0.0, deadline_s - time.monotonic()))

    def losses(self) -> dict[str, int]:
        """Records that did not become spans, by reason."""
        return self._drops.counts()

    def stop_propagating(self) -> None:
        if self._propagation is not None:
            self._propagation.uninstall()

    def stop(self, timeout_s: float) -> None:
        """Let the thread end. The provider is the application's and goes on."""
        if self._thread is not None:
            self._thread.stop(timeout_s)

    def leave_to_parent(self) -> None:
        """In a forked child: nothing of the parent's is touched."""
        if self._propagation is not None:
            self._propagation.leave_to_parent()

    def _note_error(self, error: Exception) -> None:
        self._drops.add(SDK_ERROR, 1)
        if not self._has_logged_error:
            self._has_logged_error = True
            _LOG.warning(
                "a span processor or the sampler of the tracer provider raised; the span is lost, "
                "training and tracing go on (further ones are counted, not logged)",
                exc_info=error,
            )
