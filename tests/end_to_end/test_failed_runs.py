"""A run under a real launcher fails: who is named, how, when, and that nobody is called for a run
that is being restarted. With a real collector, its own notifier, page, and /metrics."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch.distributed.run", reason="no torch: it would show how a run fails")
RANK = Path(__file__).with_name("failing_rank.py")
LONGEST_S = 120.0
LATER_S = 2.5
QUICK = """liveness:
  lost_after_seconds: 3
alerts:
  hang_for_seconds: 1
  evaluation_seconds: 1
"""


class Failed:
    """A launched run, its folder, and what the collector says of it."""

    def __init__(self, url: str, run_id: str, folder: Path) -> None:
        self.url, self.run_id, self.folder = url, run_id, folder

    @property
    def alerts(self) -> dict[str, str]:
        """Descriptions of what fires, by name."""
        run = get(f"{self.url}/v1/report")["runs"].get(self.run_id, {"alerts": []})
        return {
            each["labels"]["alertname"]: each["annotations"]["description"]
            for each in run["alerts"]
        }

    @property
    def page(self) -> dict[str, Any]:
        shown: dict[str, Any] = get(f"{self.url}/v1/run?run={self.run_id}")
        return shown

    @property
    def events(self) -> list[dict[str, Any]]:
        paths = self.folder.glob("training-logs/*/events-*.jsonl")
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from otel_straggler.demo.processes import Collector

    file = tmp_path_factory.mktemp("failed") / "collector.yaml"
    file.write_text(QUICK)
    collector = Collector(f"--config={file}")
    yield collector
    collector.close()


Launch = Callable[..., Failed]


@pytest.fixture
def launch(collector: Any, tmp_path: Path) -> Launch:
    """Runs three ranks to their end; what is found meanwhile is up to ``watch``."""

    def run(what: str, *options: str, watch: Callable[[Failed], None] | None = None) -> Failed:
        run_id = f"{what}-{len(options)}-{time.monotonic_ns()}"
        environment = {
            **os.environ,
            "OTEL_STRAGGLER_ENDPOINT": collector.endpoint,
            "OTEL_STRAGGLER_RUN_ID": run_id,
            "OTEL_RESOURCE_ATTRIBUTES": "host.name=node-0",
        }
        environment.pop("FAULT_TOL_FINISHED_FLAG_FILE", None)
        torchrun = ("--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=3")
        command = [sys.executable, "-m", "otel_straggler.cli", "run", "--until-finished"]
        process = subprocess.Popen(
            [*command, *options, *torchrun, RANK, what],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        failed = Failed(collector.url, run_id, tmp_path)
        until_s = time.monotonic() + LONGEST_S
        while process.poll() is None:
            assert time.monotonic() < until_s, what
            if watch is not None:
                watch(failed)
            time.sleep(0.2)
        while "StragglerRunFailed" not in failed.alerts:
            assert time.monotonic() < until_s, (what, failed.page["answer"])
            time.sleep(0.2)
        return failed

    return run


WHO = {
    "raise": "ValueError: bad sample 17 in shard 3; 2 ranks failed after that.",
    "exit": "exit code 3.",
    "kill": "SIGKILL.",
}


@pytest.mark.parametrize("what", WHO)
def test_a_launcher_that_gives_up_notifies_with_who_how_when_and_attempts(
    launch: Launch, what: str
) -> None:
    """And nothing else fires, then or later."""
    who = f"Rank 1 on node-0 failed first: {WHO[what]}"
    failed = launch(what, "--max-jobs=1", "--max-restarts=0")
    description = failed.alerts["StragglerRunFailed"]
    assert f" {who} That was at 20" in description
    assert "in attempt 0: the launcher has given up after 1 attempt." in description
    assert "abc" not in description
    page = failed.page
    assert page["answer"]["headline"] == "The run has failed; rank 1 on node-0 failed first"
    block = page["run"]["failure"]
    assert (block["ranks"], block["node"]) == ([1], "node-0")
    assert (block["attempts"], block["has_given_up"], block["is_restarting"]) == (1, True, False)
    assert who.removesuffix(".") in page["answer"]["sentence"]
    with urllib.request.urlopen(f"{failed.url}/metrics", timeout=30) as answer:
        series = [line for line in answer.read().decode().splitlines() if failed.run_id in line]
    (shown,) = [line for line in series if line.startswith("straggler_run_failed_timestamp")]
    assert who in shown
    assert float(shown.rpartition(" ")[2]) == pytest.approx(block["since_s"], abs=1.0)
    time.sleep(LATER_S)
    assert failed.alerts.keys() == {"StragglerRunFailed"}


def test_the_rank_that_raised_is_the_reason_of_the_attempt(launch: Launch) -> None:
    """Its process ends last, by the launcher's SIGTERM or as the others are aborted."""
    failed = launch("raise", "--max-jobs=1", "--max-restarts=0")
    (ended,) = [each for each in failed.events if each["name"] == "straggler.attempt.ended"]
    assert ended["text"].startswith("rank 1 raised ValueError: bad sample 17 in shard 3, rank ")
    assert ended["reason"] == "exit_1"
    (attempt,) = failed.page["run"]["launches"]["attempts"]
    assert attempt["text"].startswith("rank 1 raised ValueError")


def test_a_run_that_is_being_restarted_notifies_nobody_until_its_launcher_gives_up(
    launch: Launch,
) -> None:
    """Two attempts; the alert counts them."""
    seen: list[str] = []
    texts: set[str] = set()

    def watch(failed: Failed) -> None:
        seen.extend(failed.alerts)
        if failed.run_id in get(f"{failed.url}/v1/report")["runs"]:
            page = failed.page
            if page["run"]["failure"]:
                texts.add(page["answer"]["sentence"])

    failed = launch("exit", "--max-jobs=1", "--max-restarts=1", watch=watch)
    attempts = {each["attempt"] for each in failed.events if "attempt.started" in each["name"]}
    assert attempts == {0, 1}
    description = failed.alerts["StragglerRunFailed"]
    assert "in attempt 1: the launcher has given up after 2 attempts." in description
    ended_at_s = min(each["at_unix_s"] for each in failed.events if "run.ended" in each["name"])
    assert failed.page["run"]["failure"]["since_s"] < ended_at_s
    assert seen == [] or failed.events[-1]["name"] == "straggler.run.ended"
