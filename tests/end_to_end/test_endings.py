"""Every way in which a training ends, on a real collector: state, words and alerts are those of the
table in the documentation, which this test reads."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

RANK = Path(__file__).with_name("ending_rank.py")
PAGE = Path(__file__).parents[2] / "docs/operate/silent-and-stuck-ranks.md"
LONGEST_S = 60.0
QUICK = """liveness:
  lost_after_seconds: 2
alerts:
  hang_for_seconds: 1
  evaluation_seconds: 1
"""
LATER_S = 2.5
"""After the alerts about runs that died have come: what else would come has come then, too."""


class Row(NamedTuple):
    """A row of the table."""

    state: str
    headline: str
    alerts: str


def rows() -> dict[str, Row]:
    """By how the run ends."""
    _, _, table = PAGE.read_text(encoding="utf-8").partition("| how a run ends |")
    lines = table.split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return {name: Row(state.strip("`"), *rest) for name, state, *rest in cells}


STORIES: dict[str, tuple[tuple[str, str], dict[int, int]]] = {
    "`shutdown()` on all ranks": (("shutdown", "shutdown"), {}),
    "exit code 0 on all ranks, without `shutdown()`": (("return", "return"), {}),
    "an uncaught exception on all ranks": (("exception", "exception"), {}),
    "an uncaught exception on rank 1; the launcher ends the others": (("wait", "exception"), {}),
    "`sys.exit(1)` on rank 1; the launcher ends the others": (("wait", "exit"), {}),
    "`raise SystemExit(2)` on rank 1; the launcher ends the others": (("wait", "raise"), {}),
    "Ctrl-C": (("wait", "wait"), {0: signal.SIGINT, 1: signal.SIGINT}),
    "SIGTERM to all ranks": (("wait", "wait"), {0: signal.SIGTERM, 1: signal.SIGTERM}),
    "SIGKILL of rank 1; the launcher ends the others": (("wait", "wait"), {1: signal.SIGKILL}),
    "`os._exit(0)` on all ranks": (("os_exit", "os_exit"), {}),
}
"""What each rank does after its last step, and the signals that it gets then."""


class Job:
    """Two ranks under a launcher that does as torchrun: after a failure it ends the others."""

    def __init__(self, endpoint: str, run_id: str, ends: tuple[str, str]) -> None:
        self.run_id = run_id
        self.ranks = [
            subprocess.Popen(
                [sys.executable, RANK, endpoint, run_id, end],
                env={
                    **os.environ,
                    "RANK": str(rank),
                    "WORLD_SIZE": "2",
                    "OTEL_RESOURCE_ATTRIBUTES": "host.name=node-0",
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            for rank, end in enumerate(ends)
        ]

    def finish(self, signals: dict[int, int]) -> None:
        for process in self.ranks:
            assert process.stdout is not None
            assert process.stdout.readline() == b"trained\n"
        for rank, number in signals.items():
            self.ranks[rank].send_signal(number)
        ends_at_s = time.monotonic() + LONGEST_S
        while any(process.poll() is None for process in self.ranks):
            assert time.monotonic() < ends_at_s, self.run_id
            if any(process.poll() for process in self.ranks):
                self.terminate()
            time.sleep(0.02)

    def terminate(self) -> None:
        for process in self.ranks:
            if process.poll() is None:
                process.terminate()
                process.wait(LONGEST_S)

    def close(self) -> None:
        for process in self.ranks:
            process.kill()
            process.wait(LONGEST_S)
            if process.stdout is not None:
                process.stdout.close()


class Ended(NamedTuple):
    """What the collector shows of all runs in the end."""

    url: str
    endpoint: str
    report: dict[str, Any]

    def row(self, run_id: str) -> Row:
        run = self.report[run_id]
        (liveness,) = run["liveness"]
        found = {(a["labels"]["alertname"], a["labels"]["severity"]) for a in run["alerts"]}
        alerts = ", ".join(f"{name} ({severity})" for name, severity in sorted(found))
        return Row(liveness["state"], self.headline(run_id), alerts or "none")

    def headline(self, run_id: str) -> str:
        return str(get(f"{self.url}/v1/run?run={run_id}")["answer"]["headline"])


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def report_of(url: str) -> dict[str, Any]:
    runs: dict[str, Any] = get(f"{url}/v1/report")["runs"]
    return runs


def run_id_of(story: str) -> str:
    return urllib.parse.quote(re.sub(r"\W+", "-", story).strip("-"))


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    """All stories, reported to one collector, which has had the time to alert."""
    from otel_straggler.demo.processes import Collector

    file = tmp_path_factory.mktemp("endings") / "collector.yaml"
    file.write_text(QUICK)
    collector = Collector(f"--config={file}")
    jobs: list[Job] = []
    try:
        for story, (ends, _) in STORIES.items():
            jobs.append(Job(collector.endpoint, run_id_of(story), ends))
        for job, (_, signals) in zip(jobs, STORIES.values(), strict=True):
            job.finish(signals)
        lost = [run_id_of(story) for story, row in rows().items() if row.alerts != "none"]
        ends_at_s = time.monotonic() + LONGEST_S
        while quiet := [
            (run_id, run["liveness"][0]["state"])
            for run_id, run in report_of(collector.url).items()
            if run_id in lost and not run["alerts"]
        ]:
            assert time.monotonic() < ends_at_s, quiet
            time.sleep(0.1)
        time.sleep(LATER_S)
        yield Ended(collector.url, collector.endpoint, report_of(collector.url))
    finally:
        for job in jobs:
            job.close()
        collector.close()


def test_every_row_of_the_table_is_tested() -> None:
    assert rows().keys() == STORIES.keys()


@pytest.mark.parametrize("story", STORIES, ids=run_id_of)
def test_the_end_of_a_run_is_called_as_the_documentation_says(ended: Ended, story: str) -> None:
    row, shown = rows()[story], ended.row(run_id_of(story))
    if story == "an uncaught exception on all ranks":  # at once, unless the machine is busy
        shown = shown._replace(headline=shown.headline.partition("; rank")[0])
    assert shown == row


def test_a_collector_announces_its_page_to_ranks(ended: Ended) -> None:
    """Also where it refuses a request: a GET sends nothing."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{ended.endpoint}/v1/traces", timeout=30)
    with refused.value as answer:
        assert answer.code == 405
        assert answer.headers["otel-straggler-page"] == f"{ended.url}/"
