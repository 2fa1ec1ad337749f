"""Benchmarks as a user runs them, with a dose so small that their figures mean nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def benchmark():
    """A function that runs ``python -m benchmarks.NAME`` and gives (JSON, standard error)."""

    def run(name, *arguments):
        command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), done.stderr

    return run


@pytest.fixture(scope="session")
def check():
    """A function that runs ``python -m benchmarks.gpu``, with variables of the environment."""

    def run(*arguments, **environment):
        command = [sys.executable, "-m", "benchmarks.gpu", *map(str, arguments)]
        return subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    return run
