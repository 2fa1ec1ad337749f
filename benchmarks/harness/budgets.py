"""Budgets: what a figure may be at most, what it was, and a sentence about it."""

from __future__ import annotations

import json
import sys
from typing import Any

Json = dict[str, Any]


def judge(measured: float, most: float, unit: str) -> Json:
    """A figure beside its budget; a ratio of 1.0 is just met. ``unit`` of both, "" if none."""
    return {
        "measured": round(measured, 4),
        "budget": round(most, 4),
        "unit": unit,
        "ratio_to_budget": round(measured / most, 4),
        "is_met": measured <= most,
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
    missed = [name for name, found in budgets.items() if not found.get("is_met", True)]
    for name, found in budgets.items():
        print(_sentence(name, found), file=sys.stderr)
    print(json.dumps({**result, "budgets": budgets, "missed": missed}, indent=2))


def _sentence(name: str, found: Json) -> str:
    if "not_measured" in found:
        return f"not measured: {name}: {found['not_measured']}"
    word = "met" if found["is_met"] else "MISSED"
    figures = " of ".join(f"{found[k]:.4g} {found['unit']}".strip() for k in ("measured", "budget"))
    return f"budget {word}: {name}: {figures}, ratio {found['ratio_to_budget']:.2f}"
