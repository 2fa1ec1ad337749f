"""A collector that answers at once and counts spans when asked, in a process of its own.

Requests are kept as they came and parsed only for ``GET /spans``, so that nothing is parsed while
a measurement runs on the same cores.
"""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_ANSWER = b"HTTP/1.1 200 OK\r\notel-straggler-scorer: 1\r\nContent-Length: %d\r\n\r\n%s"


class _Spans:
    """Counts what was received; keeps bodies only until they are requested."""

    def __init__(self) -> None:
        self._bodies: list[bytes] = []
        self._counted = 0

    def keep(self, body: bytes) -> None:
        self._bodies.append(body)

    def count(self) -> int:
        for body in self._bodies:
            plain = gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
            for resource in ExportTraceServiceRequest.FromString(plain).resource_spans:
                self._counted += sum(len(scope.spans) for scope in resource.scope_spans)
        self._bodies.clear()
        return self._counted


class _Connection(asyncio.Protocol):
    """Requests with a length or in chunks, one after the other."""

    def __init__(self, spans: _Spans) -> None:
        import httptools

        self._spans = spans
        self._parser = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self._path = b""
        self._parts: list[bytes] = []

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._path, self._parts = b"", []

    def on_url(self, piece: bytes) -> None:
        self._path += piece

    def on_body(self, piece: bytes) -> None:
        self._parts.append(piece)

    def on_message_complete(self) -> None:
        text = b""
        if self._path == b"/spans":
            text = b"%d" % self._spans.count()
        elif self._path.endswith(b"/v1/traces"):
            self._spans.keep(b"".join(self._parts))
        self._transport.write(_ANSWER % (len(text), text))


async def _serve() -> None:
    spans = _Spans()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(spans), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    print(f"http://{host}:{port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    import uvloop

    uvloop.run(_serve())
