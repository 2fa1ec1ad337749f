"""The smallest receivers that one can write on the same libraries, to compare with.

    python -m benchmarks.ingest.receivers discard|parse|read http|grpc

``discard`` only answers; ``parse`` parses each request with upb and throws it away; ``read`` also
reads the fields that scoring needs. The first line printed is the address.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.harness import upb

Take = Callable[[bytes], object]


TAKES: dict[str, Take] = {
    "discard": len,
    "parse": upb.parse,
    "read": upb.parse_and_read,
}


class _Connection(asyncio.Protocol):
    def __init__(self, take: Take) -> None:
        import httptools

        self._take = take
        self._parser = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self._parts: list[bytes] = []

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._parts = []

    def on_body(self, piece: bytes) -> None:
        self._parts.append(piece)

    def on_message_complete(self) -> None:
        self._take(b"".join(self._parts))
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


async def _serve_http(take: Take) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(take), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    print(f"{host}:{port}", flush=True)
    await asyncio.Event().wait()


def _serve_grpc(take: Take) -> None:
    import grpc

    def export(body: bytes, context: object) -> bytes:
        del context
        take(body)
        return b""

    handler = grpc.method_handlers_generic_handler(
        "opentelemetry.proto.collector.trace.v1.TraceService",
        {"Export": grpc.unary_unary_rpc_method_handler(export)},
    )
    server = grpc.server(ThreadPoolExecutor(4), handlers=[handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"127.0.0.1:{port}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    if sys.argv[2] == "grpc":
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        _serve_grpc(TAKES[sys.argv[1]])
    else:
        import uvloop

        uvloop.run(_serve_http(TAKES[sys.argv[1]]))
