"""The wheels that are tried, built once."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from environments import build_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree; `make wheel` wants a copy."""
    built = build_wheel(tmp_path_factory.mktemp("wheel"))
    if kept := os.environ.get("WHEEL_FOLDER"):
        Path(kept).mkdir(parents=True, exist_ok=True)
        shutil.copy(built, kept)
    return built
