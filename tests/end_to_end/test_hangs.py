"""Real processes that hang: a collector names the rank that the others wait for."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.cli import main
from otel_straggler.cli.hang_targets import Target, check_rank
from otel_straggler.errors import InputError
from otel_straggler.model.diagnostics import StacksHead

from ..waiting import eventually

RANK = Path(__file__).with_name("hanging_rank.py")
RANKS = 3
LONGEST_S = 90.0
QUICK = """liveness:
  lost_after_seconds: 3
  min_timeout_seconds: 4
  unknown_timeout_seconds: 4
"""


class Job:
    """Three ranks in lockstep, and the collector that they send to."""

    def __init__(self, collector: Any) -> None:
        self.collector = collector
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.ranks = [
            subprocess.Popen(
                [sys.executable, RANK, collector.endpoint],
                env={
                    **os.environ,
                    "RANK": str(rank),
                    "WORLD_SIZE": str(RANKS),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            for rank in range(RANKS)
        ]
        for process in self.ranks:
            assert process.stdout is not None
            assert process.stdout.readline().strip()

    def liveness(self) -> dict[str, Any]:
        url = f"{self.collector.url}/v1/report?run=hanging"
        with urllib.request.urlopen(url, timeout=30) as answer:
            run = json.load(answer)["runs"].get("hanging", {})  # not there before the first view
            (result,) = run.get("liveness") or [{}]
        return result

    def wait_for(self, **wanted: Any) -> dict[str, Any]:
        """Until the report says so; the last that it said, if it does not."""
        ends_at = time.monotonic() + LONGEST_S
        while time.monotonic() < ends_at:
            result = self.liveness()
            if all(result.get(name) == value for name, value in wanted.items()):
                return result
            time.sleep(0.2)
        pytest.fail(f"not within {LONGEST_S} s: {wanted}; the report says {result}")

    def close(self) -> None:
        for process in self.ranks:
            process.kill()
        for process in self.ranks:
            process.wait(30)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def job(start_collector: Any, tmp_path: Path) -> Iterator[Job]:
    """It trains, and its timeouts have been learnt."""
    file = tmp_path / "collector.yaml"
    file.write_text(QUICK)
    made = Job(start_collector(f"--config={file}"))
    try:
        made.wait_for(state="training", ranks={"ok": RANKS})
        time.sleep(3.0)  # some hundred steps
        yield made
    finally:
        made.close()


@pytest.mark.demo
def test_a_stopped_process_is_lost_and_its_peers_are_victims(job: Job) -> None:
    """SIGSTOP, as a frozen host; the others are alive in their collective. It goes on, they too."""
    job.ranks[1].send_signal(signal.SIGSTOP)
    result = job.wait_for(state="partly_lost", ranks={"stuck": 2, "lost": 1})
    assert (result["why"], result["culprits"], result["victims"]) == ("lost", [1], 2)
    job.ranks[1].send_signal(signal.SIGCONT)
    assert job.wait_for(state="training", ranks={"ok": RANKS})["sentence"] is None


@pytest.mark.nightly
@pytest.mark.demo
def test_all_ranks_killed_are_lost_not_finished(job: Job) -> None:
    """SIGKILL says nothing: nobody may take silence for an end."""
    for process in job.ranks:
        process.kill()
    result = job.wait_for(state="lost", ranks={"lost": RANKS})
    assert result["culprits"] == [0, 1, 2]


@pytest.mark.demo
def test_a_hang_is_explained_and_its_ranks_are_found_by_their_processes(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without any folder: ranks tell the number of their process with their heartbeats."""
    pids = [process.pid for process in job.ranks]
    run = get(f"{job.collector.url}/v1/run?run=hanging")
    assert run["ranks"]["pid"] == pids
    job.ranks[1].send_signal(signal.SIGSTOP)
    job.wait_for(state="partly_lost", ranks={"stuck": 2, "lost": 1})
    collector = ("--collector", job.collector.url)
    assert main(["verdict", "explain", "hang", *collector]) == 0
    told = capsys.readouterr().out
    assert told.startswith("Rank 1 on ")
    assert "hang, run hanging" in told
    assert "2 ranks; 2 of 2 at step " in told
    assert "in backward" in told
    main(["hang", "stacks", "--rank", "0", *collector])  # py-spy may not be there, nor trace here
    assert f"rank 0 ({pids[0]}): " in "".join(capsys.readouterr())
    commands = get(f"{job.collector.url}/v1/rank?run=hanging&rank=0")["commands"]
    assert commands[0].startswith(f"otel-straggler hang stacks --pid {pids[0]}  # on ")
    assert main(["hang", "stacks", "--rank", "7", *collector]) == 2
    assert "are over, or not on " in capsys.readouterr().err


def test_a_process_that_is_another_rank_here_is_not_taken_for_it() -> None:
    """As of a rank in another container, whose number another process has here."""
    other = subprocess.Popen(["sleep", "60"], env={**os.environ, "RANK": "3"})
    environment = Path(f"/proc/{other.pid}/environ")
    try:
        eventually(lambda: b"RANK=3" in environment.read_bytes())  # once it has become sleep
        check_rank(Target(pid=other.pid, head=StacksHead(rank="3")))
        with pytest.raises(InputError, match=f"process {other.pid} here is rank 3"):
            check_rank(Target(pid=other.pid, head=StacksHead(rank="5")))
    finally:
        other.kill()
        other.wait(30)


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)
