"""One contract for HTTP protobuf, HTTP JSON and gRPC, plain and gzipped.

The same spans give the same scores and counts; what is wrong with a request is refused or counted
in the same way; nothing of a refused request is kept.
"""

from __future__ import annotations

import gzip
import itertools
import json
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_straggler import semconv
from otel_straggler.collector.views.report_json import window_json
from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.model.observation import merge_batches
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.simulate.scenarios import Plan, simulate
from otel_straggler.simulate.writers import encode_requests

from .foreign import LENS_SPANS, lens
from .ways import WAYS, Way

WINDOW_STEPS = 20
TABLES = (
    "section_relative_scores", "section_individual_scores", "section_medians_s",
    "section_step_s", "section_own_s", "section_slowdowns", "section_counts",
)  # fmt: skip
LIMIT = 100_000


@pytest.fixture(params=WAYS, ids=str)
def way(request: pytest.FixtureRequest) -> Way:
    result: Way = request.param
    return result


@pytest.fixture(params=[way for way in WAYS if way.zipped], ids=str)
def zipped_way(request: pytest.FixtureRequest) -> Way:
    result: Way = request.param
    return result


@pytest.fixture(scope="module")
def run() -> list[bytes]:
    """The requests of a run with one slow rank."""
    plan = Plan(ranks=4, steps=WINDOW_STEPS + 4, slow_rank=2, slowdown=1.6, run_id="run")
    return list(encode_requests(simulate("one_slow_rank", plan).batch))


class TestScores:
    """What is right."""

    def test_the_same_spans_give_the_same_scores_and_counts(
        self, start: Callable[..., Any], kit: Any, way: Way, run: list[bytes]
    ) -> None:
        """To 1e-12 what the pure core says of them."""
        batch = merge_batches([SpanDecoder().decode(body).batch for body in run])
        scorer = Scorer(ScoreSettings(window_steps=WINDOW_STEPS))
        scorer.observe(batch.take(np.argsort(batch.start_ns, kind="stable")), now_ns=0)
        expected = window_json(scorer.close_all()[0])

        live = start(scoring__window_steps=WINDOW_STEPS, scoring__grace_s=60.0)
        for body in run:
            assert way.send(live, body).what == "ok"
        [window] = kit.eventually(live.windows)
        assert (window["first_step"], window["last_step"]) == (0, WINDOW_STEPS - 1)
        assert window["stragglers"] == expected["stragglers"]
        for table in TABLES:
            assert window[table].keys() == expected[table].keys()
            for section, column in expected[table].items():
                assert window[table][section] == pytest.approx(column, rel=1e-12), table
        assert live.spans() == {"scored": len(batch)}

    def test_spans_of_another_instrumentation_are_counted_alike(self, live: Any, way: Way) -> None:
        """Scored, excluded, cut off: by the same rules."""
        assert way.send(live, lens()).rejected == 0
        outcomes = {
            ("scored" if outcome == "row" else outcome): n for outcome, n in LENS_SPANS.items()
        }
        assert live.spans() == outcomes

    def test_a_request_delivered_twice_is_scored_once(self, live: Any, kit: Any, way: Way) -> None:
        """OTLP may deliver twice; seq says that it is the same run."""
        body = kit.spans_of(kit.rank(0, 1), range(4))
        for _ in range(3):
            assert way.send(live, body).what == "ok"
        way.send(live, kit.spans_of(kit.rank(0, 1), [4]))
        kit.eventually(lambda: live.value(semconv.COLLECTOR_ROWS, outcome="scored") == 4)
        assert live.value(semconv.COLLECTOR_ROWS, outcome="duplicate") == 8
        assert live.spans() == {"scored": 13}

    def test_a_request_delivered_in_two_encodings_is_scored_once(
        self, live: Any, kit: Any, way: Way
    ) -> None:
        """A gateway may turn one into the other."""
        body = kit.spans_of(kit.rank(0, 1), range(4))
        for one in (way, WAYS[0]):
            assert one.send(live, body).what == "ok"
        way.send(live, kit.spans_of(kit.rank(0, 1), [4]))
        kit.eventually(lambda: live.value(semconv.COLLECTOR_ROWS, outcome="scored") == 4)
        assert live.value(semconv.COLLECTOR_ROWS, outcome="duplicate") == 4

    def test_heartbeats_are_taken(self, live: Any, kit: Any, way: Way) -> None:
        """The step of a rank that sends no spans."""
        body = kit.beat_of(kit.rank(0), sent_at_s=1_790_000_000.0, step=7)
        assert way.send(live, body, "metrics").what == "ok"
        assert kit.eventually(lambda: live.value(semconv.RANK_STEP)) == 7
        assert live.value(semconv.COLLECTOR_POINTS, use="used") == 3

    def test_logs_are_accepted_and_counted(self, live: Any, way: Way) -> None:
        """They mean nothing to scores; they are not even looked into."""
        assert way.send_content(live, b"anything", "logs").what == "ok"
        assert live.value(semconv.COLLECTOR_REQUESTS, signal="logs", answer="ok") == 1

    def test_every_answer_says_that_this_is_a_scorer(self, live: Any, way: Way) -> None:
        """So that a client may send all its spans."""
        for signal in ("traces", "metrics", "logs"):
            assert way.send_content(live, b"{}" if way.form == "json" else b"", signal).is_scorer

    @pytest.mark.parametrize("signal", ["traces", "metrics", "logs"])
    def test_an_empty_request_is_a_success(self, live: Any, way: Way, signal: str) -> None:
        """OTLP says so; no bytes at all are empty too."""
        bodies = [b"", b"{}"] if way.form == "json" else [b""]
        for body in bodies:
            outcome = way.send_content(live, body, signal)
            assert (outcome.what, outcome.rejected, outcome.message) == ("ok", 0, "")
        assert way.send_packed(live, b"", signal).what == "ok"
        assert live.spans() == {}

    def test_unknown_fields_of_newer_senders_are_ignored(
        self, live: Any, kit: Any, way: Way
    ) -> None:
        """A field that this version does not know changes nothing, wherever it stands."""
        content = way.content(kit.spans_of(kit.rank(0, 1), range(4)))
        if way.form == "json":
            document = json.loads(content)
            document["fromTheFuture"] = {"x": [1]}
            document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["mood"] = "good"
            content = json.dumps(document).encode()
        else:
            message = ExportTraceServiceRequest.FromString(content)
            message.resource_spans[0].scope_spans[0].spans[0].MergeFromString(b"\xc2\x3e\x03new")
            content = message.SerializeToString() + b"\xc2\x3e\x03new"
        assert way.send_content(live, content).what == "ok"
        assert live.spans() == {"scored": 4}

    def test_nothing_acknowledged_is_lost_or_counted_twice(
        self, start: Callable[..., Any], kit: Any, way: Way
    ) -> None:
        """Eight senders at once: spans sent = spans counted = rows scored."""
        live = start(scoring__grace_s=60.0)
        senders, requests, steps = 8, 10, 4

        def send(number: int) -> list[str]:
            source = kit.rank(number, senders)
            parts = (range(r * steps, (r + 1) * steps) for r in range(requests))
            bodies = (kit.spans_of(source, part, {"a": 0.1, "b": 0.2}) for part in parts)
            return [way.send(live, body).what for body in bodies]

        with ThreadPoolExecutor(senders) as pool:
            reported = [*itertools.chain.from_iterable(pool.map(send, range(senders)))]
        sent = senders * requests * steps * 2
        assert reported == ["ok"] * (senders * requests)
        assert live.spans() == {"scored": sent}
        live.collector._servers.stop_receiving(5.0)
        live.collector._intake.close()
        live.collector._worker.stop()
        assert live.value(semconv.COLLECTOR_ROWS, outcome="scored") == sent
        assert live.value(semconv.COLLECTOR_ROWS, outcome="late") == 0
        assert live.value(semconv.COLLECTOR_QUEUE) == 0
        live.collector._servers.stop()
        live.is_stopped = True


class TestBadSpans:
    """What is wrong with single spans: they are counted by reason, the others scored."""

    def test_they_are_rejected_by_reason_and_the_others_taken(
        self, live: Any, kit: Any, way: Way
    ) -> None:
        """A partial success names what was wrong; spans without a rank are no error."""
        request = ExportTraceServiceRequest.FromString(kit.spans_of(kit.rank(0, 1), range(12)))
        spans = request.resource_spans[0].scope_spans[0].spans
        spans[1].trace_id = b"short"
        spans[2].span_id = bytes(8)
        spans[3].end_time_unix_nano = spans[3].start_time_unix_nano
        spans[4].end_time_unix_nano = spans[4].start_time_unix_nano - 5
        spans[5].attributes.add(key="rank").value.int_value = -1
        spans[6].attributes.add(key="rank").value.bool_value = True
        spans[7].start_time_unix_nano = 0
        spans[8].status.code = 2
        spans[9].name = ""
        del spans[9].attributes[0]
        stranger = request.resource_spans.add().scope_spans.add().spans.add()
        stranger.CopyFrom(spans[0])

        outcome = way.send(live, request.SerializeToString())
        assert (outcome.what, outcome.rejected) == ("ok", 8)
        expected = {
            "bad_id": 2, "duration_not_positive": 2, "bad_rank": 2, "bad_time": 1, "no_name": 1,
        }  # fmt: skip
        for reason, count in expected.items():
            assert f"{reason}: {count}" in outcome.message
        assert live.spans() == {**expected, "scored": 3, "no_rank": 1, "error_status": 1}

    @pytest.mark.parametrize("value", [3, "3", 3.0])
    @pytest.mark.parametrize("where", ["resource", "span"])
    def test_a_rank_may_be_an_integer_text_or_a_double(
        self, live: Any, kit: Any, way: Way, value: Any, where: str
    ) -> None:
        """On the resource or on the span; without a run id the service is the run."""
        request = ExportTraceServiceRequest.FromString(kit.spans_of(kit.rank(0, 1), range(8)))
        resource_spans = request.resource_spans[0]
        del resource_spans.resource.attributes[:]
        resource_spans.resource.attributes.add(key="service.name").value.string_value = "job"
        targets = (
            [resource_spans.resource]
            if where == "resource"
            else resource_spans.scope_spans[0].spans
        )
        for target in targets:
            one = target.attributes.add(key="rank").value
            field = {int: "int_value", str: "string_value", float: "double_value"}[type(value)]
            setattr(one, field, value)
        assert way.send(live, request.SerializeToString()).rejected == 0
        window = kit.eventually(lambda: live.windows("job"))[0]
        assert window["section_relative_scores"] == {"forward": {"3": 1.0}}


class TestBadRequests:
    """What is wrong with a request as a whole: it is refused, and nothing of it is kept."""

    def test_a_truncated_request_is_never_taken_in_part(
        self, live: Any, kit: Any, way: Way
    ) -> None:
        """Wherever it is cut."""
        content = way.content(kit.spans_of(kit.rank(0, 1), [0]))
        for cut in range(1, len(content), 1 if way.form == "protobuf" else 5):
            assert way.send_content(live, content[:cut]).what == "malformed", cut
        assert live.spans() == {}

    def test_truncated_gzip_is_refused(self, live: Any, kit: Any, zipped_way: Way) -> None:
        """Also where only its checksum is missing."""
        packed = gzip.compress(zipped_way.content(kit.spans_of(kit.rank(0, 1), [0])))
        for cut in (*range(3, len(packed), 7), -1):
            assert zipped_way.send_packed(live, packed[:cut]).what == "malformed", cut
        assert live.spans() == {}

    @pytest.mark.parametrize("number", range(10))
    def test_a_body_that_is_not_otlp_is_refused_for_good(
        self, live: Any, way: Way, number: int
    ) -> None:
        """Senders must not send it again; the message says what was expected."""
        bodies = NOT_OTLP[way.form]
        for signal, body in bodies[number : number + 1]:
            outcome = way.send_content(live, body, signal)
            assert outcome.what == "malformed"
            assert "body" in outcome.message
        assert live.spans() == {}

    def test_a_body_over_the_limit_is_refused_and_one_at_the_limit_taken(
        self, start: Callable[..., Any], way: Way
    ) -> None:
        """The limit holds after decompression."""
        live = start(receivers__max_body_bytes=LIMIT)
        assert way.send_content(live, blank(way, LIMIT)).what == "ok"
        assert way.send_content(live, blank(way, LIMIT + 1)).what == "too large"
        assert live.value(semconv.COLLECTOR_REQUESTS, signal="traces", answer="ok") == 1

    def test_a_bomb_is_refused(self, start: Callable[..., Any], zipped_way: Way) -> None:
        """50 MB that were 50 kB; how much is inflated is tested with the receivers."""
        live = start(receivers__max_body_bytes=LIMIT)
        for zeros in (bytes(50_000_000), b" " * 50_000_000):
            assert zipped_way.send_content(live, zeros).what == "too large"
        assert live.get("/healthz").status == 200

    def test_when_too_much_waits_senders_are_told_to_come_back(
        self, live: Any, kit: Any, way: Way
    ) -> None:
        """Nothing of the request is kept; afterwards it is taken."""
        admission = live.collector._budget
        size = 256 * 1024 * 1024
        assert admission.reserve(size, "traces")
        body = kit.spans_of(kit.rank(0, 1), [0])
        assert way.send(live, body).what == "later"
        assert live.get("/readyz").status == 503
        assert live.get("/healthz").status == 200
        admission.release(size)
        assert admission.reserve(size * 7 // 8, "traces")
        beat = kit.beat_of(kit.rank(0, 1), sent_at_s=1.0)
        assert way.send(live, body).what == "later"
        assert way.send(live, beat, "metrics").what == "ok"  # a flood of spans makes no rank lost
        admission.release(size * 7 // 8)
        assert way.send(live, body).what == "ok"
        assert live.get("/readyz").status == 200
        assert live.spans() == {"scored": 1}


@pytest.fixture(scope="module")
def shared(kit: Any) -> Iterator[Any]:
    """One collector for all random examples."""
    live = kit.Live(kit.settings())
    yield live
    live.stop()


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    changes=st.integers(1, 6),
    signal=st.sampled_from(["traces", "metrics"]),
)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_damaged_request_is_taken_or_refused_and_never_hurts(
    shared: Any, kit: Any, way: Way, seed: int, changes: int, signal: str
) -> None:
    """Bytes changed, cut out, put in, before or after compression; the next sender is served."""
    rng = random.Random(seed)
    beat = kit.beat_of(kit.rank(0), sent_at_s=1.5, step=3)
    body = lens()[:2000] if signal == "traces" else beat
    whole = kit.spans_of(kit.rank(0, 1), range(3)) if signal == "traces" else beat
    content = bytearray(way.content(whole, signal) if rng.random() < 0.7 else body)
    if way.zipped and rng.random() < 0.5:
        content = bytearray(gzip.compress(bytes(content)))
        damage(content, rng, changes)
        outcome = way.send_packed(shared, bytes(content), signal)
    else:
        damage(content, rng, changes)
        outcome = way.send_content(shared, bytes(content), signal)
    assert outcome.what in ("ok", "malformed")
    empty = b"{}" if way.form == "json" else b""
    assert way.send_content(shared, empty, signal).what == "ok"
    assert shared.value(semconv.COLLECTOR_FAILURES) == 0


def damage(content: bytearray, rng: random.Random, changes: int) -> None:
    for _ in range(changes):
        at = rng.randrange(len(content)) if content else 0
        kind = rng.randrange(3)
        if kind == 0 and content:
            content[at] = rng.randrange(256)
        elif kind == 1:
            del content[at : at + rng.randint(1, 20)]
        else:
            content[at:at] = rng.randbytes(rng.randint(1, 9))


def blank(way: Way, size: int) -> bytes:
    """A legal request without spans, of this size."""
    if way.form == "json":
        return b"{" + b" " * (size - 2) + b"}"
    field = b"\xc2\x3e"  # unknown, of bytes; its length takes three bytes
    rest = size - len(field) - 3
    return field + bytes([rest & 0x7F | 0x80, rest >> 7 & 0x7F | 0x80, rest >> 14]) + bytes(rest)


def of_type(message: Any, body: bytes) -> bytes:
    """Bytes that the parser of this message refuses."""
    with pytest.raises(Exception, match="pars"):
        message.FromString(body)
    return body


NOT_OTLP = {
    "json": [
        ("traces", b"{"),
        ("traces", b"[]"),
        ("traces", b"null"),
        ("traces", b"\xff{}"),
        ("traces", b'{"resourceSpans": 3}'),
        ("traces", b'{"resourceSpans":' * 2000),
        ("traces", b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"kind":"SERVER"}]}]}]}'),
        ("traces", b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"startTimeUnixNano":-1}]}]}]}'),
        ("metrics", b'{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"gauge":[]}]}]}]}'),
        ("metrics", b'{"resourceMetrics":{}}'),
    ],
    "protobuf": [
        ("traces", of_type(ExportTraceServiceRequest, b"\xff\xff\xff")),
        ("traces", of_type(ExportTraceServiceRequest, b"\x0a")),
        ("traces", of_type(ExportTraceServiceRequest, b"\x0a\x05abc")),
        ("traces", of_type(ExportTraceServiceRequest, b"\x0a\x02\x12\x05")),
        ("traces", of_type(ExportTraceServiceRequest, b"\x00\x00")),
        ("traces", of_type(ExportTraceServiceRequest, b"{}")),
        ("traces", of_type(ExportTraceServiceRequest, b"\x0b")),
        ("traces", of_type(ExportTraceServiceRequest, b"\x0a\x04\x0a\x02\x0a\x07")),
        ("metrics", of_type(ExportMetricsServiceRequest, b"\x0a\x03\x12\x02\x12")),
        ("metrics", of_type(ExportMetricsServiceRequest, b"\xff")),
    ],
}  # fmt: skip
