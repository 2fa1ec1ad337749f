"""gRPC over HTTP/2: the head of a call, the frame around a message, statuses and trailers."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import quote

from otel_straggler import semconv
from otel_straggler.collector.ingest import codings
from otel_straggler.otlp.answers import Code, Signal

Headers: TypeAlias = list[tuple[str, str]]

METHODS: Final[dict[str, Signal]] = {
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export": "traces",
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export": "metrics",
    "/opentelemetry.proto.collector.logs.v1.LogsService/Export": "logs",
}
PREFIX_BYTES: Final = 5
"""Before a message: whether it is compressed, and its length."""
_CODINGS: Final = ("identity", "gzip", "zstd", "snappy", "deflate")
"""Values of grpc-encoding."""
_PLAIN: Final = " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that ends with a status instead of a message."""

    code: Code
    message: str
    retry_after_s: int | None = None


def accepted_codings() -> str:
    return ",".join(name for name in _CODINGS if codings.is_installed(codings.OF_NAME[name]))


def coding_of(headers: Mapping[str, str]) -> str | Refusal:
    """How messages of a call are compressed."""
    name = headers.get("grpc-encoding", "identity").strip().lower()
    if name not in _CODINGS:
        text = f"grpc-encoding {name[:40]!r} is not read; send one of {accepted_codings()}"
        return Refusal(Code.UNIMPLEMENTED, text)
    coding = codings.OF_NAME[name]
    if not codings.is_installed(coding):
        return Refusal(Code.UNIMPLEMENTED, codings.missing(coding))
    return coding


def problem_of_head(headers: Mapping[str, str]) -> Refusal | None:
    """Why a call is none of OTLP."""
    if headers.get(":path") not in METHODS:
        return Refusal(Code.UNIMPLEMENTED, f"no such method; there are {', '.join(METHODS)}")
    is_grpc = headers.get("content-type", "").startswith("application/grpc")
    if headers.get(":method") != "POST" or not is_grpc:
        return Refusal(Code.UNIMPLEMENTED, "a call is a POST of application/grpc")
    return None


def initial_headers() -> Headers:
    return [
        (":status", "200"),
        ("content-type", "application/grpc"),
        (semconv.SCORER_HEADER, semconv.WIRE_VERSION),
        ("grpc-accept-encoding", accepted_codings()),
    ]


def framed(message: bytes) -> bytes:
    """A message without compression.

    >>> framed(b"ab")
    b'\\x00\\x00\\x00\\x00\\x02ab'
    """
    return b"\0" + len(message).to_bytes(4, "big") + message


def trailers_of(refusal: Refusal) -> Headers:
    """Status and message; where the call may come again, RetryInfo, too: in the status, as OTLP
    has it, and where gRPC and Python's SDK look."""
    trailers = [
        ("grpc-status", str(int(refusal.code))),
        ("grpc-message", quote(refusal.message[:1024], safe=_PLAIN)),
    ]
    if refusal.retry_after_s is None:
        return trailers
    from google.protobuf.duration_pb2 import Duration
    from google.rpc.error_details_pb2 import RetryInfo
    from google.rpc.status_pb2 import Status

    retry = RetryInfo(retry_delay=Duration(seconds=refusal.retry_after_s))
    status = Status(code=int(refusal.code), message=refusal.message)
    status.details.add().Pack(retry)
    return [
        *trailers,
        ("grpc-status-details-bin", _binary(status.SerializeToString())),
        ("google.rpc.retryinfo-bin", _binary(retry.SerializeToString())),
        ("grpc-retry-pushback-ms", str(refusal.retry_after_s * 1000)),
    ]


def _binary(value: bytes) -> str:
    return base64.b64encode(value).decode().rstrip("=")
