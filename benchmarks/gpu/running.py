"""Runs experiments: each in a process of its own, with a limit; none ends the rest."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu.endings import last_lines, text_of
from benchmarks.gpu.experiment import Experiment, read_notebook

ROOT = Path(__file__).parents[2]
MIN_S = 8.0
"""With less time left an experiment is not begun: its processes start in half of that."""
NO_TIME = "not run: no time was left"
GONE_S = 10.0
"""A process that was killed while the driver holds it may stay forever."""


def run_experiment(
    experiment: Experiment, registry: str, *, is_quick: bool, limit_s: float
) -> dict[str, Any]:
    """Run one; ``status``, ``seconds``, ``table``, ``figures``, ``facts`` and ``notes`` of it.

    Args:
        experiment: which.
        registry: where its process finds it.
        is_quick: fewer rounds.
        limit_s: it is ended then.
    """
    if limit_s < min(MIN_S, experiment.limit_s):
        return _result(experiment, NO_TIME, 0.0, Path("/nonexistent"), [])
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as errors:
        path = Path(folder) / "notebook"
        dose = "quick" if is_quick else "full"
        began_s = time.monotonic()
        command = [sys.executable, "-m", "benchmarks.gpu.one"]
        command += [registry, experiment.key, str(path), dose, str(began_s + limit_s)]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            start_new_session=True,
        )
        status = _wait(process, limit_s)
        taken_s = time.monotonic() - began_s
        lines = [] if status == "done" else last_lines(errors)
        return _result(experiment, status, taken_s, path, lines)


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> str:
    """``done``, or how it failed. Its own processes end with it."""
    try:
        code = process.wait(limit_s)
        status = "done" if code == 0 else f"failed: {text_of(code)}"
    except subprocess.TimeoutExpired:
        status = f"failed: not done in {limit_s:.0f} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GONE_S)
    return status


def _result(
    experiment: Experiment, status: str, taken_s: float, path: Path, lines: list[str]
) -> dict[str, Any]:
    read = read_notebook(path)
    result = {
        "question": experiment.question,
        "status": status,
        "seconds": round(taken_s, 1),
        "table": [
            {
                "figure": e.figure,
                "unit": e.unit,
                "expected": e.words(),
                "is_requirement": e.is_requirement,
                **read["figures"].get(e.figure, {}),
                "verdict": e.verdict(read["figures"].get(e.figure, {}).get("value")),
            }
            for e in experiment.expected
        ],
        **read,
    }
    if lines:
        result["last_lines"] = lines
    return result
