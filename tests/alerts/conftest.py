"""Programs of Debian's packages prometheus and prometheus-alertmanager, for checks of what is
rendered; `make servers` installs them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Ran = subprocess.CompletedProcess[str]
Program = Callable[..., Ran]


def program(name: str, package: str, shows: str) -> Program:
    """Runs it; without it the test is skipped, and fails under CI."""
    path = shutil.which(name)
    if path is None:
        printed = f"{name} is not installed (Debian's package {package}); it would show {shows}"
        if os.environ.get("CI"):
            pytest.fail(printed)
        pytest.skip(printed)

    def run(*arguments: str | Path) -> Ran:
        return subprocess.run(
            [path, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def promtool() -> Program:
    return program("promtool", "prometheus", "that Prometheus takes the rules and what they do")


@pytest.fixture
def amtool() -> Program:
    return program(
        "amtool", "prometheus-alertmanager", "that Alertmanager takes the example and templates"
    )
