"""Every experiment of ``make gpu-check``, on a fake libcupti: whoever has a GPU has it once.

By night: with each push test_gpu_check.py has how experiments run, are judged and written.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu import e13_delay, e14_product
from benchmarks.gpu.experiment import read_notebook
from benchmarks.gpu.registry import experiments
from otel_straggler.native import NATIVE

ROOT = Path(__file__).parents[2]
UNKNOWN_TO_THE_FAKE = {
    "EnableHWTrace result",
    "records compiled",
    *(f"flaws {name}" for name in ("m1", "m2", "graphs m1")),
    *(e.figure for e in e14_product.EXPERIMENT.expected if e.figure.startswith("events")),
    # Kernels of the fake take what they are said to, and NCCL needs two GPUs.
    "forward beyond cupti",
    "backward beyond cupti",
    "slow rank has the shortest NCCL durations",
    # A machine that is busy lets no run end early enough to be judged.
    *(e.figure for e in e13_delay.EXPERIMENT.expected),
}
TRUE_OF_THE_FAKE = {
    "E0": ("extension loads", "libcuptis mapped", "kernels, enabled after the context"),
    "E2": ("marks seen", "kernels seen", "marks out of order", "kernels between wrong marks"),
    "E4": ("attributed m1", "attributed m2", "known truth", "known m1", "known m2"),
    "E7": ("profiler alone", "lost m1", "lost m2"),
    "E8": ("records nodes_before",),
    "E9": ("invalid m1",),  # what a busy machine loses says nothing
    "E11": ("lowest score while quiet",),
}
pytestmark = pytest.mark.nightly
GROUPS = ("E0,E1,E2,E3,E5", "E4,E6,E7,E8,E9,E10,E11,E13,E14,E15")


@pytest.fixture(scope="module", params=GROUPS)
def run(request, tmp_path_factory):
    """A group of experiments that has run; its notebooks by key."""
    if NATIVE is None:
        pytest.skip("the extension was not built: it would show that every experiment runs")
    pytest.importorskip(
        "torch", reason="torch is not installed: it would show that every experiment runs"
    )
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        why = "no C++ compiler: it would show that every experiment runs"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    folder = tmp_path_factory.mktemp("notebooks")
    command = [sys.executable, "-m", "tests.benchmarks.gpu_in_children", request.param, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {key: read_notebook(folder / key) for key in request.param.split(",")}


def test_all_experiments_measure_all_that_they_promise(run):
    """No arm fails, and no figure of the table is left out for a typing error."""
    for key, read in run.items():
        failures = [note for note in read["notes"] if note.startswith("arm ")]
        assert failures == []
        promised = {e.figure for e in experiments()[key].expected}
        assert promised - read["figures"].keys() <= UNKNOWN_TO_THE_FAKE
        assert read["figures"].keys() <= promised | UNKNOWN_TO_THE_FAKE | {"residue also_never"}


def test_what_is_true_of_the_fake_is_found(run):
    """Kernels lie between their marks, in their sections, and nobody loses any."""
    for key, read in run.items():
        expected = {e.figure: e for e in experiments()[key].expected}
        for figure in TRUE_OF_THE_FAKE.get(key, ()):
            assert expected[figure].verdict(read["figures"][figure]["value"]) == "met", figure
