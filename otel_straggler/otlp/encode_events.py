"""Events to OTLP log records: few, so upb's classes do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.logs.v1 import logs_pb2 as pb
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_straggler import semconv
from otel_straggler._version import __version__
from otel_straggler.otlp.encode_metrics import Attributes, key_values
from otel_straggler.semconv import AttributeValue

_SCOPE: Final = InstrumentationScope(name=semconv.SCOPE_NAME, version=__version__)
_HAS_NAME: Final = "event_name" in pb.LogRecord.DESCRIPTOR.fields_by_name
"""opentelemetry-proto has the field since 1.29; before, the name is an attribute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """A named event with a sentence. ``is_warning``: severity WARN, else INFO; ``trace_id`` and
    ``span_id``, 16 and 8 bytes, of the span that it belongs to, empty for none."""

    name: str
    at_unix_s: float
    text: str
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    is_warning: bool = False
    trace_id: bytes = b""
    span_id: bytes = b""


def encode_event(event: EventRecord, *, resource: Attributes) -> bytes:
    """One event as a request of log records."""
    at_ns = int(event.at_unix_s * 1e9)
    record = pb.LogRecord(
        time_unix_nano=at_ns,
        observed_time_unix_nano=at_ns,
        severity_number=pb.SEVERITY_NUMBER_WARN if event.is_warning else pb.SEVERITY_NUMBER_INFO,
        severity_text="WARN" if event.is_warning else "INFO",
        body=AnyValue(string_value=event.text),
        attributes=key_values(event.attributes),
        trace_id=event.trace_id,
        span_id=event.span_id,
    )
    if _HAS_NAME:
        record.event_name = event.name
    else:
        record.attributes.extend(key_values({semconv.EVENT_NAME: event.name}))
    request = ExportLogsServiceRequest(
        resource_logs=[
            pb.ResourceLogs(
                resource=Resource(attributes=key_values(resource)),
                scope_logs=[
                    pb.ScopeLogs(scope=_SCOPE, log_records=[record], schema_url=semconv.SCHEMA_URL)
                ],
                schema_url=semconv.SCHEMA_URL,
            )
        ]
    )
    encoded: bytes = request.SerializeToString()
    return encoded
