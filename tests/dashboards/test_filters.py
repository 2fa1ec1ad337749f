"""A Prometheus further up, and a store over months, get what dashboards and rules read."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_straggler.alerts.checking import QueryLabels
from otel_straggler.demo.processes import Collector, Server, free_address

from ..waiting import eventually
from .conftest import FOLDER, PAGES, ROOT, Json, filled, published, queries

WITHIN_S = 60.0
ALERTS = ROOT / "alerts"
RECORDING = ALERTS / "otel-straggler-recording-rules.yaml"
RULES = ALERTS / "otel-straggler-rules.yaml"


def read(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def federated() -> set[str]:
    [job] = read("federation.yml")["scrape_configs"]
    return set(job["params"]["match[]"])


def written() -> re.Pattern[str]:
    [write] = read("remote-write.yml")["remote_write"]
    [rule] = write["write_relabel_configs"]
    assert (rule["action"], rule["source_labels"]) == ("keep", ["__name__"])
    return re.compile(f"(?:{rule['regex']})")  # as Prometheus anchors it


class Asked(dict[str, frozenset[str]]):
    """Labels by name, which remembers for which names it was asked."""

    def __init__(self) -> None:
        super().__init__(published())
        self.names: set[str] = set()

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)


def selected() -> set[str]:
    """Every series that a panel, an annotation, a variable or an alert selects, as PromQL's parser
    sees it; without what the rules record for themselves."""
    pytest.importorskip(
        "promql_parser",
        reason="promql-parser is not installed: it would show that filters let all through",
    )
    rules = [rule for group in yaml_of(RULES)["groups"] for rule in group["rules"]]
    texts = [filled(text) for path in PAGES for _, text in queries(json.loads(path.read_text()))]
    texts += [rule["expr"] for rule in rules]
    asked = Asked()
    for text in texts:
        QueryLabels(asked).of(text)
    return asked.names - {rule.get("record") for rule in rules}


def yaml_of(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_all_that_is_read_passes_both_filters() -> None:
    """Of pages and rules, series of Prometheus and of DCGM exporter included."""
    found, pattern = selected() - {"up"}, written()  # of each scrape, where that is
    assert len(found) > 80
    assert found - federated() == set()
    assert {name for name in found if not pattern.fullmatch(name)} == set()
    recorded = {rule["record"] for group in yaml_of(RECORDING)["groups"] for rule in group["rules"]}
    assert recorded <= federated()


@pytest.mark.parametrize(
    "name",
    [
        "process_cpu_seconds_total",  # of anybody
        "straggler_section_duration_seconds_bucket",  # of each rank; scores are recorded from it
        "run:straggler_run_hung:max",  # which the rules above would record a second time
        "alert:straggler_host_slow:critical",
    ],
)
def test_what_nobody_reads_stays_below(name: str) -> None:
    """A filter that lets everything through would be none."""
    assert name not in federated()
    assert not written().fullmatch(name)


def test_prometheus_can_read_both(tmp_path: Path) -> None:
    """As a file of scrape configurations, and as a part of its own."""
    promtool = shutil.which("promtool")
    if promtool is None:
        sentence = "promtool is not installed (make servers): nobody read the filters"
        pytest.fail(sentence) if os.environ.get("CI") else pytest.skip(sentence)
    config = tmp_path / "prometheus.yml"
    config.write_text(json.dumps({**read("federation.yml"), **read("remote-write.yml")}))
    ran = subprocess.run(
        [promtool, "check", "config", str(config)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_page_on_scaling_out_names_the_files() -> None:
    """And no filter of its own, which would be stale one day."""
    page = (ROOT / "docs" / "operate" / "scale-out.md").read_text(encoding="utf-8")
    for name in ("federation.yml", "remote-write.yml"):
        assert f"`{name}`" in page
        assert (FOLDER / name).exists()
    assert "match[]" not in page
    assert "write_relabel_configs" not in page


# --- with real servers ----------------------------------------------------------------------------


@pytest.mark.real_server
def test_a_prometheus_above_has_all_that_the_pages_ask_for(tmp_path: Path) -> None:
    """Every series of a run that the lower one has, of those that are read."""
    program = shutil.which("prometheus")
    if program is None:
        sentence = "prometheus is not installed (make servers): no federation was tried"
        pytest.fail(sentence) if os.environ.get("CI") else pytest.skip(sentence)
    with contextlib.ExitStack() as running:
        collector = Collector()
        running.callback(collector.close)
        lower = running.enter_context(
            _prometheus(program, tmp_path / "lower", collector.addresses["metrics"])
        )
        [job] = read("federation.yml")["scrape_configs"]
        upper = running.enter_context(_prometheus(program, tmp_path / "upper", lower, job))
        options = ["--layout", "pp2,dp4", "--steps", "60", "--report-hardware", "--speed", "10"]
        simulate = [sys.executable, "-m", "otel_straggler.cli", "simulate", *options]
        subprocess.run([*simulate, "--send", collector.endpoint], check=True, capture_output=True)
        eventually(lambda: "straggler_worker_slowdown" in _names(lower), WITHIN_S)
        wanted = federated() & _names(lower)
        assert len(wanted) > 40
        eventually(lambda: not wanted - _names(upper), WITHIN_S)
        count = "count(straggler_rank_step)"
        eventually(lambda: _value(upper, count) == _value(lower, count) == 8.0, WITHIN_S)


@contextlib.contextmanager
def _prometheus(program: str, folder: Path, target: str, job: Json | None = None) -> Iterator[str]:
    """The address of one that scrapes the target every second."""
    folder.mkdir()
    address = free_address()
    config = folder / "prometheus.yml"
    scraped = {**(job or {"job_name": "straggler"}), "static_configs": [{"targets": [target]}]}
    intervals = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    config.write_text(json.dumps({"global": intervals, "scrape_configs": [scraped]}))
    flags = (f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}")
    server = Server([program, *flags, f"--web.listen-address={address}"], address, folder / "log")
    try:
        yield address
    finally:
        server.close()


def _names(address: str) -> set[str]:
    return set(_data(address, "label/__name__/values"))


def _value(address: str, text: str) -> float | None:
    result = _data(address, f"query?{urllib.parse.urlencode({'query': text})}")["result"]
    return float(result[0]["value"][1]) if result else None


def _data(address: str, path: str) -> Any:
    with urllib.request.urlopen(f"http://{address}/api/v1/{path}", timeout=30) as answer:
        return json.load(answer)["data"]
