"""How long a heartbeat waits for its answer while clients send large gzipped bodies.

    python -m benchmarks.heavy_bodies [--clients 4] [--seconds 6] [--only REGEX]

The real command in a process of its own. One connection sends a rank's heartbeat every 10 ms and
measures how long each answer takes; so it shows how long the collector's event loop was held.
Meanwhile ``--clients`` connections send one large body after the other, each as soon as the last
is answered:

- ``alone``: no other clients;
- ``spans``: spans of a simulated run, 8 MiB of them, gzipped;
- ``repeats``: the same bytes again and again, 60 MiB, which gzip makes a thousand times smaller:
  the largest that the collector inflates. They are no OTLP, and refused as such.

``cpu_ms_per_body`` is the collector's processor time, of all threads, with the heartbeats'. Prints
JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import re
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.harness.about import about
from benchmarks.harness.budgets import print_result
from benchmarks.harness.processes import cpu_ns, serving
from otel_straggler import semconv
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.encode_metrics import encode_heartbeat
from otel_straggler.simulate.scenarios import Plan, simulate
from otel_straggler.simulate.writers import encode_requests

FREE = "127.0.0.1:0"
SPANS_BYTES, REPEATS_BYTES = 8 << 20, 60 << 20
EVERY_S = 0.01
WARM_UP_S = 0.5
Json = dict[str, Any]


def main() -> None:
    """Measure and print."""
    options = _options()
    wanted = {name: make() for name, make in CASES.items() if re.search(options.only, name)}
    print_result(
        {
            **about("httptools", "uvloop"),
            "clients": options.clients,
            "wire_bytes": {name: len(body) for name, body in wanted.items()},
            "found": {name: _measure(body, options) for name, body in wanted.items()},
        },
        {},
    )


def _options() -> argparse.Namespace:
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each case")
    parser.add_argument("--only", default="", help="cases whose name it is found in")
    return parser.parse_args()


def _spans() -> bytes:
    """One body of spans of all ranks."""
    batch = simulate("one_slow_rank", Plan(run_id="heavy", ranks=16, steps=400, slow_rank=3)).batch
    content = b""
    for body in encode_requests(batch, 512):
        if len(content) + len(body) > SPANS_BYTES:
            break
        content += body  # messages in a row are one message
    return gzip.compress(content, 6)


CASES: dict[str, Callable[[], bytes]] = {
    "alone": bytes,
    "spans": _spans,
    "repeats": lambda: gzip.compress(bytes(REPEATS_BYTES)),
}


def _measure(body: bytes, options: argparse.Namespace) -> Json:
    command = [sys.executable, "-m", "otel_straggler.cli", "collector"]
    command += ["--otlp-http", FREE, "--otlp-grpc", FREE, "--metrics", FREE]
    with serving(command) as (line, pid):
        address = json.loads(line)["otlp_http"]
        list(_waits(address, WARM_UP_S))  # it loads and learns what it needs
        ended, counts = threading.Event(), [0] * options.clients
        clients = [
            threading.Thread(target=_send, args=(address, body, ended, counts, at))
            for at in range(options.clients if body else 0)
        ]
        before = cpu_ns(pid)
        for client in clients:
            client.start()
        waits_ms = [1e3 * wait_s for wait_s in _waits(address, options.seconds)]
        used_ms = (cpu_ns(pid) - before) / 1e6
        ended.set()
        for client in clients:
            client.join()
    return {
        "heartbeats": len(waits_ms),
        "wait_ms": {
            "median": round(statistics.median(waits_ms), 2),
            "p99": round(sorted(waits_ms)[int(len(waits_ms) * 0.99)], 2),
            "most": round(max(waits_ms), 2),
        },
        "bodies": sum(counts),
        "cpu_ms_per_body": round(used_ms / sum(counts), 1) if sum(counts) else None,
    }


def _waits(address: str, for_s: float) -> Iterator[float]:
    """Seconds that each heartbeat waited."""
    until_s = time.monotonic() + for_s
    with _connected(address) as connection:
        while (began_s := time.monotonic()) < until_s:
            _ask(connection, _framed("metrics", _heartbeat(), ""))
            took_s = time.monotonic() - began_s
            yield took_s
            time.sleep(max(0.0, EVERY_S - took_s))


def _heartbeat() -> bytes:
    beat = Heartbeat(source=Source(run_id="beats", rank=0), sent_at_s=time.time())
    resource = {semconv.RUN_ID: "beats", semconv.RANK: 0}
    return encode_heartbeat(beat, resource=resource, info={}, started_at_s=1.0)


def _send(
    address: str, body: bytes, ended: threading.Event, counts: list[int], number: int
) -> None:
    request = _framed("traces", body, "Content-Encoding: gzip\r\n")
    while not ended.is_set():
        with _connected(address) as connection, contextlib.suppress(OSError):
            while not ended.is_set():
                if b"503" not in _ask(connection, request).partition(b"\r\n")[0]:
                    counts[number] += 1


@contextlib.contextmanager
def _connected(address: str) -> Iterator[socket.socket]:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        yield connection


def _framed(signal: str, body: bytes, further: str) -> bytes:
    head = (
        f"POST /v1/{signal} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
        f"{further}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _ask(connection: socket.socket, request: bytes) -> bytes:
    connection.sendall(request)
    answer = connection.recv(4096)
    if not answer:
        raise ConnectionError("the collector has closed the connection")
    return answer


if __name__ == "__main__":
    main()
