"""The attacks: what each sends, and how somebody else tries to get in meanwhile.

A row is one `Attack`: a function that sends until it is ended, and a dose. Bodies are built before
the clock runs. Attackers have an address of their own in 127.0.0.0/8, as a machine has.
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import resource
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from benchmarks.hostile.honest_run import PATIENCE_S, PROTOBUF, RUN_ID, ask
from otel_straggler import semconv
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.encode_metrics import encode_heartbeat

MIB = 1024 * 1024
ATTACKER = "127.0.0.2"
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"


@dataclass
class Target:
    """What is attacked, and the answers that an attacker has got, by status."""

    addresses: dict[str, str]
    ended: threading.Event = field(default_factory=threading.Event)
    answers: Counter[str] = field(default_factory=Counter)
    figures: dict[str, float] = field(default_factory=dict)

    def connect(self, name: str, source: str = ATTACKER) -> socket.socket:
        host, _, port = self.addresses[name].rpartition(":")
        return socket.create_connection((host, int(port)), PATIENCE_S, source_address=(source, 0))

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> None:
        """Send one request, and count its answer."""
        host, _, port = self.addresses["otlp_http"].rpartition(":")
        try:
            connection = http.client.HTTPConnection(
                host, int(port), timeout=PATIENCE_S, source_address=(ATTACKER, 0)
            )
            with contextlib.closing(connection):
                connection.request("POST", path, body, headers)
                self.answers[str(connection.getresponse().status)] += 1
        except OSError:
            self.answers["cut off"] += 1

    def post_all(self, requests: list[Any], clients: int = 1, *, is_repeated: bool = True) -> None:
        """Send (path, body, headers) in turn, over several clients at once."""

        def send(first: int) -> None:
            while not self.ended.is_set():
                for request in requests[first::clients] or requests:
                    if self.ended.is_set():
                        return
                    self.post(*request)
                if not is_repeated:
                    return

        senders = [threading.Thread(target=send, args=(at,), daemon=True) for at in range(clients)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()


@dataclass(frozen=True)
class Attack:
    """One row.

    Attributes:
        row: of the list of findings.
        dose: what is sent, for a reader.
        prepare: builds the bodies, from the scale of the dose (1.0: the whole); gives the function
            that sends them until it is ended.
        gets_in: whether somebody else is served meanwhile; None: the heartbeats show it.
    """

    row: str
    dose: str
    prepare: Callable[[float], Callable[[Target], None]]
    gets_in: Callable[[Target], bool] | None = None


# --- bodies ---------------------------------------------------------------------------------------


def spans_of(
    ranks: range, attributes: dict[str, Any], step: int = 0, run_id: str = RUN_ID
) -> bytes:
    """One span of each rank, each with a resource of its own."""
    request = ExportTraceServiceRequest()
    now_ns = time.time_ns()
    for rank in ranks:
        resource_spans = request.resource_spans.add()
        given = {semconv.RUN_ID: run_id, semconv.RANK: rank, **attributes}
        for key, value in given.items():
            pair = resource_spans.resource.attributes.add(key=str(key))
            if isinstance(value, int):
                pair.value.int_value = value
            else:
                pair.value.string_value = value
        span = resource_spans.scope_spans.add().spans.add(
            trace_id=(step + 1).to_bytes(16, "big"), span_id=(rank + 1).to_bytes(8, "big"),
            name="forward", start_time_unix_nano=now_ns, end_time_unix_nano=now_ns + 10**8,
        )  # fmt: skip
        span.attributes.add(key=semconv.STEP).value.int_value = step
    encoded: bytes = request.SerializeToString()
    return encoded


def zipped(body: bytes, content_type: str = PROTOBUF, path: str = "/v1/traces") -> Any:
    headers = {"Content-Type": content_type, "Content-Encoding": "gzip"}
    return path, gzip.compress(body, 6), headers


def beat_of(rank: int, *, ranks: int, run_id: str, **values: Any) -> Any:
    resource = {str(semconv.RUN_ID): run_id, str(semconv.RANK): rank}
    resource[str(semconv.WORLD_SIZE)] = ranks
    source = Source(run_id=run_id, rank=rank, world_size=ranks)
    beat = Heartbeat(source=source, sent_at_s=time.time(), **values)
    body = encode_heartbeat(beat, resource=resource, info={}, started_at_s=1.0)
    return "/v1/metrics", body, {"Content-Type": PROTOBUF}


# --- rows -----------------------------------------------------------------------------------------

Send = Callable[[Target], None]


def huge_attempt(_: float) -> Send:
    requests = [
        zipped(spans_of(range(1), {semconv.RUN_ATTEMPT: 2**63 - 1, semconv.WORLD_SIZE: 4})),
        beat_of(1, ranks=4, run_id=RUN_ID, finished_at_s=time.time(), outcome="ok"),
    ]
    return lambda target: target.post_all(requests, is_repeated=False)


def large_resources(scale: float) -> Send:
    size = int(60 * MIB * scale)
    requests = [zipped(spans_of(range(n, n + 1), {"note": "x" * size})) for n in range(8)]
    return lambda target: target.post_all(requests, clients=4)


def far_step(_: float) -> Send:
    requests = [zipped(spans_of(range(1), {semconv.WORLD_SIZE: 4}, step=10**9))]
    return lambda target: target.post_all(requests, is_repeated=False)


def empty_json(scale: float) -> Send:
    count = int(20_000_000 * scale)
    body = b'{"resourceSpans":[' + b",".join([b"{}"] * count) + b"]}"
    just_below = b'{"resourceSpans":[' + b",".join([b"{}"] * min(count, 990_000)) + b"]}"
    requests = [zipped(each, "application/json") for each in (body, just_below)]
    return lambda target: target.post_all(requests, clients=4)


def empty_messages(scale: float) -> Send:
    odd = spans_of(range(1), {"note": "x" * 70_000})
    counts = int(30_000_000 * scale), min(1_900_000, int(1_900_000 * scale))
    requests = [zipped(b"\x0a\x00" * count + odd) for count in counts]
    return lambda target: target.post_all(requests, clients=4)


def bombs(scale: float) -> Send:
    """Of every coding that is installed here."""
    zeros = bytes(int(1024 * MIB * scale))
    packed = {"gzip": gzip.compress(zeros, 6)}
    with contextlib.suppress(ImportError):
        import cramjam

        packed |= {name: bytes(getattr(cramjam, name).compress(zeros)) for name in ("zstd", "lz4")}
        packed["snappy"] = bytes(cramjam.snappy.compress(zeros))
    requests = [
        ("/v1/traces", body, {"Content-Type": PROTOBUF, "Content-Encoding": name})
        for name, body in packed.items()
    ]
    return lambda target: target.post_all(requests, clients=4)


def very_many_ranks(scale: float) -> Send:
    ranks = max(10, int(300_000 * scale))
    at_once = max(1, ranks // 4)
    requests = [
        zipped(spans_of(range(first, first + at_once), {}, run_id="crowd"))
        for first in range(0, ranks, at_once)
    ]
    return lambda target: target.post_all(requests, is_repeated=False)


def many_series(scale: float) -> Send:
    runs, ranks = max(2, int(90 * scale)), 250
    requests = [
        zipped(spans_of(range(ranks), {semconv.WORLD_SIZE: ranks}, run_id=f"run-{run}", step=step))
        for run in range(runs)
        for step in (0, 20, 40)
    ]

    def send(target: Target) -> None:
        target.post_all(requests, is_repeated=False)
        while not target.ended.wait(0.5):
            _, page = ask(target.addresses["metrics"], "GET", "/metrics")
            target.figures["scrape_mib"] = max(
                target.figures.get("scrape_mib", 0.0), round(len(page) / MIB, 2)
            )

    return send


def large_parallel_rank(_: float) -> Send:
    key = next(iter(semconv.PARALLEL_RANK.values()))
    requests = [
        zipped(spans_of(range(4), {key: 2**31 + 5, semconv.WORLD_SIZE: 4}, step))
        for step in range(40)
    ]
    return lambda target: target.post_all(requests)


def _held(name: str, begun: bytes, scale: float, whole: int) -> Send:
    """Connections that say this much; those that are closed are opened again each second."""

    def send(target: Target) -> None:
        held: list[socket.socket] = []
        while not target.ended.is_set():
            closed = [connection for connection in held if _is_closed(connection)]
            gone = set(closed)
            held = [connection for connection in held if connection not in gone]
            for connection in closed:
                connection.close()
            for _ in range(max(2, int(whole * scale)) - len(held)):
                if target.ended.is_set():
                    break
                with contextlib.suppress(OSError):
                    connection = target.connect(name)
                    held.append(connection)
                    connection.sendall(begun)
                    target.answers["opened"] += 1
            target.ended.wait(1.0)
        for connection in held:
            connection.close()

    return send


def _is_closed(connection: socket.socket) -> bool:
    try:
        while connection.recv(65536, socket.MSG_DONTWAIT):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def half_bodies(scale: float) -> Send:
    head = f"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: {PROTOBUF}\r\n"
    begun = head.encode() + b"Content-Length: 1000\r\n\r\nhalf"
    return _held("otlp_http", begun, scale, 4_600)


def silent_grpc(scale: float) -> Send:
    return _held("otlp_grpc", HTTP2_PREFACE, scale, 2_048)


def event_streams(scale: float) -> Send:
    begun = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    return _held("metrics", begun, max(scale, 0.25), 80)


def grpc_answers(target: Target) -> bool:
    """Whether a new gRPC connection is greeted."""
    with contextlib.suppress(OSError), target.connect("otlp_grpc", "127.0.0.1") as connection:
        connection.settimeout(2.0)
        connection.sendall(HTTP2_PREFACE)
        return len(connection.recv(9)) == 9
    return False


def stream_opens(target: Target) -> bool:
    with contextlib.suppress(OSError), target.connect("metrics", "127.0.0.1") as connection:
        connection.settimeout(2.0)
        connection.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return connection.recv(12).endswith(b" 200")
    return False


ATTACKS: dict[str, Attack] = {
    "huge_attempt": Attack("V1", "one span of attempt 2^63-1, one forged end", huge_attempt),
    "large_resources": Attack("V2", "resources of 60 MiB, four at once", large_resources),
    "far_step": Attack("V3", "one span at step 10^9", far_step),
    "empty_json": Attack("V4", "60 MB of {},{},... in JSON, four at once", empty_json),
    "empty_messages": Attack("V4", "60 MB of empty messages, four at once", empty_messages),
    "bombs": Attack("V2, V4", "a gibibyte of zeros in every coding, four at once", bombs),
    "very_many_ranks": Attack("V7", "300,000 ranks in one run", very_many_ranks),
    "many_series": Attack("V8", "90 runs of 250 ranks, scraped twice a second", many_series),
    "large_parallel_rank": Attack("V12", "a parallel rank of 2^31 + 5", large_parallel_rank),
    "half_bodies": Attack("V13", "4,600 half bodies", half_bodies),
    "silent_grpc": Attack("V13", "2,048 silent gRPC connections", silent_grpc, grpc_answers),
    "event_streams": Attack("V13", "80 event streams", event_streams, stream_opens),
}


def main(name: str, scale: str) -> None:
    """Attack, in a process of its own: addresses come on a line of standard input, and its end
    ends the attack. Prints a line when the bodies are built, and the answers."""
    send = ATTACKS[name].prepare(float(scale))
    print("ready", flush=True)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # as many as on a machine of its own
    target = Target(json.loads(sys.stdin.readline()))
    attacker = threading.Thread(target=send, args=(target,), daemon=True)
    attacker.start()
    sys.stdin.read()
    target.ended.set()
    print(json.dumps({"answers": target.answers, **target.figures}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
