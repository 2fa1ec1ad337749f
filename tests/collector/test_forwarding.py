"""What comes in goes on to an OTLP/HTTP backend untouched, whichever way it came."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from otel_straggler import semconv

from ..publish.sink import Sink
from .foreign import lens
from .ways import WAYS, Way


@pytest.fixture
def sink() -> Iterator[Sink]:
    backend = Sink()
    yield backend
    backend.close()


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_signal_goes_on_as_legal_otlp_over_http(
    start: Callable[..., Any], kit: Any, sink: Sink, way: Way
) -> None:
    """Bytes, encoding and compression stay; gRPC becomes HTTP with binary protobuf. Spans that are
    not scored go on too, refused requests do not."""
    live = start(forward__url=sink.url)
    nobody = lens().replace(b"nv.dl.rank", b"nv.dl.rink")
    beat = kit.beat_of(kit.rank(0), sent_at_s=1_790_000_000.0, step=7)
    sent = [
        ("traces", way.content(lens())),
        ("traces", way.content(nobody)),
        ("metrics", way.content(beat, "metrics")),
        ("logs", b"anything"),
    ]
    for signal, content in sent:
        assert way.send_content(live, content, signal).what == "ok"
    assert way.send_content(live, b"\xff\xff\xff").what == "malformed"
    kit.eventually(lambda: live.value(semconv.COLLECTOR_FORWARDED, outcome="sent") == len(sent))

    coding = "gzip" if way.zipped else None
    received = [
        (path, gzip.decompress(body) if way.zipped else body, kind, reported)
        for path, body, kind, reported in sink.received
    ]
    assert received == [
        (f"/v1/{signal}", content, way.content_type, coding) for signal, content in sent
    ]
    assert live.spans()["no_rank"] > 0


def test_the_audit_trail_goes_on_as_logs(start: Callable[..., Any], kit: Any, sink: Sink) -> None:
    """Where requests go; each change is a log record of its own."""
    live = start(forward__url=sink.url)
    body = b'{"node": "n7", "seconds": 60, "reason": "fan"}'
    json_type = {"Content-Type": "application/json"}
    answer = kit.ask(live.addresses["metrics"], "POST", "/v1/maintenance", body, json_type)
    assert answer.status == 200
    kit.eventually(lambda: sink.received)
    [(path, sent, kind, _)] = sink.received
    assert (path, kind) == ("/v1/logs", "application/json")
    assert b"POST /v1/maintenance" in sent
    assert b"n7" in sent
