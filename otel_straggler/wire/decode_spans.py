"""OTLP trace requests -> columns that can be scored, and what became of every span.

A bad span never raises: it is counted under its reason, and the others go on.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_straggler import native, semconv
from otel_straggler.errors import InputError
from otel_straggler.wire.decode_json import message_from_json
from otel_straggler.wire.identity import BAD_RANK, NO_RANK, Aliases, Resources
from otel_straggler.wire.native_scan import NativeScan
from otel_straggler.wire.span_fates import (
    BAD_FOLD,
    BAD_ID,
    BAD_TIME,
    DURATION_NOT_POSITIVE,
    ERROR_STATUS,
    EXCLUDED,
    FATES,
    MALFORMED,
    NO_NAME,
    ROW,
    STEP,
    TRUNCATED,
    DecodedSpans,
    Progress,
)
from otel_straggler.wire.span_keys import Keys, section_of
from otel_straggler.wire.span_names import SpanNames
from otel_straggler.wire.span_rows import Rows, mix_ids

__all__ = [
    "BAD_FOLD",
    "BAD_ID",
    "BAD_RANK",
    "BAD_TIME",
    "DURATION_NOT_POSITIVE",
    "ERROR_STATUS",
    "EXCLUDED",
    "FATES",
    "MALFORMED",
    "NO_NAME",
    "NO_RANK",
    "ROW",
    "STEP",
    "TRUNCATED",
    "DecodedSpans",
    "Progress",
    "SpanDecoder",
    "mix_ids",
    "section_of",
]


class SpanDecoder:
    """Decodes trace requests; safe to use from several threads.

    Args:
        aliases, names: what attributes and names of spans mean.
        extension: the extension module; None leaves all to protobuf's parser, with the same result.
    """

    def __init__(
        self,
        aliases: Aliases | None = None,
        names: SpanNames | None = None,
        extension: ModuleType | None = native.NATIVE,
    ) -> None:
        self._keys = Keys.of(aliases or Aliases(), names or SpanNames())
        self._resources = Resources(self._keys.aliases)
        self._native: NativeScan | None = None
        if extension is not None and NativeScan.can_read(self._keys):
            self._native = NativeScan(extension, self._keys, self._resources)

    def decode(self, body: bytes) -> DecodedSpans:
        """Decode binary protobuf.

        Raises:
            InputError: the body is not an ``ExportTraceServiceRequest``.
        """
        try:
            decoded = self._native.decode(body) if self._native is not None else None
            return decoded or self._decode(ExportTraceServiceRequest.FromString(body))
        except DecodeError as error:
            msg = f"body: not an ExportTraceServiceRequest in protobuf: {error}"
            raise InputError(msg) from error

    def decode_json(self, body: bytes) -> DecodedSpans:
        """Decode OTLP-JSON.

        Raises:
            InputError: the body is not an ``ExportTraceServiceRequest``.
        """
        return self._decode(message_from_json(body, ExportTraceServiceRequest))

    def _decode(self, request: Any) -> DecodedSpans:
        rows = Rows(self._keys)
        for resource_spans in request.resource_spans:
            resource = self._resources.read(resource_spans.resource)
            for scope_spans in resource_spans.scope_spans:
                is_own = scope_spans.scope.name == semconv.SCOPE_NAME
                for span in scope_spans.spans:
                    rows.add(span, resource, is_own=is_own)
        return rows.build()
