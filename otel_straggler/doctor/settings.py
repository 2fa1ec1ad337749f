"""Settings that disable telemetry, are misspelled, or contradict each other."""

from __future__ import annotations

import logging
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from otel_straggler import semconv
from otel_straggler.client.endpoints import Endpoints, resolve_endpoints
from otel_straggler.client.settings import resolve_settings
from otel_straggler.client.start_line import is_page_address, with_port
from otel_straggler.config import Endpoint, unknown_variables
from otel_straggler.doctor.findings import Finding, info, ok, problem, warning
from otel_straggler.doctor.identity import Identity
from otel_straggler.doctor.network import CA_REMEDY, OWN_REMEDY, ClockBounds, clock_bounds
from otel_straggler.errors import ConfigError
from otel_straggler.otlp.clients.client import NO_ANSWER, Response, Signal, client_for
from otel_straggler.otlp.clients.tls import tls_advice

_PREFIX: Final = "OTEL_STRAGGLER_"
_SIGNALS: Final = ("TRACES", "METRICS")
_LOOPBACK: Final = ("localhost", "127.", "::1")


def resolve_target(
    env: Mapping[str, str], endpoint: str | None, protocol: str | None, identity: Identity
) -> tuple[Endpoints | None, list[Finding]]:
    """What ``configure()`` would decide here; None if it would refuse."""
    received = _Warnings()
    log = logging.getLogger("otel_straggler")
    log.addHandler(received)
    was_propagating, log.propagate = log.propagate, False
    try:
        target = resolve_endpoints(env, endpoint, None, protocol)
        run_id = identity.run_id or "unknown"
        resolve_settings({"endpoint": endpoint, "protocol": protocol, "run_id": run_id}, env)
    except ConfigError as error:
        return None, [_refusal(error), *received.findings()]
    finally:
        log.propagate = was_propagating
        log.removeHandler(received)
    return target, received.findings()


def _refusal(error: ConfigError) -> Finding:
    """Our errors end with what to do."""
    reported, _, remedy = str(error).rstrip(".").rpartition(". ")
    return problem("settings.refused", f"configure() would refuse: {reported}.", f"{remedy}.")


class _Warnings(logging.Handler):
    """Keeps warnings that the package logs meanwhile."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._texts: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self._texts[record.getMessage()] = None

    def findings(self) -> list[Finding]:
        return [
            warning("settings.ignored", text, _remedy(text))
            for text in self._texts
            if text.startswith("OTEL_")
        ]


def _remedy(text: str) -> str:
    """A command, from a warning that begins with its variable."""
    install = re.search(r"pip install '[^']+'", text)
    if install:
        return install[0]
    if "OTEL_STRAGGLER_PROTOCOL settles" in text:
        return "export OTEL_STRAGGLER_PROTOCOL=http/protobuf"
    return f"unset {text.split(maxsplit=1)[0].rstrip(':')}"


def check_switches(env: Mapping[str, str]) -> Iterator[Finding]:
    """Switches that are off, and variables that nothing reads."""
    for name in ("OTEL_SDK_DISABLED", "OTEL_STRAGGLER_DISABLED"):
        if env.get(name, "").strip().lower() in {"1", "true"}:
            sentence = f"{name} is set: nothing is recorded and nothing sent."
            yield problem("settings.disabled", sentence, f"unset {name}", name)
    if _is_none(env, "OTEL_TRACES_EXPORTER"):
        sentence = "OTEL_TRACES_EXPORTER is 'none': no spans are sent, so nothing can be scored."
        yield problem("settings.traces_off", sentence, "unset OTEL_TRACES_EXPORTER")
    if _is_none(env, "OTEL_METRICS_EXPORTER"):
        sentence = (
            "OTEL_METRICS_EXPORTER is 'none': no heartbeats are sent, so a silent rank is not seen."
        )
        yield warning("settings.metrics_off", sentence, "unset OTEL_METRICS_EXPORTER")
    if env.get("OTEL_CONFIG_FILE"):
        sentence = "OTEL_CONFIG_FILE is set; otel-straggler reads variables only."
        yield info("settings.config_file", sentence, env["OTEL_CONFIG_FILE"])
    for name, nearest in unknown_variables(env).items():
        yield _unknown(name, nearest)


def check_diagnostics(env: Mapping[str, str]) -> Iterator[Finding]:
    """Folders for diagnostics that cannot be written."""
    for name, what in (("EVIDENCE_DIR", "stacks are written"), ("RING_DIR", "rings are stored")):
        folder = env.get(f"{_PREFIX}{name}", "").strip()
        if folder and not _may_write(Path(folder)):
            sentence = f"{folder} cannot be made, or not be written to, so no {what} there."
            remedy = f"mkdir -p {shlex.quote(folder)}   # or name another in {_PREFIX}{name}"
            yield warning(f"settings.{name.lower()}", sentence, remedy, folder)
    is_asking = env.get(f"{_PREFIX}COMMANDS", "").strip().lower() == "on"
    if is_asking and not env.get(f"{_PREFIX}COMMANDS_TOKEN", "").strip():
        sentence = f"{_PREFIX}COMMANDS is on, but {_PREFIX}COMMANDS_TOKEN is not set: none come."
        remedy = f"export {_PREFIX}COMMANDS_TOKEN=...   # that of the collector"
        yield warning("settings.commands", sentence, remedy)


def _may_write(folder: Path) -> bool:
    """Whether it can be written, or created within the nearest existing folder."""
    there = next((index for index in (folder, *folder.parents) if index.exists()), Path.cwd())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _unknown(name: str, nearest: str) -> Finding:
    remedy = f"unset {name}"
    if nearest:
        remedy = f'export {nearest}="${name}"; {remedy}'
    return warning("settings.unknown", f"Nothing reads {name}.", remedy, name)


def _is_none(env: Mapping[str, str], name: str) -> bool:
    return env.get(name, "").strip().lower() == "none"


def check_target(
    target: Endpoints, env: Mapping[str, str], identity: Identity
) -> Iterator[Finding]:
    """Destinations of telemetry, and whether address, port and protocol match."""
    for signal, endpoint in target.by_signal.items():
        if endpoint.is_enabled:
            yield _destination(target, signal, endpoint)
            yield from _contradictions(target, signal, endpoint)
    traces = target.traces
    host = urlsplit(traces.url).hostname or ""
    if not identity.is_one_node and host.startswith(_LOOPBACK):
        sentence = f"{traces.url} is this machine, but the run has several: each asks itself."
        remedy = "export OTEL_STRAGGLER_ENDPOINT=http://COLLECTOR_HOST:4318"
        yield warning("settings.loopback", sentence, remedy, traces.url)
    if env.get("OTEL_STRAGGLER_HEADERS") is not None and env.get("OTEL_EXPORTER_OTLP_HEADERS"):
        sentence = "OTEL_STRAGGLER_HEADERS takes the place of OTEL_EXPORTER_OTLP_HEADERS."
        yield info("settings.headers", sentence)


def _destination(target: Endpoints, signal: str, endpoint: Endpoint) -> Finding:
    where = target.where[signal] or "by default"
    protocol_where = target.protocol_where[signal] or "by default"
    return ok(
        f"settings.{signal}",
        f"{signal.capitalize()} go to {endpoint.url} ({where}) over {endpoint.protocol} "
        f"({protocol_where}); headers: {', '.join(k for k, _ in endpoint.headers) or 'none'}.",
        {
            "url": endpoint.url,
            "from": where,
            "protocol": endpoint.protocol,
            "protocol_from": protocol_where,
            "compression": endpoint.compression,
            "headers": [name for name, _ in endpoint.headers],
        },
    )


def _contradictions(target: Endpoints, signal: str, endpoint: Endpoint) -> Iterator[Finding]:
    parts = urlsplit(endpoint.url)
    variable = target.where[signal] or "OTEL_STRAGGLER_ENDPOINT"
    if variable.startswith("configure("):
        variable = "OTEL_STRAGGLER_ENDPOINT"
    is_grpc = endpoint.protocol == "grpc"
    if parts.port == (4318 if is_grpc else 4317):
        spoken = "HTTP" if is_grpc else "gRPC"
        other = "http/protobuf" if is_grpc else "grpc"
        usual = f"Port {parts.port} is usually that of OTLP over {spoken}"
        sentence = f"{usual}, but {endpoint.protocol} is spoken to {endpoint.url}."
        own_port = 4317 if is_grpc else 4318
        remedy = f"export OTEL_STRAGGLER_PROTOCOL={other}   # or name port {own_port}"
        yield warning(f"settings.{signal}_port", sentence, remedy, parts.port)
    path = f"/v1/{signal}"
    if parts.path.endswith(path + path):
        base = endpoint.url.removesuffix(path).removesuffix(path)
        sentence = f"{path} is added to the endpoint, which has it already: {endpoint.url}."
        yield problem(f"settings.{signal}_path", sentence, f"export {variable}={base}", parts.path)
    elif not is_grpc and not parts.path.rstrip("/"):
        sentence = f"{variable} is used as it is, and {endpoint.url} has no path {path}."
        remedy = f"export {variable}={endpoint.url.rstrip('/')}{path}"
        yield warning(f"settings.{signal}_path", sentence, remedy, parts.path)


_PROTOBUF = "application/x-protobuf"
_HEADERS_REMEDY = "export OTEL_STRAGGLER_HEADERS='authorization=Bearer%20TOKEN'"
_START = "otel-straggler collector   # then export OTEL_STRAGGLER_ENDPOINT=http://ITS_HOST:4318"


@dataclass(frozen=True, slots=True)
class TimedResponse:
    """An answer, and when it was requested and received, in Unix seconds."""

    response: Response
    asked_s: float
    came_s: float

    @property
    def clock(self) -> ClockBounds | None:
        return clock_bounds(self.response.headers.get("date", ""), self.asked_s, self.came_s)


def ask(endpoint: Endpoint, signal: Signal, timeout_s: float) -> TimedResponse:
    """Send an empty request: by OTLP's specification a success that changes nothing."""
    client = client_for(replace(endpoint, timeout_s=timeout_s), signal)
    asked_s = time.time()
    response = client.post(b"", content_type=_PROTOBUF)
    came_s = time.time()
    client.close()
    return TimedResponse(response, asked_s, came_s)


def check_answer(
    endpoint: Endpoint, signal: Signal, answered: TimedResponse, timeout_s: float
) -> Finding:
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
    text = f" ({response.error[:200]})" if response.error else ""
    sentence = f"{endpoint.url} answered {response.status} to an empty request{text}."
    if response.status == NO_ANSWER:
        return _silence(endpoint, signal, value, text, timeout_s)
    if is_page_address(response):
        parts = urlsplit(endpoint.url)
        base = f"{parts.scheme}://{parts.netloc}"
        sentence = f"{base} is the address of a collector's page and metrics, and takes no data."
        port = 4317 if endpoint.protocol == "grpc" else 4318
        remedy = f"export OTEL_STRAGGLER_ENDPOINT={with_port(base, port)}"
        return problem(finding_id, sentence, remedy, value)
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
    endpoint: Endpoint, signal: Signal, value: dict[str, object], text: str, timeout_s: float
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
    sentence = f"{endpoint.url} did not answer{text}."
    usual = "otel-straggler collector   # does it run there? is it behind a firewall?"
    remedy = tls_advice(endpoint.url, text, ca=CA_REMEDY, own=OWN_REMEDY) or usual
    return problem(f"endpoint.{signal}", sentence, remedy, value)


def _in_other_protocol(endpoint: Endpoint, signal: Signal) -> Endpoint:
    parts = urlsplit(endpoint.url)
    base = f"{parts.scheme}://{parts.netloc}"
    if endpoint.protocol == "grpc":
        return replace(endpoint, protocol="http/protobuf", url=f"{base}/v1/{signal}")
    return replace(endpoint, protocol="grpc", url=base)


def check_scorer(
    endpoint: Endpoint, answered: TimedResponse, *, is_trusted: bool
) -> Iterator[Finding]:
    """Full-rate spans are for a collector that scores them."""
    if not answered.response.is_success:
        return
    text = answered.response.headers.get(semconv.SCORER_HEADER)
    if text is not None:
        yield ok("endpoint.scorer", f"{endpoint.url} is a collector that scores.", text)
    elif is_trusted:
        sentence = (
            f"{endpoint.url} does not announce that it scores, yet it is configured as a scorer: "
            "it gets every span. A tracing backend would pay for that; a proxy may have cut the "
            "header."
        )
        yield warning("endpoint.scorer", sentence, _START)
    else:
        sentence = (
            f"{endpoint.url} does not announce that it scores: it gets heartbeats, histograms and "
            "the spans of a few steps. No scores are made there."
        )
        yield warning("endpoint.scorer", sentence, _START)


def check_endpoint_named(*, is_named: bool) -> Iterator[Finding]:
    if not is_named:
        sentence = "No endpoint is set: this machine's own is tried."
        remedy = "export OTEL_STRAGGLER_ENDPOINT=http://COLLECTOR_HOST:4318"
        yield info("settings.endpoint", sentence, None, remedy)
