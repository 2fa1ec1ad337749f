"""What the other side answers to an empty OTLP request: status, scorer or not, its clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from otel_straggler import semconv
from otel_straggler.config import Endpoint
from otel_straggler.doctor.clock import ClockBounds, clock_bounds
from otel_straggler.doctor.findings import Finding, info, ok, problem, warning
from otel_straggler.doctor.network import CA_REMEDY, OWN_REMEDY
from otel_straggler.errors import ConfigError
from otel_straggler.transport.client import Signal, client_for
from otel_straggler.transport.response import NO_ANSWER, Response
from otel_straggler.transport.tls_advice import tls_advice

_PROTOBUF = "application/x-protobuf"
_HEADERS_REMEDY = "export OTEL_STRAGGLER_HEADERS='authorization=Bearer%20TOKEN'"
_START = "otel-straggler collector   # then export OTEL_STRAGGLER_ENDPOINT=http://ITS_HOST:4318"


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer, and when it was asked for and came, in Unix seconds."""

    response: Response
    asked_s: float
    came_s: float

    @property
    def clock(self) -> ClockBounds | None:
        return clock_bounds(self.response.headers.get("date", ""), self.asked_s, self.came_s)


def ask(endpoint: Endpoint, signal: Signal, timeout_s: float) -> Answered:
    """Send a request without content: by OTLP's specification a success that changes nothing."""
    client = client_for(replace(endpoint, timeout_s=timeout_s), signal)
    asked_s = time.time()
    response = client.post(b"", content_type=_PROTOBUF)
    came_s = time.time()
    client.close()
    return Answered(response, asked_s, came_s)


def check_answer(
    endpoint: Endpoint, signal: Signal, answered: Answered, timeout_s: float
) -> Finding:
    """Would telemetry be taken?"""
    response = answered.response
    finding_id = f"endpoint.{signal}"
    took_ms = (answered.came_s - answered.asked_s) * 1e3
    value = {"status": response.status, "ms": round(took_ms, 1), "error": response.error}
    if response.is_success:
        kind = response.headers.get("content-type", "")
        if kind.startswith("text/html"):
            sentence = f"{endpoint.url} answers with a web page: that is no OTLP endpoint."
            return problem(finding_id, sentence, _START, value)
        return ok(finding_id, f"{endpoint.url} takes {signal} ({took_ms:.1f} ms).", value)
    words = f" ({response.error[:200]})" if response.error else ""
    sentence = f"{endpoint.url} answered {response.status} to an empty request{words}."
    if response.status == NO_ANSWER:
        return _silence(endpoint, signal, value, words, timeout_s)
    if response.status in {401, 403}:
        sent = ", ".join(name for name, _ in endpoint.headers) or "none"
        sentence = f"{sentence[:-1]}: not allowed. Headers sent: {sent}."
        return problem("endpoint.auth", sentence, _HEADERS_REMEDY, value)
    if response.status in {429, 502, 503, 504}:
        remedy = "otel-straggler doctor   # again in a minute; is the collector overloaded?"
        return warning(finding_id, sentence, remedy, value)
    if 300 <= response.status < 400:
        elsewhere = response.headers.get("location", "the address it names")
        sentence = f"{sentence[:-1]}: redirects are not followed."
        remedy = f"export OTEL_STRAGGLER_ENDPOINT={elsewhere.removesuffix(f'/v1/{signal}')}"
        return problem(finding_id, sentence, remedy, value)
    return problem(finding_id, sentence, _START, value)


def _silence(
    endpoint: Endpoint, signal: Signal, value: dict[str, object], words: str, timeout_s: float
) -> Finding:
    """No answer; perhaps because the port speaks the other protocol."""
    other = _in_other_protocol(endpoint, signal)
    try:
        is_other = ask(other, signal, min(timeout_s, 2.0)).response.status != NO_ANSWER
    except ConfigError:  # gRPC cannot be used here
        is_other = False
    if is_other:
        sentence = f"{endpoint.url} speaks {other.protocol}, not {endpoint.protocol}."
        remedy = f"export OTEL_STRAGGLER_PROTOCOL={other.protocol}"
        return problem(f"endpoint.{signal}", sentence, remedy, value)
    sentence = f"{endpoint.url} did not answer{words}."
    usual = "otel-straggler collector   # does it run there? is it behind a firewall?"
    remedy = tls_advice(endpoint.url, words, ca=CA_REMEDY, own=OWN_REMEDY) or usual
    return problem(f"endpoint.{signal}", sentence, remedy, value)


def _in_other_protocol(endpoint: Endpoint, signal: Signal) -> Endpoint:
    parts = urlsplit(endpoint.url)
    base = f"{parts.scheme}://{parts.netloc}"
    if endpoint.protocol == "grpc":
        return replace(endpoint, protocol="http/protobuf", url=f"{base}/v1/{signal}")
    return replace(endpoint, protocol="grpc", url=base)


def check_scorer(endpoint: Endpoint, answered: Answered, *, is_trusted: bool) -> Iterator[Finding]:
    """Full-rate spans are for a collector that scores them."""
    if not answered.response.is_success:
        return
    said = answered.response.headers.get(semconv.SCORER_HEADER)
    if said is not None:
        yield ok("endpoint.scorer", f"{endpoint.url} is a collector that scores.", said)
    elif is_trusted:
        sentence = (
            f"{endpoint.url} does not say that it scores, yet it was named as a scorer: it gets "
            "every span. A tracing backend would pay for that; a proxy may have cut the header."
        )
        yield warning("endpoint.scorer", sentence, _START)
    else:
        sentence = (
            f"{endpoint.url} does not say that it scores: it gets heartbeats, histograms and the "
            "spans of a few steps. Nobody scores this run there."
        )
        yield warning("endpoint.scorer", sentence, _START)


def check_own_address(*, is_named: bool) -> Iterator[Finding]:
    """Whether anybody said where the collector is."""
    if not is_named:
        sentence = "Nobody named an endpoint: this machine's own is tried."
        remedy = "export OTEL_STRAGGLER_ENDPOINT=http://COLLECTOR_HOST:4318"
        yield info("settings.endpoint", sentence, None, remedy)
