"""A job of two ranks over gloo whose spans are kept: rank 1 is slower in backward."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .sinks import HttpSink

PROGRAM = Path(__file__).with_name("collective_rank.py")
STEPS, DOSE_S = 6, 0.1
TOLERANCE_S = 0.4 * DOSE_S
"""A rank with the dose and one without stay apart, on a machine that does other work as well."""


@contextmanager
def run_two_ranks(trainings: Iterable[str], folder: Path, **env: str) -> Iterator[HttpSink]:
    """Run these trainings of `collective_rank.py`, and yield what arrived once both have ended."""
    with HttpSink() as sink:
        ranks = [
            subprocess.Popen(
                [sys.executable, PROGRAM, str(folder / "meet"), *trainings],
                env={**os.environ, **env, "RANK": str(rank), "WORLD_SIZE": "2",
                     "LOCAL_RANK": str(rank), "OTEL_STRAGGLER_ENDPOINT": sink.url,
                     "OTEL_STRAGGLER_RUN_ID": folder.name, "OTEL_STRAGGLER_EXIT_DEADLINE_S": "20"},
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]  # fmt: skip
        errors = [rank.communicate(timeout=240)[1] for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0, 0], errors
        yield sink
