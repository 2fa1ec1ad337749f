"""What a receiver built on protobuf's own parser (upb) would do with a trace request."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

parse = ExportTraceServiceRequest.FromString


def parse_and_read(body: bytes) -> list[tuple[Any, ...]]:
    """With the fields that any scorer needs of a span."""
    return [
        (
            span.name,
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            {a.key: a.value.int_value or a.value.string_value for a in span.attributes},
        )
        for resource in parse(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
