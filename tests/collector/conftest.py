"""What the collector's tests share: a live collector, requests to send, pages to read."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from otel_straggler import semconv
from otel_straggler.collector.service import WITHIN_S, Collector
from otel_straggler.collector.settings import (
    CollectorSettings,
    ForwardSettings,
    MetricsSettings,
    ReceiverSettings,
    ScoringSettings,
)
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.encode_metrics import encode_heartbeat

from ..waiting import eventually

FREE = "127.0.0.1:0"
SOON_S = 4.0
"""To stop in after a test that has asserted nothing about it: whoever is away is not waited for."""
PROTOBUF = "application/x-protobuf"
DAY_NS = 1_790_000_000_000_000_000


@dataclass(frozen=True)
class Answer:
    """An HTTP answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    address: str,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    try:
        connection.request(method, path, body, dict(headers or {}))
        response = connection.getresponse()
        names = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, names, response.read())
    finally:
        connection.close()


class Live:
    """A collector that listens on free ports."""

    def __init__(self, settings: CollectorSettings) -> None:
        self.collector = Collector(settings)
        self.addresses = self.collector.start()
        self.is_stopped = False

    def stop(self, within_s: float = WITHIN_S) -> None:
        if not self.is_stopped:
            self.is_stopped = True
            self.collector.stop(within_s)

    def post(
        self,
        body: bytes,
        signal: str = "traces",
        content_type: str = PROTOBUF,
        *,
        zipped: bool = False,
        sender: Mapping[str, str] | None = None,
    ) -> Answer:
        headers = {"Content-Type": content_type, **(sender or {})}
        if zipped:
            headers["Content-Encoding"] = "gzip"
            body = gzip.compress(body)
        return ask(self.addresses["otlp_http"], "POST", f"/v1/{signal}", body, headers)

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return ask(self.addresses["metrics"], "GET", path, headers=headers)

    def report(self) -> dict[str, Any]:
        result: dict[str, Any] = self.get("/v1/report").json()
        return result

    def windows(self, run_id: str = "run") -> list[dict[str, Any]]:
        """The newest windows of a run; none while there is no such run."""
        result: list[dict[str, Any]] = self.report()["runs"].get(run_id, {}).get("windows", [])
        return result

    def samples(self, name: str, **wanted: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Samples of /metrics by their labels, without the labels asked for."""
        result = {}
        for family in text_string_to_metric_families(self.get("/metrics").body.decode()):
            for sample in family.samples:
                labels = sample.labels
                if sample.name == name and all(labels.get(k) == v for k, v in wanted.items()):
                    result[tuple(sorted(labels.items()))] = sample.value
        return result

    def value(self, metric: semconv.Metric, **wanted: str) -> float | None:
        """The only sample with these labels; None if there is none."""
        result = self.samples(metric.prometheus_name, **wanted)
        assert len(result) <= 1, result
        return next(iter(result.values()), None)

    def ranks(self, metric: semconv.Metric, **wanted: str) -> list[int]:
        """Ranks that have a sample."""
        result = self.samples(metric.prometheus_name, **wanted)
        return sorted({int(dict(labels)["rank"]) for labels in result})

    def spans(self) -> dict[str, float]:
        """Spans received, by outcome (and reason)."""
        return {
            (dict(labels)["reason"] or dict(labels)["outcome"]): value
            for labels, value in self.samples("straggler_collector_spans_total").items()
            if value
        }


def run_settings(**changes: Any) -> CollectorSettings:
    """Free ports, short windows and waits; ``section__key=value`` changes one setting."""
    settings = CollectorSettings(
        receivers=ReceiverSettings(otlp_http=FREE, otlp_grpc=FREE),
        metrics=MetricsSettings(listen=FREE),
        scoring=ScoringSettings(window_steps=4, grace_s=0.3),
        forward=ForwardSettings(),
    )
    for path, value in changes.items():
        part, _, key = path.partition("__")
        settings = replace(settings, **{part: replace(getattr(settings, part), **{key: value})})
    return settings


def spans_of(
    source: Source,
    steps: Sequence[int],
    sections: Mapping[str, float] | None = None,
    first_seq: int | None = None,
    start_ns: int = DAY_NS,
) -> bytes:
    """A trace request: every section once in every step; times in seconds."""
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    for key, value in resource_of(source).items():
        pair = resource_spans.resource.attributes.add(key=key)
        if isinstance(value, int):
            pair.value.int_value = value
        else:
            pair.value.string_value = value
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = semconv.SCOPE_NAME
    for number, step in enumerate(steps):
        for name, seconds in (sections or {"forward": 0.1}).items():
            span = scope_spans.spans.add(
                trace_id=step.to_bytes(8, "big") * 2 if step else b"\1" * 16,
                span_id=(source.rank * 1_000_003 + hash(name) % 997 + step * 7919 + 1).to_bytes(
                    8, "big"
                ),
                name=name,
                start_time_unix_nano=start_ns + step * 1_000_000_000,
                end_time_unix_nano=start_ns + step * 1_000_000_000 + int(seconds * 1e9),
            )
            seq = step if first_seq is None else first_seq + number
            span.attributes.add(key=semconv.SECTION).value.string_value = name
            span.attributes.add(key=semconv.STEP).value.int_value = step
            span.attributes.add(key=semconv.SEQ).value.int_value = seq
    encoded: bytes = request.SerializeToString()
    return encoded


def resource_of(source: Source) -> dict[str, Any]:
    known = {
        semconv.SERVICE_NAME: source.job,
        semconv.HOST_NAME: source.node,
        semconv.SESSION_ID: source.session_id,
        semconv.RUN_ID: source.run_id,
        semconv.RUN_ATTEMPT: source.attempt,
        semconv.GROUP: source.group,
        semconv.RANK: source.rank,
        semconv.WORLD_SIZE: source.world_size,
        semconv.ROLE: source.role,
        semconv.LOCAL_RANK: "" if source.local_rank < 0 else source.local_rank,
        semconv.GPU_UUID: source.device,
    }
    return {str(key): value for key, value in known.items() if value != ""}


def beat_of(source: Source, **values: Any) -> bytes:
    """A metrics request: one heartbeat."""
    beat = Heartbeat(source=source, **values)
    return encode_heartbeat(
        beat, resource=resource_of(source), info={semconv.ROLE: source.role}, started_at_s=1.0
    )


def rank(number: int, world_size: int = 2, **changes: Any) -> Source:
    values = {
        "run_id": "run",
        "job": "job",
        "node": f"node-{number}",
        "session_id": f"{number:016x}",
        "world_size": world_size,
        **changes,
    }
    return Source(rank=number, **values)


@pytest.fixture
def start() -> Iterator[Callable[..., Live]]:
    """Start a collector with changed settings; it is stopped after the test."""
    running: list[Live] = []

    def begin(**changes: Any) -> Live:
        live = Live(run_settings(**changes))
        running.append(live)
        return live

    yield begin
    for live in running:
        live.stop(SOON_S)


@pytest.fixture
def live(start: Callable[..., Live]) -> Live:
    """A collector with short windows."""
    return start()


class Kit:
    """The helpers above, for tests (which cannot import a conftest)."""

    ask = staticmethod(ask)
    eventually = staticmethod(eventually)
    settings = staticmethod(run_settings)
    spans_of = staticmethod(spans_of)
    beat_of = staticmethod(beat_of)
    rank = staticmethod(rank)
    Live = Live


@pytest.fixture(scope="session")
def kit() -> type[Kit]:
    return Kit


def _server(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        sentence = f"{name} is not installed (make servers): the real server was not tried"
        if os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    return path


@pytest.fixture
def prometheus() -> str:
    """The program; without it a failure under CI, else a skip."""
    return _server("prometheus")


@pytest.fixture
def promtool() -> str:
    """The program; without it a failure under CI, else a skip."""
    return _server("promtool")
