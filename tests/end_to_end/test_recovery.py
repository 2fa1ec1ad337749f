"""Runs that recover: found, diagnosed, ended, started again, resumed, finished, with who is told.

On every push one node; at night two nodes with networks of their own, and a real Alertmanager.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch.distributed.run")

from benchmarks.alert_delay.stage import Stage, find_programs
from benchmarks.recovery import stories
from benchmarks.recovery.nodes import why_not
from benchmarks.recovery.stories import FAULT_STEP, Recovery, lines_of
from benchmarks.recovery.supervising import Supervising, supervising

LONGEST_S = 150


@pytest.mark.demo
def test_a_rank_that_hangs_is_diagnosed_and_ended_and_the_run_resumes_and_finishes(
    start_collector: Callable[..., Any], tmp_path: Path
) -> None:
    """By one command, with a script that only sends heartbeats and saves checkpoints."""
    collector = start_collector()
    (tmp_path / "fault.json").write_text(json.dumps({"rank": 1, "step": 12, "kind": "hang"}))
    options = (
        *(*stories.agent_options(2.0), "--until-finished", f"--log-dir={tmp_path}/logs"),
        *("--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2", "--max-restarts=1"),
    )
    command = [sys.executable, "-m", "otel_straggler.cli", "run", *options]
    own = {"OTEL_STRAGGLER_ENDPOINT": collector.endpoint, "OTEL_RESOURCE_ATTRIBUTES": "host.name=n"}
    done = subprocess.run(
        [*command, stories.TRAINING, tmp_path, "20"],
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "logs" / "finished").exists()
    (hang,) = [json.loads(p.read_text()) for p in tmp_path.glob("logs/diagnostics-n/*.hang.json")]
    assert (hang["rank"], hang["attempt"], hang["step"]) == (1, 0, 12)
    assert "wait_for_nobody" in Path(hang["stacks"]).read_text()
    steps = [(each["attempt"], each["step"]) for each in lines_of(tmp_path / "steps.jsonl")]
    assert steps == [*((0, n) for n in range(13)), *((1, n) for n in range(11, 20))]
    exits = [(e["rank"], e["reason"]) for e in lines_of(tmp_path / "logs" / "events-n.jsonl")
             if e["name"] == "straggler.rank.exited"]  # fmt: skip
    assert exits[0] == (1, "SIGKILL")
    shown = urllib.request.urlopen(f"{collector.url}/metrics", timeout=30).read().decode()
    (restarts,) = re.findall(r"^straggler_run_restarts_total{(.*)} (.*)$", shown, re.MULTILINE)
    assert 'reason="SIGKILL"' in restarts[0]
    assert 'node="n"' in restarts[0]
    assert float(restarts[1]) == 1
    run_id = str(lines_of(tmp_path / "logs" / "events-n.jsonl")[-1]["run_id"])
    launches = answer_of(f"{collector.url}/v1/run?run={run_id}")["run"]["launches"]
    assert [each["attempt"] for each in launches["attempts"]] == [0, 1]
    assert launches["attempts"][0]["reason"] == "SIGKILL"
    assert launches["text"].startswith("after rank 1 ended by SIGKILL")
    report = answer_of(f"{collector.url}/v1/report?run={run_id}")
    assert report["runs"][run_id]["launches"] == launches


def answer_of(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


# --- at night: two nodes -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervising]:
    with supervising(tmp_path_factory.mktemp("supervisor") / "files") as running:
        yield running


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, supervisor: Supervising) -> Iterator[Stage]:
    try:
        find_programs()
    except FileNotFoundError as missing:
        pytest.skip(f"{missing}: nobody saw an alert arrive")
    if reason := why_not():
        pytest.skip(reason)
    built = Stage(tmp_path_factory.mktemp("stage"), supervisor.url)
    yield built
    built.close()


at_night = [
    pytest.mark.nightly,
    pytest.mark.real_server,
    pytest.mark.demo,
    pytest.mark.timeout(600),
]


def recovered(result: Recovery) -> None:
    """It has finished, in two attempts, from its checkpoint, and both launchers say so."""
    assert result.is_finished, result.logs
    assert result.exit_codes == [0, 0], result.logs
    assert result.attempts == [0, 1]
    first = min(step["step"] for step in result.steps if step["attempt"] == 1)
    assert 0 < first <= FAULT_STEP + 1, "resumed from its checkpoint"
    started = [e for e in result.events if e["name"] == "straggler.attempt.started"]
    newest = [e["attempt"] for e in started if e["attempt"] > 0]
    assert newest == [1, 1], "both nodes count the same"
    phases = [name for name in result.phases_s() if not name.endswith("from the fault")]
    assert phases[-5:-1] == ["terminated", "restarted", "first step", "finished"]


class TestTwoNodes:
    pytestmark = at_night

    def test_a_hung_rank_is_diagnosed_alerted_ended_and_the_run_finishes(
        self, stage: Stage, supervisor: Supervising, tmp_path: Path, capsys: Any
    ) -> None:
        """Its stacks name the function; the Alertmanager has notified before the agent acted, and
        the supervisor has decided, once, whatever it is notified of again."""
        result = stories.rank_hung(stage, tmp_path / "rank-hung")
        recovered(result)
        (hang,) = result.hangs
        assert (hang["rank"], hang["step"]) == (3, FAULT_STEP)
        assert "wait_for_nobody" in result.stacks
        assert result.at_s["fault"] < result.at_s["found"] <= result.at_s["diagnosed"]
        assert result.pages[0].names() == ["StragglerRunHung"]
        run_id = "rank-hung"
        assert [each["action"] for each in supervisor.acted(run_id)] == ["restart_workload"]
        result.at_s["decision"] = supervisor.decided_s(run_id) or 0.0
        assert result.at_s["fault"] < result.at_s["decision"] < result.at_s["first step"]
        for received in stage.webhook.received:
            supervisor.post(received.payload)
        assert len(supervisor.acted(run_id)) == 1, "notified again: done once"
        with capsys.disabled():
            print(
                "\n"
                + "".join(f"{at_s:7.1f} s {name}\n" for name, at_s in result.phases_s().items())
            )
        killed = [e["rank"] for e in result.events if e["reason"] == "SIGKILL" and e["rank"] >= 0]
        assert killed == [3], "no healthy rank was ended by the agent"

    def test_a_killed_rank_is_named_and_the_run_finishes(
        self, stage: Stage, tmp_path: Path
    ) -> None:
        result = stories.rank_killed(stage, tmp_path / "rank-killed")
        recovered(result)
        exited = [e for e in result.events if e["name"] == "straggler.rank.exited"]
        assert (exited[0]["rank"], exited[0]["reason"]) == (3, "SIGKILL")
        assert result.hangs == []

    def test_a_killed_agent_is_started_again_and_nothing_else_happens(
        self, stage: Stage, tmp_path: Path
    ) -> None:
        result = stories.agent_killed(stage, tmp_path / "agent-killed")
        assert result.is_finished, result.logs
        assert result.attempts == [0]
        assert [e["name"] for e in result.events if "exited" in e["name"]] == []
        assert result.hangs == []

    def test_a_killed_node_is_replaced_and_the_run_finishes(
        self, stage: Stage, tmp_path: Path
    ) -> None:
        result = stories.node_killed(stage, tmp_path / "node-killed")
        recovered(result)
