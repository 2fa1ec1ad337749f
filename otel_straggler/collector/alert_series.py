"""What the alerts look at, as series. They are never folded: rules read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from otel_straggler import semconv
from otel_straggler.alerts.rule import FleetStatus, RunStatus
from otel_straggler.model.alert import Maintenance
from otel_straggler.publish.prometheus import Families, label, labels
from otel_straggler.score.hangs.states import RunState

_STATES: tuple[RunState, ...] = get_args(RunState)


def run_families(run: RunStatus, constant_labels: str) -> Families:
    """The series of one group of a run: some thirty, and at most 20 culprits."""
    families = Families()
    text = f"{labels(run_id=run.run_id, job_name=run.job, group=run.group)},{constant_labels}"
    described = labels(team=run.team, attempt=run.attempt)
    families.add(semconv.RUN_INFO, f"{described},{text}", 1)
    families.add(semconv.RUN_PAGES, text, int(run.pages))
    for reason, count in run.dropped.items():
        families.add(semconv.RUN_RECORDS_DROPPED, f"{label('reason', reason)},{text}", count)
    if run.ranks:
        _add_states(families, run, text)
        _add_hang(families, run, text, constant_labels)
    return families


def collector_families(
    watched: FleetStatus, maintenance: Iterable[Maintenance], constant_labels: str
) -> Families:
    """The series that belong to no run."""
    families = Families()
    families.add(semconv.COLLECTOR_PAGES, constant_labels, int(watched.pages))
    for each in maintenance:
        text = labels(node=each.node, reason=each.reason, by=each.by)
        families.add(semconv.MAINTENANCE_UNTIL, f"{text},{constant_labels}", each.until_ns * 1e-9)
    return families


def _add_states(families: Families, run: RunStatus, text: str) -> None:
    """The states that a run is not in are 0, so that each tells when it was left."""
    for state in _STATES:
        families.add(semconv.RUN_STATE, f"{label('state', state)},{text}", int(run.state == state))
    for name, count in run.ranks.items():
        families.add(semconv.RUN_RANKS, f"{label('state', name)},{text}", count)


def _add_hang(families: Families, run: RunStatus, text: str, constant_labels: str) -> None:
    families.add(semconv.RUN_HUNG, text, int(run.is_hung))
    if run.why is not None:
        told = labels(why=run.why, sentence=run.hang_text)
        families.add(semconv.RUN_HANG_INFO, f"{told},{text}", 1)
    for culprit in run.culprits:
        named = labels(
            why=culprit.why,
            run_id=run.run_id,
            job_name=run.job,
            group=run.group,
            rank=culprit.rank,
            node=culprit.node,
            role=culprit.role,
        )
        families.add(semconv.RANK_CULPRIT, f"{named},{constant_labels}", 1)
