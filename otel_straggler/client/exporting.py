"""Which exporter sends: the one in C++ where it can, else the one in Python."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from otel_straggler.client.active import FORM, WHY_PYTHON
from otel_straggler.client.python_export import PythonExport
from otel_straggler.client.topology import Topology
from otel_straggler.config import ClientSettings
from otel_straggler.otlp.clients.addresses import why_not_native
from otel_straggler.otlp.ids import SpanIds
from otel_straggler.semconv import Outcome

if TYPE_CHECKING:
    from otel_straggler.client.sdk_feed import SdkSink

_LOG = logging.getLogger("otel_straggler")


class Export(Protocol):
    """Sends what is recorded, and signs of life, until it is stopped."""

    @property
    def is_scorer(self) -> bool:
        """Whether the other side gets all spans."""

    @property
    def queued_requests(self) -> int:
        """Encoded requests that have not been taken by the other side yet."""

    def start(self) -> None:
        """Begin to send; recording has begun when it was made."""

    def flush(self, timeout_s: float, outcome: Outcome | None = None) -> bool:
        """Wait until everything is sent, for ``timeout_s`` at most; whether it was in time. With
        an outcome, say also that the rank has ended."""

    def stop(self, timeout_s: float) -> None:
        """Send no longer; wait so long for what is under way."""


def export_for(
    settings: ClientSettings,
    *,
    topology: Callable[[], Topology],
    other_losses: Callable[[], dict[str, int]],
    sdk: SdkSink | None,
    span_ids: SpanIds,
) -> Export:
    """The exporter for these settings; says in the log which one and why.

    Args:
        settings: what ``configure()`` decided.
        topology: what is known of the rank now.
        other_losses: counts from outside, by reason.
        sdk: gets the records too.
        span_ids: by number.
    """
    reason = WHY_PYTHON or why_python(settings)
    _LOG.info(
        "sections are recorded by the %s recorder and sent by the %s exporter%s",
        FORM,
        "python" if reason else "native",
        reason and f": {reason}",
    )
    if not reason:
        from otel_straggler.client.native_export import NativeExport

        return NativeExport(
            settings, topology=topology, other_losses=other_losses, span_ids=span_ids
        )
    return PythonExport(
        settings,
        topology=topology,
        other_losses=other_losses,
        sdk=sdk,
        span_ids=span_ids,
    )


def why_python(settings: ClientSettings) -> str:
    """Why these settings need the exporter in Python; empty if they do not."""
    if settings.tracer_provider is not None:
        return "an SDK's provider gets spans too"
    return why_not_native(settings.traces) or why_not_native(settings.metrics)
