"""The detector beside a collector: the same scores from both, spans sent, reports read."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_straggler import configure, section, step
from otel_straggler.client import process
from otel_straggler.collector.service import Collector
from otel_straggler.collector.settings import (
    CollectorSettings,
    MetricsSettings,
    ReceiverSettings,
    ScoringSettings,
)
from otel_straggler.collector.views.report_json import of_one_rank
from otel_straggler.detector import Detector, StragglerId
from otel_straggler.simulate.scenarios import SCENARIOS, Plan, Scenario, simulate
from otel_straggler.simulate.writers import encode_requests

from ..waiting import eventually

STEPS = 20
FREE = "127.0.0.1:0"
Json = dict[str, Any]


class Live:
    """A collector in this process."""

    def __init__(self) -> None:
        self._collector = Collector(
            CollectorSettings(
                receivers=ReceiverSettings(otlp_http=FREE, otlp_grpc=FREE),
                metrics=MetricsSettings(listen=FREE),
                scoring=ScoringSettings(window_steps=STEPS, grace_s=3.0),
            )
        )
        addresses = self._collector.start()
        self.endpoint = f"http://{addresses['otlp_http']}"
        self.pages = f"http://{addresses['metrics']}"

    def report(self, query: str = "") -> Json:
        with urllib.request.urlopen(f"{self.pages}/v1/report{query}", timeout=30) as answer:
            return json.load(answer)["runs"]

    def send(self, body: bytes) -> None:
        headers = {"Content-Type": "application/x-protobuf"}
        request = urllib.request.Request(f"{self.endpoint}/v1/traces", body, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200

    def stop(self) -> None:
        self._collector.stop()


@pytest.fixture
def live() -> Iterator[Live]:
    collector = Live()
    yield collector
    collector.stop()


def windows_of(live: Live, run: Scenario) -> list[Json]:
    """Each window of the run as the collector closes it."""
    windows: list[Json] = []
    for first in range(0, run.plan.steps, STEPS):
        is_now = (run.batch.step >= first) & (run.batch.step < first + STEPS)
        for body in encode_requests(run.batch.take(is_now)):
            live.send(body)
        if first:
            wanted = first - STEPS

            def newest(wanted: int = wanted) -> Json | None:
                result = live.report().get(run.plan.run_id, {}).get("windows", [])
                return next((w for w in result if w["first_step"] == wanted), None)

            windows.append(eventually(newest))
    return windows


def rows_of(run: Scenario, rank: int, windows: list[Json]) -> list[Json]:
    """What one rank's sections took in each of these windows."""
    batch, rows = run.batch, []
    own = np.array([source.rank == rank for source in batch.sources])[batch.source]
    for window in windows:
        inside = own & (batch.step >= window["first_step"]) & (batch.step <= window["last_step"])
        sections = {
            section.name: batch.duration_s[inside & (batch.section == code)].tolist()
            for code, section in enumerate(batch.sections)
        }
        used = {name: lengths for name, lengths in sections.items() if lengths}
        rows.append({"sections": used, "now_ns": window["end_ns"]})
    return rows


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_report_over_ranks_says_what_the_collector_says(
    name: str, ranks: Any, live: Live
) -> None:
    """One scenario, two paths, three windows in a row: the same layer-1 scores to 1e-9."""
    plan = Plan(
        ranks=4, ranks_per_node=2, slow_rank=2, steps=4 * STEPS, onset_step=STEPS, run_id=name
    )
    run = simulate(name, plan)
    windows = windows_of(live, run)
    assert len(windows) == 3
    kinds = {section.name: section.kind for section in run.batch.sections}
    answers = ranks.do(
        "windows",
        *[{"rows": rows_of(run, rank, windows)} for rank in range(4)],
        settings={},
        kinds=kinds,
    )
    compared = 0
    for window, report in zip(windows, answers[0]["reports"], strict=True):
        for kind in ("relative", "individual"):
            collected = window[f"section_{kind}_scores"]
            assert set(collected) == set(report[f"section_{kind}"])
            for where, scores in collected.items():
                for rank, score in scores.items():
                    here = report[f"section_{kind}"][where][int(rank)]
                    expected = float("nan") if score is None else score
                    assert here == pytest.approx(expected, rel=1e-9, nan_ok=True)
                    compared += 1
        listed = {
            (rank, section)
            for section, result in report["stragglers"]["straggler_sections_relative"].items()
            for rank, _ in result
        }
        assert listed == {
            (s["rank"], s["section"])
            for s in window["stragglers"]
            if s["kind_of_score"] == "section_relative"
        }
    assert compared >= 3 * 2 * 5 * 3


def test_with_an_endpoint_spans_go_to_the_collector_and_reports_may_come_from_it(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One initialize() begins both; shutdown() ends both."""
    monkeypatch.setenv("OTEL_STRAGGLER_RUN_ID", "drop-in")
    run = simulate("one_slow_rank", Plan(run_id="other", steps=2 * STEPS))
    for body in encode_requests(run.batch):
        live.send(body)
    Detector.initialize(
        endpoint=live.endpoint, report_from="collector", collector=live.pages, role="trainer"
    )

    def train() -> Any:
        for _ in range(STEPS):
            train.step += 1  # type: ignore[attr-defined]
            step(train.step)  # type: ignore[attr-defined]
            with Detector.detection_section("forward"):
                pass
        return Detector.generate_report()

    train.step = 0  # type: ignore[attr-defined]
    report = eventually(train)
    assert report.section_relative_perf_scores == {"forward": {0: 1.0}}
    assert report.rank_to_node == {0: socket.gethostname()}
    assert "forward" in report.local_section_summaries
    assert live.report()["drop-in"]["windows"][0]["ranks"]["0"]["role"] == "trainer"
    Detector.shutdown()
    assert not [t for t in threading.enumerate() if t.name == "otel-straggler"]


def test_every_rank_may_read_its_own_part_or_rank_0_the_whole(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a gathered report: rank 0 gets all, the others nothing; else each its own."""
    run = simulate("one_slow_rank", Plan(run_id="r", steps=2 * STEPS, slowdown=2.0))
    for body in encode_requests(run.batch):
        live.send(body)
    eventually(lambda: live.report().get("r", {}).get("windows"))
    monkeypatch.setenv("OTEL_STRAGGLER_RUN_ID", "r")
    monkeypatch.setenv("OTEL_STRAGGLER_COLLECTOR", live.pages)
    result = {}
    for rank in ("0", "5"):
        for gather in (True, False):
            monkeypatch.setenv("RANK", rank)
            monkeypatch.setenv("WORLD_SIZE", "8")
            Detector.initialize(gather_on_rank0=gather, report_from="collector")
            result[rank, gather] = Detector.generate_report()
            Detector.shutdown()
    assert set(result["0", True].section_relative_perf_scores["forward"]) == set(range(8))
    assert result["0", True].identify_stragglers()["straggler_sections_relative"] == {
        "forward": {StragglerId(5, run.batch.sources[5].node)}
    }
    assert result["5", True] is None
    for rank in (0, 5):
        report = result[str(rank), False]
        assert set(report.section_relative_perf_scores["forward"]) == {rank}
        assert set(report.rank_to_node) == {rank}


def test_a_query_gives_a_part_of_the_report(live: Live) -> None:
    """One run, one group, one rank; an unknown one is empty, a wrong one refused."""
    for run_id in ("a", "b"):
        run = simulate("healthy", Plan(run_id=run_id, steps=2 * STEPS))
        for body in encode_requests(run.batch):
            live.send(body)
    eventually(lambda: all(live.report().get(run_id, {}).get("windows") for run_id in "ab"))
    whole = live.report()
    assert live.report("?run=a") == {"a": whole["a"]}
    assert live.report("?run=a&group=") == {"a": whole["a"]}
    assert live.report("?run=a&group=critic")["a"]["windows"] == []
    assert live.report("?run=c") == {}
    [window] = live.report("?run=b&rank=3")["b"]["windows"]
    assert window == of_one_rank(whole["b"]["windows"][0], "3")
    assert window["section_medians_s"]["forward"].keys() == {"3"}
    with pytest.raises(urllib.error.HTTPError, match="400"):
        live.report("?rank=three")


class Slow(BaseHTTPRequestHandler):
    """Answers after a second."""

    def do_GET(self) -> None:
        time.sleep(1.0)
        self.send_error(503)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.mark.parametrize("kind", ["nobody", "slow", "no such run", "no report"])
def test_without_a_report_in_time_there_is_none_and_one_line_in_the_log(
    kind: str, live: Live, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collector that is away, slow, or knows nothing costs the training no more than 0.2 s."""
    monkeypatch.setenv("OTEL_STRAGGLER_RUN_ID", "r")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        urls = {
            "nobody": f"http://127.0.0.1:{unused.getsockname()[1]}",
            "slow": f"http://127.0.0.1:{server.server_address[1]}",
            "no such run": live.pages,
            "no report": live.pages + "/metrics?",
        }
        Detector.initialize(report_from="collector", collector=urls[kind])
        with caplog.at_level(logging.WARNING, "otel_straggler"):
            reports = [Detector.generate_report() for _ in range(3)]
    server.shutdown()
    server.server_close()
    assert reports == [None] * 3
    assert len(caplog.records) == 1
    assert "no report of run 'r'" in caplog.text


def test_a_detector_joins_telemetry_that_is_configured_and_leaves_it_running(live: Live) -> None:
    """Who called configure() before also calls shutdown()."""
    session = configure(endpoint=live.endpoint, run_id="r")
    Detector.initialize()
    with Detector.detection_section("a"):
        pass
    report = Detector.generate_report()
    assert report is not None
    assert list(report.local_section_summaries) == ["a"]
    Detector.shutdown()
    with section("b"):
        pass
    assert session.flush(10.0)
    assert eventually(lambda: "r" in live.report())


def test_telemetry_that_is_configured_later_outlives_the_detector(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the environment names an endpoint that a first session uses already."""
    Detector.initialize()
    session = configure(endpoint=live.endpoint, run_id="later")
    Detector.shutdown()
    assert process.current() is session.settings
    monkeypatch.setenv("OTEL_STRAGGLER_ENDPOINT", live.endpoint)
    Detector.initialize()
    Detector.shutdown()
    assert process.current() is session.settings


def test_an_application_with_a_tracer_provider_gets_the_spans_too() -> None:
    """``tracer_provider=`` as for configure()."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    Detector.initialize(tracer_provider=provider)
    with Detector.detection_section("forward"):
        pass
    report = Detector.generate_report()
    Detector.shutdown()
    assert report is not None
    assert list(report.local_section_summaries) == ["forward"]
    assert [span.name for span in exporter.get_finished_spans()] == ["forward"]
