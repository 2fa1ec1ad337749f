"""What a scraper finds at /metrics: formats, compression, counters from the start, the process."""

from __future__ import annotations

import gzip
import json
import platform
import re
import socket
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as open_metrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from otel_straggler import semconv
from otel_straggler._version import __version__
from otel_straggler.client.sender import DROP_REASONS
from otel_straggler.collector.alerting.posting import NotifySettings
from otel_straggler.otlp.ids import step_trace_id
from otel_straggler.semconv import Metric, collector_metrics

from ..publish.sink import Sink
from ..publish.test_trace_shape import bodies_of
from ..publish.trace_rules import traces_in
from .authorities import TOKENS, bearer, write_grants
from .prometheus_server import query, running_prometheus

PROMETHEUS_2_42 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)
OPEN = {"Accept": PROMETHEUS_2_42}
_NEVER = {
    semconv.COLLECTOR_CONNECTIONS_CUT.name,  # by address, of which there may be any
    semconv.COLLECTOR_FORWARDED.name,
    semconv.COLLECTOR_FORWARD_SPANS.name,
    semconv.COLLECTOR_NOTIFICATIONS.name,
    semconv.COLLECTOR_HISTORY_FAILURES.name,
    semconv.COLLECTOR_SPOOL_FAILURES.name,
}
"""Counters of parts that a collector with default settings does not have."""


@pytest.fixture
def sink() -> Iterator[Sink]:
    backend = Sink()
    yield backend
    backend.close()


# --- formats --------------------------------------------------------------------------------------


@pytest.mark.parametrize("accept", [PROMETHEUS_2_42, PROMETHEUS_3])
def test_prometheus_gets_open_metrics_with_the_same_samples(
    live: Any, kit: Any, accept: str
) -> None:
    """What its own parser of the format reads, to the end."""
    live.post(kit.spans_of(kit.rank(0, 1), range(8)))
    kit.eventually(live.windows)
    answer = live.get("/metrics", {"Accept": accept})
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    body = answer.body.decode()
    assert body.endswith("\n# EOF\n")
    families = list(open_metrics_families(body))
    read = {sample.name for family in families for sample in family.samples}
    text = live.get("/metrics").body.decode()
    plain = {s.name for f in text_string_to_metric_families(text) for s in f.samples}
    assert read == plain
    assert not any(family.name.endswith("_total") for family in families)


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain;version=0.0.4"])
def test_everybody_else_gets_the_text_format(live: Any, accept: str) -> None:
    """A person with curl, and older scrapers."""
    answer = live.get("/metrics", {"Accept": accept})
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b"# EOF" not in answer.body


def test_a_scrape_is_compressed_where_that_is_accepted(live: Any) -> None:
    """Prometheus accepts it; a tenth of the bytes for thousands of ranks."""
    plain = live.get("/metrics").body
    answer = live.get("/metrics", {"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert len(answer.body) < len(plain) / 4
    assert gzip.decompress(answer.body).startswith(b"# HELP ")
    assert "Accept-Encoding" in answer.headers["vary"]
    assert "content-encoding" not in live.get("/metrics", {"Accept-Encoding": "gzip;q=0"}).headers


def test_a_team_gets_its_runs_in_every_form(start: Any, kit: Any, tmp_path: Path) -> None:
    """Nothing of others, whatever the format; OpenMetrics has its end."""
    team = "team-0123456789abcdef"
    grants = write_grants(tmp_path, f"read team token:{team} runs=x/")
    live = start(auth__grant_files=(grants,), forward__url="http://127.0.0.1:9")
    for run_id in ("x/1", "y/1"):
        _train(live, kit, run_id, bearer(TOKENS["ingest"]))

    def scraped(**headers: str) -> bytes:
        body: bytes = live.get("/metrics", {**bearer(team), **headers}).body
        return body

    kit.eventually(lambda: b"# {trace_id=" in scraped(**OPEN))
    for body in (scraped(**OPEN), gzip.decompress(scraped(**{"Accept-Encoding": "gzip"}))):
        named = set(re.findall(rb'run_id="([^"]*)"', body))
        assert named == {b"x/1"}
    of_y = {step_trace_id("y/1", 0, "", step).hex().encode() for step in range(8)}
    assert not of_y & set(re.findall(rb'trace_id="([^"]*)"', scraped(**OPEN)))
    assert scraped(**OPEN).endswith(b"# EOF\n")


def test_a_real_prometheus_reads_it_and_keeps_the_exemplars(
    start: Any, kit: Any, prometheus: str, tmp_path: Path
) -> None:
    """Of the lost time of a run: a trace that is forwarded."""
    live = start(forward__url="http://127.0.0.1:9")
    _train(live, kit)
    kit.eventually(lambda: b"# {trace_id=" in live.get("/metrics", OPEN).body)
    options = ("--enable-feature=exemplar-storage",)
    with running_prometheus(
        prometheus, live.addresses["metrics"], tmp_path, options=options
    ) as address:
        name = semconv.RUN_GPU_TIME_LOST.prometheus_name
        kit.eventually(lambda: query(kit, address, f"count({name})") == [("", "1")], 60)
        asked = urllib.parse.urlencode({"query": name, "start": 0, "end": 4_000_000_000})
        answer = kit.ask(address, "GET", f"/api/v1/query_exemplars?{asked}").json()
        [series] = answer["data"]
        [exemplar, *_] = series["exemplars"]
        step = int(exemplar["labels"]["step"])
        assert exemplar["labels"]["trace_id"] == step_trace_id("run", 0, "", step).hex()
        assert query(kit, address, "count(process_resident_memory_bytes)") == [("", "1")]


@pytest.mark.parametrize("mode", ["all", "sampled"])
def test_an_exemplar_names_a_trace_that_was_forwarded(
    start: Any, kit: Any, sink: Sink, mode: str
) -> None:
    """The backend has it."""
    live = start(forward__url=sink.url, forward__mode=mode, forward__sample_every=3)
    _train(live, kit)
    found = kit.eventually(lambda: _exemplar(live))
    trace_id = bytes.fromhex(found["trace_id"])
    assert trace_id == step_trace_id("run", 0, "", int(found["step"]))
    kit.eventually(lambda: trace_id in _forwarded(sink))


def test_there_is_no_exemplar_of_a_trace_that_is_not_forwarded(start: Any, kit: Any) -> None:
    """Without forwarding, of traces that nothing keeps, and of spans in traces of their own."""
    without = start()
    unkept = start(
        forward__url="http://127.0.0.1:9", forward__mode="sampled", forward__sample_every=2**62
    )
    for live in (without, unkept):
        _train(live, kit)
    others = start(forward__url="http://127.0.0.1:9")
    others.post(kit.spans_of(kit.rank(0, 1), range(42)))
    metric = semconv.COLLECTOR_FORWARD_SPANS
    kit.eventually(lambda: unkept.value(metric, outcome="left_out", reason="not_sampled"))
    kit.eventually(lambda: others.value(metric, outcome="kept", reason="all"))
    for live in (without, unkept, others):
        kit.eventually(live.windows)
        assert _exemplar(live) is None


def _train(live: Any, kit: Any, run_id: str = "run", sender: dict[str, str] | None = None) -> None:
    """A run of one rank, whose spans are in the traces of their steps; two windows."""
    for steps in (range(20), range(20, 40), range(40, 42)):
        [body] = bodies_of(1, steps, lambda _: {"forward": 0.1}, run_id)
        live.post(body, sender=sender)
    beat = kit.beat_of(kit.rank(0, 1, run_id=run_id), sent_at_s=1.0, step=41)
    live.post(beat, "metrics", sender=sender)


def _forwarded(sink: Sink) -> set[bytes]:
    return set(traces_in(body for path, body, _, _ in sink.received if path == "/v1/traces"))


def _exemplar(live: Any) -> dict[str, str] | None:
    """Labels of the only one."""
    for family in open_metrics_families(live.get("/metrics", OPEN).body.decode()):
        for sample in family.samples:
            if sample.exemplar is not None:
                labels: dict[str, str] = sample.exemplar.labels
                return labels
    return None


# --- what is there from the start -----------------------------------------------------------------


def test_every_counter_of_a_collector_is_0_before_anything_happens(live: Any) -> None:
    """To Prometheus an increase from no series to 1 is none: the first loss would not be seen."""
    text = live.get("/metrics").body.decode()
    values: dict[str, set[float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values.setdefault(sample.name, set()).add(sample.value)
    counters = [
        metric
        for metric in vars(collector_metrics).values()
        if isinstance(metric, Metric) and metric.kind == "counter" and metric.name not in _NEVER
    ]
    assert len(counters) > 12
    for metric in counters:
        if metric != semconv.PROCESS_CPU:
            assert values.get(metric.prometheus_name) == {0.0}, metric.name


def test_first_refusals_and_decisions_have_a_series_to_grow_in(live: Any) -> None:
    """By every label that they may have."""
    for status in ("400", "401", "413", "429", "503"):
        assert live.value(semconv.COLLECTOR_HTTP_ANSWERS, signal="traces", status=status) == 0
    assert live.value(semconv.COLLECTOR_REQUESTS, signal="metrics", answer="busy") == 0
    assert live.value(semconv.COLLECTOR_DECISIONS, action="mute", cause="slow_gpu") == 0
    assert live.value(semconv.COLLECTOR_COMMANDS, verb="dump_stacks", outcome="failed") == 0


def test_losses_of_a_run_are_0_from_its_first_sign_of_life(live: Any, kit: Any) -> None:
    """Records that its ranks lose, by reason, and the time that it loses."""
    live.post(kit.beat_of(kit.rank(0, 1), sent_at_s=1.0, step=1), "metrics")
    dropped = semconv.RUN_RECORDS_DROPPED.prometheus_name
    result = kit.eventually(lambda: live.samples(dropped, run_id="run"))
    assert {dict(labels)["reason"] for labels in result} == set(DROP_REASONS)
    assert set(result.values()) == {0.0}
    kit.eventually(lambda: live.value(semconv.RUN_GPU_TIME_LOST, run_id="run") == 0.0)


# --- the collector itself -------------------------------------------------------------------------


def test_the_process_and_its_build_are_among_the_metrics(live: Any) -> None:
    """Under the names that every Go and Python service has, so that their alerts apply."""
    [(labels, value)] = live.samples(semconv.COLLECTOR_BUILD_INFO.prometheus_name).items()
    build = dict(labels)
    assert (build["version"], build["python"]) == (__version__, platform.python_version())
    assert build["native"] in ("yes", "no")
    assert value == 1.0
    for name in ("process_resident_memory_bytes", "process_virtual_memory_bytes"):
        [memory] = live.samples(name).values()
        assert memory > 2**20, name
    [used], [most] = live.samples("process_open_fds").values(), live.samples(
        "process_max_fds").values()  # fmt: skip
    assert 3 < used < most
    [cpu_s] = live.samples("process_cpu_seconds_total").values()
    assert cpu_s > 0
    [start] = live.samples("process_start_time_seconds").values()
    assert start <= live.value(semconv.COLLECTOR_START) + 1.0


def test_dashboards_learn_where_the_live_page_is(start: Any) -> None:
    """The address that people use, if it is set; else that of this host."""
    name = semconv.COLLECTOR_PAGE_INFO.prometheus_name
    named = NotifySettings(external_url="https://straggler.example.org/")
    [labels] = start(alerts__notify=named).samples(name)
    assert dict(labels)["page_url"] == "https://straggler.example.org"
    live = start()
    [labels] = live.samples(name)
    port = live.addresses["metrics"].rpartition(":")[2]
    assert dict(labels)["page_url"] == f"http://{socket.gethostname()}:{port}"


def test_the_reference_page_names_what_the_process_publishes() -> None:
    """Names of the wire are defined once."""
    page = (Path(__file__).parents[2] / "docs/reference/names-on-the-wire.md").read_text()
    for name in ("process_cpu_seconds_total", "straggler_collector_build_info"):
        assert f"`{name}`" in page, json.dumps(name)
