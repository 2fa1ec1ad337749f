"""A real OpenTelemetry Collector sends the same spans in every compression of its exporters."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_straggler import semconv
from otel_straggler.demo.processes import free_address

from ..waiting import eventually

OTELCOL = Path(
    os.environ.get(
        "OTELCOL", Path(__file__).parents[3] / "shared" / "tools" / "otelcol" / "otelcol"
    )
)
pytestmark = pytest.mark.skipif(
    not OTELCOL.exists(),
    reason="no OpenTelemetry Collector (OTELCOL names one, such as otelcol-contrib of "
    "opentelemetry-collector-releases): its compressions were not tried",
)
OVER_HTTP = ("none", "gzip", "zstd", "snappy", "deflate", "zlib", "lz4")
OVER_GRPC = ("none", "gzip", "zstd", "snappy")
WAYS = (
    *(f"otlp_http/{encoding}-{name}" for encoding in ("proto", "json") for name in OVER_HTTP),
    *(f"otlp_grpc/{name}" for name in OVER_GRPC),
)
N_RANKS, N_STEPS = 4, 12


def exporter(way: str, live: Any) -> dict[str, Any]:
    kind, _, name = way.partition("/")
    own = {
        "compression": name.rpartition("-")[2],
        "tls": {"insecure": True},
        "sending_queue": {"enabled": False},
        "retry_on_failure": {"enabled": False},
    }
    if kind == "otlp_grpc":
        return {"endpoint": live.addresses["otlp_grpc"], **own}
    encoding = name.partition("-")[0]
    return {"endpoint": f"http://{live.addresses['otlp_http']}", "encoding": encoding, **own}


def config(address: str, live: Any) -> dict[str, Any]:
    """One pipeline for each way; in each the run is named after the way."""
    ways = {way.replace("/", "-"): way for way in WAYS}
    return {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": address}}}},
        "processors": {
            f"resource/{name}": {
                "attributes": [{"key": str(semconv.RUN_ID), "value": way, "action": "upsert"}]
            }
            for name, way in ways.items()
        },
        "exporters": {way: exporter(way, live) for way in WAYS},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {
                f"traces/{name}": {
                    "receivers": ["otlp"],
                    "processors": [f"resource/{name}"],
                    "exporters": [way],
                }
                for name, way in ways.items()
            },
        },
    }


@pytest.fixture
def gateway(live: Any, kit: Any, tmp_path: Path) -> Iterator[Callable[[bytes], int]]:
    """Sends a request to a running OpenTelemetry Collector; gives the status of its answer."""
    address = free_address()
    path = tmp_path / "otelcol.yaml"
    path.write_text(yaml.safe_dump(config(address, live)))
    headers = {"Content-Type": "application/x-protobuf"}

    def send(body: bytes) -> int:
        return int(kit.ask(address, "POST", "/v1/traces", body, headers).status)

    def answers() -> bool:
        try:
            return send(b"") == 200
        except OSError:
            return False

    with (tmp_path / "otelcol.log").open("wb") as log:
        process = subprocess.Popen([OTELCOL, "--config", path], stdout=log, stderr=log)
        try:
            eventually(answers)
            yield send
        finally:
            process.terminate()
            process.wait(30)


def test_every_compression_and_protocol_gives_the_same_scores(
    live: Any, kit: Any, gateway: Callable[[bytes], int]
) -> None:
    for number in range(N_RANKS):
        source = kit.rank(number, world_size=N_RANKS)
        sections = {"forward": 0.2 if number == 2 else 0.1, "backward": 0.3}
        assert gateway(kit.spans_of(source, range(N_STEPS), sections)) == 200
    runs = eventually(lambda: complete(live.report()["runs"]))
    windows = {way: [scores(window) for window in runs[way]["windows"]] for way in WAYS}
    expected = windows[WAYS[0]]
    assert expected
    assert {way for way, found in windows.items() if found != expected} == set()
    slow = {(s["rank"], s["section"]) for s in runs[WAYS[0]]["windows"][-1]["stragglers"]}
    assert (2, "forward") in slow


def complete(runs: dict[str, Any]) -> dict[str, Any] | None:
    """The runs, once each has its last window."""
    is_last = [runs.get(way, {}).get("windows") and len(runs[way]["windows"]) for way in WAYS]
    return runs if all(is_last) and len(set(is_last)) == 1 else None


def scores(window: dict[str, Any]) -> dict[str, Any]:
    """A window without what depends on when it was closed."""
    return {key: value for key, value in window.items() if not key.endswith("_at_s")}
