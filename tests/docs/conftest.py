"""The pages, what stands in them, and a clean process for what they run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import otel_straggler
from otel_straggler.detector import Detector

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

_RESULT = ("OTEL_", "SLURM_", "TORCHELASTIC_", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_", "RAY_")


@pytest.fixture(autouse=True)
def _clean_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No page sees the environment or the session of another."""
    for name in [n for n in os.environ if n.startswith(_RESULT)]:
        monkeypatch.delenv(name)
    yield
    Detector.shutdown()
    otel_straggler.shutdown()
