"""The sbatch script that goes on until the training has finished, with stand-ins for Slurm."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from ..waiting import eventually
from .slurm_cluster import simulated_job

pytest.importorskip("torch.distributed.run")
SCRIPT = Path(__file__).parents[2] / "examples/platforms/slurm/until_finished.sbatch"
TRAINING = Path(__file__).parents[1] / "launcher" / "short_training.py"
LONGEST_S = 120
SRUN = """#!/bin/bash
[[ $1 == --kill-on-bad-exit=0 ]] && shift
exec "$@"
"""
SCONTROL = """#!/bin/sh
[ "$1" = requeue ] && echo "$2" > "$REQUEUED"
echo 127.0.0.1
"""


def start(folder: Path, what: str, **environment: str) -> subprocess.Popen[str]:
    """The script, as Slurm starts it on one node with two ranks."""
    env = simulated_job(folder, 1) | {
        "RANKS_PER_NODE": "2",
        "STRAGGLER_LOGS": str(folder / "logs"),
        "REQUEUED": str(folder / "requeued"),
        "OTEL_SDK_DISABLED": "true",
        **environment,
    }
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (folder / "bin" / name).write_text(text)
    return subprocess.Popen(
        ["bash", SCRIPT, TRAINING, folder, what],
        env=env,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_a_training_that_finishes_in_its_second_job_is_not_requeued(tmp_path: Path) -> None:
    """Both jobs are attempts of the run that is named after the Slurm job."""
    with start(tmp_path, "two-jobs") as job:
        printed, _ = job.communicate(timeout=LONGEST_S)
    assert job.returncode == 0, printed
    assert "rank 0 of attempt 1 of slurm-4711" in printed
    assert (tmp_path / "logs" / "finished").exists()
    assert not (tmp_path / "requeued").exists()


@pytest.mark.parametrize(
    ("array", "requeued"),
    [({}, "4711"), ({"SLURM_ARRAY_JOB_ID": "4711", "SLURM_ARRAY_TASK_ID": "3"}, "4711_3")],
)
def test_a_training_whose_time_is_up_is_requeued_after_its_ranks_have_ended(
    tmp_path: Path, array: dict[str, str], requeued: str
) -> None:
    """By SIGTERM to the script alone, as --signal=B:TERM@120 sends it. Of an array it is one task,
    whose number may be that of all of them."""
    with start(tmp_path, "wait", **array) as job:
        began = [tmp_path / f"rank-{rank}.0" for rank in range(2)]
        eventually(lambda: all(f.exists() and f.read_text() for f in began), LONGEST_S)
        job.send_signal(signal.SIGTERM)
        printed, _ = job.communicate(timeout=LONGEST_S)
    assert job.returncode != 0, printed
    assert (tmp_path / "requeued").read_text() == f"{requeued}\n", printed
    assert not any(Path(f"/proc/{file.read_text()}").exists() for file in began)
