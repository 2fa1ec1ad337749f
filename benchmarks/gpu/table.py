"""The results for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HEAD = ("", "figure", "measured", "expected", "verdict")


def rows(key: str, result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A row per expected figure; one with the status where it failed."""
    table = [
        (key, line["figure"], measured(line), line["expected"], line["verdict"])
        for line in result["table"]
    ]
    if result["status"] != "done":
        table.insert(0, (key, "", result["status"], "", "failed"))
    return table


def measured(line: Mapping[str, Any]) -> str:
    """A figure with its quartiles and unit.

    >>> measured({"value": 0.31, "iqr": [0.2, 0.4], "unit": "%"})
    '0.31 % (0.2 to 0.4)'
    """
    if line.get("value") is None:
        return "-"
    unit = f" {line['unit']}" if line.get("unit") else ""
    quartiles = line.get("iqr")
    spread = f" ({_short(quartiles[0])} to {_short(quartiles[1])})" if quartiles else ""
    return f"{_short(line['value'])}{unit}{spread}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def text(experiments: Mapping[str, Any]) -> str:
    """All of them, with columns of equal width, then failures and notes."""
    lines = [HEAD, *(row for key, result in experiments.items() for row in rows(key, result))]
    widths = [max(len(line[at]) for line in lines) for at in range(len(HEAD))]
    table = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in lines]
    for key, result in experiments.items():
        table += [f"{key}: {note}" for note in result["notes"]]
        table += [f"{key} said last: {line}" for line in result.get("last_lines", ())]
    return "\n".join(line.rstrip() for line in table)


def decision(accepted: Mapping[str, Any]) -> str:
    """Every rule with what became of it; the last line says what to set, and why."""
    lines = [
        f"  {of}: {verdict:8} {rule}"
        for of, rules in accepted["rules"].items()
        for rule, verdict in rules.items()
    ]
    tier, sampling = accepted["auto_tier"], accepted["kernel_sampling"]
    to = "leave AUTO_TIER as it is" if tier == "undecided" else f'set AUTO_TIER to "{tier}"'
    because = {of: "; ".join(reasons) for of, reasons in accepted["because"].items()}
    sampled = "leave it as it is" if sampling == "undecided" else sampling
    lines.append(
        f"What to set: {to} ({because['events']}); "
        f"kernel sampling in auto: {sampled} ({because['sampling']})."
    )
    return "\n".join(lines)
