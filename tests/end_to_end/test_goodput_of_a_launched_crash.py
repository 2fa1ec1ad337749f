"""A real launcher, two ranks, an injected crash, a restart: the launcher's events give the time
outside of the ranks its category, and the disruption its reason."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from otel_straggler.cli import main
from otel_straggler.launcher.events import parse_event
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.testing import TRACES_PATH, CapturedRequests

pytest.importorskip(
    "torch.distributed.run", reason="no torch: it would show what a launched crash costs"
)
RANK = Path(__file__).with_name("crashing_rank.py")
LOCAL_RUN = ("--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2", "--max-restarts=1")
LONGEST_S = 120.0
MILLISECOND = 1_000_000


class Crashed(NamedTuple):
    """``folder`` has the spans; ``log`` what the launcher wrote, ``sent`` what it sent."""

    folder: Path
    log: Path
    sent: str
    events: list[LaunchEvent]
    known: dict[tuple[int, int], list[list[Any]]]

    def goodput(self, name: str, text: str) -> dict[str, Any]:
        """The account of the spans and of one more file."""
        (self.folder / name).write_text(text)
        out = self.folder.parent / f"{name}.json"
        assert main(["goodput", str(self.folder), "--json", str(out)]) == 0
        (self.folder / name).unlink()
        [run] = json.loads(out.read_text())["runs"]
        return run

    def at_ns(self, name: str, attempt: int = 0) -> int:
        [at_s] = [e.at_unix_s for e in self.events if (e.name, e.attempt) == (name, attempt)]
        return round(at_s * 1e9)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Crashed:
    where = tmp_path_factory.mktemp("launched")
    folder = where / "recording"
    folder.mkdir()
    with CapturedRequests() as sink:
        environment = {
            **os.environ,
            "OTEL_STRAGGLER_ENDPOINT": sink.url,
            "OTEL_STRAGGLER_RUN_ID": "launched",
            "OTEL_RESOURCE_ATTRIBUTES": "host.name=node-0",
        }
        environment.pop("FAULT_TOL_FINISHED_FLAG_FILE", None)
        ended = subprocess.run(
            [
                sys.executable,
                "-m",
                "otel_straggler.cli",
                "run",
                "--until-finished",
                *LOCAL_RUN,
                RANK,
            ],
            cwd=where,
            env=environment,
            capture_output=True,
            timeout=LONGEST_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr.decode()
        spans = [each.body for each in sink.requests if each.path == TRACES_PATH]
        logs = [each.body for each in sink.requests if each.path == "/v1/logs"]
    requests = b"".join(struct.pack(">I", len(body)) + body for body in spans)
    (folder / "spans.pb").write_bytes(requests)
    lines = [
        MessageToJson(ExportLogsServiceRequest.FromString(body), use_integers_for_enums=True)
        for body in logs
    ]
    (log,) = where.glob("training-logs/*/events-node-0.jsonl")
    known = {
        (rank, attempt): json.loads((where / f"known-{rank}.{attempt}").read_text())
        for rank in range(2)
        for attempt in range(2)
    }
    return Crashed(
        folder=folder,
        log=log,
        sent="".join(line.replace("\n", "") + "\n" for line in lines),
        events=[parse_event(line) for line in log.read_text().splitlines()],
        known=known,
    )


@pytest.fixture(scope="module")
def run(crashed: Crashed) -> dict[str, Any]:
    return crashed.goodput("events.jsonl", crashed.log.read_text())


def test_what_the_launcher_sends_says_the_same_as_what_it_writes(crashed: Crashed, run) -> None:
    assert crashed.goodput("logs.jsonl", crashed.sent) == run


def test_categories_add_up_to_the_time_from_the_start_of_the_job_to_its_end(
    crashed: Crashed, run
) -> None:
    wall_ns = crashed.at_ns("straggler.job.ended", 1) - crashed.at_ns("straggler.job.started")
    assert abs(sum(run["time_ns"].values()) - wall_ns) < MILLISECOND
    assert {sum(rank["time_ns"].values()) for rank in run["ranks"]} == {
        sum(run["time_ns"].values())
    }


def test_time_outside_of_the_processes_is_what_the_launcher_measured(crashed: Crashed, run) -> None:
    started = [crashed.at_ns("straggler.attempt.started", attempt) for attempt in range(2)]
    ended_ns = crashed.at_ns("straggler.attempt.ended")
    known = {
        "scheduling": started[0] - crashed.at_ns("straggler.job.started"),
        "restart": started[1] - ended_ns,
    }
    for category, expected_ns in known.items():
        assert abs(run["time_ns"][category] - expected_ns) < MILLISECOND


def test_a_failed_attempt_made_no_progress_from_its_last_step_to_its_end(
    crashed: Crashed, run
) -> None:
    ended_ns = crashed.at_ns("straggler.attempt.ended")
    for rank in run["ranks"]:
        [last] = [row for row in crashed.known[rank["rank"], 0] if row[:2] == ["step", 4]]
        low, high = ended_ns - last[5], ended_ns - last[4]
        assert low - MILLISECOND <= rank["time_ns"]["hang"] <= high + MILLISECOND


def test_the_disruption_has_the_reason_and_its_cost(crashed: Crashed, run) -> None:
    [disruption] = run["disruptions"]
    assert (disruption["attempt"], disruption["reason"]) == (0, "SIGKILL")
    assert "rank 1 ended by SIGKILL" in disruption["text"]
    assert disruption["recovery_s"] == pytest.approx(run["recovery_s"], abs=1e-6)
    assert disruption["redone_s"] * 1e9 == pytest.approx(run["time_ns"]["redone"], abs=10)
    low, high = (
        sum(row[at] for row in crashed.known[0, 0] if row[0] == "step" and row[1] in (3, 4))
        for at in (2, 3)
    )
    loading = [row for row in crashed.known[0, 0] if row[0] == "data"][3:5]
    redone_ns = next(r for r in run["ranks"] if r["rank"] == 0)["time_ns"]["redone"]
    assert low - sum(row[3] for row in loading) - MILLISECOND <= redone_ns
    assert redone_ns <= high - sum(row[2] for row in loading) + MILLISECOND


def test_the_table_says_why_the_attempt_ended(crashed: Crashed, capsys) -> None:
    (crashed.folder / "events.jsonl").write_text(crashed.log.read_text())
    assert main(["goodput", str(crashed.folder)]) == 0
    (crashed.folder / "events.jsonl").unlink()
    assert "attempt 0 ended (rank 1 ended by SIGKILL" in capsys.readouterr().out
