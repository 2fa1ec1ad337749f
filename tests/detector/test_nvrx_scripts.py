"""Scripts written for NVRx run after their import line was changed.

Two are ours, in the shape of NVRx's example and of its functional test. NVRx's own run if
``NVRX_CHECKOUT`` names a checkout of nvidia-resiliency-ext; they are not part of this project.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from nvrx_scripts import adapted

HERE = Path(__file__).parent
CHECKOUT = os.environ.get("NVRX_CHECKOUT", "")
needs_checkout = pytest.mark.skipif(
    not CHECKOUT,
    reason="NVRX_CHECKOUT is not set: it would show that NVRx's own scripts run unchanged",
)


def run(script: Path, folder: Path, *options: str, ranks: int = 0) -> str:
    """What the script prints; it must end well. With ``ranks``, started by torchrun."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    answer = subprocess.run(
        [sys.executable, *(launcher if ranks else []), str(script), *options],
        cwd=folder,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)]),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout[-4000:]
    return answer.stdout


def test_a_training_in_the_shape_of_the_example_runs(tmp_path: Path) -> None:
    """initialize() before the process group, in launcher and ranks; reports on rank 0."""
    printed = run(HERE / "example_shape.py", tmp_path)
    reports = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert len(reports) == 3
    assert all(set(report["fwd"]) == {"0", "1"} for report in reports)
    assert reports[-1]["stragglers"] == [1]


@needs_checkout
@pytest.mark.parametrize("name", ["example.py", "example-save2file.py"])
def test_the_examples_of_nvrx_run(name: str, tmp_path: Path) -> None:
    """Four ranks, three epochs; every report has a score (or no data) of every rank."""
    script = adapted(Path(CHECKOUT) / "examples" / "straggler" / name, tmp_path)
    printed = run(script, tmp_path, "--report-interval", "5", "--num-epochs", "2")
    result = re.findall(r"GPUs relative perf: (\{.*\})", printed)
    assert len(result) == 4
    assert all(text == "{0: nan, 1: nan, 2: nan, 3: nan}" for text in result)
    if "save2file" in name:
        saved = (tmp_path / "job_12345.jsonl").read_text().splitlines()
        assert len(saved) == 4


@needs_checkout
@pytest.mark.parametrize("options", [[], ["--no_rel_scores"], ["--no_gather_on_rank0"]], ids=str)
def test_the_functional_test_of_nvrx_runs(options: list[str], tmp_path: Path) -> None:
    """DDP with a wrapped forward, reports by iteration and by time."""
    script = adapted(Path(CHECKOUT) / "tests/straggler/func/ddp_test.py", tmp_path)
    for how in (
        ["--report_iter_interval", "20", "--iters", "61"],
        ["--generate_if_elapsed", "--report_time_interval", "0.2", "--iters", "120"],
    ):
        size = ["--hidden", "32", "--layers", "2"]
        printed = run(script, tmp_path, *size, *how, *options, ranks=2)
        assert "DONE" in printed
        assert "STRAGGLER REPORT #1" in printed
        assert "DistributedDataParallel.forward" in printed
