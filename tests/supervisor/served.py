"""A supervisor that serves on loopback, for tests of what comes in."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

from otel_straggler.supervisor.service import Supervisor
from otel_straggler.supervisor.settings import load_settings

from .supervised import NOW_S, Remembering, alert_json, webhook

TOKENS = {role: f"token-of-{role}-0123456789" for role in ("ingest", "read", "operate", "admin")}
CONFIG = """
server: {{listen: "127.0.0.1:0"}}
auth: {{grant_files: [{folder}/grants]}}
state: {{path: {folder}/db}}
fleet: {{hosts: {{a: running, b: running, s: spare}}}}
policy:
  rules:
    - {{name: gpu, xid: [host], action: replace_host}}
    - {{name: hung, report: [rank_hung], action: restart_in_job}}
"""


class Served:
    """A supervisor on loopback with grants, whose clock is the test's.

    Args:
        grants: lines after those of each role.
    """

    def __init__(
        self,
        folder: Path,
        config: str = CONFIG,
        grants: str = "",
        executor: Remembering | None = None,
    ) -> None:
        self.folder = folder
        self.now_s = NOW_S
        self._reports = 0
        known = "".join(f"{role} {role} token:{token}\n" for role, token in TOKENS.items())
        (folder / "grants").write_text(known + grants)
        (folder / "supervisor.yaml").write_text(config.format(folder=folder))
        self.executor = executor or Remembering()
        self.start()

    def start(self) -> None:
        settings = load_settings(self.folder / "supervisor.yaml")
        self.supervisor = Supervisor(settings, wall_s=lambda: self.now_s, executor=self.executor)
        self.address = self.supervisor.start()

    def ask(
        self, method: str, path: str, body: Any = None, role: str = "", **headers: str
    ) -> tuple[int, Any]:
        """Status and answer."""
        connection = http.client.HTTPConnection(self.address, timeout=10)
        all_headers = {"Content-Type": "application/json", **headers}
        if role:
            all_headers["Authorization"] = f"Bearer {TOKENS.get(role, role)}"
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method, path, content, all_headers)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        is_json = response.headers["Content-Type"] == "application/json"
        return response.status, json.loads(text) if is_json else text.decode()

    def ignored(self) -> dict[str, int]:
        """Of /metrics, by reason."""
        _, text = self.ask("GET", "/metrics", role="read")
        lines = [line for line in text.splitlines() if "_ignored_total{" in line]
        return {line.split('"')[1]: int(line.split()[-1]) for line in lines}

    def report(self, role: str, kind: str, node: str, run_id: str, **values: Any) -> str:
        """What follows from a report."""
        self._reports += 1
        body = {
            "kind": kind, "id": f"r{self._reports}", "run_id": run_id, "node": node, "attempt": 0,
            "at_unix_s": self.now_s, "reason": "ok", **values,
        }  # fmt: skip
        status, answer = self.ask("POST", "/v1/reports", body, role=role)
        return str(answer["outcome"] if status == 200 else status)

    def alert(self, role: str, **labels: str) -> str:
        """What follows from an alert."""
        self._reports += 1
        alert = alert_json("GpuXid", at_s=self.now_s, number=str(self._reports), **labels)
        status, answer = self.ask("POST", "/v1/alerts", webhook(alert), role=role)
        return str(next(iter(answer["outcomes"])) if status == 200 else status)

    def states(self) -> dict[str, str]:
        """Of the fleet, by host."""
        status = self.ask("GET", "/v1/status", role="read")[1]
        return {host["name"]: host["state"] for host in status["hosts"] if host["is_known"]}
