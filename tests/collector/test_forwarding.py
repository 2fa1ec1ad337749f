"""What comes in goes on to an OTLP/HTTP backend untouched, whichever way it came."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from otel_straggler import semconv

from ..publish.sink import Sink
from ..publish.test_sampling import body_of
from ..publish.trace_rules import broken_rules, traces_in
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
    wanted = [(f"/v1/{signal}", content, way.content_type, coding) for signal, content in sent]
    for path in ("/v1/traces", "/v1/metrics", "/v1/logs"):
        assert [each for each in received if each[0] == path] == [
            each for each in wanted if each[0] == path
        ]
    assert live.spans()["no_rank"] > 0


def test_every_step_of_mode_all_has_one_root(start: Callable[..., Any], sink: Sink) -> None:
    """The default. 240 ``step`` spans of 1,200 had a parent that nobody sent."""
    live = start(forward__url=sink.url, scoring__grace_s=20.0)
    sent = [body_of(rank, range(60), sections=4) for rank in range(4)]
    for body in sent:
        assert live.post(body).status == 200
    live.stop()
    received = [body for path, body, _, _ in sink.received if path == "/v1/traces"]
    assert received[: len(sent)] == sent
    assert broken_rules(received, max_spans=2_000) == []
    assert len(traces_in(received)) == 60
    assert sum(map(len, traces_in(received).values())) == 1_200 + 60


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
