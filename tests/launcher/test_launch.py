"""``otel-straggler run`` as torchrun's parent: real processes, light ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from otel_straggler import semconv
from otel_straggler.client.diagnostics.processes import takes_signal
from otel_straggler.launcher.events import parse_event
from otel_straggler.launcher.launch import Stop, _end_s
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.testing import CapturedRequests

from ..waiting import eventually

pytest.importorskip("torch.distributed.run")
SCRIPT = Path(__file__).with_name("short_training.py")
LONGEST_S = 90.0
AGENT = "--ft-param-rank_heartbeat_timeout=600"
Start = Callable[..., "Run"]


class Run:
    """The command with two ranks in ``folder``, as somebody starts it."""

    def __init__(self, folder: Path, what: str, *options: str, endpoint: str = "") -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "OTEL_STRAGGLER_ENDPOINT": endpoint or "http://127.0.0.1:1",
            "OTEL_RESOURCE_ATTRIBUTES": "host.name=node-0",
        }
        for name in ("FAULT_TOL_FINISHED_FLAG_FILE", "OTEL_STRAGGLER_RUN_ID", "SLURM_JOB_ID"):
            self.environment.pop(name, None)
        torchrun = ("--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2")
        command = [sys.executable, "-m", "otel_straggler.cli", "run", *options, *torchrun]
        self._log = (folder / "printed").open("wb")
        self.process = subprocess.Popen(
            [*command, SCRIPT, folder, what],
            cwd=folder,
            env=self.environment,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def printed(self) -> str:
        return (self.folder / "printed").read_text(errors="replace")

    def wait(self) -> int:
        return self.process.wait(LONGEST_S)

    def events(self) -> list[LaunchEvent]:
        (path,) = self.folder.glob("training-logs/*/events-node-0.jsonl")
        return [parse_event(line) for line in path.read_text().splitlines()]

    def rank_pids(self, attempt: int) -> list[int]:
        """Once both ranks of an attempt have begun."""
        files = [self.folder / f"rank-{rank}.{attempt}" for rank in range(2)]
        eventually(lambda: all(f.exists() and f.read_text() for f in files), LONGEST_S)
        return [int(file.read_text()) for file in files]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(LONGEST_S)
        self._log.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Run] = []

    def run(what: str, *options: str, **more: Any) -> Run:
        started.append(Run(tmp_path, what, *options, **more))
        return started[-1]

    yield run
    for each in started:
        each.close()


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def test_a_killed_rank_is_an_exit_with_its_signal_and_a_restart_with_its_reason(
    start: Start,
) -> None:
    """In the file, and as log records and metrics at the collector; each rank's output is kept."""
    with CapturedRequests() as sink:
        run = start("kill", "--until-finished", "--max-restarts=1", endpoint=sink.url)
        assert run.wait() == 0, run.printed
        logs = [ExportLogsServiceRequest.FromString(r.body) for r in sink.requests
                if r.path == "/v1/logs"]  # fmt: skip
        restarts = sink.points(semconv.RUN_RESTARTS)
    events = run.events()
    short = [(e.name.partition(".")[2], e.attempt, e.reason) for e in events]
    assert short == [
        ("job.started", 0, ""),
        ("attempt.started", 0, ""),
        ("rank.exited", 0, "SIGKILL"),
        ("rank.exited", 0, "SIGTERM"),
        ("attempt.ended", 0, "SIGKILL"),
        ("run.restarting", 0, "SIGKILL"),
        ("attempt.started", 1, ""),
        ("attempt.ended", 1, "exit_0"),
        ("job.ended", 1, "finished"),
        ("run.ended", 1, "finished"),
    ]
    assert events[2].rank == 1
    assert "rank 1 ended by SIGKILL" in events[4].text
    sent = [log.resource_logs[0].scope_logs[0].log_records[0].event_name for log in logs]
    assert sent == [event.name for event in events]
    assert (restarts[-1].value, restarts[-1].attributes) == (1.0, {"reason": "SIGKILL"})
    kept = run.folder.glob("training-logs/*/*/attempt_*/*/stdout.log")
    texts = {path.parent.parent.name + path.parent.name: path.read_text() for path in kept}
    assert {name: text[:19] for name, text in texts.items()} == {
        f"attempt_{attempt}{rank}": f"rank {rank} of attempt {attempt}"
        for attempt in range(2)
        for rank in range(2)
    }


def test_a_job_that_has_not_finished_is_followed_by_one_that_is_the_next_attempt(
    start: Start,
) -> None:
    """Of the same run."""
    run = start("two-jobs", "--until-finished", "--max-jobs=3")
    assert run.wait() == 0, run.printed
    begun = [e for e in run.events() if e.name == "straggler.attempt.started"]
    assert [(event.job, event.attempt) for event in begun] == [(1, 0), (2, 1)]
    assert len({event.run_id for event in begun}) == 1
    assert "job 1 of at most 3 ended with exit code 0, and the training has not" in run.printed


def test_attempts_that_make_no_progress_are_not_followed_by_more(start: Start) -> None:
    """Two attempts after that which wrote the checkpoint, in one job; and no job follows."""
    progress = ("--ft-checkpoint-iteration-file=latest_step", "--ft-max-no-progress-cycles=2")
    run = start("stuck", "--until-finished", *progress, "--max-restarts=9")
    assert run.wait() == 1, run.printed
    ended = [e for e in run.events() if e.name == "straggler.attempt.ended"]
    assert [(e.job, e.attempt, e.step, e.stuck_attempts) for e in ended] == [
        (1, 0, 350, 0),
        (1, 1, 350, 1),
        (1, 2, 350, 2),
    ]
    sentence = "2 attempts in a row have made no progress: the newest checkpoint is still that of "
    assert f"job 1 of at most 10 ended with exit code 1; {sentence}step 350" in run.printed


def test_a_signal_ends_ranks_and_agent_and_no_job_follows(start: Start) -> None:
    """Also one that comes twice, as a scheduler sends it to all processes of a job."""
    run = start("wait", "--until-finished", AGENT)
    ranks = run.rank_pids(0)
    agents = [pid for pid in children_of(run.process.pid) if b"otel_straggler.agent" in words(pid)]
    (torchrun,) = {parent_of(pid) for pid in ranks}
    assert len(agents) == 1
    os.kill(torchrun, signal.SIGTERM)
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.wait() != 0
    assert all(is_gone(pid) for pid in (*ranks, *agents, torchrun)), run.printed
    assert [e.job for e in run.events() if e.name == "straggler.job.started"] == [1]
    assert "SIGTERM" in {e.reason for e in run.events() if e.name == "straggler.attempt.ended"}


def test_ranks_do_not_outlive_torchrun_that_is_killed(start: Start) -> None:
    """Nor one that loses them because a signal comes while it starts them: the kernel ends them."""
    run = start("wait", AGENT)
    ranks = run.rank_pids(0)
    (torchrun,) = {parent_of(pid) for pid in ranks}
    os.kill(torchrun, signal.SIGKILL)
    assert run.wait() == 128 + signal.SIGKILL
    eventually(lambda: all(is_gone(pid) for pid in ranks), LONGEST_S)


def test_ranks_do_not_outlive_a_launcher_that_is_killed(start: Start) -> None:
    """SIGKILL: it cannot pass on anything; torchrun gets SIGTERM from the kernel."""
    run = start("wait", "--until-finished")
    ranks = run.rank_pids(0)
    run.process.kill()
    eventually(lambda: all(is_gone(pid) for pid in ranks), LONGEST_S)


def kill(run: Run) -> None:
    run.process.kill()


def kill_group(run: Run) -> None:
    os.killpg(run.process.pid, signal.SIGKILL)


def stop_and_kill(run: Run) -> None:
    run.process.send_signal(signal.SIGSTOP)
    run.process.kill()


def terminate(run: Run) -> None:
    run.process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    "end",
    [
        kill,
        terminate,
        pytest.param(kill_group, marks=pytest.mark.nightly),
        pytest.param(stop_and_kill, marks=pytest.mark.nightly),
    ],
)
def test_torchrun_and_an_agent_that_are_stopped_do_not_outlive_their_launcher(
    start: Start, end: Callable[[Run], None]
) -> None:
    """Found by attack: SIGTERM waits until somebody continues a process that is stopped."""
    run = start("wait", AGENT)
    ranks = run.rank_pids(0)
    children = children_of(run.process.pid)
    assert len(children) == 2
    for pid in children:
        os.kill(pid, signal.SIGSTOP)
    eventually(lambda: all(state_of(pid) == "T" for pid in children))
    end(run)
    run.wait()
    eventually(lambda: all(is_gone(pid) for pid in (*ranks, *children)), LONGEST_S)


def test_torchrun_that_is_stopped_while_it_starts_does_not_outlive_its_launcher(
    start: Start,
) -> None:
    """To import torch takes seconds."""
    run = start("wait", "--until-finished")
    (torchrun,) = eventually(lambda: children_of(run.process.pid))
    eventually(lambda: takes_signal(torchrun, signal.SIGCONT))
    os.kill(torchrun, signal.SIGSTOP)
    run.process.kill()
    eventually(lambda: is_gone(torchrun), LONGEST_S)


STUCK = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("stopped", [False, True])
def test_a_torchrun_that_does_not_end_after_a_signal_is_killed(
    capfd: pytest.CaptureFixture[str], stopped: bool
) -> None:
    stop = Stop(0.3)
    with subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        if stopped:
            child.send_signal(signal.SIGSTOP)
        with stop.passing_on_to(child):
            stop.handle(signal.SIGTERM, None)
            stop.handle(signal.SIGTERM, None)
            assert child.wait(LONGEST_S) == -signal.SIGKILL
    assert capfd.readouterr().err.count("torchrun still runs 0.3 s after SIGTERM: it gets") == 1


def test_a_signal_that_came_before_torchrun_is_passed_on_to_it() -> None:
    stop = Stop(60.0)
    stop.handle(signal.SIGINT, None)
    with (
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as child,
        stop.passing_on_to(child),
    ):
        assert child.wait(LONGEST_S) in {-signal.SIGINT, 1}


@pytest.mark.parametrize(
    ("given", "variable", "seconds"),
    [(None, None, 60), (5, None, 35), (5, "7", 35), (None, "7", 37), (None, "soon", 60),
     (None, "\N{SUPERSCRIPT TWO}", 60), (None, "9" * 5_000, 60)],
)  # fmt: skip
def test_torchrun_has_the_time_that_its_ranks_have(
    given: int | None, variable: str | None, seconds: float
) -> None:
    env = {} if variable is None else {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": variable}
    assert _end_s(SimpleNamespace(shutdown_timeout=given), env) == seconds


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children_of(pid: int) -> list[int]:
    return [int(p) for task in Path(f"/proc/{pid}/task").iterdir()
            for p in (task / "children").read_text().split()]  # fmt: skip


def words(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
