"""Alerts on runs that make no progress, and on missing ranks."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from otel_straggler import semconv
from otel_straggler.alerts.messages import Lookup, Message
from otel_straggler.alerts.promql import (
    ANYWHERE,
    HUNG,
    HUNG_AT,
    HUNG_WHEN_LAST_SEEN,
    JOINED,
    LABELS,
    STARTED,
    WORLD,
    by,
    duration,
    newest,
    number,
    series,
)
from otel_straggler.alerts.rule import AlertRule, Expression, FleetStatus, Instance, Predicate
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.detect.hangs.states import HangKind
from otel_straggler.semconv import OF_RANK, OF_RUN

_OF_WORLD: Final = ("cluster", "collector", "run_id", "group")


def _of_hang(label: str) -> Lookup:
    return Lookup(metric=semconv.RUN_HANG_INFO, of=_OF_WORLD, label=label, more=f'{label}!=""')


_HANG_TEXT: Final = {"hang_text": _of_hang("sentence")}
_CULPRITS: Final = {"culprits": _of_hang("culprits")}
_FAILURE_TEXT: Final = {
    "failure_text": Lookup(metric=semconv.RUN_FAILED, of=_OF_WORLD, label="sentence")
}

# --- the run -------------------------------------------------------------------------------------


def _hung(settings: AlertSettings) -> str:
    """Now; or when last seen; or, while a collector that has just started does not know yet, if the
    alert has fired before and no collector has seen it hang since."""
    undecided = series(semconv.RUN_STATE, 'state=~"starting|training"')
    kept_s, given_up = settings.keep_firing_seconds, number(settings.give_up_seconds)
    seen_at = f"max_over_time({HUNG_AT.name}[{duration(kept_s)}])"
    return (
        f"topk by ({WORLD}) (1, {HUNG.name} == 1)\n"
        f"or on ({WORLD})\n({HUNG_WHEN_LAST_SEEN.name} > 0 > time() - {given_up})\n"
        f"or on ({WORLD})\n(max {by((*OF_RUN, *JOINED))} ({_firing('StragglerRunHung')})\n"
        f"and on ({WORLD}) ({undecided} == 1)\n"
        f"and on ({WORLD}) (time() - {STARTED.name} < {number(kept_s)})\n"
        f"unless on ({WORLD}) ({seen_at} >= on ({WORLD}) {STARTED.name}))"
    )


def _forgotten(settings: AlertSettings) -> str:
    """By a collector; or of a collector that has been gone for too long."""
    state = newest(OF_RUN, semconv.RUN_STATE, 'state="forgotten"')
    given_up = number(settings.give_up_seconds)
    return (
        f"{state} == 1\nor on ({WORLD})\n"
        f"({HUNG_WHEN_LAST_SEEN.name} > 0 <= time() - {given_up}\n"
        f"unless on ({ANYWHERE}) {series(semconv.RUN_STATE)})"
    )


def _missing(_: AlertSettings) -> str:
    missing = newest(OF_RUN, semconv.RUN_RANKS, 'state="missing"')
    return f"{missing} > 0"


def _runs_with_missing(fleet: FleetStatus, _: AlertSettings) -> Iterable[Instance]:
    for run in fleet.runs:
        missing = run.ranks.get("missing", 0)
        if missing > 0:
            yield Instance(run, value=missing)


def _failed(settings: AlertSettings) -> str:
    """A failure is news, not a state: nobody can undo it, so it ends by itself."""
    failed_at = newest(OF_RUN, semconv.RUN_FAILED)
    return f"{failed_at} > time() - {number(settings.failed_for_seconds)}"


def _failed_runs(fleet: FleetStatus, settings: AlertSettings) -> Iterable[Instance]:
    for run in fleet.runs:
        at_s = run.failed_at_s
        if at_s is not None and at_s > fleet.now_s - settings.failed_for_seconds:
            yield Instance(run, facts={"failure_text": run.failure_text})


# --- ranks ---------------------------------------------------------------------------------------


def _culprits(name: str, *why: HangKind) -> Expression:
    """Ranks that a hang waits for; while no collector knows the run, those whose alert has fired,
    until it is given up: missing heartbeats are no recovery."""

    def expression(settings: AlertSettings) -> str:
        culprit = series(semconv.RANK_CULPRIT, f'why=~"{"|".join(why)}"')
        given_up = number(settings.give_up_seconds)
        return (
            f"max {by(OF_RANK)} ({culprit}) == 1\n"
            f"or\n(max {by(OF_RANK)} ({_firing(name)})\n"
            f"unless on ({ANYWHERE}) {series(semconv.RUN_STATE)}\n"
            f"and on ({WORLD}) ({LABELS.name} > time() - {given_up}))"
        )

    return expression


def _culprit_ranks(*why: HangKind) -> Predicate:
    def predicate(fleet: FleetStatus, _: AlertSettings) -> Iterable[Instance]:
        for run in fleet.runs:
            for culprit in run.culprits:
                if culprit.why in why:
                    labels = {"rank": str(culprit.rank), "node": culprit.node, "role": culprit.role}
                    yield Instance(run, labels, facts={"hang_text": run.hang_text})

    return predicate


def _timed_out(_: AlertSettings) -> str:
    return f"{newest(OF_RANK, semconv.RANK_TIMED_OUT)} > 0"


def _ranks_timed_out(fleet: FleetStatus, _: AlertSettings) -> Iterable[Instance]:
    for run in fleet.runs:
        for its in run.timed_out:
            if its.seconds > 0:
                labels = {"rank": str(its.rank), "node": its.node, "role": its.role}
                yield Instance(run, labels, value=its.seconds)


def _firing(name: str) -> str:
    return f'ALERTS{{alertname="{name}", alertstate="firing"}}'


HANG_RULES: Final = (
    AlertRule(
        name="StragglerRunHung",
        severity="critical",
        domain="platform",
        labels=OF_RUN,
        expression=_hung,
        predicate=lambda fleet, _: (
            Instance(run, facts={"hang_text": run.hang_text, "culprits": run.culprits_text})
            for run in fleet.runs
            if run.is_hung
        ),
        for_s=attrgetter("hang_for_seconds"),
        summary=Message(
            "No progress seen in run {run_id}[ (job {job_name})][: {culprits}]", _CULPRITS
        ),
        past=Message("No progress was seen in run {run_id}[ (job {job_name})]"),
        description=Message(
            "Run {run_id}[, group {group},] shows no progress.[ {hang_text}] This alert fires "
            "until the run makes progress, reports how it ended, or is acknowledged; silence is "
            "not recovery. Next: look at the host and the process of the ranks that the others "
            "wait for; restart the run from its last checkpoint, without a host that is at fault.",
            _HANG_TEXT,
        ),
    ),
    AlertRule(
        name="StragglerRunFailed",
        severity="critical",
        domain="model",
        labels=OF_RUN,
        expression=_failed,
        predicate=_failed_runs,
        for_s=attrgetter("hang_for_seconds"),
        during="always",
        summary=Message("Run {run_id} has failed[ (job {job_name})]"),
        past=Message("Run {run_id} had failed[ (job {job_name})]"),
        description=Message(
            "Run {run_id}[, group {group},] has failed, and no launcher restarts it."
            "[ {failure_text}] This alert ends by itself, or as soon as the run trains again. "
            "Next: read the log of the rank that failed first; restart the run from its last "
            "checkpoint.",
            _FAILURE_TEXT,
        ),
    ),
    AlertRule(
        name="StragglerRankLost",
        severity="critical",
        domain="hardware",
        labels=OF_RANK,
        expression=_culprits("StragglerRankLost", "lost"),
        predicate=_culprit_ranks("lost"),
        for_s=attrgetter("hang_for_seconds"),
        summary=Message("Rank {rank} of run {run_id} is lost[ (host {node})]"),
        past=Message("Rank {rank} of run {run_id} was lost[ (host {node})]"),
        description=Message(
            "The process of rank {rank}[ on {node}] of run {run_id}[, group {group},] has crashed "
            "or is stopped, or its host is cut off.[ {hang_text}] Next: see whether the host is up "
            "and the process is there; cordon the host, or restart the rank.",
            _HANG_TEXT,
        ),
    ),
    AlertRule(
        name="StragglerRankStuck",
        severity="critical",
        domain="model",
        labels=OF_RANK,
        expression=_culprits("StragglerRankStuck", "never_joined", "left_early"),
        predicate=_culprit_ranks("never_joined", "left_early"),
        for_s=attrgetter("hang_for_seconds"),
        summary=Message("Run {run_id} waits for rank {rank}[ on {node}]"),
        past=Message("Run {run_id} waited for rank {rank}[ on {node}]"),
        description=Message(
            "Rank {rank}[ on {node}] of run {run_id}[, group {group},] is alive or has ended, "
            "but has not reached the point where the others wait.[ {hang_text}] Next: look at its "
            "stack, and whether it took another branch than the others.",
            _HANG_TEXT,
        ),
    ),
    AlertRule(
        name="StragglerRankTimedOut",
        severity="critical",
        domain="model",
        labels=OF_RANK,
        expression=_timed_out,
        predicate=_ranks_timed_out,
        summary=Message("Rank {rank}[ on {node}] of run {run_id} has exceeded its timeout"),
        past=Message("Rank {rank}[ on {node}] of run {run_id} had exceeded its timeout"),
        description=Message(
            "The agent[ on {node}] has seen no progress of rank {rank} of run {run_id}"
            "[, group {group},] for longer than its timeout, has written diagnostics, and has done "
            "what it is configured to do. Next: read the line RANK HANG in the launcher's log on "
            "that node, and the stacks that it names."
        ),
    ),
    AlertRule(
        name="StragglerRanksMissing",
        severity="warning",
        domain="platform",
        labels=OF_RUN,
        expression=_missing,
        predicate=_runs_with_missing,
        for_s=attrgetter("missing_for_seconds"),
        summary=Message("Ranks of run {run_id} have never reported[ (job {job_name})]"),
        past=Message("Ranks of run {run_id} had never reported[ (job {job_name})]"),
        description=Message(
            "{value|count} expected ranks of run {run_id}[, group {group},] have never sent "
            "anything. Next: run otel-straggler doctor where one of them should run."
        ),
    ),
    AlertRule(
        name="StragglerRunForgotten",
        severity="warning",
        domain="platform",
        labels=OF_RUN,
        expression=_forgotten,
        predicate=lambda fleet, _: (
            Instance(run) for run in fleet.runs if run.state == "forgotten"
        ),
        during="always",
        summary=Message("Monitoring gave up on run {run_id}[ (job {job_name})]"),
        past=Message("Monitoring gave up on run {run_id}[ (job {job_name})]"),
        description=Message(
            "Monitoring gave up on run {run_id}[, group {group}]: it has been silent for so long "
            "that it is no longer tracked. How it ended is unknown; it may still hang. Next: ask "
            "the scheduler whether the job still runs, and cancel it if nobody works on it."
        ),
    ),
)
