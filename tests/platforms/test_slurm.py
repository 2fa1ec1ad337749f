"""The sbatch scripts: run with stand-ins for srun on each push, by a real Slurm at night."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..waiting import eventually
from .slurm_cluster import MISSING, has_daemons, running_cluster, simulated_job

SCRIPTS = Path(__file__).parents[2] / "examples" / "platforms" / "slurm"
TRAINING = [sys.executable, str(Path(__file__).with_name("training.py"))]
TASKS, LONGEST_S = 2, 280
ENDED = "The run has finished"


def run_script(name: str, *arguments: str, env: dict[str, str], cwd: Path) -> str:
    """What a script prints; it has to succeed."""
    done = subprocess.run(
        ["bash", SCRIPTS / name, *arguments],
        env=env,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_job_with_its_own_collector_ends_with_the_page_of_its_run(tmp_path: Path) -> None:
    """Of all its ranks; neither the collector nor its tokens remain."""
    env = simulated_job(tmp_path, TASKS)
    printed = run_script("with_collector.sbatch", *TRAINING, env=env, cwd=tmp_path)
    assert sorted(re.findall(r"rank \d of 2 of slurm-4711", printed)) == [
        f"rank {rank} of 2 of slurm-4711" for rank in range(TASKS)
    ]
    assert ENDED in (tmp_path / "straggler-4711.html").read_text()
    assert not list(tmp_path.glob("straggler-4711-*")), "its folder with tokens is gone"


def test_a_job_whose_collector_cannot_start_trains_without(tmp_path: Path) -> None:
    """And its exit code is that of the training."""
    env = simulated_job(tmp_path, TASKS) | {"STRAGGLER_LISTEN": "127.0.0.1:no-port"}
    script = [SCRIPTS / "with_collector.sbatch", "sh", "-c", "echo trained; exit 3"]
    done = subprocess.run(
        ["bash", *script], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert done.stdout == "trained\n" * TASKS
    assert "the training goes on without it" in done.stderr


def test_a_training_reports_to_the_collector_of_another_job(tmp_path: Path) -> None:
    """Which leaves address and tokens where only this user reads them, and keeps its history."""
    env = simulated_job(tmp_path, TASKS)
    home = Path(env["STRAGGLER_HOME"])
    assert "no collector" in run_script("training.sbatch", "true", env=env, cwd=tmp_path)
    with subprocess.Popen(
        ["bash", SCRIPTS / "collector.sbatch"],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as collector:
        try:
            eventually(
                lambda: (home / "endpoint").exists() or collector.poll() is not None, LONGEST_S
            )
            assert {p.stat().st_mode & 0o077 for p in home.iterdir()} == {0}
            endpoint = (home / "endpoint").read_text().strip()
            printed = run_script("training.sbatch", *TRAINING, env=env, cwd=tmp_path)
            assert printed.count(f"endpoint {endpoint}\n") == TASKS
        finally:
            collector.send_signal(signal.SIGTERM)
        assert collector.wait(60) == 0
    assert not (home / "endpoint").exists(), "an address of nobody is gone"
    assert "finished, 2 of 2 ranks, step 99" in report_of(home / "history.db", "slurm-4711")


def report_of(history: Path, run: str) -> str:
    command = [sys.executable, "-m", "otel_straggler.cli", "report", "--history", str(history)]
    return subprocess.run(
        [*command, run], stdout=subprocess.PIPE, text=True, check=True, timeout=60
    ).stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    if not has_daemons():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(MISSING)
    with running_cluster(tmp_path_factory.mktemp("slurm")) as env:
        yield env


def slurm(*command: str, env: dict[str, str], cwd: Path) -> str:
    done = subprocess.run(
        command, env=env, cwd=cwd, capture_output=True, text=True, timeout=LONGEST_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


SMALL = ("--nodes=1", "--ntasks=2", "--ntasks-per-node=2", "--time=5", "--mem=0")


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_real_slurm_runs_a_training_with_its_own_collector(
    cluster: dict[str, str], tmp_path: Path
) -> None:
    """Ranks, world and run are those of Slurm; the page is that of the whole run."""
    script = str(SCRIPTS / "with_collector.sbatch")
    job = slurm(
        "sbatch", "--wait", "--parsable", *SMALL, script, *TRAINING, env=cluster, cwd=tmp_path
    ).strip()
    printed = (tmp_path / f"slurm-{job}.out").read_text()
    assert printed.count(f"of 2 of slurm-{job}\n") == TASKS, printed
    assert ENDED in (tmp_path / f"straggler-{job}.html").read_text()


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_real_slurm_keeps_a_collector_between_trainings(
    cluster: dict[str, str], tmp_path: Path
) -> None:
    """Two trainings one after the other; `scancel` ends it in order."""
    home = Path(cluster["STRAGGLER_HOME"])
    collector = slurm(
        *("sbatch", "--parsable", "--mem=0", str(SCRIPTS / "collector.sbatch")),
        env=cluster,
        cwd=tmp_path,
    ).strip()
    eventually((home / "endpoint").exists, LONGEST_S)
    jobs = [
        slurm(
            *("sbatch", "--wait", "--parsable", *SMALL, str(SCRIPTS / "training.sbatch")),
            *TRAINING,
            env=cluster,
            cwd=tmp_path,
        ).strip()
        for _ in range(2)
    ]
    slurm("scancel", "--signal=TERM", "--batch", collector, env=cluster, cwd=tmp_path)
    eventually(
        lambda: not slurm("squeue", "--noheader", env=cluster, cwd=tmp_path).strip(), LONGEST_S
    )
    assert not (home / "endpoint").exists()
    for job in jobs:
        assert "finished, 2 of 2 ranks" in report_of(home / "history.db", f"slurm-{job}")


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.sbatch")), ids=lambda path: path.name)
def test_a_script_says_how_it_is_submitted_and_stops_at_its_first_error(script: Path) -> None:
    """By a user who has copied it: it is executable, and its options are at the top."""
    text = script.read_text()
    assert text.startswith("#!/bin/bash\n# ")
    assert f"#   sbatch {script.name}" in text
    assert re.search(r"^(#.*\n)+set -euo pipefail$", text, re.MULTILINE)
    assert os.access(script, os.X_OK)
