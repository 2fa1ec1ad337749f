"""A real training over gloo, profiled by `ots.profile("prof")`, read by `otel-straggler trace`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from otel_straggler.cli import main

pytest.importorskip("torch", reason="no torch: it would show what a profile records")
PROGRAM = Path(__file__).with_name("traced_rank.py")
DOSE_S = 0.25
"""More than a busy machine takes from a rank in a step."""


def test_the_slow_rank_of_a_real_training_is_named_by_the_defaults_of_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without an argument for either, and without a word about the profile's other files."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = [
        subprocess.Popen(
            [sys.executable, PROGRAM, tmp_path / "prof", str(DOSE_S)],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": port, "OTEL_STRAGGLER_RUN_ID": "traced"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    errors = [rank.communicate(timeout=240)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], errors
    traces = sorted(path.name for path in (tmp_path / "prof").glob("*.json"))
    assert traces == [f"traced.attempt0.rank{n}.steps11-18.chrome_trace.json" for n in range(2)]
    assert main(["trace", str(tmp_path / "prof"), "--json"]) == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert report["late_ranks"] == [1]
    assert {each["rank"] for each in report["scores"]["windows"][0]["stragglers"]} <= {1}
    assert "profiler_list.dat" not in err
