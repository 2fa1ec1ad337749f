"""Budgets: what a figure may be at most, what it was, and a sentence about it."""

from __future__ import annotations

import json
import sys
from typing import Any

Json = dict[str, Any]


def judge(measured: float, maximum: float, unit: str) -> Json:
    """A figure and its budget; a ratio of 1.0 is just met. ``unit`` of both, "" if none."""
    return {
        "measured": round(measured, 4),
        "budget": round(maximum, 4),
        "unit": unit,
        "ratio_to_budget": round(measured / maximum if maximum else 1 + measured, 4),
        "is_met": measured <= maximum,
    }


def not_measured(why: str) -> Json:
    """In the place of a figure that this run could not have."""
    return {"not_measured": why}


def print_result(result: Json, budgets: dict[str, Json]) -> None:
    """JSON to standard output; a sentence for each budget to standard error.

    Args:
        result: all figures.
        budgets: by name, from :func:`judge` or :func:`not_measured`.
    """
    missed = [name for name, measured in budgets.items() if not measured.get("is_met", True)]
    for name, measured in budgets.items():
        print(_sentence(name, measured), file=sys.stderr)
    print(json.dumps({**result, "budgets": budgets, "missed": missed}, indent=2))


def _sentence(name: str, measured: Json) -> str:
    if "not_measured" in measured:
        return f"not measured: {name}: {measured['not_measured']}"
    word = "met" if measured["is_met"] else "MISSED"
    figures = " of ".join(
        f"{measured[k]:.4g} {measured['unit']}".strip() for k in ("measured", "budget")
    )
    return f"budget {word}: {name}: {figures}, ratio {measured['ratio_to_budget']:.2f}"
