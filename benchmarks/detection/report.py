"""The result as a JSON document, and the document as Markdown."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import otel_straggler
from benchmarks.detection.cases import N_FAULTS, ONSETS, SEEDS, STEP_S, STEPS, Case
from benchmarks.detection.matching import GRACE_STEPS
from benchmarks.detection.methods import bocd, nvrx, signals
from benchmarks.detection.records import RunRecord
from benchmarks.detection.running import TABLE_STEPS
from benchmarks.detection.summary import Row, summarise
from benchmarks.detection.targets import check_targets
from otel_straggler.detect.scores.settings import VerdictSettings

SCHEMA = 1
TITLES = {
    "overall": "Faults with local durations, step noise at most 2.5 %",
    "bands": "F1 by dose, local durations",
    "sizes": "F1 by number of ranks, local durations, step noise at most 2.5 %",
    "kinds": "F1 by kind of fault, 256 ranks, step noise 2.4 %",
    "false_alarms": "False-alarm episodes per 1,000 rank-hours without a slow rank or host",
    "delays": "Delay in steps from onset, local durations, step noise at most 2.5 %",
    "culprits": "The culprit among the most suspected, collectives inside sections",
    "hidden": "Where times cannot name the culprit: wrong ranks, and who says so",
    "costs": "Cost for 1,000 ranks: processor seconds of 100 steps, bytes of state",
    "causes": "Causes named by otel-straggler, local durations",
}


def document(
    cases: Sequence[Case], runs: Sequence[RunRecord], methods: Sequence[str], **facts: Any
) -> dict[str, Any]:
    """All that the report says, and what it rests on. NaN is None."""
    return without_nan(
        {
            "schema": SCHEMA,
            **facts,
            "versions": {
                "otel-straggler": otel_straggler.__version__,
                "python": platform.python_version(),
                **{name: version(name) for name in ("numpy", "scipy")},
            },
            "settings": {
                "verdicts": asdict(VerdictSettings()),
                "steps": STEPS,
                "step_s": STEP_S,
                "onsets": ONSETS,
                "faults_by_ranks": N_FAULTS,
                "first_seeds": SEEDS,
                "table_steps": TABLE_STEPS,
                "grace_steps": GRACE_STEPS,
                "window_steps": signals.WINDOW_STEPS,
                "nvrx_threshold": nvrx.THRESHOLD,
                "bocd_lambda_points": bocd.LAMBDA_POINTS,
                "bocd_least_posterior": bocd.MIN_POSTERIOR,
            },
            "targets": check_targets(runs),
            "tables": summarise(runs, methods),
            "cases": {case.name: str(case.plan(0).layout) for case in cases},
            "summary": {
                "runs": len(runs),
                "faults": sum(run.n_faults for run in runs),
                "rank_hours": sum(run.ranks * run.hours for run in runs),
                "seeds": sorted({run.seed for run in runs}),
            },
            "runs": [run.as_json() for run in runs],
        }
    )


def markdown(result: dict[str, Any]) -> str:
    """The targets and all tables of a document."""
    parts = [_opening(result), "### Targets", target_table(result["targets"])]
    for name, title in TITLES.items():
        rows = result["tables"].get(name, [])
        if rows:
            parts += [f"### {title}", table(rows)]
    return "\n\n".join(parts) + "\n"


def _opening(result: dict[str, Any]) -> str:
    summary, seeds = result["summary"], result["summary"]["seeds"]
    of_seeds = f"seeds {seeds[0]} to {seeds[-1]}" if seeds else "no seeds"
    return (
        f"Set {result['set']} ({of_seeds}): {summary['runs']} runs of {len(result['cases'])}"
        f" cases, {summary['faults']} faults of ranks and hosts,"
        f" {summary['rank_hours']:,.0f} rank-hours;"
        f" {result['wall_s']:.0f} s with {result['processes']} processes."
        " In brackets: bootstrap 95 % intervals over runs."
    )


def target_table(targets: Sequence[Row]) -> str:
    """With intervals and NVRx's value where there are any."""
    rows = [
        {
            "target": each["target"],
            "wanted": each["wanted"],
            "otel-straggler": [each["value"], each.get("low"), each.get("high")],
            "met": _met(each),
            **({"nvrx .75": each["nvrx"]} if "nvrx" in each else {}),
        }
        for each in targets
    ]
    return table(rows)


def _met(target: Row) -> str:
    if target["value"] is None:
        return "not measured"
    return "yes" if target["is_met"] else "**no**"


def table(rows: Sequence[Row]) -> str:
    """Rows as Markdown; a column of every name, in the order in which they come up."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    lines += [
        "| " + " | ".join(_cell(row.get(name), name) for name in names) + " |" for row in rows
    ]
    return "\n".join(lines)


def _cell(value: Any, name: str = "") -> str:
    """
    >>> _cell([0.98765, 0.9, 1.0]), _cell(None), _cell(1234567), _cell(12.345), _cell("a")
    ('0.988 (0.900-1.000)', '-', '1,234,567', '12.3', 'a')
    """
    if value is None or value == {}:
        return "-"
    if isinstance(value, list):
        middle, low, high = (_cell(part, name) for part in value)
        return middle if "-" in (low, high) else f"{middle} ({low}-{high})"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {n}" for key, n in value.items())
    if isinstance(value, float):
        return _number(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _number(value: float) -> str:
    if abs(value) >= 100 or (value == int(value) and abs(value) >= 2):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def without_nan(value: Any) -> Any:
    """The same with None for NaN, and numbers of six digits."""
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.6g}")
    if isinstance(value, dict):
        return {str(key): without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(part) for part in value]
    return value
