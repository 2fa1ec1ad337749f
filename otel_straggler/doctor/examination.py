"""All checks in order: installation, identity, endpoint, collector."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from otel_straggler.client.endpoints import Endpoints
from otel_straggler.config import Endpoint
from otel_straggler.doctor.collector import (
    Collector,
    check_collector,
    check_exposure,
    check_losses,
    check_ranks,
    check_run,
    find_run,
    read_collector,
)
from otel_straggler.doctor.findings import Finding, info, ok, problem
from otel_straggler.doctor.identity import Identity, check_identity, find_identity
from otel_straggler.doctor.network import (
    ClockBounds,
    check_clock,
    check_way,
    proxy_for,
    proxy_remedy,
)
from otel_straggler.doctor.recording import (
    Volume,
    assumed,
    check_exporter,
    check_recording,
    check_volume,
    measured,
)
from otel_straggler.doctor.settings import (
    ask,
    check_answer,
    check_diagnostics,
    check_endpoint_named,
    check_scorer,
    check_switches,
    check_target,
    resolve_target,
)
from otel_straggler.doctor.versions import check_versions
from otel_straggler.otlp.clients.client import NO_ANSWER
from otel_straggler.otlp.clients.tls import tls_advice
from otel_straggler.otlp.clients.token import TOKEN_REMEDY

METRICS_PORT = 9464


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options besides the environment.

    Attributes:
        endpoint, protocol: as the arguments of ``configure()``.
        collector: metrics address; None: host of the endpoint, port 9464.
        run: the run to look at; None: this environment's.
        timeout_s: of every single request.
        sections_per_step, step_s: for the volume, if it cannot be measured.
    """

    endpoint: str | None = None
    protocol: str | None = None
    collector: str | None = None
    run: str | None = None
    timeout_s: float = 5.0
    sections_per_step: float = 10.0
    step_s: float = 1.0


def examine(options: Options, env: Mapping[str, str]) -> Iterator[Finding]:
    """Every finding, as soon as it is known."""
    identity = find_identity(env)
    yield from check_versions()
    yield from check_recording(env)
    yield from check_identity(identity, env)
    yield from check_switches(env)
    yield from check_diagnostics(env)
    target, findings = resolve_target(env, options.endpoint, options.protocol, identity)
    yield from findings
    clock: ClockBounds | None = None
    if target is not None:
        yield from check_endpoint_named(is_named=bool(target.where["traces"]))
        yield from check_target(target, env, identity)
        yield check_exporter(target.by_signal.values())
        clock = yield from _endpoint_findings(target, env, options.timeout_s)
    collector = yield from _collector_findings(options, target, identity, env)
    if collector is not None and collector.clock is not None:
        clock = collector.clock
    yield check_clock(clock, "the collector's" if collector else "the endpoint's")
    yield check_volume(_volume(options, identity, collector))


def _endpoint_findings(
    target: Endpoints, env: Mapping[str, str], timeout_s: float
) -> Generator[Finding, None, ClockBounds | None]:
    """Check each address once, then each signal's endpoint."""
    clock: ClockBounds | None = None
    walked: dict[str, bool] = {}
    for signal, endpoint in target.by_signal.items():
        if not endpoint.is_enabled:
            continue
        address = urlsplit(endpoint.url).netloc
        if address not in walked:
            walked[address] = yield from _walk(endpoint, env, timeout_s)
        if not walked[address]:
            continue
        answered = ask(endpoint, signal, timeout_s)
        yield _with_proxy(check_answer(endpoint, signal, answered, timeout_s), endpoint, env)
        walked[address] = answered.response.status != NO_ANSWER
        clock = clock or answered.clock
        if signal == "traces":
            yield from check_scorer(endpoint, answered, is_trusted=target.is_trusted)
    return clock


def _walk(
    endpoint: Endpoint, env: Mapping[str, str], timeout_s: float
) -> Generator[Finding, None, bool]:
    """Check the way to an address; returns whether it leads there."""
    is_open = True
    for finding in check_way(endpoint, env, timeout_s):
        is_open = is_open and finding.status != "problem"
        yield finding
    return is_open


def _with_proxy(finding: Finding, endpoint: Endpoint, env: Mapping[str, str]) -> Finding:
    """A failure behind a proxy is most likely the proxy's."""
    proxy = proxy_for(endpoint, env)
    if finding.status == "ok" or proxy is None:
        return finding
    sentence = f"{finding.sentence} The request went through the proxy of {proxy[0]}."
    return replace(finding, sentence=sentence, remedy=proxy_remedy(endpoint))


def _collector_findings(
    options: Options, target: Endpoints | None, identity: Identity, env: Mapping[str, str]
) -> Generator[Finding, None, Collector | None]:
    """What the collector has seen; None if it cannot be asked."""
    url = options.collector or _usual_address(target)
    if not url:
        return None
    collector = read_collector(url, options.timeout_s)
    if isinstance(collector, str):
        finding = _no_collector(url, collector, is_asked=options.collector is not None)
        yield _with_proxy(finding, Endpoint(url=url), env)
        return None
    yield ok("collector.reachable", f"{collector.url} is a collector's metrics address.", url)
    yield check_run(collector, options.run, identity.run_id)
    run_id = find_run(collector, options.run, identity.run_id)
    if run_id is not None and run_id in collector.run_ids():
        yield from check_ranks(collector, run_id)
        yield from check_losses(collector, run_id)
    yield from check_exposure(collector)
    yield from check_collector(collector)
    return collector


def _usual_address(target: Endpoints | None) -> str:
    host = urlsplit(target.traces.url).hostname if target else None
    if not host:
        return ""
    return f"http://[{host}]:{METRICS_PORT}" if ":" in host else f"http://{host}:{METRICS_PORT}"


def _no_collector(url: str, trouble: str, *, is_asked: bool) -> Finding:
    usual = "otel-straggler doctor --collector URL   # URL: what it prints as 'metrics'"
    ca = "export SSL_CERT_FILE=/path/to/ca.pem   # whoever signed its certificate"
    own = "commands have none of their own; ask an address that wants none."
    remedy = tls_advice(url, trouble, ca=ca, own=own) or usual
    if trouble in ("HTTP 401", "HTTP 403"):
        remedy = TOKEN_REMEDY
    sentence = f"No report of a collector at {url}: {trouble}."
    if is_asked:
        return problem("collector.reachable", sentence, remedy, trouble)
    sentence = f"{sentence} The ranks it has seen were not checked."
    return info("collector.reachable", sentence, trouble, remedy)


def _volume(options: Options, identity: Identity, collector: Collector | None) -> Volume:
    if collector is not None:
        run_id = find_run(collector, options.run, identity.run_id)
        windows = collector.runs.get(run_id or "", {}).get("windows", [])
        result = measured(windows[-1]) if windows else None
        if result is not None:
            return result
    return assumed(options.sections_per_step, options.step_s, identity.world_size or 1)
