"""The tables on standard output and in the page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.detection.page import fill

Json = dict[str, Any]
MARKS: Final = "<!-- injected faults: begin -->\n", "<!-- injected faults: end -->"
"""Of docs/internals/detection-accuracy.md."""
MEASURED: Final = Path(__file__).parents[2] / "docs" / "measurements" / "faults.json"
_TITLES: Final = ("fault", "found", "delay, s", "steps", "section right", "cause right")
_PARTS: Final = {
    "real": "Real trainings",
    "simulated": "Simulated fleets, one fault in a run",
    "in_turn": "Simulated fleets, two slow ranks one after the other",
}


def render(*, check: bool) -> int:
    """Put the tables of the committed measurement into the page; ``check``: see ``fill``."""
    return fill(MARKS, markdown(json.loads(MEASURED.read_text())), check=check)


def markdown(result: Json) -> str:
    """A table for each part that was measured."""
    return "\n".join(_part(title, result[name]) for name, title in _PARTS.items() if name in result)


def _part(title: str, part: Json) -> str:
    totals = part["totals"]
    lines = [_line([title, *_TITLES[1:]]), _line(["---"] * len(_TITLES))]
    lines += [_line(_cells(kind, row)) for kind, row in totals["kinds"].items()]
    healthy = part.get("healthy")
    text = (
        f"Recall {totals['recall']:.3f} ({totals['found']} of {totals['faults']}), precision "
        f"{_shown(totals['precision'])}; ranks without a fault: {totals['wrong_verdicts']} "
        f"verdicts, alerts on {totals['wrong_alerts']}"
    )
    if totals["named_for_a_moment"]:
        text += (
            f"; {totals['named_for_a_moment']} were named as a rank that the others wait for, for "
            f"{totals['longest_moment_s']:g} s at most, without an alert on them"
        )
    text += "."
    if healthy:
        text += (
            f" {healthy['runs']} runs without a fault: {healthy['wrong_verdicts']} verdicts, "
            f"{healthy['wrong_alerts']} alerts."
        )
    return "\n".join([*lines, "", text, ""])


def _cells(kind: str, row: Json) -> list[object]:
    delay, steps = row.get("delay_s"), row.get("delay_steps")
    rights = [row.get(name) for name in ("section_right", "cause_right")]
    return [
        f"`{kind}`",
        f"{row['found']} of {row['faults']}",
        "-" if delay is None else f"{delay['p50']:.1f} ({delay['max']:.1f})",
        "-" if steps is None else f"{steps['p50']:.0f} ({steps['max']})",
        *("-" if right is None else f"{right} of {row['found']}" for right in rights),
    ]


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"
