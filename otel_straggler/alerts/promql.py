"""Pieces of PromQL that several alerts share. Everything is accepted by Prometheus 2.42.

Labels are named wherever series are put together (``by``, ``on``), so that the labels of a scrape
(``instance``, ``job``) never get into an alert, and a collector that is scraped twice is one.
"""

from __future__ import annotations

from typing import Final

from otel_straggler.semconv import Metric

OF_RUN: Final = ("run_id", "job_name", "group")
OF_RANK: Final = (*OF_RUN, "rank", "node", "role")
OF_COLLECTOR: Final = ("cluster", "collector")
WORLD: Final = "cluster, collector, run_id, group"
"""What a run is to one collector; for ``on``."""
ANYWHERE: Final = "cluster, run_id, group"
"""The same to all collectors."""


def by(labels: tuple[str, ...]) -> str:
    """
    >>> by(("run_id",))
    'by (cluster, collector, run_id)'
    """
    return f"by ({', '.join((*OF_COLLECTOR, *labels))})"


def series(metric: Metric, matchers: str = "") -> str:
    return metric.prometheus_name + (f"{{{matchers}}}" if matchers else "")


def newest(labels: tuple[str, ...], metric: Metric, matchers: str = "") -> str:
    """The series now, one for each set of ``labels``."""
    return f"max {by(labels)} ({series(metric, matchers)})"


def duration(seconds: float) -> str:
    """As PromQL and rule files take it.

    >>> duration(259_200), duration(90), duration(0.5), duration(0), duration(345_600)
    ('3d', '90s', '500ms', '0s', '4d')
    """
    if seconds != int(seconds):
        return f"{round(seconds * 1_000)}ms"
    whole = int(seconds)
    for unit_s, letter in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if whole and whole % unit_s == 0:
            return f"{whole // unit_s}{letter}"
    return f"{whole}s"


def number(value: float) -> str:
    """
    >>> number(0.75), number(120.0)
    ('0.75', '120')
    """
    return f"{value:.12g}"
