"""Alerts on scores, and on ranks, hosts and runs that are slow."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from otel_straggler import semconv
from otel_straggler.alerts.promql import (
    OF_RANK,
    OF_RUN,
    WORLD,
    by,
    newest,
    number,
    series,
)
from otel_straggler.alerts.rule import (
    AlertRule,
    Expression,
    Instance,
    Predicate,
)
from otel_straggler.alerts.sentences import Lookup, Sentence
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.alerts.subjects import of_run, rank_labels
from otel_straggler.alerts.watched import Score, Scores, Watched, WatchedRun
from otel_straggler.model.alert import MAX_NAMED, Domain, Severity
from otel_straggler.model.verdict import Cause, Scope, Verdict
from otel_straggler.publish.verdict_series import CALLED_SLOW
from otel_straggler.semconv import Metric

SCORE_LOW: Final = "StragglerScoreLow"
RANK_STRAGGLING: Final = "StragglerRankStraggling"
RANK_DEGRADED: Final = "StragglerRankDegraded"
GPU_SLOW: Final = "StragglerGpuSlow"
HOST_SLOW: Final = "StragglerHostSlow"
RUN_SLOW: Final = "StragglerRunSlow"
DOMAINS: Final[dict[Cause, Domain]] = {
    "slow_gpu": "hardware",
    "slow_host": "hardware",
    "link": "hardware",
}
"""Of a verdict, by its cause; all others are of the model. A slow host whose time is lost in a
section of kind ``data`` is of the data."""
_SUBJECT: Final = f"{WORLD}, subject_id"
_CALLED_SLOW: Final = "|".join(sorted(CALLED_SLOW))


def _score_for(settings: AlertSettings) -> float:
    return settings.score_for_seconds


def _straggling_for(settings: AlertSettings) -> float:
    return settings.straggling_for_seconds


def _run_slow_for(settings: AlertSettings) -> float:
    return settings.run_slow_for_seconds


def _keep_firing(settings: AlertSettings) -> float:
    return settings.keep_firing_seconds


# --- scores --------------------------------------------------------------------------------------


def _low_sections(metric: Metric, threshold: str) -> Expression:
    """The lowest of a run, of sections that may be listed."""

    def expression(settings: AlertSettings) -> str:
        scores = newest((*OF_RANK, "section"), metric, 'section!=""')
        listed = series(semconv.SECTION_INFO, f'kind=~"{"|".join(sorted(semconv.LISTED_KINDS))}"')
        limit = number(getattr(settings, threshold))
        return (
            f"bottomk by ({WORLD}) ({MAX_NAMED},\n"
            f"  {scores} < {limit}\n"
            f"  and on ({WORLD}, section) {listed}\n)"
        )

    return expression


def _low_gpus(settings: AlertSettings) -> str:
    scores = newest(OF_RANK, semconv.GPU_RELATIVE, 'section=""')
    return f"bottomk by ({WORLD}) ({MAX_NAMED}, {scores} < {number(settings.gpu_threshold)})"


def _low(which: Callable[[Scores], tuple[Score, ...]], threshold: str) -> Predicate:
    def predicate(watched: Watched, settings: AlertSettings) -> Iterable[Instance]:
        limit: float = getattr(settings, threshold)
        for run in watched.runs:
            low = sorted((s for s in which(run.scores) if s.value < limit), key=_lowest_first)
            for score in low[:MAX_NAMED]:
                labels = rank_labels(score) | {"section": score.section}
                yield of_run(watched, run, labels, value=score.value)

    return predicate


def _lowest_first(score: Score) -> tuple[float, int, str]:
    return score.value, score.rank, score.section


# --- verdicts ------------------------------------------------------------------------------------


def _slow(scope: Scope, labels: tuple[str, ...], *, pages: bool) -> Expression:
    """Standing verdicts; the value is how many GPUs the job loses. Those that people have silenced
    are left out, and of too many the dearest are named."""

    def expression(_: AlertSettings) -> str:
        info = series(semconv.VERDICT_INFO, f'scope="{scope}", state=~"{_CALLED_SLOW}"')
        lost = f"max by ({_SUBJECT}) ({semconv.VERDICT_LOSS.prometheus_name})"
        silenced = semconv.VERDICT_SILENCED.prometheus_name
        paging = f"({semconv.VERDICT_PAGES.prometheus_name} == 1)"
        return (
            f"topk by ({WORLD}) ({MAX_NAMED}, max {by(labels)} (\n"
            f"  max {by((*labels, 'subject_id'))} ({info})\n"
            f"  * on ({_SUBJECT}) group_left () {lost}\n"
            f"  unless on ({_SUBJECT}) ({silenced} == 1)\n"
            f"  {'and' if pages else 'unless'} on ({_SUBJECT}) {paging}\n))"
        )

    return expression


def _slow_subjects(scope: Scope, *, pages: bool) -> Predicate:
    def predicate(watched: Watched, _: AlertSettings) -> Iterable[Instance]:
        for run in watched.runs:
            standing = [v for v in _standing(run, scope) if v.pages is pages]
            standing.sort(key=lambda v: -v.gpu_seconds_lost_per_hour)
            for verdict in standing[:MAX_NAMED]:
                yield _about(watched, run, verdict)

    return predicate


def _standing(run: WatchedRun, *scopes: Scope) -> Iterator[Verdict]:
    return (v for v in run.verdicts if v.scope in scopes and v.state in CALLED_SLOW)


def _about(watched: Watched, run: WatchedRun, verdict: Verdict) -> Instance:
    labels = {"node": verdict.node, "section": verdict.section, "cause": verdict.cause}
    if verdict.scope == "rank":
        labels |= {"rank": str(verdict.rank), "role": verdict.role}
    return of_run(
        watched,
        run,
        labels,
        value=verdict.gpu_seconds_lost_per_hour / 3_600.0,
        facts={"slowdown": verdict.slowdown} if math.isfinite(verdict.slowdown) else {},
        domain=domain_of(verdict.cause, verdict.section in run.data_sections),
    )


def domain_of(cause: Cause, is_data: bool) -> Domain:
    if cause == "slow_host" and is_data:
        return "data"
    return DOMAINS.get(cause, "model")


# --- runs ----------------------------------------------------------------------------------------


def _slow_run(settings: AlertSettings) -> str:
    info = series(semconv.VERDICT_INFO, f'scope=~"host|rank", state=~"{_CALLED_SLOW}"')
    silenced = semconv.VERDICT_SILENCED.prometheus_name
    training = series(semconv.RUN_STATE, 'state="training"')
    return (
        f"{newest(OF_RUN, semconv.RUN_SLOWDOWN)} > {number(settings.run_slowdown_threshold)}\n"
        f"and on ({WORLD}) ({training} == 1)\n"
        f"unless on ({WORLD}) ({info} unless on ({_SUBJECT}) ({silenced} == 1))"
    )


def _slow_runs(watched: Watched, settings: AlertSettings) -> Iterable[Instance]:
    for run in watched.runs:
        is_slow = run.state == "training" and run.slowdown > settings.run_slowdown_threshold
        if is_slow and not any(_standing(run, "rank", "host")):
            yield of_run(watched, run, value=run.slowdown)


# --- the entries ---------------------------------------------------------------------------------

_SLOWDOWN_OF_RANK: Final = {
    "slowdown": Lookup(
        metric=semconv.VERDICT_SLOWDOWN,
        of=("cluster", "collector", "run_id", "group", "rank", "section"),
        more='scope="rank"',
    )
}
_SLOWDOWN_OF_HOST: Final = {
    "slowdown": Lookup(
        metric=semconv.VERDICT_SLOWDOWN,
        of=("cluster", "collector", "run_id", "group", "node", "section"),
        more='scope="host"',
    )
}
_ADVICE: Final = "Its cause: {cause|cause}. Next: {cause|action}."

_RANK_RULE: Final = AlertRule(
    name=RANK_STRAGGLING,
    severity="critical",
    domain=None,
    labels=(*OF_RANK, "section", "cause"),
    expression=_slow("rank", (*OF_RANK, "section", "cause"), pages=True),
    predicate=_slow_subjects("rank", pages=True),
    for_s=_straggling_for,
    keep_firing_s=_keep_firing,
    summary=Sentence("Rank {rank}[ on {node}] slows down run {run_id}"),
    description=Sentence(
        "Rank {rank}[ on {node}] of run {run_id}[, group {group},] is slow"
        "[ in section {section}][: it takes {slowdown|ratio} times as long as its peers]. "
        "The job loses the time of {value|ratio} ranks to it. " + _ADVICE,
        _SLOWDOWN_OF_RANK,
    ),
)
_HOST_RULE: Final = AlertRule(
    name=HOST_SLOW,
    severity="critical",
    domain=None,
    labels=(*OF_RUN, "node", "section", "cause"),
    expression=_slow("host", (*OF_RUN, "node", "section", "cause"), pages=True),
    predicate=_slow_subjects("host", pages=True),
    for_s=_straggling_for,
    keep_firing_s=_keep_firing,
    summary=Sentence("Host {node} slows down run {run_id}"),
    description=Sentence(
        "All ranks on host {node} of run {run_id}[, group {group},] are slow[ in section "
        "{section}][: they take {slowdown|ratio} times as long as their peers]. "
        "The job loses the time of {value|ratio} ranks to it. " + _ADVICE,
        _SLOWDOWN_OF_HOST,
    ),
)


def _as_warning(rule: AlertRule, severity: Severity = "warning") -> AlertRule:
    """The same of what is not worth a call."""
    scope: Scope = "host" if rule.name == HOST_SLOW else "rank"
    return dataclasses.replace(
        rule,
        severity=severity,
        expression=_slow(scope, rule.labels, pages=False),
        predicate=_slow_subjects(scope, pages=False),
    )


SCORE_RULES: Final = (
    _RANK_RULE,
    _as_warning(_RANK_RULE),
    _HOST_RULE,
    _as_warning(_HOST_RULE),
    AlertRule(
        name=SCORE_LOW,
        severity="info",
        domain="hardware",
        labels=(*OF_RANK, "section"),
        expression=_low_sections(semconv.SECTION_RELATIVE, "relative_threshold"),
        predicate=_low(lambda scores: scores.section_relative, "relative_threshold"),
        for_s=_score_for,
        keep_firing_s=_keep_firing,
        summary=Sentence(
            "Rank {rank}[ on {node}] has a low score in section {section} of run {run_id}"
        ),
        description=Sentence(
            "Section {section} of rank {rank}[ on {node}] in run {run_id}[, group {group},] "
            "runs at {value|percent} of the best rank's speed."
        ),
    ),
    AlertRule(
        name=RANK_DEGRADED,
        severity="warning",
        domain="hardware",
        labels=(*OF_RANK, "section"),
        expression=_low_sections(semconv.SECTION_INDIVIDUAL, "individual_threshold"),
        predicate=_low(lambda scores: scores.section_individual, "individual_threshold"),
        for_s=_score_for,
        keep_firing_s=_keep_firing,
        summary=Sentence(
            "Rank {rank}[ on {node}] is slower than it was in section {section} of run {run_id}"
        ),
        description=Sentence(
            "Section {section} of rank {rank}[ on {node}] in run {run_id}[, group {group},] "
            "runs at {value|percent} of its own best speed."
        ),
    ),
    AlertRule(
        name=GPU_SLOW,
        severity="warning",
        domain="hardware",
        labels=OF_RANK,
        expression=_low_gpus,
        predicate=_low(lambda scores: scores.gpu_relative, "gpu_threshold"),
        for_s=_score_for,
        keep_firing_s=_keep_firing,
        summary=Sentence("The GPU of rank {rank}[ on {node}] is slow in run {run_id}"),
        description=Sentence(
            "Kernels of rank {rank}[ on {node}] in run {run_id}[, group {group},] run at "
            "{value|percent} of the best rank's speed."
        ),
    ),
    AlertRule(
        name=RUN_SLOW,
        severity="warning",
        domain="model",
        labels=OF_RUN,
        expression=_slow_run,
        predicate=_slow_runs,
        for_s=_run_slow_for,
        keep_firing_s=_keep_firing,
        summary=Sentence(
            "Run {run_id} is slow, and no rank or host is to blame[ (job {job_name})]"
        ),
        description=Sentence(
            "Run {run_id}[, group {group},] takes {value|ratio} times what it would take if all "
            "ranks of a role and all stages were equal, and no rank or host is called slow."
        ),
    ),
)
