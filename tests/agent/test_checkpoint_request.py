"""Before the agent ends a rank that hangs, the ranks that go on save."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.checkpoint.folder import list_checkpoints
from otel_straggler.semconv import CHECKPOINT_REQUEST_FILE

from ..waiting import eventually

pytest.importorskip("torch", reason="no torch: it would show that ranks save when an agent asks")

TRAIN = """
import torch
import torch.distributed as dist
from otel_straggler.checkpoint import Manager

rank = int(os.environ["RANK"])
store = dist.TCPStore("127.0.0.1", PORT, 2, is_master=rank == 0)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
manager = Manager(FOLDER, use_process=False, handle_sigterm=False, timeout_s=20.0)
manager._agreement._answer_s = 1.0
dist.barrier()
step = 0
client.send_heartbeat()
if rank == 1:
    time.sleep(600)
while True:
    step += 1
    client.send_heartbeat()
    manager.step(step, {"weights": torch.full((8,), 1.0)})
    time.sleep(0.01)
"""


def training(tmp_path: Path) -> tuple[Path, str]:
    """A folder of checkpoints, and what each of two ranks runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tmp_path / "checkpoints"
    return folder, TRAIN.replace("PORT", str(port)).replace("FOLDER", json.dumps(str(folder)))


def test_a_rank_that_hangs_is_ended_after_the_others_have_saved(
    run_node: Callable[..., Any], tmp_path: Path
) -> None:
    """What all ranks have alike; the checkpoint says why it was made."""
    folder, code = training(tmp_path)
    with run_node(rank_heartbeat_timeout=2.0, timeout_action="terminate") as node:
        ranks = [node.start(rank, code) for rank in range(2)]
        assert ranks[1].wait(120) == -signal.SIGKILL
        (one,) = [each for each in list_checkpoints(folder) if not each.problem]
        assert one.manifest is not None
        assert one.manifest.reason.startswith("rank 1")
        assert ranks[0].poll() is None


def test_an_agent_that_is_killed_after_it_has_asked_costs_no_checkpoint(
    run_node: Callable[..., Any], tmp_path: Path
) -> None:
    """The ranks save alone, and nobody ends the one that hangs."""
    folder, code = training(tmp_path)
    with run_node(rank_heartbeat_timeout=2.0, timeout_action="terminate") as node:
        ranks = [node.start(rank, code) for rank in range(2)]
        request = Path(node.variables[CHECKPOINT_REQUEST_FILE])
        eventually(request.exists)
        os.kill(node.agent_pid, signal.SIGKILL)
        eventually(lambda: any(not each.problem for each in list_checkpoints(folder)))
        assert [each.problem for each in list_checkpoints(folder)] == [""]
        assert [rank.poll() for rank in ranks] == [None, None]


def test_without_a_manager_nobody_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from otel_straggler.agent.checkpoint_request import CheckpointRequest

    monkeypatch.setenv(CHECKPOINT_REQUEST_FILE, str(tmp_path / "request"))
    assert CheckpointRequest("why", 3).is_over
    assert not (tmp_path / "request").exists()
    (tmp_path / "request.served").touch()
    asked = CheckpointRequest("why", 3)
    assert not asked.is_over
    assert (tmp_path / "request").read_text() == "why\n3\n"
    (tmp_path / "request.saved").touch()
    assert asked.is_over
