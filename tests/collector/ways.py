"""The ways in which a request can come: three encodings, each plain and gzipped, one answer."""

from __future__ import annotations

import base64
import gzip
import http.client
import json
from dataclasses import dataclass
from typing import Any, Literal

import grpc
from google.protobuf.json_format import MessageToDict
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from otel_straggler import semconv

REQUESTS: dict[str, Any] = {
    "traces": ExportTraceServiceRequest,
    "metrics": ExportMetricsServiceRequest,
}
_METHODS = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}
_IDS = ("traceId", "spanId", "parentSpanId")
_HTTP = {200: "ok", 400: "malformed", 413: "too large", 429: "limited", 503: "later"}
_GRPC = {
    grpc.StatusCode.INVALID_ARGUMENT: "malformed",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "too large",
    grpc.StatusCode.UNAVAILABLE: "later",
}
_RETRY_INFO = "google.rpc.retryinfo-bin"


@dataclass(frozen=True)
class Outcome:
    """What the sender learns. "later" and "limited" are sent again."""

    what: str
    rejected: int = 0
    message: str = ""
    is_scorer: bool = True


@dataclass(frozen=True)
class Way:
    """One way of sending."""

    transport: Literal["http", "grpc"]
    form: Literal["protobuf", "json"]
    zipped: bool

    def __str__(self) -> str:
        return f"{self.transport} {self.form}" + (", gzip" if self.zipped else "")

    @property
    def content_type(self) -> str:
        return "application/json" if self.form == "json" else "application/x-protobuf"

    def content(self, body: bytes, signal: str = "traces") -> bytes:
        """A request that is given as protobuf, in the encoding of this way."""
        return as_otlp_json(body, signal) if self.form == "json" else body

    def send(self, live: Any, body: bytes, signal: str = "traces") -> Outcome:
        """Send a request that is given as protobuf."""
        return self.send_content(live, self.content(body, signal), signal)

    def send_content(self, live: Any, content: bytes, signal: str = "traces") -> Outcome:
        """Send any bytes as the content of a request."""
        return self.send_packed(live, gzip.compress(content) if self.zipped else content, signal)

    def send_packed(self, live: Any, packed: bytes, signal: str = "traces") -> Outcome:
        """Send any bytes; where the way is gzipped they should be gzip."""
        if self.transport == "grpc":
            return self._call(live.addresses["otlp_grpc"], packed, signal)
        return self._post(live.addresses["otlp_http"], packed, signal)

    def _post(self, address: str, packed: bytes, signal: str) -> Outcome:
        host, _, port = address.rpartition(":")
        headers = {"Content-Type": self.content_type}
        if self.zipped:
            headers["Content-Encoding"] = "gzip"
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        try:
            connection.request("POST", f"/v1/{signal}", packed, headers)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        assert response.headers["Content-Type"] == self.content_type
        reported = self._reported(body, signal) if response.status == 200 else self._refused(body)
        is_scorer = response.headers[semconv.SCORER_HEADER] == semconv.WIRE_VERSION
        return Outcome(_HTTP[response.status], *reported, is_scorer)

    def _call(self, address: str, packed: bytes, signal: str) -> Outcome:
        with grpc.insecure_channel(address) as channel:
            call = channel.unary_unary(_METHODS[signal])
            try:
                body, done = call.with_call(packed, timeout=30)
            except grpc.RpcError as error:
                says_when = _RETRY_INFO in dict(error.trailing_metadata() or ())
                is_limited = says_when and error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                what = "limited" if is_limited else _GRPC[error.code()]
                return Outcome(what, 0, error.details())
        headers = dict(done.initial_metadata())
        is_scorer = headers.get(semconv.SCORER_HEADER) == semconv.WIRE_VERSION
        return Outcome("ok", *self._reported(body, signal), is_scorer)

    def _reported(self, body: bytes, signal: str) -> tuple[int, str]:
        """Rejected items and message of an export response."""
        if self.form == "json":
            partial = json.loads(body).get("partialSuccess", {})
            rejected = partial.get("rejectedSpans") or partial.get("rejectedDataPoints") or 0
            return int(rejected), partial.get("errorMessage", "")
        if signal == "metrics":
            metrics = ExportMetricsServiceResponse.FromString(body).partial_success
            return metrics.rejected_data_points, metrics.error_message
        spans = ExportTraceServiceResponse.FromString(body).partial_success
        return spans.rejected_spans, spans.error_message

    def _refused(self, body: bytes) -> tuple[int, str]:
        """The message of a ``google.rpc.Status``."""
        if self.form == "json":
            status = json.loads(body)
            assert status["code"] > 0
            return 0, status["message"]
        message = Status.FromString(body)
        assert message.code > 0
        return 0, message.message


WAYS = [
    Way(transport, form, zipped)
    for transport, form in (("http", "protobuf"), ("http", "json"), ("grpc", "protobuf"))
    for zipped in (False, True)
]


def as_otlp_json(body: bytes, signal: str = "traces") -> bytes:
    """A request in the dialect of OTLP: protobuf's JSON, but with hex ids and integer enums."""
    document = MessageToDict(REQUESTS[signal].FromString(body), use_integers_for_enums=True)
    for resource_spans in document.get("resourceSpans", ()):
        for scope_spans in resource_spans.get("scopeSpans", ()):
            for span in scope_spans.get("spans", ()):
                for key in _IDS:
                    if key in span:
                        span[key] = base64.b64decode(span[key]).hex().upper()
    return json.dumps(document).encode()
