"""A driver that says what a test wants, for programs of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from .fake_nvml import FakeDriver, build


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(library: Path, tmp_path: Path) -> FakeDriver:
    return FakeDriver(library, tmp_path)
