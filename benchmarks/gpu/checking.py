"""Runs what was asked for, prints the table and keeps the JSON."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.gpu.acceptance import decide
from benchmarks.gpu.environment import environment, gpu_now, throttled
from benchmarks.gpu.experiment import Experiment
from benchmarks.gpu.registry import experiments
from benchmarks.gpu.running import NO_TIME, run_experiment
from benchmarks.gpu.table import decision, text
from benchmarks.gpu.visit import limit_s, shares_s

CHECK_S, SOAK_S = 570.0, 560.0
"""Of all experiments together; of the soak."""
SCHEMA = 2


def check(given: argparse.Namespace) -> bool:
    """Whether an experiment failed. The JSON is written after each."""
    path = Path(given.json) if given.json else None
    known = _known(path)
    chosen = _chosen(given, known["experiments"])
    seconds = given.seconds or (SOAK_S if given.soak else CHECK_S)
    until_s = time.monotonic() + seconds
    shares = shares_s(chosen, seconds)
    measured_on = environment()
    before = measured_on.pop("gpu")
    for at, experiment in enumerate(chosen):
        print(f"{experiment.key}: {experiment.question}", file=sys.stderr, flush=True)
        result = run_experiment(
            experiment,
            given.experiments,
            is_quick=given.quick,
            limit_s=limit_s(experiment, shares[at:], until_s - time.monotonic()),
        )
        after = gpu_now()
        if sentence := throttled(before, after):
            result["notes"].append(sentence)
        known["experiments"][experiment.key] = {
            **result,
            "dose": "quick" if given.quick else "full",
            "measured_on": {**measured_on, "gpu": before, "gpu_after": after},
        }
        before = after
        known["experiments"] = dict(sorted(known["experiments"].items(), key=_order))
        known["acceptance"] = decide(known["experiments"])
        if path is not None:
            _write(path, known)
    new = {e.key: known["experiments"][e.key] for e in chosen}
    print(text(new))
    if late := [key for key, result in new.items() if result["status"] == NO_TIME]:
        print(f"No time was left for {', '.join(late)}; --missing runs what the JSON lacks.")
    print(decision(known["acceptance"]))
    return any(result["status"] != "done" for result in new.values())


def _chosen(given: argparse.Namespace, known: Mapping[str, Any]) -> list[Experiment]:
    all_of_them = experiments(given.experiments)
    if given.soak:
        return [all_of_them["E9"]]
    if not given.only:
        done = {k for k, one in known.items() if one["status"] == "done"} if given.missing else ()
        return [e for key, e in all_of_them.items() if key != "E9" and key not in done]
    wanted = [key.strip().upper() for key in given.only.split(",")]
    if unknown := [key for key in wanted if key not in all_of_them]:
        known = ", ".join(sorted(all_of_them, key=_number))
        raise SystemExit(f"--only is {', '.join(unknown)}; expected some of {known}")
    return [all_of_them[key] for key in wanted]


def _known(path: Path | None) -> dict[str, Any]:
    """What the file holds already; a figure is replaced only by a newer one of its experiment."""
    if path is not None and path.exists():
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if result.get("schema") == SCHEMA:
            return result
    return {"schema": SCHEMA, "experiments": {}, "acceptance": {}}


def _write(path: Path, known: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    result = json.dumps(_finite(known), indent=2, allow_nan=False, default=str)
    new.write_text(result + "\n", encoding="utf-8")
    new.replace(path)


def _finite(result: Any) -> Any:
    """JSON has no word for NaN."""
    if isinstance(result, dict):
        return {key: _finite(value) for key, value in result.items()}
    if isinstance(result, list | tuple):
        return [_finite(value) for value in result]
    return None if isinstance(result, float) and not math.isfinite(result) else result


def _order(item: tuple[str, Any]) -> int:
    return _number(item[0])


def _number(key: str) -> int:
    digits = "".join(filter(str.isdigit, key))
    return int(digits or 0)
