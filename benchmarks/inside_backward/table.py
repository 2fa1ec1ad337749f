"""The table on standard output, and the JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.detection.page import fill
from benchmarks.inside_backward.grading import OUTCOMES, RIGHT, as_json, totals
from benchmarks.inside_backward.rows import Row
from benchmarks.inside_backward.running import Result

Json = dict[str, Any]
MARKS = "<!-- inside backward: begin -->\n", "<!-- inside backward: end -->"
"""Of docs/internals/detection-accuracy.md."""
MEASURED = Path(__file__).parents[2] / "docs" / "measurements" / "inside_backward.json"
_TITLES = (
    "training", "ranks", "right", "nobody", "wrong rank", "others too", "wrong section",
    "wrong dose", "steps to naming", "healthy: right", "host clock: right", "nobody", "other",
)  # fmt: skip


def render(*, check: bool) -> int:
    """Put the table of the committed measurement into the page; ``check``: see ``fill``."""
    rows = json.loads(MEASURED.read_text())["rows"].values()
    return fill(MARKS, markdown(list(rows)) + "\n", check=check)


def row_json(row: Row, results: Sequence[Result]) -> Json:
    """Totals of both answers, and every run."""
    faulty = [each for each in results if each.fault is not None]
    healthy = [each for each in results if each.fault is None]
    return {
        "title": row.title,
        "ranks": row.ranks,
        "faults": totals([each.ours for each in faulty]),
        "healthy": totals([each.ours for each in healthy]),
        "host_clock_faults": totals([each.by_host for each in faulty]),
        "host_clock_healthy": totals([each.by_host for each in healthy]),
        "runs": [_run_json(each) for each in results],
    }


def _run_json(result: Result) -> Json:
    fault = result.fault
    planted = {} if fault is None else {
        "where": fault.where, "dose": fault.dose, "rank": fault.rank, "onset": fault.onset,
        "added_ms": {name: round(1e3 * s, 3) for name, s in fault.added_s.items()},
    }  # fmt: skip
    ours, by_host = as_json(result.ours), as_json(result.by_host)
    return {"run_id": result.run_id, **planted, "ours": ours, "host_clock": by_host}


def markdown(rows: Sequence[Json]) -> str:
    """A line per row; those that were not run say why."""
    lines = [_line(_TITLES), _line(["---"] * len(_TITLES))]
    for row in rows:
        if "not_run" in row:
            lines.append(_line([row["title"], row["ranks"], f"not run: {row['not_run']}"]))
            continue
        lines.append(_line(_cells(row)))
    return "\n".join(lines)


def _cells(row: Json) -> list[object]:
    faults, healthy, host = row["faults"], row["healthy"], row["host_clock_faults"]
    runs, host_others = faults["runs"], host["runs"] - host["right"] - host["nobody"]
    return [
        row["title"],
        row["ranks"],
        f"{faults['right']} of {runs}",
        *(faults[outcome] for outcome in OUTCOMES if outcome != RIGHT),
        _shown(faults["median_steps"]),
        f"{healthy['right']} of {healthy['runs']}",
        f"{host['right']} of {runs}",
        host["nobody"],
        host_others,
    ]


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"
