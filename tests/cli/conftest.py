"""The command line as users run it, and recorded runs for it to read."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_straggler.cli import main
from otel_straggler.simulate.scenarios import Plan, simulate
from otel_straggler.simulate.writers import write_csv

Run = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def otel_straggler() -> Run:
    """Runs the real command in a process of its own."""

    def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "otel_straggler.cli", *arguments]
        environment = os.environ | {"COLUMNS": "160"}
        defaults = {"capture_output": True, "timeout": 60, "env": environment}
        return subprocess.run(command, check=False, **(defaults | options))  # type: ignore[call-overload]

    return run


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Runs the command in this process: exit code, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([str(a) for a in arguments])
        return (code, *capsys.readouterr())

    return run


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., Path]:
    """Writes a simulated run as CSV."""

    def write(scenario: str = "one_slow_rank", **plan: object) -> Path:
        path = tmp_path / f"{scenario}.csv"
        run = simulate(scenario, Plan(**plan))  # type: ignore[arg-type]
        path.write_text("".join(write_csv([run.batch])))
        return path

    return write
