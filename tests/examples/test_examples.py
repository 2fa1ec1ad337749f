"""Every example runs, and prints what its first line promises."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SLOW_IN_BACKWARD = "as long as its 3 peers in backward"
PROMISED = {
    "01_report_from_a_simulated_run.py": "rank 5 on node-1: forward takes 1.50x",
    "02_spans_to_a_collector.py": "rank 1 is slow in data_loading",
    "03_score_plain_opentelemetry_spans.py": "times as long in forward as the fastest rank",
    "04_own_tracer_provider.py": "attention is a child of forward, which is a child of step",
    "05_detector_in_process.py": "rank 1 on node-1 is slow in forward",
    "06_tracker_scalars.py": "straggler/worst_rank = 5",
    "07_ddp.py": SLOW_IN_BACKWARD,
    "08_fsdp2.py": SLOW_IN_BACKWARD,
    "09_tensor_parallel.py": SLOW_IN_BACKWARD,
    "10_trainer_class.py": SLOW_IN_BACKWARD,
    "11_scalability.py": "ddp: at 8 ranks the epoch time would be",
}


ABORT_OF_TORCH = "terminate called without an active exception"


def _run(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, EXAMPLES / name],
        capture_output=True,
        text=True,
        timeout=280,  # torch alone takes a minute to load on a busy machine
        check=False,
    )


def test_no_example_is_forgotten_here():
    """A new example comes with the line that it promises."""
    assert sorted(PROMISED) == sorted(path.name for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", PROMISED)
def test_an_example_ends_by_printing_what_it_promises(name):
    """On a CPU, offline, as the header says to run it.

    DDP keeps its process group past ``destroy_process_group``, and a thread of gloo that takes the
    GIL while Python ends aborts the process (pytorch#190489): seldom, so once more is enough.
    """
    run = _run(name)
    if ABORT_OF_TORCH in run.stderr:
        run = _run(name)
    assert run.returncode == 0, run.stderr
    assert PROMISED[name] in run.stdout


@pytest.mark.parametrize("name", PROMISED)
def test_an_example_is_short_and_says_what_how_and_how_long(name):
    """Three lines at the top; at most 60 in all."""
    lines = (EXAMPLES / name).read_text().splitlines()
    assert lines[0].startswith('"""You will see ')
    assert lines[1] == f"Run it with: python examples/{name}"
    assert lines[2].startswith("It takes about ")
    assert len(lines) <= 60
