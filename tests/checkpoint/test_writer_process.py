"""DCP's process that writes: it may start late, and it may die."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from otel_straggler.checkpoint.folder import list_checkpoints

from ..torch_wheels import VERSIONS, wheel_of

WITH_STAGERS = VERSIONS[VERSIONS.index("2.9.1") :]
STAGERS = ("staging.py", "_state_dict_stager.py")
PROGRAM = Path(__file__).parent / "training_rank.py"


def run_alone(folder: Path, steps: int, **env: str) -> str:
    """One rank, whose checkpoints a process writes; its log."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(PROGRAM), str(folder), str(port), "0", str(steps)]
    done = subprocess.run(
        command, env={**os.environ, "WORLD": "1", **env}, capture_output=True, text=True,
        timeout=240, check=True,
    )  # fmt: skip
    return done.stderr


def test_the_first_save_does_not_wait_for_the_process_and_saves_go_on_when_it_has_died(
    tmp_path: Path,
) -> None:
    """The copy waits instead, which the log says. The save in which it dies is lost; one that is
    due before that is seen, on a busy machine, is left out."""
    log = run_alone(tmp_path / "c", 8, EARLY="1", DIE="write:0:4", DIE_WHO="writer")
    (first,) = re.findall(r"checkpoint of step 2: .*", log)
    assert re.search(r"blocked [\d.]+ s \(0\.\d MB copied in [\d.]+ s \(.* GB/s, not pinned", first)
    assert re.search(r", [\d.]+ s until the process had started\), committed after", first)
    (lost,) = re.findall(r"the checkpoint of step 4 was not saved: (.*)", log)
    assert "process is dead" in lost
    assert log.count("has died, a thread does") == 1
    saved = [one.step for one in list_checkpoints(tmp_path / "c") if not one.problem]
    assert saved in ([8, 6, 2], [8, 2])


@pytest.mark.nightly
@pytest.mark.parametrize("version", WITH_STAGERS)
def test_the_stagers_of_every_torch_that_has_them_save_and_restore(
    tmp_path: Path, version: str
) -> None:
    """Their files in the place of the installed ones; that of 2.11 failed at the second save."""
    with wheel_of(version, tmp_path) as wheel:
        for name in STAGERS:
            content = wheel.read(f"torch/distributed/checkpoint/{name}")
            (tmp_path / name).write_bytes(content)
    log = run_alone(tmp_path / "c", 6, STAGERS=str(tmp_path))
    assert "WARNING:otel" not in log
    saved = [one.step for one in list_checkpoints(tmp_path / "c") if not one.problem]
    assert saved == [6, 4, 2]
    assert "restored step 6 " in run_alone(tmp_path / "c", 6, STAGERS=str(tmp_path))
