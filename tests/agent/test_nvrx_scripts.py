"""NVRx's own examples of fault tolerance run with ours after their import line was changed, started
by ``otel-straggler run`` with the arguments that NVRx's functional tests give ``ft_launcher``.

They run if ``NVRX_CHECKOUT`` names a checkout of nvidia-resiliency-ext; they are no part of this
project. Besides the import only devices and sizes are changed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from otel_straggler.launcher.events import LaunchEvent, parse_event

CHECKOUT = os.environ.get("NVRX_CHECKOUT", "")
pytestmark = [
    pytest.mark.skipif(
        not CHECKOUT,
        reason="NVRX_CHECKOUT is not set: it would show that NVRx's examples run with our launcher "
        "and rank monitor",
    ),
    pytest.mark.timeout(300),
]
IMPORT = re.compile(r"import nvidia_resiliency_ext\.fault_tolerance as (\w+)")
SMALLER = (("FEAT_SIZE = 4096", "FEAT_SIZE = 64"), ("DATASET_LEN = 100000", "DATASET_LEN = 2000"))
LAUNCHER = (
    "--nproc-per-node=2 --max-restarts=32 --rdzv-backend=c10d --rdzv-endpoint=localhost:0 "
    "--ft-restart-check-interval=0.5 --term-timeout=15"
)
OURS = "--ft-timeout-action=terminate --ft-workload-check-interval=0.5 --log-dir=logs"
"""NVRx's default is to terminate, ours is to observe; the rest makes it quicker to watch."""
SMALL = (
    "--device=cpu --hidden=8 --epochs=3 --train_dataset_size=2000 --val_dataset_size=40 "
    "--logging_interval=100 --output_dir=out"
)


def run(folder: Path, options: str, script: str, arguments: str = "") -> str:
    """What launcher and ranks print; they must end well."""
    for path in (Path(CHECKOUT) / "examples" / "fault_tolerance").iterdir():
        if path.suffix in {".py", ".yaml"}:
            text = IMPORT.sub(r"from otel_straggler import fault_tolerance as \1", path.read_text())
            for theirs, smaller in SMALLER:
                text = text.replace(theirs, smaller)
            (folder / path.name).write_text(text)
    line = f"{LAUNCHER} {options} {OURS} {script} {arguments}"
    done = subprocess.run(
        [sys.executable, "-m", "otel_straggler.cli", "run", *line.split()],
        cwd=folder,
        env={**os.environ, "OTEL_STRAGGLER_DISABLED": "1", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def events(folder: Path, name: str) -> list[LaunchEvent]:
    (path,) = (folder / "logs").glob("events-*.jsonl")
    every = [parse_event(line) for line in path.read_text().splitlines()]
    return [event for event in every if event.name == name]


def test_the_basic_example_learns_its_timeouts_and_saves_them(tmp_path: Path) -> None:
    """With the arguments of its first lines."""
    options = "--ft-initial-rank-heartbeat-timeout=30 --ft-rank-heartbeat-timeout=15"
    printed = run(tmp_path, options, "basic_ft_example.py")
    assert "Epoch 9 complete" in printed
    state = json.loads((tmp_path / "ft_state.json").read_text())
    learned = state["current_timeouts"]["heartbeat"]
    assert str(learned["subsequent"])[:4] in printed


def test_the_example_with_heartbeats_goes_on_after_a_rank_was_killed(tmp_path: Path) -> None:
    """Its own simulated fault: restarted once, and its second attempt is the last."""
    printed = run(
        tmp_path,
        "--fault-tol-cfg-path=fault_tol_cfg_heartbeats.yaml",
        "train_ddp_heartbeats_api.py",
        f"{SMALL} --simulated_fault=rank_killed,0 --quick-simulated-fault "
        "--simulated-fault-jitter-sec=0",
    )
    assert "Simulating fault: rank_killed" in printed
    assert [e.reason for e in events(tmp_path, "straggler.run.restarting")] == ["SIGKILL"]
    assert re.search("Leaving main, ret_code=0|Training finished", printed)


def test_the_example_with_sections_goes_on_after_a_rank_hung(tmp_path: Path) -> None:
    """Its own simulated fault, in each attempt that lasts long enough: the agent ends the rank, and
    learned timeouts are those of its sections."""
    printed = run(
        tmp_path,
        "--ft-cfg-path=fault_tol_cfg_sections.yaml --ft-rank-out-of-section-timeout=5",
        "train_ddp_sections_api.py",
        f"{SMALL} --epochs=6 --simulated_fault=rank_hung,0",
    )
    state = json.loads((tmp_path / "out" / "ft_state.json").read_text())
    learned = state["current_timeouts"]["section"]
    assert set(learned["calculated_sections"]) >= {"checkpoint", "step"}
    if "Simulating fault: rank_hung" in printed:  # its delay is random: up to 4 s
        assert "RANK HANG" in printed
        restarts = events(tmp_path, "straggler.run.restarting")
        assert {e.reason for e in restarts} == {"SIGKILL"}
