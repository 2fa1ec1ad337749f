"""Agents, gateway and shards as `otel-straggler deploy otelcol` writes them, with the real
OpenTelemetry Collector."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from otel_straggler.cli.otelcol_files import Fleet, agent, gateway, shard_of_run

from ..servers.otelcol import OtelCollector, free_address, otelcol_program
from ..waiting import eventually
from .fleet import Shard, assert_same_scores, send_run

Attributes = Mapping[str, str | int]


class Deployment:
    """One agent, one gateway, and shards on this machine.

    Args:
        addresses: of the shards' receivers, all that there may ever be.
    """

    def __init__(self, folder: Path, addresses: list[str]) -> None:
        self.folder = folder
        self.addresses = addresses
        self.shards: dict[int, Shard] = {}
        self._agent, self._gateway = free_address(), free_address()
        self._grpc = free_address()
        self.gateway: OtelCollector | None = None
        self.agent: OtelCollector | None = None

    @property
    def url(self) -> str:
        return f"http://{self._agent}"

    def start(self, shards: int) -> None:
        for number in range(shards):
            self.start_shard(number)
        self.start_gateway(shards)
        fleet = Fleet(
            shards=1, gateway_url=f"http://{self._grpc}", queue_dir=str(self.folder / "agent")
        )
        self.agent = self._otelcol("agent", agent(fleet), self._agent, free_address())

    def start_shard(self, number: int) -> None:
        self.shards[number] = Shard(otlp_http=self.addresses[number])

    def stop_shard(self, number: int) -> None:
        self.shards.pop(number).close()

    def start_gateway(self, shards: int) -> None:
        document = gateway(Fleet(shards=shards, queue_dir=str(self.folder / "gateway")))
        for number in range(shards):
            exporter = document["exporters"][f"otlp_http/shard{number}"]
            exporter["endpoint"] = f"http://{self.addresses[number]}"
        self.gateway = self._otelcol("gateway", document, self._gateway, self._grpc)

    def stop_gateway(self) -> None:
        assert self.gateway is not None
        self.gateway.close()

    def _otelcol(self, name: str, document: object, http: str, grpc: str) -> OtelCollector:
        config = self.folder / f"{name}.yaml"
        config.write_text(yaml.safe_dump(document))
        protocol = "receivers::otlp::protocols"
        settings = [f"{protocol}::http::endpoint={http}", f"{protocol}::grpc::endpoint={grpc}"]
        return OtelCollector(config, http, settings)

    def shard_of(self, run_id: str) -> Shard:
        """The one that has the run, once one has; fails if several have."""
        having = eventually(
            lambda: [shard for shard in self.shards.values() if run_id in shard.runs()]
        )
        (shard,) = having
        result: Shard = shard
        return result

    def close(self) -> None:
        with ExitStack() as stack:
            for each in (*self.shards.values(), self.gateway, self.agent):
                if each is not None:
                    stack.callback(each.close)


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    otelcol_program()
    result = Deployment(tmp_path, [free_address() for _ in range(4)])
    yield result
    result.close()


def test_every_run_is_whole_on_the_shard_of_its_name(deployment: Deployment) -> None:
    """With the scores of a single collector."""
    deployment.start(3)
    runs = [f"run-{n}" for n in range(6)]
    for run_id in runs:
        send_run(deployment.url, run_id)
    single = Shard()
    try:
        for run_id in runs:
            send_run(single.otlp, run_id)
            shard = deployment.shard_of(run_id)
            assert shard is deployment.shards[shard_of_run(run_id, 3)]
            assert_same_scores(shard.last_window(run_id), single.last_window(run_id))
            assert shard.columns(run_id) == single.columns(run_id)
    finally:
        single.close()
    assert len({shard_of_run(run_id, 3) for run_id in runs}) > 1


def test_runs_named_by_their_service_or_on_their_spans_stay_whole(deployment: Deployment) -> None:
    """Four ranks of each, two requests a rank; one shard has all of them."""
    deployment.start(3)
    names = [f"job-{n}" for n in range(5)]
    for name in names:
        for rank in range(4):
            post_spans(deployment.url, {"service.name": name, "training.rank": rank}, {})
            on_span = {"training.run.id": f"of-spans-{name}", "training.rank": rank}
            post_spans(deployment.url, {"service.name": "trainer"}, on_span)
    for run_id in (*names, *(f"of-spans-{name}" for name in names)):
        shard = deployment.shard_of(run_id)
        assert shard is deployment.shards[shard_of_run(run_id, 3)]
        eventually(lambda shard=shard, run_id=run_id: len(shard.ranks(run_id)) == 4)


def post_spans(url: str, resource: Attributes, on_span: Attributes) -> None:
    """Steps 0 to 20 of one process, as an SDK sends them."""
    now_ns = time.time_ns()
    spans = [
        {
            "traceId": f"{step + 1:032x}",
            "spanId": f"{step + 1:016x}",
            "name": "forward",
            "startTimeUnixNano": str(now_ns + step * 1_000_000),
            "endTimeUnixNano": str(now_ns + step * 1_000_000 + 500_000),
            "attributes": as_otlp({**on_span, "training.step": step}),
        }
        for step in range(21)
    ]
    body = {
        "resourceSpans": [
            {"resource": {"attributes": as_otlp(resource)}, "scopeSpans": [{"spans": spans}]}
        ]
    }
    request = urllib.request.Request(
        f"{url}/v1/traces", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def as_otlp(attributes: Attributes) -> list[dict[str, object]]:
    return [
        {"key": k, "value": {"intValue": v} if isinstance(v, int) else {"stringValue": v}}
        for k, v in attributes.items()
    ]
