"""One catalogue, two ways: what Prometheus says of a run, and what the collector says itself.

A live collector is scraped by a real Prometheus with the rendered rules, which tells one
Alertmanager; the collector tells another one directly. Both must have the same alerts.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.alerts.catalogue import CATALOGUE
from otel_straggler.alerts.prometheus import rules_file
from otel_straggler.collector.alerting.posting import NotifySettings
from otel_straggler.collector.service import Collector
from otel_straggler.collector.settings import (
    AlertsSettings,
    CollectorSettings,
    LivenessSettings,
    MetricsSettings,
    ReceiverSettings,
    ScoringSettings,
)
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.encode_metrics import encode_heartbeat
from otel_straggler.simulate.scenarios import Plan, simulate
from otel_straggler.simulate.writers import encode_requests

from ..servers.alertmanager import (
    Alertmanager,
    free_address,
    running_alertmanager,
    wait_for_port,
)

pytestmark = pytest.mark.real_server

FREE = "127.0.0.1:0"
PAGE_URL = "https://pages.example"
RANKS = 8
QUICK = AlertsSettings(
    mode="page",
    score_for_seconds=1.0,
    straggling_for_seconds=1.0,
    hang_for_seconds=1.0,
    missing_for_seconds=1.0,
    run_slow_for_seconds=1.0,
    dropped_for_seconds=1.0,
    keep_firing_seconds=60.0,
    evaluation_seconds=1.0,
    dashboard_url="https://grafana.example/d/run",
    page_url=PAGE_URL,
    runbook_url="https://docs.example/RUNBOOK.md",
    alertmanager_url="https://alerts.example",
)
OF_PROMETHEUS_ONLY = {rule.name for rule in CATALOGUE if rule.predicate is None}


@contextlib.contextmanager
def running_prometheus(folder: Path, target: str, alertmanager: Alertmanager) -> Iterator[str]:
    """With the rules as they are rendered for these settings."""
    program = shutil.which("prometheus")
    if program is None:
        sentence = "prometheus is not installed (make servers): the two ways were not compared"
        if os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    name = "rules.yaml"
    (folder / name).write_text(rules_file(QUICK))
    reported = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [name],
        "scrape_configs": [{"job_name": "c", "static_configs": [{"targets": [target]}]}],
        "alerting": {
            "alertmanagers": [
                {"static_configs": [{"targets": [alertmanager.url.removeprefix("http://")]}]}
            ]
        },
    }
    (folder / "prometheus.yml").write_text(json.dumps(reported))
    address = free_address()
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'prometheus'}",
                f"--web.listen-address={address}",
                "--rules.alert.resend-delay=1s",
            ],
            stdout=log,
            stderr=log,
        )
    with process:
        try:
            wait_for_port(address, process)
            yield address
        finally:
            process.terminate()


class Run:
    """A simulated run whose ranks also send signs of life.

    Args:
        url: of the collector.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.scenario = simulate("one_slow_rank", Plan(run_id="r", ranks=RANKS, steps=80))
        self.step = 80

    def send_spans(self) -> None:
        for body in encode_requests(self.scenario.batch):
            self._post("traces", body)

    def beat(self, *ranks: int, **more: Any) -> None:
        for source in self.scenario.batch.sources:
            if source.rank in ranks:
                now_s = time.time()
                reported = {"sent_at_s": now_s, "progress_at_s": now_s, "step": self.step, **more}
                beat = Heartbeat(source=replace(source, world_size=RANKS + 1), **reported)
                self._post(
                    "metrics",
                    encode_heartbeat(
                        beat, resource=_resource(beat.source), info={}, started_at_s=1.0
                    ),
                )

    def _post(self, signal: str, body: bytes) -> None:
        headers = {"Content-Type": "application/x-protobuf"}
        request = urllib.request.Request(f"{self.url}/v1/{signal}", body, headers)
        with urllib.request.urlopen(request, timeout=30):
            pass


def _resource(source: Source) -> dict[str, Any]:
    known = {
        semconv.SERVICE_NAME: source.job,
        semconv.HOST_NAME: source.node,
        semconv.SESSION_ID: source.session_id,
        semconv.RUN_ID: source.run_id,
        semconv.RANK: source.rank,
        semconv.WORLD_SIZE: source.world_size,
        semconv.ROLE: source.role,
    }
    return {str(key): value for key, value in known.items() if value != ""}


@contextlib.contextmanager
def running_collector(alertmanager: Alertmanager) -> Iterator[dict[str, str]]:
    notify = NotifySettings(alertmanagers=(alertmanager.url,), external_url=PAGE_URL, resend_s=1.0)
    collector = Collector(
        CollectorSettings(
            receivers=ReceiverSettings(otlp_http=FREE, otlp_grpc=FREE),
            metrics=MetricsSettings(listen=FREE, collector_id="c", cluster="here"),
            scoring=ScoringSettings(grace_s=0.3),
            liveness=LivenessSettings(lost_after_s=4.0),
            alerts=replace(QUICK, notify=notify),
        )
    )
    addresses = collector.start()
    try:
        yield addresses
    finally:
        collector.stop()


def reported(alertmanager: Alertmanager) -> dict[str, dict[str, Any]]:
    """Annotations by labels, of all that fires and both ways know."""
    return {
        json.dumps(each["labels"], sort_keys=True): each["annotations"]
        for each in alertmanager.alerts()
        if each["labels"]["alertname"] not in OF_PROMETHEUS_ONLY
    }


def names(alertmanager: Alertmanager) -> set[str]:
    return {each["labels"]["alertname"].removeprefix("Straggler") for each in alertmanager.alerts()}


def test_both_ways_say_the_same(tmp_path: Path) -> None:
    """Labels and sentences, of a slow rank, of lost records and ranks, and of a run that hangs."""
    with (
        running_alertmanager(tmp_path / "rules") as by_rules,
        running_alertmanager(tmp_path / "direct") as direct,
        running_collector(direct) as collector,
        running_prometheus(tmp_path, collector["metrics"], by_rules),
    ):
        run = Run(f"http://{collector['otlp_http']}")
        run.beat(*range(RANKS))
        run.send_spans()

        def agree(*wanted: str, ranks: tuple[int, ...], **more: Any) -> None:
            """Within a minute; the ranks go on meanwhile."""
            until_s = time.monotonic() + 60
            while True:
                run.step += 1
                run.beat(*ranks, **more)
                time.sleep(0.3)
                ours, theirs = reported(direct), reported(by_rules)
                if set(wanted) <= names(direct) and ours == theirs:
                    return
                if time.monotonic() > until_s:
                    assert ours == theirs
                    assert set(wanted) <= names(direct)

        everybody = tuple(range(RANKS))
        slow = ("Watchdog", "ScoreLow", "RankStraggling", "RanksMissing")
        agree(*slow, "SpansDropped", ranks=everybody, dropped={"queue_full": 2})
        agree(*slow, "SpansDropped", ranks=everybody, dropped={"queue_full": 7, "rejected": 1})
        agree("RankLost", ranks=everybody[:-1])
        agree("RankLost", "RunHung", ranks=())
        lost = [each for each in direct.alerts() if "RankLost" in each["labels"]["alertname"]]
        assert {each["labels"]["rank"] for each in lost} == set(map(str, everybody))
