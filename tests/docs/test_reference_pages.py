"""The reference pages say what the code does; what has no description stops them."""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import configuration_page
import described as described_module
import generate
import pytest
import wire_page
import yaml
from described import Undescribed, described, entries
from prometheus_client.parser import text_string_to_metric_families

import otel_straggler
from otel_straggler import semconv
from otel_straggler.cli.collector import load_settings
from otel_straggler.collector.service import Collector
from otel_straggler.collector.settings import (
    CollectorSettings,
    ForwardSettings,
    MetricsSettings,
    ReceiverSettings,
    ScoringSettings,
)
from otel_straggler.errors import ConfigError
from otel_straggler.setting import rows_of
from otel_straggler.simulate.scenarios import Plan, simulate
from otel_straggler.simulate.writers import encode_requests
from otel_straggler.testing import CapturedRequests

from ..waiting import eventually

ROOT = Path(__file__).parents[2]
FREE = "127.0.0.1:0"


# --- how they are made -------------------------------------------------------------------------


def test_the_pages_are_what_the_code_says() -> None:
    """Else: make generate."""
    command = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_stale_page_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--check`` writes nothing; without it the page is right afterwards."""
    monkeypatch.setattr(generate, "HERE", tmp_path)
    stale = tmp_path / "reference" / "names-on-the-wire.md"
    stale.parent.mkdir()
    stale.write_text("old")
    assert generate.main(["--check"]) == 1
    printed = capsys.readouterr().err
    assert (
        "docs/reference/names-on-the-wire.md: not what the code says. Run: make generate" in printed
    )
    assert stale.read_text() == "old"
    assert (generate.main([]), generate.main(["--check"])) == (0, 0)


def test_the_examples_in_the_generator_are_true() -> None:
    """Its docstrings are run like those of the package."""
    tried = doctest.testmod(described_module)
    assert tried.attempted >= 3
    assert tried.failed == 0


@dataclass
class Half:
    """Something.

    Attributes:
        first: with words,
            and more.
    """

    first: int = 0
    second: int = 0


def test_a_field_without_a_description_is_named_in_a_sentence() -> None:
    """With the place where to describe it."""
    assert entries(str(Half.__doc__).replace("\n    ", "\n"), "Attributes") == {
        "first": "with words, and more"
    }
    with pytest.raises(Undescribed, match=r"Half does not describe 'second'\. Add a line 'second"):
        described(Half, ["first", "second"], "Attributes")


@pytest.mark.parametrize("what", ["kind", "outcome", "reason"])
def test_a_word_without_a_description_stops_the_page(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new kind, outcome or reason needs a sentence."""
    table = {"kind": "_KINDS", "outcome": "_OUTCOMES", "reason": "_REASONS"}[what]
    word, *_ = vars(wire_page)[table]
    monkeypatch.delitem(vars(wire_page)[table], word)
    with pytest.raises(Undescribed, match=f"'{word}' has no description. It is a {what}"):
        wire_page.page()


# --- the collector's settings ------------------------------------------------------------------


def settings_on_the_page() -> Iterator[tuple[str, str, str]]:
    """Section, key and default."""
    _, _, part = configuration_page.page().partition("## The collector")
    part, _, _ = part.partition("## The supervisor")
    for rows in part.split("### `")[1:]:
        section, _, table = rows.partition("`")
        for key, default in re.findall(r"^\| `(\w+)` \| [^|]* \| (.*?) \|", table, re.MULTILINE):
            yield section, key, default.strip("`")


def test_every_setting_of_the_collector_is_on_the_page_and_in_the_example_file() -> None:
    """With the same defaults."""
    reported = {(section, key) for section, key, _ in settings_on_the_page()}
    assert reported == set(leaves(yaml.safe_load((ROOT / "docs" / "collector.yaml").read_text())))
    assert load_settings(ROOT / "docs" / "collector.yaml", {}) == CollectorSettings()


def leaves(document: dict[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Section and key; of a section within another both names, with a dot."""
    for name, value in document.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{before}.{name}" if before else name)
        else:
            yield before, name


def test_every_setting_on_the_page_refuses_something(tmp_path: Path) -> None:
    """In the words of the page."""
    file = tmp_path / "collector.yaml"
    for section, kind in configuration_page.collector_sections():
        for key, row in rows_of(kind).items():
            document: dict[str, Any] = {key: {}}
            for part in reversed(section.split(".")):
                document = {part: document}
            file.write_text(json.dumps(document))
            with pytest.raises(ConfigError) as refused:
                load_settings(file, {})
            assert f"{section}.{key}: got" in str(refused.value)
            assert f"expected {configuration_page.rule_of(row)}. " in str(refused.value)


# --- names on the wire -------------------------------------------------------------------------


def test_every_attribute_and_metric_of_semconv_is_on_the_page() -> None:
    """Also those in dictionaries."""
    page = wire_page.page()
    names = [v for value in vars(semconv).values() for v in _inside(value)]
    attributes = [v for v in names if isinstance(v, semconv.Attribute)]
    metrics = [v for v in names if isinstance(v, semconv.Metric)]
    assert len(attributes) > 30
    assert len(metrics) > 40
    for attribute in attributes:
        assert f"| `{attribute}` |" in page
    for metric in metrics:
        assert f"| `{metric.name}` | `{metric.prometheus_name}` |" in page


def test_what_a_module_of_semconv_defines_is_in_semconv() -> None:
    """A module that the package does not take over would be missing everywhere else."""
    modules = [m.name for m in pkgutil.iter_modules(semconv.__path__)]
    assert len(modules) == 8
    for name in modules:
        module = importlib.import_module(f"otel_straggler.semconv.{name}")
        own = {n for n in vars(module) if n[0].isupper()}
        assert own, name
        assert own <= vars(semconv).keys(), name


def _inside(value: object) -> list[object]:
    return list(value.values()) if isinstance(value, dict) else [value]


def test_what_a_rank_sends_is_what_the_page_shows() -> None:
    """Attributes of resource, spans and data points, from a process that sends them."""
    shown = {**wire_page.example_resource(), **wire_page.example_span()}
    with CapturedRequests() as sink:
        otel_straggler.configure(
            endpoint=sink.url, run_id="r", rank=0, world_size=1, local_rank=0, heartbeat_s=0.05
        )
        otel_straggler.set_topology(role="actor", data=(0, 1), gpu_uuid="GPU-1")
        otel_straggler.step(-1)  # counted as dropped, by reason
        with otel_straggler.phase("eval"), otel_straggler.section("forward"):
            sink.wait_for(lambda s: bool(s.points(semconv.SECTION_OPEN)))
            sink.wait_for(lambda s: bool(s.points(semconv.RECORDS_DROPPED)))
        otel_straggler.shutdown()
        spans, points = sink.spans(), sink.points()
    for span in spans:
        assert span.resource.keys() | span.attributes.keys() <= shown.keys()
    metrics = {m.name: m for m in wire_page.by_heading(semconv.Metric)["from a rank"]}
    assert {p.metric for p in points} >= metrics.keys() - {
        semconv.SECTION_DURATION.name,
        semconv.KERNEL_DURATION.name,
        semconv.PROGRESS_STEP.name,
        semconv.RECORDS_FOLDED.name,
    }
    for point in points:
        reported = metrics[point.metric].attributes
        allowed = set(shown) if point.metric == semconv.RANK_INFO.name else set(map(str, reported))
        assert set(point.attributes) <= allowed, point.metric


@pytest.fixture
def busy() -> Iterator[str]:
    """The pages of a collector that has something to say of nearly everything."""
    with CapturedRequests() as behind:
        collector = Collector(
            CollectorSettings(
                receivers=ReceiverSettings(otlp_http=FREE, otlp_grpc=FREE),
                metrics=MetricsSettings(listen=FREE, series_budget=150),
                scoring=ScoringSettings(window_steps=10),
                forward=ForwardSettings(url=behind.url),
            )
        )
        where = collector.start()
        url = f"http://{where['otlp_http']}"
        for body in encode_requests(simulate("one_slow_rank", Plan(run_id="r", steps=40)).batch):
            headers = {"Content-Type": "application/x-protobuf"}
            request = urllib.request.Request(f"{url}/v1/traces", body, headers)
            with urllib.request.urlopen(request, timeout=30):
                pass
        otel_straggler.configure(endpoint=url, run_id="own", rank=0, world_size=1)
        otel_straggler.step(-1)
        otel_straggler.shutdown()
        yield f"http://{where['metrics']}/metrics"
        collector.stop()


def test_the_labels_on_the_page_are_those_of_a_running_collector(busy: str) -> None:
    """Family by family. What is of a GPU or of a clash is not seen here."""
    metrics = {
        m.prometheus_name: m
        for heading, result in wire_page.by_heading(semconv.Metric).items()
        for m in result
    }
    seen: dict[str, set[str]] = {}
    eventually(lambda: "straggler_section_relative_score_over_ranks" in _read(busy))
    for family in text_string_to_metric_families(_read(busy)):
        for sample in family.samples:
            seen.setdefault(sample.name, set()).update(sample.labels)
    described = {semconv.RANK_INFO.prometheus_name}  # its labels are the rank description
    assert len(seen) > 25
    for name, labels in seen.items():
        if name not in described:
            assert labels == set(wire_page.label_names(metrics[name])), name


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as page:
        return str(page.read().decode())


# --- reasons of GPU timing ---------------------------------------------------------------------


def test_the_page_on_gpu_timing_has_every_reason() -> None:
    """In the words of the log."""
    page = (ROOT / "docs" / "recipes" / "gpu-timing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", page, re.MULTILINE)
    known = [(c, r.cause, r.remedy) for c, r in semconv.GPU_TIMING_REASONS.items()]
    assert [row for row in rows if row[0] in semconv.GPU_TIMING_REASONS] == known
