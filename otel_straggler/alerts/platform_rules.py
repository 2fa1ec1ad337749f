"""Alerts on monitoring itself: no data, lost data; and that alerts get through."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from otel_straggler import semconv
from otel_straggler.alerts.messages import Message
from otel_straggler.alerts.promql import (
    ANYWHERE,
    ENDED,
    HEARTBEAT,
    SCORED,
    WORLD,
    by,
    duration,
    newest,
    number,
    series,
)
from otel_straggler.alerts.rule import AlertRule, FleetStatus, Instance, a_minute
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.semconv import OF_RUN

LOSSES_S: Final = 300.0
"""For how long a loss is reported."""
_ALIVE_S: Final = 60.0
"""Runs with older heartbeats have another alert."""


# --- data ----------------------------------------------------------------------------------------


def _no_data(settings: AlertSettings) -> str:
    """Training and alive for so long without a score."""
    window = duration(settings.no_data_seconds)
    training = series(semconv.RUN_STATE, 'state="training"')
    return (
        f"(max {by(OF_RUN)} (min_over_time({training}[{window}])) == 1)\n"
        f"and on ({WORLD}) ({training} offset {window} == 1)\n"
        f"and on ({WORLD}) (time() - {HEARTBEAT.name} < {number(_ALIVE_S)})\n"
        f"unless on ({WORLD}) "
        f"(time() - max_over_time({SCORED.name}[{window}]) <= {number(settings.no_data_seconds)})"
    )


def _runs_without_data(fleet: FleetStatus, settings: AlertSettings) -> Iterable[Instance]:
    for run in fleet.runs:
        known_s = [at_s for at_s in (run.since_s, run.last_scored_at_s) if at_s is not None]
        if known_s and fleet.now_s - max(known_s) > settings.no_data_seconds:
            yield Instance(run)


def _clashing_runs(fleet: FleetStatus, _: AlertSettings) -> Iterable[Instance]:
    """One for each run: a clash concerns all its groups."""
    first: dict[str, Instance] = {}
    for run in fleet.runs:
        if run.clashes > 0:
            first.setdefault(run.run_id, Instance(run, value=run.clashes))
    return first.values()


def _failing_runs(fleet: FleetStatus, _: AlertSettings) -> Iterable[Instance]:
    return (Instance(run) for run in fleet.runs if run.is_failing)


def _drops(_: AlertSettings) -> str:
    """Totals that have grown, or are new since five minutes ago in a run that existed, or is
    younger."""
    window = duration(LOSSES_S)
    labels = by((*OF_RUN, "reason"))
    dropped = series(semconv.RUN_RECORDS_DROPPED, f'reason!~"{"|".join(semconv.NO_LOSS)}"')
    state, start = series(semconv.RUN_STATE), series(semconv.RUN_STARTED)
    return (
        f"(sum {labels} (increase({dropped}[{window}])) > 0\n"
        f"and on ({WORLD}, reason) {dropped})\n"
        f"or\n(sum {labels} ({dropped}) > 0\n"
        f"unless sum {labels} ({dropped} offset {window})\n"
        f"and on ({WORLD}) ({state} offset {window} or time() - {start} < {number(LOSSES_S)}))"
    )


def _runs_with_drops(fleet: FleetStatus, _: AlertSettings) -> Iterable[Instance]:
    """The evaluator has made ``dropped`` the losses of the last five minutes."""
    return (
        Instance(run, {"reason": reason}, value=count)
        for run in fleet.runs
        for reason, count in run.dropped.items()
        if count > 0 and reason not in semconv.NO_LOSS
    )


# --- only visible from outside -------------------------------------------------------------------


def _silent(settings: AlertSettings) -> str:
    return (
        f"(time() - max_over_time({HEARTBEAT.name}[1h]) > {number(settings.silent_seconds)})\n"
        f"unless on ({ANYWHERE}) {series(semconv.RUN_STATE)}\n"
        f"unless on ({WORLD}) (last_over_time({ENDED.name}[1h]) == 1)"
    )


PLATFORM_RULES: Final = (
    AlertRule(
        name="StragglerNoData",
        severity="warning",
        domain="platform",
        labels=OF_RUN,
        expression=_no_data,
        predicate=_runs_without_data,
        during="training",
        for_s=a_minute,
        summary=Message("Run {run_id} is training but has no scores[ (job {job_name})]"),
        past=Message("Run {run_id} was training but had no scores[ (job {job_name})]"),
        description=Message(
            "Run {run_id}[, group {group},] sends heartbeats and makes progress, but has had no "
            "scores for a long time: a slow rank in it would go unnoticed. Next: run "
            "otel-straggler doctor in the environment of a rank."
        ),
    ),
    AlertRule(
        name="StragglerScoringFailing",
        severity="warning",
        domain="platform",
        labels=OF_RUN,
        expression=lambda _: f"{newest(OF_RUN, semconv.RUN_SCORING_FAILING)} > 0",
        predicate=_failing_runs,
        summary=Message("The collector fails to evaluate run {run_id}[ (job {job_name})]"),
        past=Message("The collector failed to evaluate run {run_id}[ (job {job_name})]"),
        description=Message(
            "A mistake of collector {collector} makes the evaluation of run {run_id}"
            "[, group {group},] fail: a slow rank in it may go unnoticed. Training and other runs "
            "are not affected. It is tried again with the next steps. Next: read on the page of "
            "the run since when it fails and why, and tell the maintainers if it lasts."
        ),
    ),
    AlertRule(
        name="StragglerIdentityCollision",
        severity="warning",
        domain="platform",
        labels=("run_id",),
        expression=lambda _: f"{newest(('run_id',), semconv.RUN_IDENTITY_CLASHES)} > 0",
        predicate=_clashing_runs,
        for_s=a_minute,
        summary=Message("Two processes claim the same rank of run {run_id}"),
        past=Message("Two processes claimed the same rank of run {run_id}"),
        description=Message(
            "In run {run_id} {value|count} ranks are claimed by two live processes each. They are "
            "never merged: the one with more data is scored, the other is not watched. Next: end "
            "the process that should not be there, or give each job a run id of its own."
        ),
    ),
    AlertRule(
        name="StragglerSpansDropped",
        severity="warning",
        domain="platform",
        labels=(*OF_RUN, "reason"),
        expression=_drops,
        predicate=_runs_with_drops,
        for_s=attrgetter("dropped_for_seconds"),
        keep_firing_s=attrgetter("keep_firing_seconds"),
        summary=Message("Ranks of run {run_id} lose records ({reason})"),
        past=Message("Ranks of run {run_id} lost records ({reason})"),
        description=Message(
            "Ranks of run {run_id}[, group {group},] lose records again and again, for the reason "
            "{reason}. Training continues; scores are based on less data. Next: see whether the "
            "collector was away or refuses them; else mark fewer sections."
        ),
    ),
    AlertRule(
        name="StragglerRunSilent",
        severity="warning",
        domain="platform",
        labels=OF_RUN,
        expression=_silent,
        predicate=None,
        during="always",  # its own condition is about the last that was known
        for_s=a_minute,
        summary=Message("Run {run_id} is silent, and no collector knows it"),
        past=Message("Run {run_id} was silent, and no collector knew it"),
        description=Message(
            "No rank of run {run_id}[, group {group},] has reported for {value|duration}, the run "
            "had not ended, and no live collector knows it. Next: ask the scheduler whether the "
            "job still runs; restart its collector if that is gone."
        ),
    ),
    AlertRule(
        name="StragglerWatchdog",
        severity="info",
        domain="platform",
        labels=(),
        expression=lambda _: f"count {by(())} ({series(semconv.COLLECTOR_START)})",
        predicate=lambda _fleet, _settings: (Instance(),),
        summary=Message("Alerts from collector {collector} get through"),
        past=Message("Alerts from collector {collector} got through"),
        description=Message(
            "This alert always fires. If it stops arriving, alerts from collector {collector} do "
            "not arrive either."
        ),
    ),
)
