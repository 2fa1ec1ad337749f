"""Several receiver processes that feed one scorer."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.collector.processes import pool
from otel_straggler.errors import UnavailableError
from otel_straggler.publish.report_json import window_json
from otel_straggler.simulate.scenarios import Plan, simulate
from otel_straggler.simulate.writers import as_json_line, encode_requests

from ..publish.sink import Sink

HEADERS = {"Content-Type": "application/x-protobuf"}


@pytest.fixture
def sink() -> Iterator[Sink]:
    backend = Sink()
    yield backend
    backend.close()


def pids(live: Any) -> list[int]:
    """Of the receiver processes."""
    return [receiver._process.pid for receiver in live.collector._servers._pool._receivers]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Senders:
    """Connections that are kept, one per rank, as training processes keep them."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.connections: dict[int, http.client.HTTPConnection] = {}

    def send(self, rank: int, body: bytes) -> int:
        if rank not in self.connections:
            host, _, port = self.address.rpartition(":")
            self.connections[rank] = http.client.HTTPConnection(host, int(port), timeout=30)
        connection = self.connections[rank]
        connection.request("POST", "/v1/traces", body, HEADERS)
        response = connection.getresponse()
        response.read()
        return response.status

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()


def rounds(kit: Any, ranks: int = 8, steps: int = 24) -> list[tuple[int, bytes]]:
    """What ranks send of a run in which rank 5 is slow, a few steps at a time."""
    sent = []
    for first in range(0, steps, 3):
        for number in range(ranks):
            seconds = {"forward": 0.2 if number == 5 else 0.1, "backward": 0.1 + number / 1000}
            source = kit.rank(number, ranks)
            sent.append((number, kit.spans_of(source, range(first, first + 3), seconds)))
    return sent


def scored(live: Any, sent: list[tuple[int, bytes]]) -> tuple[Any, dict[str, float]]:
    """All windows that were closed, as the report words them, and the counts of rows."""
    closed: list[Any] = []
    take = live.collector._worker._board.take
    live.collector._worker._board.take = lambda window, now_s: (
        closed.append(window),
        take(window, now_s),
    )
    senders = Senders(live.addresses["otlp_http"])
    for rank, body in sent:
        assert senders.send(rank, body) == 200
    senders.close()
    live.stop()
    counts = live.collector._worker.counts()
    # The last full window closes by itself or with the collector, whichever is first.
    return [{**window_json(w), "closed_by": ""} for w in closed], dict(counts.rows)


def test_windows_are_those_of_one_receiver(start: Callable[..., Any], kit: Any) -> None:
    """Ranks over connections of their own, dealt out to three processes, one rank's requests sent
    again over another connection: the same windows, scores and counts as with one receiver."""
    sent = []
    for rank, body in rounds(kit):
        sent.append((rank, body))
        if rank == 2:  # others have yet to pass the window, so it cannot be closed in between
            sent.append((100 + len(sent) % 3, body))
    patient = {"scoring__grace_seconds": 60.0}
    alone = scored(start(receivers__processes=1, **patient), sent)
    several = scored(start(receivers__processes=3, **patient), sent)
    assert len(alone[0]) >= 6
    assert several == alone
    assert alone[1]["duplicate"] == 48
    assert alone[1]["late"] == 0


def test_every_process_takes_its_part_and_counts_come_together(
    start: Callable[..., Any], kit: Any
) -> None:
    """All processes listen on one port; /metrics has the sums."""
    live = start(receivers__processes=3)
    for number in range(30):  # each over a connection of its own
        assert live.post(kit.spans_of(kit.rank(number, 64), [0])).status == 200
    assert live.post(b"\xff\xff\xff").status == 400
    assert live.post(b"", "nothing").status == 404
    requests = {"signal": "traces"}
    kit.eventually(lambda: live.value(semconv.COLLECTOR_HTTP_ANSWERS, signal="", status="404"))
    kit.eventually(lambda: live.value(semconv.COLLECTOR_REQUESTS, **requests, answer="malformed"))
    assert live.value(semconv.COLLECTOR_REQUESTS, **requests, answer="ok") == 30
    assert live.value(semconv.COLLECTOR_REQUESTS, **requests, answer="malformed") == 1
    answers = semconv.COLLECTOR_HTTP_ANSWERS
    kit.eventually(lambda: live.value(answers, **requests, status="200") == 30)
    assert live.spans() == {"scored": 30}
    assert live.value(semconv.COLLECTOR_RECEIVER_RESTARTS) == 0
    busy = [_cpu_ticks(pid) for pid in pids(live)]
    assert len(set(pids(live))) == 3
    assert all(ticks > 0 for ticks in busy)


def _cpu_ticks(pid: int) -> int:
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


def test_every_kind_of_request_is_taken(start: Callable[..., Any], kit: Any) -> None:
    """JSON, gzip, heartbeats, a request of which a part is refused."""
    live = start(receivers__processes=2)
    body = kit.spans_of(kit.rank(0, 1), [0])
    as_json = as_json_line(kit.spans_of(kit.rank(0, 1), [1])).encode()
    assert live.post(body, zipped=True).status == 200
    assert live.post(as_json, content_type="application/json").status == 200
    assert live.post(kit.beat_of(kit.rank(0, 1), sent_at_s=1.0, step=7), "metrics").status == 200
    bad = as_json.replace(b'"startTimeUnixNano":"', b'"startTimeUnixNano":"0", "x":"')
    answer = live.post(bad, content_type="application/json").json()
    assert answer["partialSuccess"]["rejectedSpans"] == "1"
    kit.eventually(lambda: live.spans().get("scored") == 2)
    kit.eventually(lambda: live.value(semconv.LAST_HEARTBEAT))


def test_one_budget_says_later_for_all(start: Callable[..., Any], kit: Any) -> None:
    """When too much waits to be scored, every process answers 503 with Retry-After, and takes
    requests again once there is room."""
    live = start(receivers__processes=2)
    admission = live.collector._admission
    size = 256 * 1024 * 1024
    assert admission.reserve(size, "traces")
    body = kit.spans_of(kit.rank(0, 1), [0])
    for _ in range(8):
        answer = live.post(body)
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) >= 1
    admission.release(size // 8)
    beat = kit.beat_of(kit.rank(0, 1), sent_at_s=1.0)
    assert [live.post(beat, "metrics").status for _ in range(8)] == [200] * 8
    assert live.post(body).status == 503
    admission.release(size - size // 8)
    kit.eventually(lambda: live.post(body).status == 200)
    kit.eventually(lambda: live.spans().get("scored"))


def test_a_receiver_that_dies_is_started_again_and_counted(
    start: Callable[..., Any], kit: Any
) -> None:
    """The port goes on taking requests; what was acknowledged is scored."""
    live = start(receivers__processes=2)
    before = pids(live)
    os.kill(before[0], signal.SIGKILL)
    kit.eventually(lambda: live.value(semconv.COLLECTOR_RECEIVER_RESTARTS) == 1)
    kit.eventually(lambda: before[0] not in pids(live))
    taken = 0
    for step in range(40):
        try:
            taken += live.post(kit.spans_of(kit.rank(0, 1), [step])).status == 200
        except (ConnectionError, http.client.HTTPException):
            continue  # a connection that the dead process had not yet taken
    assert taken >= 35
    kit.eventually(lambda: live.spans().get("scored", 0) >= taken)


def test_a_receiver_that_hangs_is_killed_at_the_end_and_that_is_no_mistake_of_ours(
    start: Callable[..., Any],
    kit: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One that was stopped answers nobody: the collector ends without it, and says so in a line."""
    monkeypatch.setattr(pool, "_GRACE_S", 0.1)
    live = start(receivers__processes=2)
    before = pids(live)
    os.kill(before[0], signal.SIGSTOP)
    live.is_stopped = True
    live.collector.stop(within_s=1.0)
    assert "a receiver process did not end in time and is killed" in caplog.text
    kit.eventually(lambda: not any(is_alive(pid) for pid in before))
    assert "is given up" not in caplog.text


def test_a_mistake_of_ours_costs_one_request(start: Callable[..., Any], kit: Any) -> None:
    """The receiver lives on, and so does its connection."""
    live = start(receivers__processes=2)
    take = live.collector.take_spans
    live.collector.take_spans = lambda spans, size: 1 / 0
    before = pids(live)
    assert live.post(kit.spans_of(kit.rank(0, 1), [0])).status == 400
    live.collector.take_spans = take
    assert live.post(kit.spans_of(kit.rank(0, 1), [1])).status == 200
    assert pids(live) == before
    assert live.get("/readyz").status == 200


def test_what_was_acknowledged_is_scored_when_it_stops(start: Callable[..., Any], kit: Any) -> None:
    """Senders go on while the collector stops: every request that got a 200 is in the counts."""
    live = start(receivers__processes=2)
    acknowledged = [0] * 4
    going = threading.Barrier(5)

    def send(sender: int) -> None:
        senders = Senders(live.addresses["otlp_http"])
        for step in range(100_000):
            try:
                body = kit.spans_of(kit.rank(sender, 4), [step])
                status = senders.send(sender, body)
            except (OSError, http.client.HTTPException):
                break
            if status != 200:
                break
            acknowledged[sender] += 1
            if step == 5:
                going.wait(30)
        senders.close()

    threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    going.wait(30)
    live.stop()
    for thread in threads:
        thread.join(30)
    assert min(acknowledged) > 5
    fates = live.collector._intake.counts().fates
    assert fates["row"] >= sum(acknowledged)
    assert fates["row"] <= sum(acknowledged) + 4  # an answer may be lost, a row may not
    rows = live.collector._worker.counts().rows
    assert sum(rows.values()) == fates["row"]


@pytest.mark.parametrize("zipped", [False, True])
def test_requests_are_forwarded_as_they_came(
    start: Callable[..., Any], kit: Any, sink: Sink, zipped: bool
) -> None:
    """Bytes, encoding and compression stay, through whichever process they came."""
    live = start(receivers__processes=2, forward__url=sink.url)
    bodies = [kit.spans_of(kit.rank(number), [0]) for number in range(4)]
    beat = kit.beat_of(kit.rank(0), sent_at_s=1.0)
    for body in bodies:
        assert live.post(body, zipped=zipped).status == 200
    assert live.post(beat, "metrics", zipped=zipped).status == 200
    assert live.post(b"a log", "logs", zipped=zipped).status == 200
    live.stop()
    coding = "gzip" if zipped else None
    assert {told for _, _, _, told in sink.received} == {coding}
    opened = [gzip.decompress(b) if zipped else b for _, b, _, _ in sink.received]
    assert sorted(opened) == sorted([*bodies, beat, b"a log"])


def test_sampled_forwarding_goes_through_several_processes(
    start: Callable[..., Any], kit: Any, sink: Sink
) -> None:
    """The slow rank's requests arrive whole, and nobody else's."""
    live = start(
        receivers__processes=2,
        forward__url=sink.url,
        forward__mode="sampled",
        forward__sample_one_in=2**62,
    )
    sent = rounds(kit)
    senders = Senders(live.addresses["otlp_http"])
    for rank, body in sent:
        assert senders.send(rank, body) == 200
    senders.close()
    live.stop()
    arrived = b"".join(body for _, body, _, _ in sink.received)
    assert all((body in arrived) == (rank == 5) for rank, body in sent)


def test_a_taken_port_names_the_flag(start: Callable[..., Any], kit: Any) -> None:
    """Also where the other collector shares its port among its own processes."""
    live = start(receivers__processes=2)
    for processes in (1, 2):
        with pytest.raises(UnavailableError, match="--otlp-http"):
            kit.Live(
                kit.settings(
                    receivers__processes=processes,
                    receivers__otlp_http=live.addresses["otlp_http"],
                )
            )


def test_receivers_end_with_the_collector_that_is_killed() -> None:
    """Nobody goes on listening on its port."""
    free = "127.0.0.1:0"
    flags = ["--otlp-http", free, "--otlp-grpc", free, "--metrics", free, "--receivers", "2"]
    command = [sys.executable, "-m", "otel_straggler.cli", "collector", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["otlp_http"]
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port))).close()
        process.kill()
    until = threading.Event()
    for _ in range(200):
        try:
            socket.create_connection((host, int(port)), 1.0).close()
        except OSError:
            return
        until.wait(0.05)
    pytest.fail("somebody still listens")


def test_a_large_run_gives_the_same_report(start: Callable[..., Any], kit: Any) -> None:
    """A simulated run of 16 ranks in requests of 512 spans: the slow rank is found."""
    batch = simulate("one_slow_rank", Plan(ranks=16, steps=40)).batch
    windows = {"scoring__window_steps": 20, "scoring__grace_seconds": 60.0}
    live = start(receivers__processes=2, **windows)
    senders = Senders(live.addresses["otlp_http"])
    for body in encode_requests(batch, 512):
        assert senders.send(len(body) % 4, body) == 200
    senders.close()
    live.stop()
    rows = live.collector._worker.counts().rows
    assert rows["scored"] == len(batch), rows
    report = json.loads(live.collector._worker.snapshot.report.body)
    (window,) = report["runs"]["simulated"]["windows"]
    assert {found["rank"] for found in window["stragglers"]} == {5}
