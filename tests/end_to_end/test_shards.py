"""Agents, gateway and shards as `otel-straggler deploy otelcol` writes them, with the real
OpenTelemetry Collector."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from otel_straggler.cli.otelcol_files import Fleet, agent, gateway, shard_of_run
from otel_straggler.collector.settings import HistorySettings, MetricsSettings

from ..servers.otelcol import OtelCollector, free_address, otelcol_program
from ..servers.receiver import Receiver
from ..waiting import eventually
from .fleet import ProcessShard, Shard, Views, assert_same_scores, send_live_run, send_run

pytestmark = pytest.mark.nightly  # trainings that must not wait for a processor
NAMES = [f"run-{n}" for n in range(40)]
Attributes = Mapping[str, str | int]


class Deployment:
    """One agent, one gateway, and shards on this machine, which know each other.

    Args:
        most: shards that there may ever be.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self.folder = folder
        self._otlp, self._pages = ([free_address() for _ in range(most)] for _ in range(2))
        self.shards: dict[int, Views] = {}
        self._agent, self._gateway, self._grpc = (free_address() for _ in range(3))
        self.gateway: OtelCollector | None = None
        self.agent: OtelCollector | None = None

    @property
    def url(self) -> str:
        return f"http://{self._agent}"

    def start(self, shards: int) -> None:
        for number in range(shards):
            self.start_shard(number)
        self.start_otelcols(shards)

    def start_otelcols(self, shards: int) -> None:
        self.start_gateway(shards)
        fleet = Fleet(
            shards=1, gateway_url=f"http://{self._grpc}", queue_dir=str(self.folder / "agent")
        )
        self.agent = self._start_otelcol("agent", agent(fleet), self._agent, free_address())

    def start_process(self, number: int, **settings: object) -> ProcessShard:
        """A shard that can be killed."""
        addresses = {
            "otlp_http": self._otlp[number],
            "otlp_grpc": "127.0.0.1:0",
            "metrics": self._pages[number],
        }
        peers = [f"http://{page}" for page in self._pages]
        document = {
            "metrics": {"collector_id": f"shard-{number}", "peers": peers},
            "history": {"path": str(self.folder / f"shard-{number}.db")},
            **settings,
        }
        config = self.folder / f"shard-{number}.yaml"
        config.write_text(yaml.safe_dump(document))
        shard = ProcessShard(addresses, config)
        self.shards[number] = shard
        return shard

    def start_shard(self, number: int) -> None:
        metrics = MetricsSettings(
            listen=self._pages[number],
            collector_id=f"shard-{number}",
            peers=tuple(f"http://{page}" for page in self._pages),
        )
        history = HistorySettings(path=str(self.folder / f"shard-{number}.db"))
        self.shards[number] = Shard(otlp_http=self._otlp[number], metrics=metrics, history=history)

    def stop_shard(self, number: int) -> None:
        self.shards.pop(number).close()

    def start_gateway(self, shards: int) -> None:
        document = gateway(Fleet(shards=shards, queue_dir=str(self.folder / "gateway")))
        for number in range(shards):
            exporter = document["exporters"][f"otlp_http/shard{number}"]
            exporter["endpoint"] = f"http://{self._otlp[number]}"
        self.gateway = self._start_otelcol("gateway", document, self._gateway, self._grpc)

    def kill_gateway(self) -> None:
        assert self.gateway is not None
        self.gateway.kill()

    def _start_otelcol(self, name: str, document: object, http: str, grpc: str) -> OtelCollector:
        config = self.folder / f"{name}.yaml"
        config.write_text(yaml.safe_dump(document))
        protocol = "receivers::otlp::protocols"
        settings = [f"{protocol}::http::endpoint={http}", f"{protocol}::grpc::endpoint={grpc}"]
        return OtelCollector(config, http, settings)

    def shard_of(self, run_id: str) -> Views:
        """The one that has the run, once one has; fails if several have."""
        having = eventually(
            lambda: [shard for shard in self.shards.values() if run_id in shard.runs()]
        )
        (shard,) = having
        result: Views = shard
        return result

    def close(self) -> None:
        with ExitStack() as stack:
            for each in (*self.shards.values(), self.gateway, self.agent):
                if each is not None:
                    stack.callback(each.close)


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    otelcol_program()
    result = Deployment(tmp_path, 4)
    yield result
    result.close()


@pytest.fixture
def single() -> Iterator[Shard]:
    """A collector that everything is sent to at once, for its scores."""
    result = Shard()
    yield result
    result.close()


def test_every_run_is_whole_on_the_shard_of_its_name(deployment: Deployment) -> None:
    """With the scores of a collector that has this run alone."""
    deployment.start(3)
    runs = [next(name for name in NAMES if shard_of_run(name, 3) == number) for number in range(3)]
    for run_id in runs:
        send_run(deployment.url, run_id)
    for number, run_id in enumerate(runs):
        with closing(Shard()) as single:
            send_run(single.otlp, run_id)
            shard = deployment.shard_of(run_id)
            assert shard is deployment.shards[number]
            assert_same_scores(shard.last_window(run_id), single.last_window(run_id))
            assert shard.columns(run_id) == single.columns(run_id)


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


def test_a_killed_gateway_a_lost_shard_and_a_new_one_lose_no_step_and_widen_no_window(
    deployment: Deployment, single: Shard
) -> None:
    """While runs train: a shard is away for two seconds, then the gateway, and it comes back with a
    shard more, which gets one of the runs. Each other run has a shard for itself: runs of one job
    share the references of individual scores."""
    deployment.start(3)
    send_run(single.otlp, "r")
    moves = next(name for name in NAMES if shard_of_run(name, 4) == 3)
    away, new_steps = shard_of_run(moves, 3), 100
    stay = [
        next(name for name in NAMES if shard_of_run(name, 4) == shard_of_run(name, 3) == shard)
        for shard in range(3)
    ]
    with ThreadPoolExecutor(4) as senders:
        sent = [senders.submit(send_live_run, deployment.url, name) for name in (*stay, moves)]
        eventually(lambda: moves in deployment.shards[away].runs())
        time.sleep(2.0)
        deployment.stop_shard(away)
        time.sleep(2.0)
        deployment.start_shard(away)
        deployment.kill_gateway()
        time.sleep(1.0)
        deployment.start_shard(3)
        deployment.start_gateway(4)
        for each in sent:
            each.result()
    shards = deployment.shards
    shards[3].last_window(moves)
    for name in (*stay, moves):
        shard = shards[shard_of_run(name, 4)]
        shard.last_window(name)
        columns = shard.columns(name)
        assert all(last - first < 20 for first, last in columns), columns
        gaps = [(a, b) for (_, a), (b, _) in pairwise(columns) if b != a + 1]
        assert gaps == []
        if name != moves:
            assert (columns[0][0], columns[-1][1]) == (0, new_steps - 1)
        if shard_of_run(name, 4) not in (away, 3):
            assert_same_scores(shard.last_window(name), single.last_window("r"))
    eventually(lambda: moves not in shards[away].runs())
    listed = {run["run_id"]: run for run in shards[away].get("/v1/runs")["runs"]}
    assert listed[moves]["collector"] == "shard-3"
    for shard in shards.values():
        assert all(run["not_scored"]["late"] == 0 for run in shard.runs().values())
        assert all(run["alerts"] == [] for run in shard.runs().values())


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """In place of an Alertmanager."""
    with Receiver() as result:
        yield result


@pytest.mark.nightly
@pytest.mark.timeout(420)
def test_sixty_runs_outlive_a_killed_shard_a_new_one_and_a_minute_without_gateway(
    deployment: Deployment, receiver: Receiver
) -> None:
    """Nothing is lost but two windows of the killed shard's runs, and nobody is alerted twice."""
    alerts = {
        "mode": "page",
        "evaluation_seconds": 1.0,
        "straggling_for_seconds": 1.0,
        "notify": {"alertmanagers": [receiver.url]},
    }
    for number in range(3):
        deployment.start_process(number, alerts=alerts)
    deployment.start_otelcols(3)
    names = [f"run-{n}" for n in range(60)]
    shape = (
        "--ranks",
        "8",
        "--steps",
        "300",
        "--step-s",
        "0.5",
        "--fault",
        "compute:1.5@rank2:step0",
    )
    with ThreadPoolExecutor(60) as senders:
        sent = [senders.submit(send_live_run, deployment.url, name, *shape) for name in names]
        time.sleep(30.0)
        shard = deployment.shards[1]
        assert isinstance(shard, ProcessShard)
        shard.kill()
        time.sleep(15.0)
        deployment.start_process(1, alerts=alerts)
        time.sleep(15.0)
        deployment.kill_gateway()
        deployment.start_process(3, alerts=alerts)
        time.sleep(60.0)
        deployment.start_gateway(4)
        for each in sent:
            each.result()
    for name in names:
        number = shard_of_run(name, 4)
        shard = deployment.shards[number]
        last = shard.last_window(name, 299, 90.0)
        assert sorted(map(int, last["section_relative_scores"]["forward"])) == list(range(8))
        columns = shard.columns(name)
        assert all(last - first < 20 for first, last in columns), columns
        missing = sum(b - a - 1 for (_, a), (b, _) in pairwise(columns))
        assert missing <= (40 if number == 1 else 0), (name, columns)
        if number != 3:
            assert columns[0][0] == 0
    moved = [name for name in names if shard_of_run(name, 4) == 3]
    assert moved
    for number in range(3):
        runs = deployment.shards[number].runs
        eventually(lambda runs=runs: not set(moved) & set(runs()))
    assert alerted_twice(receiver) == {}


def alerted_twice(receiver: Receiver) -> dict[tuple[str, ...], set[tuple[str, str]]]:
    """Alerts on runs that fired under several values of ``collector``, or began again; the watchdog
    is one of each collector."""
    starts: dict[tuple[str, ...], set[tuple[str, str]]] = {}
    for request in receiver.received:
        for alert in request.body:
            labels = dict(alert["labels"])
            if "run_id" not in labels:
                continue
            collector = labels.pop("collector")
            key = tuple(f"{name}={value}" for name, value in sorted(labels.items()))
            starts.setdefault(key, set()).add((collector, alert["startsAt"]))
    assert any("run_id=run-0" in key for key in starts)
    return {key: each for key, each in starts.items() if len(each) > 1}


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
