"""Sends an event of this rank, as a log record that belongs to the span of a step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from otel_straggler.client.endpoints import logs_endpoint
from otel_straggler.client.topology import RankContext
from otel_straggler.client.worker import LogOnce
from otel_straggler.otlp.clients.client import client_for, encoded_body
from otel_straggler.otlp.encode_events import EventRecord, encode_event
from otel_straggler.otlp.ids import SpanIds, step_trace_id

_WAIT_S = 2.0
_LOG_ERROR = LogOnce("an event could not be sent; training goes on")


def send_event(
    event: EventRecord,
    context: RankContext,
    span_ids: SpanIds | None,
    step: int | None,
    step_span: int,
) -> None:
    """Send it now and once, for 2 s at most. Never raises.

    Args:
        step, step_span: number and span number of its step; without, it belongs to none.
    """
    endpoint = logs_endpoint(context.settings.metrics)
    if not endpoint.is_enabled:
        return
    try:
        if span_ids is not None and step is not None and step_span:
            event = _linked(event, context, span_ids, step, step_span)
        client = client_for(endpoint, "logs")
        body, encoding = encoded_body(endpoint, encode_event(event, resource=context.resource()))
        response = client.post(
            body,
            content_type="application/x-protobuf",
            content_encoding=encoding,
            timeout_s=min(endpoint.timeout_s, _WAIT_S),
        )
        client.close()
        if not response.is_success:
            raise OSError(response.error or f"HTTP {response.status}")
    except Exception as error:  # noqa: BLE001  telemetry never stops training
        _LOG_ERROR(error)


def _linked(
    event: EventRecord, context: RankContext, span_ids: SpanIds, step: int, step_span: int
) -> EventRecord:
    settings = context.settings
    trace_id = step_trace_id(settings.run_id, settings.attempt, settings.group, step)
    span_id = span_ids.of(np.array([step_span], np.uint64)).tobytes()
    return replace(event, trace_id=trace_id, span_id=span_id)
