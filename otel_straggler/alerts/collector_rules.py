"""Alerts on a collector itself, and on what it cannot see."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from otel_straggler import semconv
from otel_straggler.alerts.messages import Lookup, Message
from otel_straggler.alerts.promql import SEEN, by, newest, number, series
from otel_straggler.alerts.rule import (
    AlertRule,
    Expression,
    FleetStatus,
    Instance,
    Predicate,
    Seconds,
    at_once,
)
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.semconv import OF_RUN

# --- ranks that are not scored -------------------------------------------------------------------


def _unscored(fleet: FleetStatus, _: AlertSettings) -> Iterable[Instance]:
    for run in fleet.runs:
        if run.unscored > 0:
            yield Instance(run, value=run.unscored, facts={"ranks": run.unscored_text})


def _low_coverage(settings: AlertSettings) -> str:
    threshold = number(settings.coverage_threshold)
    return f"{newest(OF_RUN, semconv.RUN_COVERAGE)} < {threshold}"


def _runs_with_low_coverage(fleet: FleetStatus, settings: AlertSettings) -> Iterable[Instance]:
    return (
        Instance(run, value=run.coverage)
        for run in fleet.runs
        if run.coverage < settings.coverage_threshold
    )


_UNSCORED_RANKS: Final = {
    "ranks": Lookup(
        metric=semconv.RUN_RANKS_UNSCORED,
        of=("cluster", "collector", "run_id", "group"),
        label="ranks",
        more='ranks!=""',
    )
}


# --- what keeps a collector from its work --------------------------------------------------------


def _in_trouble(*whats: str) -> Expression:
    """One element for each of these troubles that a collector has."""
    assert set(whats) <= semconv.TROUBLES.keys()
    of = series(semconv.COLLECTOR_TROUBLE, f'what=~"{"|".join(whats)}"')
    return lambda _: f"max {by(('what',))} ({of}) > 0"


def _has(*whats: str) -> Predicate:
    return lambda fleet, _: (
        Instance(labels={"what": what}, facts={"sentence": fleet.troubles[what]})
        for what in whats
        if what in fleet.troubles
    )


_SENTENCE: Final = {
    "sentence": Lookup(
        metric=semconv.COLLECTOR_TROUBLE,
        of=("cluster", "collector", "what"),
        label="sentence",
        more='sentence!=""',
    )
}


def _about(
    name: str,
    whats: tuple[str, ...],
    summary: str,
    past: str,
    consequence: str,
    next_step: str,
    for_s: Seconds = attrgetter("trouble_for_seconds"),
) -> AlertRule:
    """A warning while a collector has one of these troubles."""
    return AlertRule(
        name=name,
        severity="warning",
        domain="platform",
        labels=("what",),
        expression=_in_trouble(*whats),
        predicate=_has(*whats),
        for_s=for_s,
        summary=Message(summary),
        past=Message(past),
        description=Message(
            f"Collector {{collector}}:[ {{sentence}}.] {consequence} Next: {next_step}", _SENTENCE
        ),
    )


# --- only visible from outside -------------------------------------------------------------------


def _down(_: AlertSettings) -> str:
    start = series(semconv.COLLECTOR_START)
    return f"(time() - max {by(())} ({SEEN.name}))\nunless on (cluster, collector) {start}"


def _no_target(settings: AlertSettings) -> str:
    """A target that fails and was never scraped: else it is a collector that is gone; or no target
    at all, nor runs of a collector by another name of its job, or of another Prometheus."""
    up = f'up{{job=~"{settings.scrape_jobs}"}}'
    runs, start = series(semconv.RUN_PAGES), series(semconv.COLLECTOR_START)
    return (
        f"(max by (job, instance) ({up}) == 0\n"
        f"unless on (job, instance) {SEEN.name})\n"
        f"or\n(absent({up}) unless on () ({start} or {runs}))"
    )


COLLECTOR_RULES: Final = (
    AlertRule(
        name="StragglerRanksUnscored",
        severity="warning",
        domain="platform",
        labels=OF_RUN,
        expression=lambda _: f"{newest(OF_RUN, semconv.RUN_RANKS_UNSCORED)} > 0",
        predicate=_unscored,
        during="training",
        for_s=attrgetter("no_data_seconds"),
        summary=Message("Ranks of run {run_id} have no scores[ (job {job_name})]"),
        past=Message("Ranks of run {run_id} had no scores[ (job {job_name})]"),
        description=Message(
            "Other ranks of run {run_id}[, group {group},] are scored, but {value|count} that "
            "report have had no score for a long time[: {ranks}]. If one of them is slow, no "
            "alert says so. Next: run otel-straggler doctor on such a rank.",
            _UNSCORED_RANKS,
        ),
    ),
    AlertRule(
        name="StragglerCoverageLow",
        severity="warning",
        domain="platform",
        labels=OF_RUN,
        expression=_low_coverage,
        predicate=_runs_with_low_coverage,
        during="training",
        for_s=attrgetter("no_data_seconds"),
        summary=Message("Few ranks of run {run_id} are scored[ (job {job_name})]"),
        past=Message("Few ranks of run {run_id} were scored[ (job {job_name})]"),
        description=Message(
            "Only {value|percent} of the ranks that run {run_id}[, group {group},] says it has are "
            "in its newest window, and that for a long time. A slow rank among the others goes "
            "unnoticed. Next: see whether spans arrive late, and whether the world size is right."
        ),
    ),
    _about(
        "StragglerCollectorOverloaded",
        ("requests", "memory", "connections", "scoring"),
        "Collector {collector} is overloaded ({what})",
        "Collector {collector} was overloaded ({what})",
        "Ranks keep what is refused and send it again, until their queues are full; scores and "
        "hangs are late.",
        "see whether it has processor time and memory left; else split the runs over several "
        "collectors.",
    ),
    _about(
        "StragglerLimitReached",
        ("runs", "groups", "ranks", "section_names", "quotas"),
        "Collector {collector} leaves out what is beyond a limit ({what})",
        "Collector {collector} left out what was beyond a limit ({what})",
        "What is left out is not watched.",
        "see on its page which run or grant it is; give a job one run id, or raise the limit.",
        at_once,
    ),
    _about(
        "StragglerHistoryFailing",
        ("history", "spool"),
        "Collector {collector} cannot keep its {what}",
        "Collector {collector} could not keep its {what}",
        "Scoring goes on, but a restart loses what was not kept.",
        "make room, or mend the permissions; do not restart it before.",
    ),
    _about(
        "StragglerNotificationsFailing",
        ("notifications",),
        "Collector {collector} cannot send alerts",
        "Collector {collector} could not send alerts",
        "They are tried again. Until then none arrives through this receiver.",
        "mend the receiver or alerts.notify, then try otel-straggler alerts test.",
    ),
    _about(
        "StragglerForwardingFailing",
        ("forwarding",),
        "Collector {collector} cannot forward what it receives",
        "Collector {collector} could not forward what it received",
        "Scores are not affected; the tracing backend misses what is dropped.",
        "see whether the backend is up and keeps up; else forward samples.",
    ),
    _about(
        "StragglerExpiring",
        ("certificate", "grants"),
        "A credential of collector {collector} is about to end ({what})",
        "A credential of collector {collector} was about to end ({what})",
        "After that, who relies on it is refused.",
        "renew it; the files are read again without a restart.",
        at_once,
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
        past=Message("Collector {collector} was gone"),
        description=Message(
            "Collector {collector} was last scraped {value|duration} ago. Its runs are not "
            "monitored; those that hung when it was last seen still count as hung. Next: read its "
            "log, and restart it with the same collector_id."
        ),
    ),
    AlertRule(
        name="StragglerTargetDown",
        severity="warning",
        domain="platform",
        labels=("job", "instance"),
        expression=_no_target,
        predicate=None,
        for_s=attrgetter("collector_down_for_seconds"),
        summary=Message("Prometheus cannot scrape a collector[ at {instance} (job {job})]"),
        past=Message("Prometheus could not scrape a collector[ at {instance} (job {job})]"),
        description=Message(
            "No collector has ever answered[ at {instance}, a target of job {job}]. Runs that send "
            "there are not monitored by Prometheus. Next: look for the error of the target in "
            "Prometheus, Status, Targets."
        ),
    ),
)
