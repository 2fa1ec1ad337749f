"""A run with one slow rank, from its telemetry to the words that a person reads."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

COMMAND = (sys.executable, "-m", "otel_straggler.cli")
STEPS, WINDOW_STEPS, ONSET = 240, 20, 60
RUN = ("--scenario=one_slow_rank", "--slowdown=1.5", f"--steps={STEPS}", f"--onset-step={ONSET}")
LONGEST_S = 60
Json = dict[str, Any]


def test_a_live_collector_names_the_slow_rank(start_collector: Callable[..., Any]) -> None:
    """In the report and in ``top``: the rank, the section, the sentence. In /metrics no rank of a
    run that is over is slow."""
    collector = start_collector("--window-steps", str(WINDOW_STEPS))
    output_of("simulate", *RUN, "--send", collector.endpoint)
    run = report_after_the_last_window(collector.url)
    verdict = named(run)
    metrics = read(f"{collector.url}/metrics").decode()
    assert not [line for line in metrics.splitlines() if is_straggling(line)]
    assert 'state="confirmed"' not in metrics
    shown = " ".join(output_of("top", "--once", "--collector", collector.url).split())
    assert verdict["sentence"].partition(".")[0].replace(" takes ", " took ") in shown


def test_a_recorded_run_names_the_slow_rank(tmp_path: Path) -> None:
    """The same of a file: in the JSON, and as a sentence below the table."""
    path = tmp_path / "run.csv"
    output_of("simulate", *RUN, "--output", str(path))
    run = json.loads(output_of("score", str(path), "--json"))["runs"]["simulated"]
    verdict = named(run)
    assert verdict["sentence"] in output_of("score", str(path))


def named(run: Json) -> Json:
    """The only verdict that stands, which is on rank 5."""
    newest = {verdict["subject_id"]: verdict for verdict in run["verdicts"]}
    [verdict] = [v for v in newest.values() if v["state"] in ("confirmed", "flapping")]
    assert (verdict["scope"], verdict["rank"], verdict["node"]) == ("rank", 5, "node-1")
    assert (verdict["section"], verdict["state"]) == ("forward", "confirmed")
    assert verdict["slowdown"] == pytest.approx(1.5, rel=0.05)
    assert abs(verdict["since_step"] - ONSET) <= WINDOW_STEPS
    assert run["run"]["resolvable_slowdown"] > 1
    return verdict


def is_straggling(line: str) -> bool:
    return line.startswith("straggler_rank_straggling{") and line.endswith(" 1")


def report_after_the_last_window(url: str) -> Json:
    """The run, once its last window has been closed by its end."""
    ends_at = time.monotonic() + LONGEST_S
    while time.monotonic() < ends_at:
        run = json.loads(read(f"{url}/v1/report"))["runs"].get("simulated", {})
        if [w for w in run.get("windows", ()) if w["last_step"] == STEPS - 1]:
            return run
        time.sleep(0.05)
    pytest.fail(f"no window ended with step {STEPS - 1} within {LONGEST_S} s")


def read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return bytes(answer.read())


def output_of(*arguments: str) -> str:
    answer = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=True,
    )
    return answer.stdout
