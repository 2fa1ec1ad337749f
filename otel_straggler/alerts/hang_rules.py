"""Alerts on runs that stand still, and on ranks that are not there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from otel_straggler import semconv
from otel_straggler.alerts.promql import (
    ANYWHERE,
    OF_RANK,
    OF_RUN,
    WORLD,
    by,
    duration,
    newest,
    number,
    series,
)
from otel_straggler.alerts.recorded import HUNG_AT, hung_when_last_heard
from otel_straggler.alerts.rule import AlertRule, Expression, Instance, Predicate, at_once
from otel_straggler.alerts.sentences import Lookup, Sentence
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.alerts.subjects import of_run, rank_labels
from otel_straggler.alerts.watched import Watched
from otel_straggler.score.hangs.states import HangKind

RUN_HUNG: Final = "StragglerRunHung"
RANK_LOST: Final = "StragglerRankLost"
RANK_STUCK: Final = "StragglerRankStuck"
RANKS_MISSING: Final = "StragglerRanksMissing"
RUN_FORGOTTEN: Final = "StragglerRunForgotten"
_TOLD: Final = {
    "told": Lookup(
        metric=semconv.RUN_HANG_INFO,
        of=("cluster", "collector", "run_id", "group"),
        label="sentence",
    )
}
_UNDER_WAY: Final = ("starting", "training", "stuck", "partly_lost", "lost")


def _hang_for(settings: AlertSettings) -> float:
    return settings.hang_for_seconds


def _missing_for(settings: AlertSettings) -> float:
    return settings.missing_for_seconds


# --- the run -------------------------------------------------------------------------------------


def _hung(settings: AlertSettings) -> str:
    """Now; or when last heard; or, while a collector that has just started does not know yet, if
    somebody has been told so before."""
    firing = f'ALERTS{{alertname="{RUN_HUNG}", alertstate="firing"}}'
    undecided = series(semconv.RUN_STATE, 'state=~"starting|training"')
    start = f"max by (cluster, collector) ({series(semconv.COLLECTOR_START)})"
    hung_at = f"last_over_time({HUNG_AT.name}[{duration(settings.give_up_seconds)}])"
    return (
        f"{newest(OF_RUN, semconv.RUN_HUNG)} == 1\n"
        f"or\n({hung_when_last_heard(settings.give_up_seconds)})\n"
        f"or\n(max {by(OF_RUN)} ({firing})\n"
        f"and on ({WORLD}) ({undecided} == 1)\n"
        f"and on ({WORLD}) ({hung_at} < on (cluster, collector) group_left () {start})\n"
        f"and on (cluster, collector) (time() - {start} < {number(settings.keep_firing_seconds)}))"
    )


def _hung_runs(watched: Watched, _: AlertSettings) -> Iterable[Instance]:
    for run in watched.runs:
        if run.is_hung:
            yield of_run(watched, run, facts={"told": run.told})


def _forgotten(settings: AlertSettings) -> str:
    """By a collector; or of a collector that is gone for longer than anybody waits."""
    given_up = hung_when_last_heard(settings.remembered_s)
    not_yet = hung_when_last_heard(settings.give_up_seconds)
    state = newest(OF_RUN, semconv.RUN_STATE, 'state="forgotten"')
    known = series(semconv.RUN_STATE)
    return (
        f"{state} == 1\nor\n({given_up}\n"
        f"unless on ({ANYWHERE}) ({not_yet})\nunless on ({ANYWHERE}) {known})"
    )


def _forgotten_runs(watched: Watched, _: AlertSettings) -> Iterable[Instance]:
    return (of_run(watched, run) for run in watched.runs if run.state == "forgotten")


def _missing(_: AlertSettings) -> str:
    under_way = series(semconv.RUN_STATE, f'state=~"{"|".join(_UNDER_WAY)}"')
    missing = newest(OF_RUN, semconv.RUN_RANKS, 'state="missing"')
    return f"{missing} > 0\nand on ({WORLD}) ({under_way} == 1)"


def _runs_with_missing(watched: Watched, _: AlertSettings) -> Iterable[Instance]:
    for run in watched.runs:
        missing = run.ranks.get("missing", 0)
        if missing > 0 and run.state in _UNDER_WAY:
            yield of_run(watched, run, value=missing)


# --- ranks ---------------------------------------------------------------------------------------


def _culprits(name: str, *why: HangKind) -> Expression:
    """Those that a hang waits for; while no collector knows the run, those of whom somebody has
    been told already: that nothing is heard any more is no recovery."""

    def expression(settings: AlertSettings) -> str:
        remembered = duration(settings.give_up_seconds)
        culprit = series(semconv.RANK_CULPRIT, f'why=~"{"|".join(why)}"')
        maintained = series(semconv.MAINTENANCE_UNTIL)
        firing = f'ALERTS{{alertname="{name}", alertstate="firing"}}'
        return (
            f"max {by(OF_RANK)} ({culprit}) == 1\n"
            f"unless on (cluster, collector, node) ({maintained} > time())\n"
            f"or\n(max {by(OF_RANK)} ({firing})\n"
            f"unless on ({ANYWHERE}) {series(semconv.RUN_STATE)}\n"
            f"and on ({WORLD}, rank) last_over_time({culprit}[{remembered}]))"
        )

    return expression


def _culprit_ranks(*why: HangKind) -> Predicate:
    def predicate(watched: Watched, _: AlertSettings) -> Iterable[Instance]:
        for run in watched.runs:
            for culprit in run.culprits:
                if culprit.why in why and culprit.node not in watched.under_maintenance:
                    yield of_run(watched, run, rank_labels(culprit), facts={"told": run.told})

    return predicate


HANG_RULES: Final = (
    AlertRule(
        name=RUN_HUNG,
        severity="critical",
        domain="platform",
        labels=OF_RUN,
        expression=_hung,
        predicate=_hung_runs,
        for_s=_hang_for,
        keep_firing_s=at_once,
        summary=Sentence("No progress is seen of run {run_id}[ (job {job_name})]"),
        description=Sentence(
            "Nothing shows that run {run_id}[, group {group},] gets on.[ {told}] It stays so "
            "until it gets on, says how it ended, or somebody acknowledges it; that nothing more "
            "is heard is no recovery.",
            _TOLD,
        ),
    ),
    AlertRule(
        name=RANK_LOST,
        severity="critical",
        domain="hardware",
        labels=OF_RANK,
        expression=_culprits(RANK_LOST, "lost"),
        predicate=_culprit_ranks("lost"),
        for_s=_hang_for,
        keep_firing_s=at_once,
        summary=Sentence("Rank {rank} of run {run_id} is lost[ (host {node})]"),
        description=Sentence(
            "The process of rank {rank}[ on {node}] of run {run_id}[, group {group},] has crashed "
            "or is stopped, or its host is cut off.[ {told}]",
            _TOLD,
        ),
    ),
    AlertRule(
        name=RANK_STUCK,
        severity="critical",
        domain="model",
        labels=OF_RANK,
        expression=_culprits(RANK_STUCK, "never_joined", "left_early"),
        predicate=_culprit_ranks("never_joined", "left_early"),
        for_s=_hang_for,
        keep_firing_s=at_once,
        summary=Sentence("Run {run_id} waits for rank {rank}[ on {node}]"),
        description=Sentence(
            "Rank {rank}[ on {node}] of run {run_id}[, group {group},] is alive or has ended, "
            "but has not joined what the others wait in.[ {told}]",
            _TOLD,
        ),
    ),
    AlertRule(
        name=RANKS_MISSING,
        severity="warning",
        domain="platform",
        labels=OF_RUN,
        expression=_missing,
        predicate=_runs_with_missing,
        for_s=_missing_for,
        keep_firing_s=at_once,
        summary=Sentence("Ranks of run {run_id} have never been heard of[ (job {job_name})]"),
        description=Sentence(
            "{value|count} expected ranks of run {run_id}[, group {group},] have never sent "
            "anything."
        ),
    ),
    AlertRule(
        name=RUN_FORGOTTEN,
        severity="warning",
        domain="platform",
        labels=OF_RUN,
        expression=_forgotten,
        predicate=_forgotten_runs,
        for_s=at_once,
        keep_firing_s=at_once,
        summary=Sentence("Monitoring gave up on run {run_id}[ (job {job_name})]"),
        description=Sentence(
            "Monitoring gave up on run {run_id}[, group {group}]: nothing has been heard of it for "
            "so long that it is forgotten. How it ended is not known; it may still hang."
        ),
    ),
)
