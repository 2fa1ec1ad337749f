"""CPU time that the collector spends per span: receive, decode and score, all its threads.

    python -m benchmarks.collector_ingest

Requests of 512 spans, OTLP/HTTP protobuf, uncompressed and gzipped, over 4 kept connections, to
the real command in a process of its own; then the same with forwarding (all requests, and sampled)
to a receiver that throws them away, and with two receiver processes, whose CPU time counts too.
Beside it, in the same run and with the same requests: the smallest receiver one can write on the
same HTTP parser and event loop, which parses each request with upb and throws it away, and one that
also reads the fields that scoring needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
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
    made = [_round(plain, zipped, len(batch)) for _ in range(ROUNDS)]
    rounds, rates = [used for used, _ in made], [rate for _, rate in made]
    best = {name: min(r[name] for r in rounds) for name in rounds[0]}
    result = {
        "spans": len(batch),
        "spans_per_request": SPANS,
        "bytes_per_span": round(sum(map(len, bodies)) / len(batch)),
        "rounds": ROUNDS,
        "cpu_us_per_span": {name: round(value, 3) for name, value in best.items()},
        "ratio_to_upb_parse_alone": round(best["collector"] / best["upb_parse"], 2),
        "ratio_to_upb_parse_and_read": round(best["collector"] / best["upb_parse_and_read"], 2),
        "us_per_span_of_forwarding": {
            mode: round(best[f"collector_forward_{mode}"] - best["collector"], 3)
            for mode in ("all", "sampled")
        },
        "spans_per_second": {name: round(max(r[name] for r in rates)) for name in rates[0]},
        "budget_us": BUDGET_US,
        "is_within_budget": best["collector_forward_all"] <= BUDGET_US,
    }
    print(json.dumps(result, indent=2))


_Figures = dict[str, float]


def _round(plain: list[bytes], zipped: list[bytes], spans: int) -> tuple[_Figures, _Figures]:
    """CPU time per span of each receiver, in microseconds; spans per second of the collectors."""
    peer = [sys.executable, "-m", "benchmarks.collector_ingest"]
    used: _Figures = {}
    rate: _Figures = {}
    stages: dict[str, tuple[list[bytes], list[str]]] = {
        "collector": (plain, []),
        "collector_gzip": (zipped, []),
        "collector_forward_all": (plain, ["--forward-mode", "all"]),
        "collector_forward_sampled": (plain, ["--forward-mode", "sampled"]),
        "collector_2_receivers": (plain, ["--receivers", "2"]),
    }
    for name, (requests, flags) in stages.items():
        if "--forward-mode" in flags:
            with _serving([*peer, "discard"]) as (address, _):
                further = [*flags, "--forward", f"http://{address}"]
                took = _collector(requests, spans, further)
        else:
            took = _collector(requests, spans, flags)
        used[name], used[f"{name}_scoring_process"], rate[name] = took
    used["upb_parse"] = _peer([*peer, "parse"], plain, spans)
    used["upb_parse_and_read"] = _peer([*peer, "read"], plain, spans)
    return used, rate


def _collector(requests: list[bytes], spans: int, further: list[str]) -> tuple[float, float, float]:
    """Microseconds of CPU per span, of all its processes and of the one that scores; spans per
    second until all is scored."""
    flags = ["--otlp-http", FREE, "--otlp-grpc", FREE, "--metrics", FREE, *further]
    command = [sys.executable, "-m", "otel_straggler.cli", "collector", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        addresses = json.loads(server.stdout.readline())
        pids = [server.pid, *_children(server.pid)]
        before, began_s = [_cpu_s(pid) for pid in pids], time.monotonic()
        _send_all(addresses["otlp_http"], requests)
        _wait_until_done(addresses["metrics"])
        took_s = time.monotonic() - began_s
        used = [_cpu_s(pid) - then for pid, then in zip(pids, before, strict=True)]
        server.terminate()
    return sum(used) / spans * 1e6, used[0] / spans * 1e6, spans / took_s


def _children(pid: int) -> list[int]:
    """Those that any of its threads has started."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for of_thread in lists for child in of_thread.read_text().split()]


@contextlib.contextmanager
def _serving(command: list[str]) -> Iterator[tuple[str, int]]:
    """A peer's address and process id."""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        yield server.stdout.readline().decode().strip(), server.pid
        server.terminate()


def _peer(command: list[str], requests: list[bytes], spans: int) -> float:
    with _serving(command) as (address, pid):
        before_s = _cpu_s(pid)
        _send_all(address, requests)
        used_s = _cpu_s(pid) - before_s
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


_WAITING = (
    "straggler_collector_queue_bytes{",
    "straggler_collector_forward_queue_bytes{",
)


def _wait_until_done(address: str) -> None:
    """Until nothing waits to be scored or sent; the last window, and its spans, may stay open."""
    while True:
        with urllib.request.urlopen(f"http://{address}/metrics") as page:
            lines = page.read().decode().splitlines()
        waiting = [float(x.rpartition(" ")[2]) for x in lines if x.startswith(_WAITING)]
        if not any(waiting):
            return
        time.sleep(0.05)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- the peers -----------------------------------------------------------------------------------


class _Receiver(asyncio.Protocol):
    """Parses each request with upb, unless it ``discards`` them; ``reads`` says whether it looks at
    the spans."""

    reads = False
    discards = False

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

        if not self.discards:
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
        _Receiver.discards = sys.argv[1] == "discard"
        uvloop.run(_serve_peer())
    else:
        main()
