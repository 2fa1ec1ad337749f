"""Labels of the subjects of alerts, as the collector's series have them."""

from __future__ import annotations

from collections.abc import Mapping

from otel_straggler.alerts.rule import Instance
from otel_straggler.alerts.sentences import Facts
from otel_straggler.alerts.watched import Culprit, Score, Watched, WatchedRun
from otel_straggler.model.alert import Domain


def of_run(
    watched: Watched,
    run: WatchedRun,
    further: Mapping[str, str] | None = None,
    *,
    value: float = 1.0,
    facts: Facts | None = None,
    domain: Domain = "model",
) -> Instance:
    """About a run, or with ``further`` labels about something in it."""
    labels = {"run_id": run.run_id, "job_name": run.job, "group": run.group, **(further or {})}
    return Instance(
        labels=labels,
        value=value,
        facts=facts or {},
        pages=run.pages and watched.pages,
        team=run.team,
        domain=domain,
    )


def rank_labels(who: Culprit | Score) -> dict[str, str]:
    return {"rank": str(who.rank), "node": who.node, "role": who.role}
