"""A collector that is killed while a run hangs, and started again: a real process and history."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from otel_straggler.collector.history.reader import HistoryReader

from ..servers.receiver import Receiver

FREE = "127.0.0.1:0"
RANKS = 3
ALERTS = {"StragglerRunHung", "StragglerRankLost"}


class Process:
    """``otel-straggler collector`` with a history, which notifies an Alertmanager."""

    def __init__(self, kit: Any, config: Path, history: str) -> None:
        self._kit, self._history = kit, history
        command = [sys.executable, "-m", "otel_straggler.cli", "collector", "--config", str(config)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.addresses = json.loads(self.process.stdout.readline())

    def beat(self, rank: int, **values: Any) -> None:
        now_s = time.time()
        known = {"sent_at_s": now_s, "progress_at_s": now_s, "step": 40, "open_section": "forward"}
        self._post("metrics", self._kit.beat_of(self._kit.rank(rank, RANKS), **{**known, **values}))

    def train(self, rank: int) -> None:
        """Two windows."""
        self._post("traces", self._kit.spans_of(self._kit.rank(rank, RANKS), range(8)))

    def _post(self, signal: str, body: bytes) -> None:
        headers = {"Content-Type": "application/x-protobuf"}
        address = self.addresses["otlp_http"]
        assert self._kit.ask(address, "POST", f"/v1/{signal}", body, headers).status == 200

    def saved_at_ns(self) -> int:
        with HistoryReader(self._history) as reader:
            return reader.summaries("run").get("", 0)

    def get(self, path: str) -> Any:
        return self._kit.ask(self.addresses["metrics"], "GET", path)

    def listed(self) -> list[tuple[str, bool]]:
        """Runs, and whether the collector follows them."""
        runs = self.get("/v1/runs").json()["runs"]
        return [(each["run_id"], each["is_live"]) for each in runs]

    def page(self) -> Any:
        """What is not an age."""
        page = self.get("/v1/run?run=run").json()
        answer = page["answer"]
        return {
            "headline": answer["headline"],
            "heat": page["heat"],
            "timeline": [page["timeline"]["n_columns"]],
            "alerts": sorted(each["name"] for each in page["alerts"]),
            "ranks": page["ranks"]["state"],
        }

    def series(self) -> dict[str, float]:
        """Of runs and ranks that hang."""
        text = self.get("/metrics").body.decode()
        names = ("straggler_run_hung", "straggler_run_state", "straggler_rank_culprit")
        return {
            f"{sample.name}{sorted(sample.labels.items())}": sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name in names
        }

    def alerts(self) -> dict[str, float]:
        """What fires for the run, by its labels: since when."""
        run = self.get("/v1/report").json()["runs"].get("run", {"alerts": []})
        return {
            json.dumps(each["labels"], sort_keys=True): each["since_ns"] for each in run["alerts"]
        }


@pytest.fixture
def begin(
    request: pytest.FixtureRequest, kit: Any, tmp_path: Path
) -> Iterator[Callable[[str], Process]]:
    """Start a collector that notifies this Alertmanager."""
    history = str(tmp_path / "history.db")
    if request.param == "postgres":
        history = request.getfixturevalue("database").url
    spool = str(tmp_path / "spool") if request.param == "file and spool" else ""
    started: list[Process] = []

    def one(alertmanager: str) -> Process:
        config = tmp_path / "collector.yaml"
        settings = {
            "receivers": {"otlp_http": FREE, "otlp_grpc": FREE},
            "metrics": {"listen": FREE, "collector_id": "c"},
            "history": {"path": history, "spool": spool, "save_every_seconds": 0.2},
            "scoring": {"window_steps": 4, "grace_seconds": 0.3},
            "liveness": {"lost_after_seconds": 2.0},
            "alerts": {
                "mode": "page",
                "hang_for_seconds": 1.0,
                "evaluation_seconds": 1.0,
                "notify": {"alertmanagers": [alertmanager], "resend_seconds": 1.0},
            },
        }
        config.write_text(json.dumps(settings))
        started.append(Process(kit, config, history))
        return started[-1]

    yield one
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


@pytest.mark.real_server
@pytest.mark.parametrize("begin", ["file", "file and spool", "postgres"], indirect=True)
def test_a_run_whose_ranks_are_all_silent_hangs_on_over_a_kill(
    begin: Callable[[str], Process], kit: Any
) -> None:
    """On the page with its matrix, in the list of runs, in the series, and for an Alertmanager: the
    same alerts since the same time, and none of them ended. They end as soon as the run does."""
    with Receiver() as receiver:
        before = begin(receiver.url)
        for rank in range(RANKS):
            before.train(rank)
            before.beat(rank)
        kit.eventually(lambda: len(before.alerts()) == 1 + RANKS)
        alerts, series = before.alerts(), before.series()
        page = before.page()
        assert page["heat"]["cells"]
        now_ns = time.time_ns()
        kit.eventually(lambda: before.saved_at_ns() > now_ns)
        before.process.send_signal(signal.SIGKILL)
        before.process.communicate()

        after = begin(receiver.url)
        kit.eventually(lambda: after.listed() == [("run", True)])
        kit.eventually(lambda: after.page() == page)
        assert after.series() == series
        n_before = len(receiver.received)
        kit.eventually(lambda: len(receiver.received) >= n_before + 4)
        assert after.alerts() == alerts
        assert labels_and_starts(receiver) == dict.fromkeys(alerts, 1)
        assert ended(receiver) == set()

        for rank in range(RANKS):
            after.beat(rank, finished_at_s=time.time(), outcome="ok")
        kit.eventually(lambda: ended(receiver) == ALERTS)
        kit.eventually(lambda: after.alerts() == {})


def posted(receiver: Receiver) -> list[dict[str, Any]]:
    """All that an Alertmanager was sent about runs."""
    every = [each for received in receiver.received for each in received.body]
    return [each for each in every if "run_id" in each["labels"]]


def labels_and_starts(receiver: Receiver) -> dict[str, int]:
    """How many starts each set of labels has had."""
    starts: dict[str, set[str]] = {}
    for each in posted(receiver):
        labels = json.dumps(each["labels"], sort_keys=True)
        starts.setdefault(labels, set()).add(each["startsAt"])
    return {labels: len(its) for labels, its in starts.items()}


def ended(receiver: Receiver) -> set[str]:
    """Names of alerts that have been resolved: their end was over when they were sent."""
    latest = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 5.0))
    return {each["labels"]["alertname"] for each in posted(receiver) if each["endsAt"] < latest}
