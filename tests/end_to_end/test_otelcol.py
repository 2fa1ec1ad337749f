"""The real OpenTelemetry Collector before and behind a collector changes no score."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_straggler.collector.settings import HistorySettings

from ..servers.otelcol import free_address, otelcol_program, running_otelcol
from ..waiting import eventually
from .fleet import STEPS, Shard, assert_same_scores, send_live_run, send_run

PAGE = Path(__file__).parents[2] / "docs" / "recipes" / "from-opentelemetry.md"
CUT = [(first, first + 19) for first in range(0, STEPS, 20)]


@pytest.fixture
def shard() -> Iterator[Callable[..., Shard]]:
    otelcol_program()
    started: list[Shard] = []

    def start(**options: Any) -> Shard:
        started.append(Shard(**options))
        return started[-1]

    yield start
    for each in started:
        each.close()


def yaml_of_the_page(heading: str) -> str:
    """The first YAML block behind a heading."""
    _, _, part = PAGE.read_text(encoding="utf-8").partition(heading)
    return part.partition("```yaml\n")[2].partition("```")[0]


def test_the_configuration_of_the_page_runs_and_changes_no_score(
    shard: Callable[..., Shard], tmp_path: Path
) -> None:
    """Word by word but for the addresses."""
    ours, backend, direct = shard(), shard(), shard()
    address = free_address()
    text = yaml_of_the_page("## C. A stock Collector in between")
    for written, real in (
        ("127.0.0.1:4318", address),
        ("127.0.0.1:4317", free_address()),
        ("http://127.0.0.1:4328", ours.otlp),
        ("https://backend.example:4318", backend.otlp),
    ):
        assert written in text
        text = text.replace(written, real)
    config = tmp_path / "otelcol.yaml"
    config.write_text(text)
    with running_otelcol(config, address) as otelcol:
        send_run(otelcol.url, "r")
        send_run(direct.otlp, "r")
        for scored in (ours, backend):
            assert_same_scores(scored.last_window("r"), direct.last_window("r"))
            assert scored.columns("r") == CUT
        assert "deprecated" not in otelcol.log.read_text()


def processing(address: str, to: str, batch_s: float, decision_s: float) -> dict[str, object]:
    """Everything that people put in between: whole traces are kept, spans wait, are regrouped."""
    statements = ['set(attributes["cluster"], "c1")']
    processors: dict[str, object] = {
        "memory_limiter": {"check_interval": "1s", "limit_mib": 500},
        "batch": {"timeout": f"{batch_s}s"},
        "groupbyattrs": {"keys": ["training.run.id"]},
        "transform": {"trace_statements": [{"context": "resource", "statements": statements}]},
        "tail_sampling": {
            "decision_wait": f"{decision_s}s",
            "policies": [{"name": "all", "type": "always_sample"}],
        },
    }
    traces = ["memory_limiter", "groupbyattrs", "tail_sampling", "transform", "batch"]
    return {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": address}}}},
        "processors": processors,
        "exporters": {"otlp_http": {"endpoint": to}},
        "service": {
            "pipelines": {
                "traces": {"receivers": ["otlp"], "processors": traces, "exporters": ["otlp_http"]},
                "metrics": {
                    "receivers": ["otlp"],
                    "processors": ["memory_limiter"],
                    "exporters": ["otlp_http"],
                },
            }
        },
    }


@pytest.mark.nightly
@pytest.mark.parametrize(("batch_s", "decision_s"), [(0.5, 1.0), (10.0, 15.0)])
def test_processors_in_between_change_no_score_and_no_window(
    shard: Callable[..., Shard], tmp_path: Path, batch_s: float, decision_s: float
) -> None:
    """Spans wait in a tail sampler and a batch, and the ranks' ends come long before them."""
    behind, direct = shard(), shard()
    address = free_address()
    config = tmp_path / "otelcol.yaml"
    config.write_text(yaml.safe_dump(processing(address, behind.otlp, batch_s, decision_s)))
    with running_otelcol(config, address) as otelcol:
        send_run(otelcol.url, "r")
        send_run(direct.otlp, "r")
        assert_same_scores(behind.last_window("r"), direct.last_window("r"))
        assert behind.columns("r") == direct.columns("r") == CUT


def test_what_is_forwarded_to_a_stock_collector_arrives_whole(
    shard: Callable[..., Shard], tmp_path: Path
) -> None:
    """And a second collector behind it has the same scores."""
    last = shard()
    address = free_address()
    config = tmp_path / "otelcol.yaml"
    pipeline = {"receivers": ["otlp"], "exporters": ["otlp_http"]}
    document = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": address}}}},
        "exporters": {"otlp_http": {"endpoint": last.otlp}},
        "service": {"pipelines": {"traces": pipeline, "metrics": dict(pipeline)}},
    }
    config.write_text(yaml.safe_dump(document))
    with running_otelcol(config, address) as otelcol:
        first = shard(forward=otelcol.url)
        send_run(first.otlp, "r")
        assert_same_scores(last.last_window("r"), first.last_window("r"))
        assert eventually(lambda: last.columns("r")) == CUT


@pytest.mark.nightly
def test_a_queue_that_is_replayed_out_of_order_makes_no_window_wider_than_its_steps(
    shard: Callable[..., Shard], tmp_path: Path
) -> None:
    """Ten consumers, as by default: each holds an old request back while newer ones are sent. The
    collector is away for four seconds while the run trains, and comes back with its history."""
    address, otlp = free_address(), free_address()
    history = HistorySettings(path=str(tmp_path / "history.db"))
    first = shard(otlp_http=otlp, history=history)
    exporter = {
        "endpoint": first.otlp,
        "retry_on_failure": {"initial_interval": "500ms", "max_interval": "4s"},
        "sending_queue": {"storage": "file_storage"},
    }
    pipeline = {"receivers": ["otlp"], "exporters": ["otlp_http"]}
    storage = {"directory": str(tmp_path / "queue"), "create_directory": True}
    document = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": address}}}},
        "extensions": {"file_storage": storage},
        "exporters": {"otlp_http": exporter},
        "service": {
            "extensions": ["file_storage"],
            "pipelines": {"traces": pipeline, "metrics": dict(pipeline)},
        },
    }
    config = tmp_path / "otelcol.yaml"
    config.write_text(yaml.safe_dump(document))
    with running_otelcol(config, address) as otelcol, ThreadPoolExecutor(1) as sender:
        sent = sender.submit(send_live_run, otelcol.url, "r")
        eventually(lambda: "r" in first.runs())
        time.sleep(3.0)
        first.close()
        time.sleep(4.0)
        again = shard(otlp_http=otlp, history=history)
        sent.result()
        again.last_window("r")
        columns = again.columns("r")
        assert all(last - first < 20 for first, last in columns), columns
        assert columns == sorted(columns)
        late = again.runs()["r"]["not_scored"]["late"]
        missing = STEPS - sum(last - first + 1 for first, last in columns)
        assert missing == 0 or late > 0
