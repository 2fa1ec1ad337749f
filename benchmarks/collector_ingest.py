"""CPU time that the collector spends per span: receive, decode and score, all its threads.

    python -m benchmarks.collector_ingest

Requests of 512 spans, OTLP/HTTP protobuf, uncompressed and gzipped, over 4 kept connections, to
the real command in a process of its own. Beside it, in the same run and with the same requests: the
smallest receiver one can write on the same HTTP parser and event loop, which parses each request
with upb and throws it away, and one that also reads the fields that scoring needs.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from otel_straggler.simulate.scenarios import Plan, simulate
from otel_straggler.simulate.writers import encode_requests

SPANS = 512
RANKS = 16
STEPS = 2_048
CONNECTIONS = 4
ROUNDS = 3
BUDGET_US = 1.0
FREE = "127.0.0.1:0"


def main() -> None:
    """Measure and print."""
    batch = simulate("one_slow_rank", Plan(ranks=RANKS, steps=STEPS)).batch
    bodies = [b for b in encode_requests(batch, SPANS) if b]
    plain = [_framed(body, "") for body in bodies]
    zipped = [_framed(gzip.compress(body, 1), "Content-Encoding: gzip\r\n") for body in bodies]
    rounds = [_round(plain, zipped, len(batch)) for _ in range(ROUNDS)]
    best = {name: min(r[name] for r in rounds) for name in rounds[0]}
    result = {
        "spans": len(batch),
        "spans_per_request": SPANS,
        "bytes_per_span": round(sum(map(len, bodies)) / len(batch)),
        "rounds": ROUNDS,
        "cpu_us_per_span": {name: round(value, 3) for name, value in best.items()},
        "ratio_to_upb_parse_alone": round(best["collector"] / best["upb_parse"], 2),
        "ratio_to_upb_parse_and_read": round(best["collector"] / best["upb_parse_and_read"], 2),
        "budget_us": BUDGET_US,
        "is_within_budget": best["collector"] <= BUDGET_US,
    }
    print(json.dumps(result, indent=2))


def _round(plain: list[bytes], zipped: list[bytes], spans: int) -> dict[str, float]:
    """CPU time per span of each receiver, in microseconds."""
    peer = [sys.executable, "-m", "benchmarks.collector_ingest"]
    return {
        "collector": _collector(plain, spans),
        "collector_gzip": _collector(zipped, spans),
        "upb_parse": _peer([*peer, "parse"], plain, spans),
        "upb_parse_and_read": _peer([*peer, "read"], plain, spans),
    }


def _collector(requests: list[bytes], spans: int) -> float:
    flags = ["--otlp-http", FREE, "--otlp-grpc", FREE, "--metrics", FREE]
    command = [sys.executable, "-m", "otel_straggler.cli", "collector", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        addresses = json.loads(server.stdout.readline())
        before_s = _cpu_s(server.pid)
        _send_all(addresses["otlp_http"], requests)
        _wait_until_scored(addresses["metrics"])
        used_s = _cpu_s(server.pid) - before_s
        server.terminate()
    return used_s / spans * 1e6


def _peer(command: list[str], requests: list[bytes], spans: int) -> float:
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        address = server.stdout.readline().decode().strip()
        before_s = _cpu_s(server.pid)
        _send_all(address, requests)
        used_s = _cpu_s(server.pid) - before_s
        server.terminate()
    return used_s / spans * 1e6


def _framed(body: bytes, headers: str) -> bytes:
    head = (
        "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"
        f"{headers}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _send_all(address: str, requests: list[bytes]) -> None:
    """Each rank's requests stay in order: rank n sends over connection n mod 4."""
    threads = [
        threading.Thread(target=_send, args=(address, requests[n::CONNECTIONS]))
        for n in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _send(address: str, requests: list[bytes]) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        for request in requests:
            connection.sendall(request)
            answer = connection.recv(4096)
            assert answer.startswith(b"HTTP/1.1 200"), answer


def _wait_until_scored(address: str) -> None:
    """Until nothing waits; the last window may stay open."""
    line = "straggler_collector_queue_bytes{"
    while True:
        with urllib.request.urlopen(f"http://{address}/metrics") as page:
            text = page.read().decode()
        waiting = next(x for x in text.splitlines() if x.startswith(line))
        if float(waiting.rpartition(" ")[2]) == 0:
            return
        time.sleep(0.05)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- the peers -----------------------------------------------------------------------------------


class _Receiver(asyncio.Protocol):
    """Parses each request with upb; ``reads`` says whether it looks at the spans."""

    reads = False

    def connection_made(self, transport: Any) -> None:
        import httptools

        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)

    def on_message_begin(self) -> None:
        self.parts: list[bytes] = []

    def on_body(self, piece: bytes) -> None:
        self.parts.append(piece)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        request = ExportTraceServiceRequest.FromString(b"".join(self.parts))
        if self.reads:
            _read(request)
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


def _read(request: Any) -> list[tuple[Any, ...]]:
    """What any scorer needs of a span."""
    return [
        (
            span.name,
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            {a.key: a.value.int_value or a.value.string_value for a in span.attributes},
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


async def _serve_peer() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Receiver, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    print(f"{host}:{port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        import uvloop

        _Receiver.reads = sys.argv[1] == "read"
        uvloop.run(_serve_peer())
    else:
        main()
