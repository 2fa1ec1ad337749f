"""Scripts written for NVRx run after their import line was changed.

Two are ours, in the shape of NVRx's example and of its functional test. NVRx's own run if
``NVRX_CHECKOUT`` names a checkout of nvidia-resiliency-ext, v0.4.1 or newer; they are not part of
this project.
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
from nvrx_scripts import IMPORTS, adapted, adapted_tests, with_our_import

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


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("from nvidia_resiliency_ext import straggler", IMPORTS[0][1]),
        ("from nvidia_resiliency_ext.attribution import straggler", IMPORTS[0][1]),
        ("import nvidia_resiliency_ext.straggler as straggler", IMPORTS[1][1]),
        (
            "from nvidia_resiliency_ext.attribution.straggler import interval_tracker",
            "from otel_straggler.detector import interval_tracker",
        ),
    ],
)
def test_the_import_line_of_every_release_is_known(theirs: str, ours: str, tmp_path: Path) -> None:
    """0.4.1 and main; a script that has none is no script of NVRx."""
    script = tmp_path / "script.py"
    script.write_text(f"import torch\n{theirs}\n")
    assert with_our_import(script) == f"import torch\n{ours}\n"
    script.write_text("import torch\n")
    with pytest.raises(AssertionError, match="0 times"):
        with_our_import(script)


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


UNIT_TESTS = (
    "test_det_section_api.py",
    "test_individual_gpu_scores.py",
    "test_interval_tracker.py",
    "test_relative_gpu_scores.py",
    "test_reporting.py",
    "test_reporting_elapsed.py",
    "test_sections.py",
    "test_wrap_callables.py",
)
"""Those of NVRx that need no CUPTI (``test_cupti_*``) and look at no private module
(``test_name_mapper.py``, ``test_data_shared.py``)."""
NEEDS_KERNELS = "test_periodic_capture"


@needs_checkout
@pytest.mark.timeout(1300)
def test_the_unit_tests_of_nvrx_pass(tmp_path: Path) -> None:
    """All that need no GPU and no private internals; it skips some itself, with one rank."""
    unit = adapted_tests(Path(CHECKOUT) / "tests/straggler/unit", UNIT_TESTS, tmp_path)
    options = ["-q", "-p", "no:cacheprovider", "-k", f"not {NEEDS_KERNELS}"]
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(unit)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout[-4000:]
    assert re.search(r"\b31 passed, 11 skipped\b", answer.stdout), answer.stdout[-400:]
