"""A real Alertmanager with the example that is rendered: who is notified, and behind whom."""

from __future__ import annotations

import datetime as dt
import json
import os
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from otel_straggler.alerts.render import alertmanager_file
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.demo.processes import Server, find_alertmanager, start_alertmanager
from otel_straggler.demo.receiver import Received, Receiver

PATIENCE_S = 60.0
"""Half of what an alert of a known group waits for."""


@dataclass(frozen=True)
class Stage:
    server: Server
    receiver: Receiver

    def send(self, *alerts: dict[str, str]) -> None:
        now = dt.datetime.now(dt.timezone.utc).isoformat()
        body = [{"labels": labels, "startsAt": now} for labels in alerts]
        request = urllib.request.Request(
            f"{self.server.url}/api/v2/alerts",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200

    def wait_for(self, name: str, run_id: str) -> Received | None:
        return self.receiver.wait_for(lambda each: (name, run_id) in told(each), PATIENCE_S)


def told(notification: Received) -> list[tuple[str, str]]:
    return [
        (each["labels"]["alertname"].removeprefix("Straggler"), each["labels"]["run_id"])
        for each in notification.payload["alerts"]
    ]


def alert(name: str, run_id: str, **more: str) -> dict[str, str]:
    severity = {"severity": "critical", "mode": "page", "cluster": "prod", "job_name": "llm"}
    return {"alertname": f"Straggler{name}", "run_id": run_id, **severity, **more}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    program = find_alertmanager()
    if program is None:
        sentence = "Alertmanager is not installed; it would show who is notified first"
        if os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    receiver = Receiver()
    config = yaml.safe_load(alertmanager_file(AlertSettings()))
    del config["templates"]
    config["route"]["routes"][0]["group_wait"] = "3s"
    config["receivers"] = [
        {"name": each["name"], "webhook_configs": [{"url": f"{receiver.url}/{each['name']}"}]}
        for each in config["receivers"]
    ]
    server = start_alertmanager(program, config, tmp_path)
    yield Stage(server, receiver)
    server.close()
    receiver.close()


def test_a_hung_run_waits_for_no_group_and_stands_for_its_ranks(stage: Stage) -> None:
    """The run has just had a notification; the next one of that group is minutes away."""
    stage.send(alert("RankStraggling", "r1", rank="1", node="n1"))
    assert stage.wait_for("RankStraggling", "r1")
    stage.send(
        alert("RankLost", "r2", rank="1", node="n1"),
        alert("RankStraggling", "r3", rank="1", node="n1"),
        alert("RunHung", "r1"),
        alert("RunHung", "r2"),
    )
    assert stage.wait_for("RunHung", "r1")
    assert stage.wait_for("RunHung", "r2")
    assert stage.wait_for("RankStraggling", "r3")  # as long in its group as the lost rank
    everything = [told(each) for each in stage.receiver.received]
    assert [("RunHung", "r1")] in everything
    assert ("RankLost", "r2") not in [one for each in everything for one in each]
    assert everything[-1] == [("RankStraggling", "r3")]
