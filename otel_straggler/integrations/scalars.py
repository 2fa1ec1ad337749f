"""Scalars from what a collector answers, or from a report in process."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from otel_straggler.report.types import Report, Scores
from otel_straggler.semconv import LISTED_KINDS, TRACKER_PREFIX, TRACKER_SCALARS


def scalars_in(body: bytes) -> tuple[str, dict[str, float]]:
    """What ``/v1/scalars`` has answered: the name of the moment, and what is known.

    Raises:
        ValueError, LookupError, TypeError, AttributeError: it is another answer.
    """
    answer = json.loads(body)
    return str(answer["snapshot"]), known(answer["scalars"])


def known(scalars: dict[str, Any]) -> dict[str, float]:
    """Full names; without what is not known, or is none of ours.

    >>> known({"slowdown": 1.5, "step_s": None, "worst_score": float("nan"), "else": 1})
    {'straggler/slowdown': 1.5}
    """
    return {
        TRACKER_PREFIX + name: scalars[name]
        for name in TRACKER_SCALARS
        if _is_number(scalars.get(name))
    }


def scalars_of_report(report: Report) -> dict[str, float]:
    """From a report of ``Detector``: worst score and rank, how many are listed and report. Scores
    are those against the fastest rank; of an own report, of this rank alone."""
    worst = min(_scores(report), default=(math.nan, None))
    listed = report.identify_stragglers()
    ranks = {each.rank for found in listed.values() for each in _ids(found)}
    return known(
        {
            "worst_score": worst[0],
            "worst_rank": worst[1],
            "ranks_called_slow": len(ranks),
            "ranks_reporting": len(report.rank_to_node) or None,
        }
    )


def _scores(report: Report) -> Iterator[tuple[float, int | None]]:
    """Scores with their ranks; of sections that wait for others none."""
    tables: list[Scores] = [report.gpu_relative_perf_scores]
    tables += [
        scores
        for section, scores in report.section_relative_perf_scores.items()
        if report.section_kinds.get(section, "compute") in LISTED_KINDS
    ]
    for scores in tables:
        yield from ((score, rank) for rank, score in scores.items() if math.isfinite(score))


def _ids(found: Any) -> Iterator[Any]:
    parts = found.values() if isinstance(found, dict) else (found,)
    for part in parts:
        yield from part


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)
