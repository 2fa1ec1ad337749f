"""Alerts on monitoring itself: no data, lost data, a collector that is gone."""

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
"""A run whose newest heartbeat is older is another alert's business."""


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


def _runs_without_data(fleet: FleetStatus, settings: AlertSettings) -> Iterable[Instance]:
    for run in fleet.runs:
        known_s = [at_s for at_s in (run.since_s, run.last_scored_at_s) if at_s is not None]
        is_training = run.state == "training" and known_s
        if is_training and fleet.now_s - max(known_s) > settings.no_data_seconds:
            yield Instance(run)


def _clashes(_: AlertSettings) -> str:
    return f"{newest(('run_id',), semconv.RUN_IDENTITY_CLASHES)} > 0"


def _clashing_runs(fleet: FleetStatus, _: AlertSettings) -> Iterable[Instance]:
    """One for each run: a clash is of all its groups."""
    first: dict[str, Instance] = {}
    for run in fleet.runs:
        if run.clashes > 0:
            first.setdefault(run.run_id, Instance(run, value=run.clashes))
    return first.values()


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


def _runs_with_drops(fleet: FleetStatus, _: AlertSettings) -> Iterable[Instance]:
    """The evaluator has made ``dropped`` the losses of the last five minutes."""
    return (
        Instance(run, {"reason": reason}, value=count)
        for run in fleet.runs
        for reason, count in run.dropped.items()
        if count > 0
    )


# --- only visible from outside -------------------------------------------------------------------


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


PLATFORM_RULES: Final = (
    AlertRule(
        name="StragglerNoData",
        severity="warning",
        domain="platform",
        labels=OF_RUN,
        expression=_no_data,
        predicate=_runs_without_data,
        for_s=a_minute,
        summary=Message("Run {run_id} is training but has no scores[ (job {job_name})]"),
        description=Message(
            "Run {run_id}[, group {group},] sends heartbeats and makes progress, but has had no "
            "scores for a long time: a slow rank in it would go unnoticed."
        ),
        runbook="""\
The run is alive and instrumented, but its sections get no scores: no spans arrive, or windows do
not close, or a window is longer than `no_data_seconds`.

1. `otel-straggler doctor` in the environment of a rank says whether sections are recorded and
   reach the collector.
2. `straggler_collector_spans_total` by `outcome` and `reason` shows what happens to spans;
   `straggler_records_dropped_total` what ranks lose.
3. Are five steps, the minimum that is scored together, longer than 15 minutes? Then raise
   `no_data_seconds`.

Quiet: Silence `run_id` with this alert's name.
""",
    ),
    AlertRule(
        name="StragglerIdentityCollision",
        severity="warning",
        domain="platform",
        labels=("run_id",),
        expression=_clashes,
        predicate=_clashing_runs,
        for_s=a_minute,
        summary=Message("Two processes claim the same rank of run {run_id}"),
        description=Message(
            "In run {run_id} {value|count} ranks are claimed by two live processes each. They are "
            "never merged: the one with more data is scored, the other is not watched."
        ),
        runbook="""\
Two live processes claim to be the same rank of the same run: two jobs with one run id, or a
leftover process of an earlier attempt.

1. `otel-straggler doctor` reports the clash from within a rank.
2. `/v1/report` has the two sessions; find the older process and kill it.
3. Two jobs: give each a run id of its own (`OTEL_STRAGGLER_RUN_ID`).

Quiet: Silence `run_id` with this alert's name.
""",
    ),
    AlertRule(
        name="StragglerSpansDropped",
        severity="warning",
        domain="platform",
        labels=(*OF_RUN, "reason"),
        expression=_drops,
        predicate=_runs_with_drops,
        summary=Message("Ranks of run {run_id} lose records ({reason})"),
        description=Message(
            "Ranks of run {run_id}[, group {group},] have lost records in the last 5 minutes, for "
            "the reason {reason}. Training continues; scores are based on less data."
        ),
        runbook="""\
Telemetry was dropped rather than block training. Every lost record is counted, by reason.

1. docs/reference/names-on-the-wire.md explains each reason (`straggler.records.dropped`).
2. `queue_full`, `rejected`: was the collector down, full or restarted?
   `straggler_collector_requests_total` by `answer`.
3. `ring_full`, `inbox_full`: too many sections for the exporter; leave out the shortest ones.

Quiet: It resolves 5 minutes after the last loss.
""",
    ),
    AlertRule(
        name="StragglerRunSilent",
        severity="warning",
        domain="platform",
        labels=OF_RUN,
        expression=_silent,
        predicate=None,
        for_s=a_minute,
        summary=Message("Run {run_id} is silent, and no collector knows it"),
        description=Message(
            "No rank of run {run_id}[, group {group},] has reported for {value|duration}, the run "
            "had not ended, and no live collector knows it."
        ),
        runbook="""\
The last heartbeat of the run is old and its collector is gone or has evicted it. The monitoring
cannot tell whether the run is alive. The alert fires for an hour.

1. Is its collector down? StragglerCollectorDown says so; restart it.
2. Ask the scheduler whether the job is running. If it is, `otel-straggler doctor` in its
   environment says where its telemetry goes.
3. If several collectors share the load: does the address that the run sends to lead to one that
   is scraped?

Quiet: It resolves after an hour, or when a collector knows the run.
""",
    ),
    AlertRule(
        name="StragglerCollectorDown",
        severity="warning",
        domain="platform",
        labels=(),
        expression=_down,
        predicate=None,
        for_s=attrgetter("collector_down_for_seconds"),
        summary=Message("Collector {collector} is gone"),
        description=Message(
            "Collector {collector} was scraped within the last hour but no longer is. Its runs "
            "are not monitored; those that hung when it was last seen still count as hung."
        ),
        runbook="""\
The collector's metrics are gone: the process has ended, its host is cut off, or Prometheus cannot
reach it. Training is not affected; ranks queue telemetry and send it when a collector is back.

1. Is it running? Its log says why it ended, `/healthz` whether it responds. If Prometheus (Status,
   Targets) shows 403: add the name that Prometheus uses to `metrics.allowed_hosts`.
2. Restart it with the same `metrics.collector_id` (and history), so that it continues where it
   left off.
3. If it was taken down on purpose, the alert resolves after an hour.

Quiet: Silence `collector`.
""",
    ),
    AlertRule(
        name="StragglerWatchdog",
        severity="info",
        domain="platform",
        labels=(),
        expression=_watchdog,
        predicate=lambda _fleet, _settings: (Instance(),),
        summary=Message("Alerts from collector {collector} get through"),
        description=Message(
            "This alert always fires. If it stops arriving, alerts from collector {collector} do "
            "not arrive either."
        ),
        runbook="""\
It always fires. Send it to a dead man's switch, which notifies somebody when it stops.

1. If it stops: is the collector up, is it scraped, are the rules loaded (Prometheus, Status,
   Rules)?
2. Does Prometheus reach the Alertmanager (`prometheus_notifications_errors_total`)?
3. `otel-straggler alerts test` sends an alert on the same path and says where it arrived.

Quiet: Never silence it; route it to nobody instead.
""",
    ),
)
