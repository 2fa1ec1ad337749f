"""What happens to ranks that exceed a timeout: real processes, short timeouts."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.model.diagnostics import parse_dumps

from ..waiting import eventually
from .conftest import WORK

RunNode = Callable[..., Any]
HANG = "client.send_heartbeat()\ntime.sleep(600)"
TERMINATE = {"timeout_action": "terminate"}


def test_a_rank_without_a_first_heartbeat_is_terminated_and_no_other(run_node: RunNode) -> None:
    with run_node(initial_rank_heartbeat_timeout=1.5, **TERMINATE) as node:
        working = node.start(1, WORK)
        silent = node.start(0, "time.sleep(600)")
        assert silent.wait(60) == -signal.SIGKILL
        assert node.hung_ranks(1) == [0]
        assert node.hangs[0]["reason"] == "initial_heartbeat_timeout"
        assert working.poll() is None


def test_ranks_that_end_before_their_first_heartbeat_end_cleanly(run_node: RunNode) -> None:
    with run_node(initial_rank_heartbeat_timeout=1.0, **TERMINATE) as node:
        assert [node.start(rank, "").wait(60) for rank in range(2)] == [0, 0]
        other = node.start(2, "client.shutdown_workload_monitoring()\ntime.sleep(1.3)")
        assert other.wait(60) == 0
        assert node.hangs == []


def test_survivors_that_wait_for_a_killed_rank_miss_their_heartbeats(run_node: RunNode) -> None:
    with run_node(rank_heartbeat_timeout=0.4, **TERMINATE) as node:
        survivors = [node.start(rank, HANG) for rank in (0, 2)]
        killed = node.start(1, "os.kill(os.getpid(), signal.SIGKILL)")
        assert killed.wait(60) == -signal.SIGKILL
        assert [one.wait(60) for one in survivors] == [-signal.SIGKILL] * 2
        assert node.hung_ranks(2) == [0, 2]


def test_a_section_that_is_open_for_too_long_is_a_hang_although_heartbeats_come(
    run_node: RunNode,
) -> None:
    sections = {"outer": 0.4, "inner": 1_000.0}
    code = "client.start_section('outer'); client.start_section('inner')" + WORK
    with run_node(rank_section_timeouts=sections, **TERMINATE) as node:
        assert node.start(0, code).wait(60) == -signal.SIGKILL
        (hang,) = node.hangs
    assert hang["reason"] == "section_timeout"
    assert list(hang["open_sections"]) == ["outer", "inner"]
    assert "section 'outer' open for" in hang["exceeded"][0]


def test_a_rank_that_has_lost_its_connection_is_watched_on(run_node: RunNode) -> None:
    """NVRx forgets it."""
    code = "client._monitoring.link.close()\n" + HANG
    with run_node(rank_heartbeat_timeout=0.4, **TERMINATE) as node:
        assert node.start(0, code).wait(60) == -signal.SIGKILL


def test_a_stopped_rank_is_continued_and_gets_the_configured_signal(run_node: RunNode) -> None:
    code = "client.send_heartbeat()\nos.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(600)"
    with run_node(
        rank_heartbeat_timeout=0.3, rank_termination_signal="SIGTERM", **TERMINATE
    ) as node:
        assert node.start(0, code).wait(60) == -signal.SIGTERM
        (hang,) = node.hangs
    assert hang["stacks_error"] == "the process is stopped (SIGSTOP, or a debugger)"
    assert hang["process"].startswith("T (stopped)")


def test_by_default_a_hang_is_observed_and_logged_and_ends_when_the_rank_goes_on(
    run_node: RunNode, capfd: pytest.CaptureFixture[str]
) -> None:
    code = """
client.send_heartbeat()
def stuck_here(): sys.stdin.read()
stuck_here()
client.send_heartbeat()
time.sleep(0.2)
client.shutdown_workload_monitoring()
"""
    with run_node(rank_heartbeat_timeout=1.0) as node:
        reading, writing = os.pipe()
        rank = node.start(7, code, stdin=reading)
        assert node.hung_ranks(1) == [7]
        assert rank.poll() is None
        os.close(writing)
        os.close(reading)
        assert rank.wait(60) == 0
        (hang,) = node.hangs
    log = capfd.readouterr().err
    assert log.count("ERROR RANK HANG: rank 7 (pid") == 1
    assert "no heartbeat for 1." in log
    assert "Action: observe." in log
    assert "makes progress again" in log
    (dump,) = [one for one in parse_dumps(Path(hang["stacks"]).read_text()) if one.threads]
    assert dump.head.rank == "7"
    assert dump.main is not None
    assert [frame.function for frame in dump.main.frames][:1] == ["stuck_here"]


def test_a_rank_is_notified_only_if_it_handles_the_signal(
    run_node: RunNode, capfd: pytest.CaptureFixture[str]
) -> None:
    handler = "signal.signal(signal.SIGUSR1, lambda *_: os._exit(3))\n"
    with run_node(rank_heartbeat_timeout=0.3, timeout_action="signal") as node:
        handling, other = node.start(0, handler + HANG), node.start(1, HANG)
        assert handling.wait(60) == 3
        node.hung_ranks(2)
        eventually(lambda: "has no handler for SIGUSR1" in capfd.readouterr().err)
        assert other.poll() is None


def test_the_stacks_of_a_rank_that_keeps_the_gil_are_written_by_the_kernels_signal(
    run_node: RunNode,
) -> None:
    code = """
import ctypes
client.send_heartbeat()
def keeps_the_gil():
    while True: ctypes.PyDLL(None).usleep(10_000_000)
sys.setswitchinterval(1_000)
keeps_the_gil()
"""
    with run_node(rank_heartbeat_timeout=0.3, **TERMINATE) as node:
        assert node.start(0, code).wait(60) == -signal.SIGKILL
        (hang,) = node.hangs
        text = Path(hang["stacks"]).read_text()
    assert hang["stacks_by"] == "signal"
    assert "in keeps_the_gil" in text


def test_the_last_collective_of_a_rank_that_waits_for_others_is_named(run_node: RunNode) -> None:
    pytest.importorskip("torch.distributed")
    before = """
import os
os.environ["TORCH_FR_BUFFER_SIZE"] = "100"
import torch, torch.distributed as dist
store = "file://" + os.environ["STORE"]
dist.init_process_group("gloo", store, rank=int(os.environ["RANK"]), world_size=2)
"""
    code = """
value = torch.ones(1)
dist.all_reduce(value)
client.send_heartbeat()
if dist.get_rank() == 0:
    dist.all_reduce(value)
time.sleep(600)
"""
    with run_node(rank_heartbeat_timeout=0.5, diagnostics_dir="") as node:
        store = {"STORE": str(node.folder / "store")}
        for rank in range(2):
            node.start(rank, code, before, **store)
        assert node.hung_ranks(2) == [0, 1]
        collective = {hang["rank"]: hang["collective"] for hang in node.hangs}
    if "does not record" in collective[0] or "no server" in collective[0]:
        pytest.skip(f"this PyTorch: {collective[0]}")
    assert "all_reduce" in collective[0]
    assert collective[0] != collective[1]


def test_a_stopped_agent_stalls_no_step(run_node: RunNode) -> None:
    """While the agent cannot run, a rank does ten thousand steps, and learns timeouts; then the
    agent goes on as if nothing had been."""
    code = """
sys.stdin.readline()
for _ in range(10_000):
    client.send_heartbeat()
    client.start_section("step")
    client.end_section("step")
print("stepped", flush=True)
client.calculate_and_set_hb_timeouts()
print("learned", flush=True)
client.shutdown_workload_monitoring()
"""
    with run_node(rank_section_timeouts={"step": None}) as node:
        reading, writing = os.pipe()
        rank = node.start(0, "print('watched', flush=True)\n" + code, stdin=reading)
        assert rank.stdout.readline() == "watched\n"
        os.kill(node.agent_pid, signal.SIGSTOP)
        try:
            os.write(writing, b"\n")
            assert rank.stdout.readline() == "stepped\n"
            assert rank.stdout.readline() == "learned\n"
            assert rank.wait(60) == 0
        finally:
            os.kill(node.agent_pid, signal.SIGCONT)
            os.close(writing)
            os.close(reading)
        assert node.start(0, "print('again', flush=True)").stdout.readline() == "again\n"
        assert node.hangs == []


def test_an_agent_that_could_not_run_for_a_while_does_not_blame_its_ranks(
    run_node: RunNode,
) -> None:
    with run_node(rank_heartbeat_timeout=1.5, **TERMINATE) as node:
        rank = node.start(0, "print('watched', flush=True)" + WORK)
        assert rank.stdout.readline() == "watched\n"
        os.kill(node.agent_pid, signal.SIGSTOP)
        time.sleep(1.8)
        os.kill(node.agent_pid, signal.SIGCONT)
        time.sleep(0.2)
        assert rank.poll() is None
        assert node.hangs == []


def test_diagnostics_are_files_of_this_user_alone(run_node: RunNode, tmp_path: Path) -> None:
    with run_node(rank_heartbeat_timeout=0.2, diagnostics_dir=str(tmp_path / "d")) as node:
        node.start(0, HANG)
        eventually(lambda: list((tmp_path / "d").glob("*.hang.json")))
        files = list((tmp_path / "d").iterdir())
        assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
        (hang,) = (tmp_path / "d").glob("*.hang.json")
        eventually(lambda: hang.read_text().endswith("}\n"))
        facts = json.loads(hang.read_text())
    assert {"rank", "pid", "step", "open_sections", "stacks", "collective", "action"} <= set(facts)
