"""A rank that writes its part of a checkpoint slowly is named, and nobody is called slow or hung
for a save."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..waiting import eventually

pytest.importorskip("torch", reason="no torch: it would show that DCP's saves are seen")
RANKS = Path(__file__).with_name("saving_ranks.py")
Json = dict[str, Any]


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        body = answer.read()
    return json.loads(body) if answer.headers.get_content_type() == "application/json" else body


def test_who_writes_slowly_is_named_and_a_healthy_run_names_nobody(
    start_collector: Callable[..., Any], tmp_path: Path
) -> None:
    """DCP's own save, called by four real ranks of each of two runs."""
    collector = start_collector()
    command = [sys.executable, str(RANKS), collector.endpoint, str(tmp_path)]
    states: set[str] = set()
    with subprocess.Popen(command) as ranks:
        while ranks.poll() is None:
            runs = get(f"{collector.url}/v1/runs")["runs"]
            states |= {run["state"] for run in runs}
    assert ranks.returncode == 0
    assert not states & {"stuck", "lost"}

    slow, healthy = (ended(collector, run_id) for run_id in ("slow", "healthy"))
    [verdict] = slow["verdicts"]
    assert (verdict["rank"], verdict["cause"], verdict["state"]) == (3, "checkpoint", "confirmed")
    assert (verdict["section"], verdict["pages"]) == ("checkpoint_write", False)
    assert verdict["slowdown"] > 1.5
    assert ": slow writing of checkpoints, 0." in verdict["sentence"]
    assert [alert["name"] for alert in slow["alerts"]] in ([], ["StragglerCheckpointWriterSlow"])
    assert slow["checkpoint"]["step"] == 40
    assert slow["checkpoint"]["ranks"] == 4
    assert slow["checkpoint"]["slowest_rank"] == 3
    assert slow["checkpoint"]["save_s"] > slow["checkpoint"]["blocking_s"] - 0.01 > 0.7
    assert "; rank 3 wrote " in slow["checkpoint"]["text"]

    assert healthy["verdicts"] == []
    assert healthy["checkpoint"]["step"] == 40
    assert healthy["checkpoint"]["size_bytes"] > 4 * 200_000
    assert healthy["checkpoint"]["slowest_rank"] is None

    report = get(f"{collector.url}/v1/report")["runs"]
    assert [v["cause"] for v in report["slow"]["verdicts"]] == ["checkpoint"]
    metrics = get(f"{collector.url}/metrics").decode()
    for name in (
        "straggler_run_last_checkpoint_save_time_seconds",
        "straggler_run_last_checkpoint_blocking_time_seconds",
        "straggler_run_last_checkpoint_size_bytes",
        "straggler_checkpoint_write_time_seconds_total",
        "straggler_checkpoint_size_bytes_total",
    ):
        assert f'\n{name}{{run_id="slow"' in metrics


def ended(collector: Any, run_id: str) -> Json:
    def page() -> Json | None:
        shown: Json = get(f"{collector.url}/v1/run?run={run_id}")
        save = shown.get("checkpoint")
        is_known = save is not None and save["step"] == 40 and save["ranks"] == 4
        return shown if is_known and shown["run"]["finished_at_s"] is not None else None

    result: Json = eventually(page)
    return result
