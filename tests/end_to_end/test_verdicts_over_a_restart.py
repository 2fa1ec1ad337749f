"""A collector that is killed and started again shows what it had found."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..waiting import eventually

COMMAND = (sys.executable, "-m", "otel_straggler.cli")
LONGEST_S = 60
Json = dict[str, Any]


def test_verdicts_are_in_the_report_again_after_a_kill(
    start_collector: Callable[..., Any], tmp_path: Path
) -> None:
    """Every change, in order, as soon as the run sends again; and `history` lists them."""
    path = tmp_path / "history.db"
    config = tmp_path / "collector.yaml"
    config.write_text("history: {save_every_seconds: 0.1}\n")
    flags = ("--history", str(path), "--config", str(config))
    first = start_collector(*flags)
    slow = ("--scenario=one_slow_rank", "--slowdown=1.5", "--onset-step=60", "--steps=240")
    output_of("simulate", *slow, "--send", first.endpoint)
    before = eventually(lambda: confirmed(first.url))
    kept = eventually(lambda: as_many_are_kept(path, len(before)))
    first.kill()

    second = start_collector(*flags)
    assert reported(second.url) == []
    output_of("simulate", "--scenario=healthy", "--steps=40", "--send", second.endpoint)
    after = eventually(lambda: reported(second.url))
    assert [printed(v) for v in after[: len(kept)]] == [printed(v) for v in kept]
    assert ("rank", 5, "confirmed") in {(v["scope"], v["rank"], v["state"]) for v in after}


def printed(verdict: Json) -> tuple[str, str]:
    return verdict["subject_id"], verdict["state"]


def confirmed(url: str) -> list[Json]:
    """All changes, once one is confirmed."""
    changes = reported(url)
    return changes if any(v["state"] == "confirmed" for v in changes) else []


def reported(url: str) -> list[Json]:
    with urllib.request.urlopen(f"{url}/v1/report", timeout=30) as answer:
        runs = json.load(answer)["runs"]
    changes: list[Json] = runs.get("simulated", {}).get("verdicts", [])
    return changes


def as_many_are_kept(path: Path, minimum: int) -> list[Json]:
    given = output_of("history", "--path", str(path), "--run", "simulated", "--json")
    changes: list[Json] = json.loads(given)["verdicts"]
    return changes if len(changes) >= minimum else []


def output_of(*arguments: str) -> str:
    answer = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=LONGEST_S, check=True
    )
    return answer.stdout
