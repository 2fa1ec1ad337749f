"""``simulate --send`` sends as a rank does: to where, by what, and again where that helps."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.cli.sending import PATIENCE_S, Poster
from otel_straggler.collector.access.settings import AuthSettings, TlsSettings
from otel_straggler.collector.service import Collector
from otel_straggler.collector.settings import CollectorSettings, MetricsSettings, ReceiverSettings
from otel_straggler.demo.processes import free_address
from otel_straggler.errors import UnavailableError
from otel_straggler.testing import CapturedRequests

from ..servers.certificate import make_certificate

RUN = ("simulate", "--ranks", "2", "--steps", "4", "--send")
INGEST = "ingest-0123456789abcdef"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pauses between tries."""
    monkeypatch.setattr("otel_straggler.cli.sending.retry_delay_s", lambda *_: 0.0)


def taken(sink: CapturedRequests) -> list[Any]:
    return [request for request in sink.requests if request.answered == 200]


# --- the settings of a rank -----------------------------------------------------------------------


def test_without_a_url_it_goes_where_a_rank_would_send(
    call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its headers, and compressed; a URL goes before the variable."""
    with CapturedRequests() as sink, CapturedRequests() as other:
        monkeypatch.setenv("OTEL_STRAGGLER_ENDPOINT", sink.url)
        monkeypatch.setenv("OTEL_STRAGGLER_HEADERS", "authorization=Bearer%20abc")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        code, _, error = call(*RUN)
        assert code == 0, error
        assert f"sent to {sink.url}, run" in error
        assert {request.path for request in sink.requests} == {"/v1/traces", "/v1/metrics"}
        for request in sink.requests:
            assert request.headers["authorization"] == "Bearer abc"
            assert request.headers["content-encoding"] == "gzip"
            assert request.decode()
        before = len(sink.requests)
        assert call(*RUN, other.url)[0] == 0
        assert (len(sink.requests), len(other.requests)) == (before, before)


def test_a_signal_may_go_elsewhere(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By OpenTelemetry's variables, each as it is."""
    with CapturedRequests() as sink:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{sink.url}/v1/metrics?x=1")
        assert call(*RUN)[0] == 0
        assert {r.path for r in sink.requests} == {"/v1/traces", "/v1/metrics?x=1"}


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Addresses of a collector with TLS that wants a token."""
    make_certificate(tmp_path, days=1, untried="simulate --send over TLS")
    (tmp_path / "grants").write_text(f"ingest i token:{INGEST}\nread r token:read-{INGEST}\n")
    free = "localhost:0"
    collector = Collector(
        CollectorSettings(
            receivers=ReceiverSettings(otlp_http=free, otlp_grpc=free),
            metrics=MetricsSettings(listen="127.0.0.1:0"),
            auth=AuthSettings(grant_files=(str(tmp_path / "grants"),)),
            tls=TlsSettings(cert_file=str(tmp_path / "both.pem")),
        )
    )
    try:
        yield {**collector.start(), "ca": str(tmp_path / "cert.pem")}
    finally:
        collector.stop(4.0)


@pytest.mark.parametrize(
    ("protocol", "port"), [("http/protobuf", "otlp_http"), ("grpc", "otlp_grpc")]
)
def test_a_collector_with_tls_and_grants_takes_it_over_both_protocols(
    call: Any,
    secured: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    protocol: str,
    port: str,
) -> None:
    """With the same variables as a training; without the token, one sentence says so."""
    url = f"https://localhost:{secured[port].rpartition(':')[2]}"
    monkeypatch.setenv("OTEL_STRAGGLER_PROTOCOL", protocol)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", secured["ca"])
    code, _, error = call(*RUN, url)
    assert (code, "401" in error, "Traceback" in error) == (2, True, False)
    monkeypatch.setenv("OTEL_STRAGGLER_HEADERS", f"authorization=Bearer%20{INGEST}")
    code, _, error = call(*RUN, url)
    assert (code, f"sent to {url}, run" in error) == (0, True), error


# --- a collector that is busy, or restarts --------------------------------------------------------


def test_what_a_busy_collector_refuses_is_sent_again_once(call: Any) -> None:
    """503 and 429, from the first request on; nothing is lost or sent twice."""
    with CapturedRequests() as sink:
        sink.behaviour.next_statuses = [503, 429, 503]
        code, _, error = call(*RUN, sink.url)
        assert code == 0, error
        assert [line for line in error.splitlines() if sink.url in line][:2] == [
            f"{sink.url} answers 503; waiting for it",
            f"{sink.url} takes data again",
        ]
        spans = sink.spans()
        assert len({span.span_id for span in spans}) == len(spans) > 0
        assert sum(span.name == "forward" for span in spans) == 2 * 4


def test_a_collector_that_restarts_gets_the_rest(tmp_path: Path) -> None:
    """It is gone between two requests, and is back at the same address."""
    addresses = {name: free_address() for name in ("otlp_http", "otlp_grpc", "metrics")}
    settings = CollectorSettings(
        receivers=ReceiverSettings(
            otlp_http=addresses["otlp_http"], otlp_grpc=addresses["otlp_grpc"]
        ),
        metrics=MetricsSettings(listen=addresses["metrics"]),
    )
    running = [Collector(settings)]
    running[0].start()
    pauses = []

    def restart(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(running) == 1:
            running.append(Collector(settings))
            running[1].start()

    try:
        with Poster(f"http://{addresses['otlp_http']}", env={}, sleep=restart) as poster:
            poster.post("metrics", b"")
            running[0].stop(4.0)
            poster.post("metrics", b"")
        assert pauses
        with urllib.request.urlopen(f"http://{addresses['metrics']}/metrics") as page:
            text = page.read().decode()
        requests = semconv.COLLECTOR_REQUESTS.prometheus_name
        [line] = [
            each
            for each in text.splitlines()
            if each.startswith(f'{requests}{{signal="metrics",answer="ok"')
        ]
        assert line.endswith(" 1")
    finally:
        running[-1].stop(4.0)


def test_a_collector_that_stays_away_ends_it(call: Any) -> None:
    """After five minutes, with a sentence."""
    now_s = [0.0]

    def sleep(_: float) -> None:
        now_s[0] += PATIENCE_S / 4

    with CapturedRequests() as sink:
        sink.behaviour.status = 503
        with (
            Poster(sink.url, env={}, sleep=sleep, monotonic_s=lambda: now_s[0]) as poster,
            pytest.raises(UnavailableError, match=r"--send: .*503"),
        ):
            poster.post("traces", b"")
        assert len(sink.requests) == 6


@pytest.mark.parametrize("status", [400, 401, 403])
def test_what_is_refused_for_good_is_not_repeated(call: Any, status: int) -> None:
    """Nor is a first request to nobody: the address is wrong."""
    with CapturedRequests() as sink:
        sink.behaviour.status = status
        code, _, error = call(*RUN, sink.url)
        assert (code, len(sink.requests)) == (2, 1)
        assert str(status) in error
