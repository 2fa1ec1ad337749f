"""A real ``otel-straggler supervise`` with the example's policy, which prints what it would do."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from otel_straggler.demo.processes import end

Json = dict[str, Any]
EXAMPLE = Path(__file__).parents[2] / "examples" / "supervisor.yaml"
_STARTED_WITHIN_S = 60.0


class Supervising:
    """The running command; ``url`` is its address."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self._printed = folder / "printed.jsonl"
        self._log = folder / "log"
        until_s = time.monotonic() + _STARTED_WITHIN_S
        while not (lines := self._lines()):
            if process.poll() is not None or time.monotonic() > until_s:
                raise TimeoutError(f"the supervisor did not start: {self._log.read_text()}")
            time.sleep(0.05)
        self.url = f"http://{lines[0]['supervisor']}"

    def acted(self, run_id: str) -> list[Json]:
        """What the executor has printed about a run, other than to notify."""
        return [
            line
            for line in self._lines()[1:]
            if line.get("run_id") == run_id and line["action"] != "notify"
        ]

    def decided_s(self, run_id: str) -> float | None:
        """When it decided to act on a run first, seconds since 1970."""
        with urllib.request.urlopen(f"{self.url}/v1/status", timeout=30) as answer:
            decisions = json.load(answer)["decisions"]
        at_s = [
            float(each["at_unix_s"])
            for each in decisions
            if each["run_id"] == run_id and each["action"] not in {None, "notify"}
        ]
        return min(at_s, default=None)

    def post(self, payload: Json) -> Json:
        """Send an Alertmanager's payload once more."""
        request = urllib.request.Request(
            f"{self.url}/v1/alerts",
            json.dumps(payload).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            result: Json = json.load(answer)
        return result

    def _lines(self) -> list[Json]:
        return [json.loads(line) for line in self._printed.read_text().splitlines()]


@contextlib.contextmanager
def supervising(folder: Path) -> Iterator[Supervising]:
    """With the hosts of the stories' nodes."""
    folder.mkdir(parents=True)
    config = yaml.safe_load(EXAMPLE.read_text())
    config["server"]["listen"] = "127.0.0.1:0"
    config["state"]["path"] = str(folder / "journal.db")
    config["fleet"]["hosts"] = {"node-0": "running", "node-1": "running", "node-7": "spare"}
    (folder / "supervisor.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "otel_straggler.cli", "supervise"]
    with (folder / "printed.jsonl").open("wb") as printed, (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--config={folder / 'supervisor.yaml'}"],
            stdout=printed,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield Supervising(folder, process)
        finally:
            end(process)
