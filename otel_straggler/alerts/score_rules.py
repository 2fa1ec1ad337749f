"""Alerts on scores, and on ranks, hosts and runs that are slow."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final

from otel_straggler import semconv
from otel_straggler.alerts.low_score_rules import LOW_SCORE_RULES
from otel_straggler.alerts.many import counted
from otel_straggler.alerts.messages import Lookup, Message
from otel_straggler.alerts.promql import (
    OF_COLLECTOR,
    SLOW_SINCE,
    SUBJECT,
    WORLD,
    by,
    newest,
    number,
    series,
)
from otel_straggler.alerts.rule import (
    AlertRule,
    Expression,
    FleetStatus,
    Instance,
    Predicate,
    RunStatus,
)
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.goodput.live import ROLLING_S
from otel_straggler.model.causes import CAUSES, Cause
from otel_straggler.model.verdict import CALLED_SLOW, Scope, Verdict
from otel_straggler.semconv import OF_RANK, OF_RUN

_CALLED_SLOW: Final = "|".join(sorted(CALLED_SLOW))


_WRITER: Final[Cause] = "checkpoint"
"""Its verdicts are about saves, not about steps: an alert of their own."""
_OF_STEPS: Final = f'cause!="{_WRITER}"'
_WHY: Final = ("section", "cause")
"""What a verdict says of its subject, and may say otherwise in the next window."""


# --- verdicts ------------------------------------------------------------------------------------


def _slow(
    scope: Scope, labels: tuple[str, ...], *, pages: bool, causes: str = _OF_STEPS
) -> Expression:
    """Verdicts that have stood for long enough and are not silenced, the costliest of each subject;
    the value is the number of GPUs lost."""
    subject = ", ".join((*OF_COLLECTOR, *(name for name in labels if name not in _WHY)))

    def expression(settings: AlertSettings) -> str:
        chosen = f'scope="{scope}", {causes}, state=~"{_CALLED_SLOW}"'
        info = series(semconv.VERDICT_INFO, chosen)
        lost = f"max by ({SUBJECT}) ({semconv.VERDICT_LOSS.prometheus_name})"
        silenced = semconv.VERDICT_SILENCED.prometheus_name
        for_s = number(settings.straggling_for_seconds)
        paging = f"({semconv.VERDICT_PAGES.prometheus_name} == 1)"
        return (
            f"topk by ({subject}) (1, max {by(labels)} (\n"
            f"  max {by((*labels, 'subject_id'))} ({info})\n"
            f"  * on ({SUBJECT}) group_left () {lost}\n"
            f"  unless on ({SUBJECT}) ({silenced} == 1)\n"
            f"  and on ({SUBJECT}) (time() - {SLOW_SINCE.name} >= {for_s})\n"
            f"  {'and' if pages else 'unless'} on ({SUBJECT}) {paging}\n))"
        )

    return expression


def _slow_subjects(scope: Scope, *, pages: bool) -> Predicate:
    def predicate(fleet: FleetStatus, _: AlertSettings) -> Iterable[Instance]:
        for run in fleet.runs:
            active = [v for v in _active(run, scope) if v.pages is pages]
            active.sort(key=lambda v: -v.gpu_seconds_lost_per_hour)
            for verdict in active:
                yield _instance(run, verdict)

    return predicate


def _active(run: RunStatus, *scopes: Scope, are_writers: bool = False) -> Iterator[Verdict]:
    return (
        v
        for v in run.verdicts
        if v.scope in scopes and v.state in CALLED_SLOW and (v.cause == _WRITER) is are_writers
    )


def _slow_writers(fleet: FleetStatus, _: AlertSettings) -> Iterable[Instance]:
    for run in fleet.runs:
        for verdict in _active(run, "rank", are_writers=True):
            labels = {"rank": str(verdict.rank), "node": verdict.node, "role": verdict.role}
            lost_gpus = verdict.gpu_seconds_lost_per_hour / 3_600.0
            held_s = run.slow_for_s.get(verdict.subject_id, 0.0)
            yield Instance(run, labels, value=lost_gpus, held_s=held_s)


def _instance(run: RunStatus, verdict: Verdict) -> Instance:
    labels = {"node": verdict.node}
    if verdict.scope == "rank":
        labels |= {"rank": str(verdict.rank), "role": verdict.role}
    return Instance(
        run,
        labels,
        value=verdict.gpu_seconds_lost_per_hour / 3_600.0,
        held_s=run.slow_for_s.get(verdict.subject_id, 0.0),
        facts=_known_facts(verdict),
        details={"section": verdict.section, "cause": verdict.cause},
    )


def _known_facts(verdict: Verdict) -> dict[str, float]:
    facts = {"slowdown": verdict.slowdown} if math.isfinite(verdict.slowdown) else {}
    return facts | ({"since": verdict.since_ns // 10**9} if verdict.since_ns else {})


# --- runs ----------------------------------------------------------------------------------------

_OF_RUNS_VERDICT: Final = ("cause", "role")


def _slow_run(settings: AlertSettings) -> str:
    """With what the costliest verdict on the run or one of its roles says, if there is one."""
    stands = f'{_OF_STEPS}, state=~"{_CALLED_SLOW}"'
    blamed = series(semconv.VERDICT_INFO, f'scope=~"host|rank", {stands}')
    silenced = f"unless on ({SUBJECT}) ({semconv.VERDICT_SILENCED.prometheus_name} == 1)"
    slow = (
        f"({newest(OF_RUN, semconv.RUN_SLOWDOWN)} > {number(settings.run_slowdown_threshold)}\n"
        f"unless on ({WORLD}) ({blamed} {silenced}))"
    )
    details = ", ".join(_OF_RUNS_VERDICT)
    info = series(semconv.VERDICT_INFO, f'scope=~"role|run", {stands}')
    why = (
        f"max by ({SUBJECT}, {details}) ({info})\n"
        f"  * on ({SUBJECT}) group_left () "
        f"max by ({SUBJECT}) ({semconv.VERDICT_LOSS.prometheus_name})\n"
        f"  {silenced}"
    )
    return (
        f"{slow}\n+ on ({WORLD}) group_left ({details}) (0 * topk by ({WORLD}) (1,\n  {why}\n))\n"
        f"or on ({WORLD}) {slow}"
    )


def _slow_runs(fleet: FleetStatus, settings: AlertSettings) -> Iterable[Instance]:
    for run in fleet.runs:
        is_slow = run.slowdown > settings.run_slowdown_threshold
        if is_slow and not any(_active(run, "rank", "host")):
            loss = attrgetter("gpu_seconds_lost_per_hour")
            known = (v for v in _active(run, "role", "run") if math.isfinite(loss(v)))
            why = max(known, key=loss, default=None)
            details = {} if why is None else {"cause": why.cause, "role": why.role}
            yield Instance(run, details=details, value=run.slowdown)


def _low_goodput(settings: AlertSettings) -> str:
    hourly = newest(OF_RUN, semconv.RUN_ROLLING_GOODPUT, f'window="{ROLLING_S[0]}"')
    return f"{hourly} < {number(settings.goodput_threshold)}"


def _runs_of_low_goodput(fleet: FleetStatus, settings: AlertSettings) -> Iterable[Instance]:
    for run in fleet.runs:
        if run.hourly_goodput < settings.goodput_threshold:
            yield Instance(run, value=run.hourly_goodput)


# --- the rules -----------------------------------------------------------------------------------


def _facts_of(scope: Scope, label: str) -> dict[str, Lookup]:
    of = ("cluster", "collector", "run_id", "group", label, "section")
    metrics = {"slowdown": semconv.VERDICT_SLOWDOWN, "since": semconv.VERDICT_SINCE}
    return {
        name: Lookup(metric=metric, of=of, more=f'scope="{scope}"')
        for name, metric in metrics.items()
    }


_ADVICE: Final = "Cause: {cause|cause}. Next: {cause|action}."
_OF_HOST: Final = (*OF_RUN, "node")
_RANK_RULE: Final = AlertRule(
    name="StragglerRankStraggling",
    severity="critical",
    domain="hardware",
    labels=OF_RANK,
    details=_WHY,
    expression=_slow("rank", (*OF_RANK, *_WHY), pages=True),
    predicate=_slow_subjects("rank", pages=True),
    during="working",
    scope="rank",
    for_s=attrgetter("straggling_for_seconds"),
    keep_firing_s=attrgetter("keep_firing_seconds"),
    summary=Message("Rank {rank}[ on {node}] slows down run {run_id}"),
    past=Message("Rank {rank}[ on {node}] slowed down run {run_id}"),
    description=Message(
        "Rank {rank}[ on {node}] of run {run_id}[, group {group},] is slow"
        "[ in section {section}][: it takes {slowdown|ratio} times as long as its peers]"
        "[, since {since|time}]. "
        "The job loses the time of {value|ratio} ranks to it. " + _ADVICE,
        _facts_of("rank", "rank"),
    ),
)
_HOST_RULE: Final = AlertRule(
    name="StragglerHostSlow",
    severity="critical",
    domain="hardware",
    labels=_OF_HOST,
    details=_WHY,
    expression=_slow("host", (*_OF_HOST, *_WHY), pages=True),
    predicate=_slow_subjects("host", pages=True),
    during="working",
    scope="host",
    for_s=attrgetter("straggling_for_seconds"),
    keep_firing_s=attrgetter("keep_firing_seconds"),
    summary=Message("Host {node} slows down run {run_id}"),
    past=Message("Host {node} slowed down run {run_id}"),
    description=Message(
        "All ranks on host {node} of run {run_id}[, group {group},] are slow[ in section "
        "{section}][: they take {slowdown|ratio} times as long as their peers]"
        "[, since {since|time}]. "
        "The job loses the time of {value|ratio} ranks to it. " + _ADVICE,
        _facts_of("host", "node"),
    ),
)


def _as_warning(rule: AlertRule, scope: Scope) -> AlertRule:
    """The same for verdicts that do not page."""
    return dataclasses.replace(
        rule,
        severity="warning",
        expression=_slow(scope, (*rule.labels, *rule.details), pages=False),
        predicate=_slow_subjects(scope, pages=False),
    )


_RANK_WARNING: Final = _as_warning(_RANK_RULE, "rank")
_HOST_WARNING: Final = _as_warning(_HOST_RULE, "host")
_WRITER_RULE: Final = AlertRule(
    name="StragglerCheckpointWriterSlow",
    severity="warning",
    domain="hardware",
    labels=OF_RANK,
    expression=_slow("rank", OF_RANK, pages=False, causes=f'cause="{_WRITER}"'),
    predicate=_slow_writers,
    during="working",
    scope="rank",
    for_s=attrgetter("straggling_for_seconds"),
    keep_firing_s=attrgetter("keep_firing_seconds"),
    summary=Message("Rank {rank}[ on {node}] writes checkpoints slowly in run {run_id}"),
    past=Message("Rank {rank}[ on {node}] wrote checkpoints slowly in run {run_id}"),
    description=Message(
        "Rank {rank}[ on {node}] of run {run_id}[, group {group},] takes much longer than its "
        "peers to write its part of a checkpoint in most of the last saves. A save is complete "
        "once all have written: until then a failure costs the work since the one before. "
        f"Next: {CAUSES[_WRITER].action}."
    ),
)


def _many(rule: AlertRule, subjects: str) -> AlertRule:
    """Of verdicts with one cause."""
    return counted(
        rule,
        ("cause",),
        subjects,
        summary=Message(f"Many {subjects} slow down run {{run_id}}"),
        past=Message(f"Many {subjects} slowed down run {{run_id}}"),
        description=f"{{value|count}} {subjects} of run {{run_id}}[, group {{group}},] are slow."
        f"[ The worst: {{worst}}.] {_ADVICE}",
    )


SCORE_RULES: Final = (
    _RANK_RULE,
    _RANK_WARNING,
    _many(_RANK_RULE, "ranks"),
    _many(_RANK_WARNING, "ranks"),
    _HOST_RULE,
    _HOST_WARNING,
    _many(_HOST_RULE, "hosts"),
    _many(_HOST_WARNING, "hosts"),
    _WRITER_RULE,
    counted(
        _WRITER_RULE,
        (),
        summary=Message("Many ranks write checkpoints slowly in run {run_id}"),
        past=Message("Many ranks wrote checkpoints slowly in run {run_id}"),
        description="{value|count} ranks of run {run_id}[, group {group},] take much longer than "
        "their peers to write their part of a checkpoint in most of the last saves."
        "[ The worst: {worst}.] Next: look at what they share: the path to the checkpoints' "
        "storage, its mount, a switch.",
    ),
    *LOW_SCORE_RULES,
    AlertRule(
        name="StragglerRunSlow",
        severity="warning",
        domain="model",
        labels=OF_RUN,
        details=_OF_RUNS_VERDICT,
        expression=_slow_run,
        predicate=_slow_runs,
        during="training",
        for_s=attrgetter("run_slow_for_seconds"),
        keep_firing_s=attrgetter("keep_firing_seconds"),
        summary=Message("Run {run_id} is slow, and no rank or host is to blame[ (job {job_name})]"),
        past=Message("Run {run_id} was slow, and no rank or host was to blame[ (job {job_name})]"),
        description=Message(
            "Run {run_id}[, group {group},] takes {value|ratio} times as long as it could, but "
            "no rank or host has a slow verdict.[ Cause: {cause|cause}][ of {role}]"
            "[. Next: {cause|action}.]"
        ),
    ),
    AlertRule(
        name="StragglerGoodputLow",
        severity="info",
        domain="model",
        labels=OF_RUN,
        expression=_low_goodput,
        predicate=_runs_of_low_goodput,
        during="training",
        for_s=attrgetter("run_slow_for_seconds"),
        keep_firing_s=attrgetter("keep_firing_seconds"),
        summary=Message(
            "Run {run_id} spends much of its time on other things than steps[ (job {job_name})]"
        ),
        past=Message(
            "Run {run_id} spent much of its time on other things than steps[ (job {job_name})]"
        ),
        description=Message(
            "Goodput of run {run_id}[, group {group},] was {value|percent} in the last hour. "
            "Next: see on its page what the rest went to."
        ),
    ),
)
