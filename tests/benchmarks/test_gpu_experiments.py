"""The dry run of ``make gpu-check``, on a fake libcupti: whoever has a GPU has it once.

By night: with each push test_gpu_check.py has how experiments run, are judged and written.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu import e13_delay, e14_product, e20_graphs
from benchmarks.gpu.registry import experiments
from otel_straggler.native import NATIVE

ROOT = Path(__file__).parents[2]
UNKNOWN_TO_THE_FAKE = {
    "EnableHWTrace result",
    "records compiled",
    *(f"flaws {name}" for name in ("m1", "m2", "graphs m1")),
    *(e.figure for e in e14_product.EXPERIMENT.expected if e.figure.startswith("events")),
    *(e.figure for e in e20_graphs.EXPERIMENT.expected if e.figure.endswith("events")),
    # Kernels of the fake take what they are said to, and NCCL needs two GPUs.
    "forward beyond cupti",
    "backward beyond cupti",
    "slow rank has the shortest NCCL durations",
    # Kernels of the fake are not slowed by a neighbour, and nothing is compiled there.
    "timed compiled cupti",
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
    "E16": (
        *("marks seen c", "kernels between wrong marks c"),
        *("marks seen g", "kernels between wrong marks g"),
    ),
    "E17": ("kernels of a sampled step", "records of queued other kernels"),
    "E18": (
        "windows that name it beside a peer, quiet",
        "windows that name it against its own past, quiet",
    ),
    "E19": ("saves that were committed", "restored is what was saved"),
    "E20": ("timed graph cupti", "timed traced graph cupti"),
}
pytestmark = pytest.mark.nightly
SECONDS = 330
"""Of a visit: an experiment that has no time left is not done, and fails here."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What is known of every experiment after a dry run, by key."""
    if NATIVE is None:
        pytest.skip("the extension was not built: it would show that every experiment runs")
    pytest.importorskip(
        "torch", reason="torch is not installed: it would show that every experiment runs"
    )
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        why = "no C++ compiler: it would show that every experiment runs"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    path = tmp_path_factory.mktemp("dry run") / "found.json"
    command = [sys.executable, "-m", "benchmarks.gpu", "--fake", "--quick", "--json", str(path)]
    for dose in ((), ("--soak",)):
        done = subprocess.run(
            [*command, "--seconds", str(SECONDS), *dose],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(path.read_text())["experiments"]


def test_a_visit_has_time_for_all_experiments(run):
    """Each is done, whatever the machine has to do besides."""
    assert run.keys() == experiments().keys()
    assert {one["status"] for one in run.values()} == {"done"}


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
