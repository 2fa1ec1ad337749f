"""Benchmarks as a user runs them, with a dose so small that their figures mean nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
collect_ignore = ["gpu_in_children.py"]  # a program: looking for doctests would import PyTorch


@pytest.fixture(scope="session")
def benchmark():
    """A function that runs ``python -m benchmarks.NAME`` and gives (JSON, standard error)."""

    def run(name, *arguments):
        command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), done.stderr

    return run
