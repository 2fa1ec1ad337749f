"""A real Alertmanager posts to a supervisor: its fingerprints are ours, and it repeats itself."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.collector.alerting.alert_json import fingerprint
from otel_straggler.supervisor.service import Supervisor
from otel_straggler.supervisor.settings import load_settings

from ..servers.alertmanager import running_alertmanager
from ..waiting import eventually
from .supervised import Remembering

TOKEN = "a-token-of-the-test-0123"
CONFIG = """
server: {{listen: "127.0.0.1:0"}}
auth: {{grant_files: [{folder}/grants]}}
state: {{path: {folder}/db}}
fleet: {{hosts: {{a: running, b: running, s: spare}}}}
policy:
  rules:
    - {{name: lost, alert: StragglerRankLost, labels: {{mode: page}}, action: replace_host}}
"""
LABELS = {
    "alertname": "StragglerRankLost", "node": "a", "rank": "3", "run_id": "é/1", "mode": "page",
}  # fmt: skip


def routes(url: str) -> dict[str, Any]:
    """Everything goes to the supervisor, at once, and again and again."""
    sending = {
        "url": f"{url}/v1/alerts",
        "send_resolved": True,
        "http_config": {"authorization": {"credentials": TOKEN}},
    }
    waits = {"group_wait": "10ms", "group_interval": "200ms", "repeat_interval": "200ms"}
    receiver = {"name": "supervisor", "webhook_configs": [sending]}
    return {"route": {"receiver": "supervisor", **waits}, "receivers": [receiver]}


@pytest.mark.real_server
def test_an_alert_of_a_real_alertmanager_is_acted_upon_once(tmp_path: Path) -> None:
    """However often it is repeated; its end is understood."""
    (tmp_path / "grants").write_text(f"ingest alertmanager token:{TOKEN}\n")
    (tmp_path / "supervisor.yaml").write_text(CONFIG.format(folder=tmp_path))
    executor = Remembering()
    supervisor = Supervisor(load_settings(tmp_path / "supervisor.yaml"), executor=executor)
    url = f"http://{supervisor.start()}"
    try:
        with running_alertmanager(tmp_path / "am", routes(url)) as alertmanager:
            alertmanager.post("/api/v2/alerts", [{"labels": LABELS}])
            ignored = supervisor.telemetry._ignored
            eventually(lambda: ignored["known"] >= 2)
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            alertmanager.post("/api/v2/alerts", [{"labels": LABELS, "endsAt": now}])
            eventually(lambda: ignored["resolved"])
        (decision,) = supervisor.engine.status(10)["decisions"]
    finally:
        supervisor.stop()
    assert executor.performed == [("drain", "a"), ("requeue", "a")]
    assert decision["cause_id"].startswith(f"alert:{fingerprint(LABELS)}:")
    assert set(ignored) == {"known", "resolved"}
