"""Forwarding: bytes as they came, in order, kept while the sink is away, dropped oldest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from otel_straggler.collector.forwarding import forward
from otel_straggler.collector.forwarding.forward import Forwarder
from otel_straggler.collector.ingest.intake import PROTOBUF, Request
from otel_straggler.otlp.answers import Signal

from ..waiting import eventually
from .sink import Sink


def item(body: bytes, coding: str = "", signal: Signal = "traces") -> Request:
    return Request(
        signal=signal, content_type=PROTOBUF, body=b"", raw_body=body, content_encoding=coding
    )


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr(forward, "retry_delay_s", lambda *_: 0.01)


@pytest.fixture
def begin() -> Iterator[Callable[..., Forwarder]]:
    running: list[Forwarder] = []

    def make(url: str, max_queue_bytes: int = 10**6) -> Forwarder:
        forwarder = Forwarder(url, max_queue_bytes=max_queue_bytes)
        forwarder.start()
        running.append(forwarder)
        return forwarder

    yield make
    for forwarder in running:
        forwarder.stop(0.0)


@pytest.fixture
def sink() -> Iterator[Sink]:
    one = Sink()
    yield one
    one.close()


def test_bodies_arrive_as_they_came_and_in_order(
    sink: Sink, begin: Callable[..., Forwarder]
) -> None:
    """gzip stays gzip; every signal has its path."""
    forwarder = begin(sink.url + "/")
    forwarder.put(item(b"\x1f\x8b zipped", "gzip"))
    forwarder.put(item(b"plain", signal="metrics"))
    forwarder.put(item(b"", signal="logs"))
    eventually(lambda: len(sink.received) == 3)
    kind = "application/x-protobuf"
    assert sink.received == [
        ("/v1/traces", b"\x1f\x8b zipped", kind, "gzip"),
        ("/v1/metrics", b"plain", kind, None),
        ("/v1/logs", b"", kind, None),
    ]
    eventually(lambda: forwarder.counts() == {"sent": 3})
    assert forwarder.queued_bytes == 0


@pytest.mark.usefixtures("quick")
def test_a_sink_that_comes_back_gets_everything(begin: Callable[..., Forwarder]) -> None:
    """Refused connections and 503 are tried again; nothing is lost meanwhile."""
    gone = Sink()
    port = gone.server.server_port
    gone.close()
    forwarder = begin(gone.url)
    for n in range(5):
        forwarder.put(item(b"%d" % n))
    back = Sink(statuses=(503, 429, 502), port=port)
    try:
        eventually(lambda: len(back.received) == 5)
    finally:
        back.close()
    assert [body for _, body, _, _ in back.received] == [b"0", b"1", b"2", b"3", b"4"]


def test_what_the_sink_refuses_for_good_is_counted_and_left(
    begin: Callable[..., Forwarder],
) -> None:
    """400 is final; the next request goes on."""
    strict = Sink(statuses=(400,))
    try:
        forwarder = begin(strict.url)
        forwarder.put(item(b"bad"))
        forwarder.put(item(b"good"))
        eventually(lambda: forwarder.counts() == {"refused": 1, "sent": 1})
    finally:
        strict.close()
    assert [body for _, body, _, _ in strict.received] == [b"good"]


@pytest.mark.usefixtures("quick")
def test_when_the_queue_is_full_the_oldest_goes() -> None:
    """Bounded in bytes, and counted."""
    forwarder = Forwarder("http://127.0.0.1:9", max_queue_bytes=10)
    for n in range(5):
        forwarder.put(item(b"%d234" % n))
    assert forwarder.counts() == {"dropped": 3}
    assert forwarder.queued_bytes == 8
    forwarder.stop(0.0)
    assert forwarder.counts() == {"dropped": 5}
    forwarder.put(item(b"x"))
    assert forwarder.counts() == {"dropped": 6}


def test_stopping_sends_what_waits(sink: Sink) -> None:
    """Within its deadline."""
    forwarder = Forwarder(sink.url, max_queue_bytes=10**6)
    for n in range(20):
        forwarder.put(item(b"%d" % n))
    forwarder.start()
    forwarder.stop(20.0)
    assert forwarder.counts() == {"sent": 20}


def test_stopping_does_not_wait_for_a_sink_that_is_away() -> None:
    """What could not be sent is counted as dropped."""
    forwarder = Forwarder("http://127.0.0.1:9", max_queue_bytes=10**6)
    forwarder.start()
    forwarder.put(item(b"x"))
    forwarder.stop(0.05)
    assert forwarder.counts() == {"dropped": 1}
