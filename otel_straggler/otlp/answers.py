"""Answers of a receiver: export responses, and ``google.rpc.Status`` for refusals."""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Literal

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from otel_straggler.otlp.encode_spans import submessage

_MAX_MESSAGE = 300
Signal = Literal["traces", "metrics", "logs"]
SIGNALS: tuple[Signal, ...] = ("traces", "metrics", "logs")
_REJECTED_KEY = {
    "traces": "rejectedSpans",
    "metrics": "rejectedDataPoints",
    "logs": "rejectedLogRecords",
}


class Code(IntEnum):
    """The codes of ``google.rpc`` that a receiver uses."""

    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


def success(signal: Signal, rejected: int, message: str, *, is_json: bool) -> bytes:
    """The export response; a partial success if anything was rejected or there is a message.

    >>> success("traces", 0, "", is_json=True)
    b'{}'
    """
    if not rejected and not message:
        return b"{}" if is_json else b""
    if is_json:
        partial = {_REJECTED_KEY[signal]: str(rejected), "errorMessage": message}
        return json.dumps({"partialSuccess": partial}).encode()
    # The three responses have the same layout.
    response = ExportTraceServiceResponse(
        partial_success=ExportTracePartialSuccess(rejected_spans=rejected, error_message=message)
    )
    encoded: bytes = response.SerializeToString()
    return encoded


def status(code: Code, message: str, *, is_json: bool) -> bytes:
    """A ``google.rpc.Status``.

    >>> status(Code.INVALID_ARGUMENT, "no", is_json=False)
    b'\\x08\\x03\\x12\\x02no'
    """
    if is_json:
        return json.dumps({"code": int(code), "message": message}).encode()
    text = message.encode("utf-8", "replace")[:4096]
    return b"\x08" + bytes([code]) + submessage(2, text)


def message_of(body: bytes) -> str:
    """The message of a ``google.rpc.Status`` on one line; empty if a body has none.

    >>> message_of(status(Code.RESOURCE_EXHAUSTED, "come later", is_json=False))
    'come later'
    >>> message_of(b"<html>busy</html>")
    ''
    """
    try:
        # The beginning of both messages has the same layout.
        text = ExportTracePartialSuccess.FromString(body).error_message
    except DecodeError:  # a proxy's page
        return ""
    return "".join(c if c.isprintable() else " " for c in text[:_MAX_MESSAGE])
