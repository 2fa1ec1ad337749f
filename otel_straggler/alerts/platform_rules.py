"""Alerts on the watching itself: no data, lost data, a collector that is gone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from otel_straggler import semconv
from otel_straggler.alerts.promql import (
    ANYWHERE,
    OF_RUN,
    WORLD,
    by,
    duration,
    newest,
    number,
    series,
)
from otel_straggler.alerts.recorded import ENDED, HEARTBEAT, SCORED
from otel_straggler.alerts.rule import AlertRule, Instance, a_minute, at_once
from otel_straggler.alerts.sentences import Sentence
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.alerts.subjects import of_run
from otel_straggler.alerts.watched import Watched

NO_DATA: Final = "StragglerNoData"
IDENTITY_COLLISION: Final = "StragglerIdentityCollision"
SPANS_DROPPED: Final = "StragglerSpansDropped"
RUN_SILENT: Final = "StragglerRunSilent"
COLLECTOR_DOWN: Final = "StragglerCollectorDown"
WATCHDOG: Final = "StragglerWatchdog"
LOSSES_S: Final = 300.0
"""How long a loss is told of."""
_ALIVE_S: Final = 60.0
"""A run whose newest heartbeat is older is another alert's business."""


def _collector_down_for(settings: AlertSettings) -> float:
    return settings.collector_down_for_seconds


# --- data ----------------------------------------------------------------------------------------


def _no_data(settings: AlertSettings) -> str:
    """Training for so long, alive, and no score in all that time."""
    window = duration(settings.no_data_seconds)
    training = series(semconv.RUN_STATE, 'state="training"')
    return (
        f"(max {by(OF_RUN)} (min_over_time({training}[{window}])) == 1)\n"
        f"and on ({WORLD}) ({training} offset {window} == 1)\n"
        f"and on ({WORLD}) (time() - {HEARTBEAT.name} < {number(_ALIVE_S)})\n"
        f"unless on ({WORLD}) "
        f"(time() - max_over_time({SCORED.name}[{window}]) <= {number(settings.no_data_seconds)})"
    )


def _runs_without_data(watched: Watched, settings: AlertSettings) -> Iterable[Instance]:
    for run in watched.runs:
        known_s = [at_s for at_s in (run.since_s, run.last_scored_at_s) if at_s is not None]
        is_training = run.state == "training" and known_s
        if is_training and watched.now_s - max(known_s) > settings.no_data_seconds:
            yield of_run(watched, run)


def _clashes(_: AlertSettings) -> str:
    return f"{newest(('run_id',), semconv.RUN_IDENTITY_CLASHES)} > 0"


def _clashing_runs(watched: Watched, _: AlertSettings) -> Iterable[Instance]:
    """One for each run: a clash is of all its groups."""
    seen = set()
    for run in watched.runs:
        if run.clashes > 0 and run.run_id not in seen:
            seen.add(run.run_id)
            about = of_run(watched, run, value=run.clashes)
            yield replace(about, labels={"run_id": run.run_id})


def _drops(_: AlertSettings) -> str:
    """What has grown, and what was not there five minutes ago of a run that was, or is younger."""
    window = duration(LOSSES_S)
    labels = by((*OF_RUN, "reason"))
    dropped = series(semconv.RUN_RECORDS_DROPPED)
    state, start = series(semconv.RUN_STATE), series(semconv.RUN_STARTED)
    return (
        f"sum {labels} (increase({dropped}[{window}])) > 0\n"
        f"or\n(sum {labels} ({dropped}) > 0\n"
        f"unless sum {labels} ({dropped} offset {window})\n"
        f"and on ({WORLD}) ({state} offset {window} or time() - {start} < {number(LOSSES_S)}))"
    )


def _runs_with_drops(watched: Watched, _: AlertSettings) -> Iterable[Instance]:
    """``Evaluation`` has made losses of the last five minutes of them."""
    for run in watched.runs:
        for reason, count in run.dropped.items():
            if count > 0:
                yield of_run(watched, run, {"reason": reason}, value=count)


# --- what only somebody outside can see ----------------------------------------------------------


def _silent(settings: AlertSettings) -> str:
    return (
        f"(time() - max_over_time({HEARTBEAT.name}[1h]) > {number(settings.silent_seconds)})\n"
        f"unless on ({ANYWHERE}) {series(semconv.RUN_STATE)}\n"
        f"unless on ({WORLD}) (last_over_time({ENDED.name}[1h]) == 1)"
    )


def _down(_: AlertSettings) -> str:
    start = series(semconv.COLLECTOR_START)
    return f"max {by(())} (last_over_time({start}[1h]))\nunless on (cluster, collector) {start}"


def _watchdog(_: AlertSettings) -> str:
    return f"count {by(())} ({series(semconv.COLLECTOR_START)})"


def _always(watched: Watched, _: AlertSettings) -> Iterable[Instance]:
    yield Instance(labels={}, pages=watched.pages)


PLATFORM_RULES: Final = (
    AlertRule(
        name=NO_DATA,
        severity="warning",
        domain="platform",
        labels=OF_RUN,
        expression=_no_data,
        predicate=_runs_without_data,
        for_s=a_minute,
        keep_firing_s=at_once,
        summary=Sentence("Run {run_id} trains and gets no scores[ (job {job_name})]"),
        description=Sentence(
            "Run {run_id}[, group {group},] sends heartbeats and gets on, but no scores have been "
            "made of it for a long time: a slow rank in it would not be seen."
        ),
    ),
    AlertRule(
        name=IDENTITY_COLLISION,
        severity="warning",
        domain="platform",
        labels=("run_id",),
        expression=_clashes,
        predicate=_clashing_runs,
        for_s=a_minute,
        keep_firing_s=at_once,
        summary=Sentence("Two processes claim the same rank of run {run_id}"),
        description=Sentence(
            "In run {run_id} {value|count} ranks are claimed by two live processes each. They are "
            "never merged: the one with more data is scored, the other is not watched."
        ),
    ),
    AlertRule(
        name=SPANS_DROPPED,
        severity="warning",
        domain="platform",
        labels=(*OF_RUN, "reason"),
        expression=_drops,
        predicate=_runs_with_drops,
        for_s=at_once,
        keep_firing_s=at_once,
        summary=Sentence("Ranks of run {run_id} lose records ({reason})"),
        description=Sentence(
            "Ranks of run {run_id}[, group {group},] have lost records in the last 5 minutes, for "
            "the reason {reason}. Training goes on; scores rest on less."
        ),
    ),
    AlertRule(
        name=RUN_SILENT,
        severity="warning",
        domain="platform",
        labels=OF_RUN,
        expression=_silent,
        predicate=None,
        for_s=a_minute,
        keep_firing_s=at_once,
        summary=Sentence("Nothing is heard of run {run_id}, and no collector knows it"),
        description=Sentence(
            "No rank of run {run_id}[, group {group},] has been heard of for {value|duration}, it "
            "had not ended, and no living collector knows it."
        ),
    ),
    AlertRule(
        name=COLLECTOR_DOWN,
        severity="warning",
        domain="platform",
        labels=(),
        expression=_down,
        predicate=None,
        for_s=_collector_down_for,
        keep_firing_s=at_once,
        summary=Sentence("Collector {collector} is gone"),
        description=Sentence(
            "Collector {collector} was scraped within the last hour and is not any more. Its runs "
            "are not watched; those that hung when it was last heard still count as hung."
        ),
    ),
    AlertRule(
        name=WATCHDOG,
        severity="info",
        domain="platform",
        labels=(),
        expression=_watchdog,
        predicate=_always,
        for_s=at_once,
        keep_firing_s=at_once,
        summary=Sentence("The way of alerts from collector {collector} works"),
        description=Sentence(
            "This alert always fires. If it stops arriving, alerts from collector {collector} do "
            "not arrive either."
        ),
    ),
)
