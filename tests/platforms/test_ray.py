"""A Ray Train job reports to a collector; where Ray is installed, and at night."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "platforms" / "ray" / "train.py"


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_the_workers_of_ray_are_ranks_of_one_run() -> None:
    """Rank and world come from Ray, the run's name from the example."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("no ray here (pip install 'ray[train]'): its workers would be seen as ranks")
    env = os.environ | {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "240",
    }
    done = subprocess.run(
        [sys.executable, EXAMPLE], env=env, capture_output=True, text=True, timeout=580, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "finished, 2 of 2 ranks, step 59" in done.stdout


def test_the_example_says_what_it_shows_and_is_python() -> None:
    """On each push, without Ray."""
    text = EXAMPLE.read_text()
    compile(text, str(EXAMPLE), "exec")
    assert text.startswith('"""You will see ')
    assert "python examples/platforms/ray/train.py" in text
