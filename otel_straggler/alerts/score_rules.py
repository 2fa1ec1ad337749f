"""Alerts on scores, and on ranks, hosts and runs that are slow."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Final

from otel_straggler import semconv
from otel_straggler.alerts.messages import Lookup, Message
from otel_straggler.alerts.promql import WORLD, by, newest, number, series
from otel_straggler.alerts.rule import (
    AlertRule,
    Expression,
    FleetStatus,
    Instance,
    Predicate,
    RunStatus,
    Score,
    Scores,
)
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.model.alert import MAX_NAMED
from otel_straggler.model.causes import CAUSES
from otel_straggler.model.verdict import CALLED_SLOW, Scope, Verdict
from otel_straggler.semconv import OF_RANK, OF_RUN, Metric

_SUBJECT: Final = f"{WORLD}, subject_id"
_CALLED_SLOW: Final = "|".join(sorted(CALLED_SLOW))


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


def _low(scores_of: Callable[[Scores], tuple[Score, ...]], threshold: str) -> Predicate:
    def predicate(fleet: FleetStatus, settings: AlertSettings) -> Iterable[Instance]:
        limit: float = getattr(settings, threshold)
        for run in fleet.runs:
            low = [score for score in scores_of(run.scores) if score.value < limit]
            for s in sorted(low, key=attrgetter("value", "rank", "section"))[:MAX_NAMED]:
                labels = {"rank": str(s.rank), "node": s.node, "role": s.role}
                yield Instance(run, labels | {"section": s.section}, s.value)

    return predicate


# --- verdicts ------------------------------------------------------------------------------------


def _slow(scope: Scope, labels: tuple[str, ...], *, pages: bool) -> Expression:
    """Active verdicts; the value is how many GPUs the job loses. Those that people have silenced
    are left out, and of too many the costliest are named."""

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
    def predicate(fleet: FleetStatus, _: AlertSettings) -> Iterable[Instance]:
        for run in fleet.runs:
            active = [v for v in _active(run, scope) if v.pages is pages]
            active.sort(key=lambda v: -v.gpu_seconds_lost_per_hour)
            for verdict in active[:MAX_NAMED]:
                yield _instance(run, verdict)

    return predicate


def _active(run: RunStatus, *scopes: Scope) -> Iterator[Verdict]:
    return (v for v in run.verdicts if v.scope in scopes and v.state in CALLED_SLOW)


def _instance(run: RunStatus, verdict: Verdict) -> Instance:
    labels = {"node": verdict.node, "section": verdict.section, "cause": verdict.cause}
    if verdict.scope == "rank":
        labels |= {"rank": str(verdict.rank), "role": verdict.role}
    is_data = verdict.cause == "slow_host" and verdict.section in run.data_sections
    return Instance(
        run,
        labels,
        value=verdict.gpu_seconds_lost_per_hour / 3_600.0,
        facts={"slowdown": verdict.slowdown} if math.isfinite(verdict.slowdown) else {},
        domain="data" if is_data else CAUSES[verdict.cause].domain,
    )


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


def _slow_runs(fleet: FleetStatus, settings: AlertSettings) -> Iterable[Instance]:
    for run in fleet.runs:
        is_slow = run.state == "training" and run.slowdown > settings.run_slowdown_threshold
        if is_slow and not any(_active(run, "rank", "host")):
            yield Instance(run, value=run.slowdown)


# --- the rules -----------------------------------------------------------------------------------


def _slowdown_of(scope: Scope, label: str) -> dict[str, Lookup]:
    of = ("cluster", "collector", "run_id", "group", label, "section")
    return {"slowdown": Lookup(metric=semconv.VERDICT_SLOWDOWN, of=of, more=f'scope="{scope}"')}


_ADVICE: Final = "Cause: {cause|cause}. Next: {cause|action}."
_OF_SLOW_RANK: Final = (*OF_RANK, "section", "cause")
_OF_SLOW_HOST: Final = (*OF_RUN, "node", "section", "cause")
_RANK_RULE: Final = AlertRule(
    name="StragglerRankStraggling",
    severity="critical",
    domain=None,
    labels=_OF_SLOW_RANK,
    expression=_slow("rank", _OF_SLOW_RANK, pages=True),
    predicate=_slow_subjects("rank", pages=True),
    for_s=attrgetter("straggling_for_seconds"),
    keep_firing_s=attrgetter("keep_firing_seconds"),
    summary=Message("Rank {rank}[ on {node}] slows down run {run_id}"),
    description=Message(
        "Rank {rank}[ on {node}] of run {run_id}[, group {group},] is slow"
        "[ in section {section}][: it takes {slowdown|ratio} times as long as its peers]. "
        "The job loses the time of {value|ratio} ranks to it. " + _ADVICE,
        _slowdown_of("rank", "rank"),
    ),
    runbook="""\
A rank is slower than its peers in work of its own, confirmed over many steps, and the whole job
waits for it. `critical`: by 10 % or more and costly enough to page; `warning`: less than that.

1. `otel-straggler verdict explain RANK` shows what the verdict rests on: the numbers of the rank
   and of its peers, since when, and whether it was ever faster.
2. By cause: slow GPU: clocks, temperature, XID errors of the GPU (`nvidia-smi -q`). Slow
   host: CPU, disks, data loading on the host. Others: the description has the next step.
3. Cordon the host and restart the run from its last checkpoint if the loss is worth it; the
   description says how many ranks' time that is.

Quiet: `otel-straggler verdict mute RANK --for 8h --reason WHY` for a time, `otel-straggler
verdict dismiss RANK --reason WHY` if it is wrong.
""",
)
_HOST_RULE: Final = AlertRule(
    name="StragglerHostSlow",
    severity="critical",
    domain=None,
    labels=_OF_SLOW_HOST,
    expression=_slow("host", _OF_SLOW_HOST, pages=True),
    predicate=_slow_subjects("host", pages=True),
    for_s=attrgetter("straggling_for_seconds"),
    keep_firing_s=attrgetter("keep_firing_seconds"),
    summary=Message("Host {node} slows down run {run_id}"),
    description=Message(
        "All ranks on host {node} of run {run_id}[, group {group},] are slow[ in section "
        "{section}][: they take {slowdown|ratio} times as long as their peers]. "
        "The job loses the time of {value|ratio} ranks to it. " + _ADVICE,
        _slowdown_of("host", "node"),
    ),
    runbook="""\
The ranks of one host are slow together, so what they share is at fault: CPU, memory, disks,
power, cooling, the network card. Alerts on its single ranks are inhibited.

1. `otel-straggler verdict explain NODE` shows what the verdict rests on.
2. On the host: load and memory of other processes (`top`), power and temperature limits
   (`nvidia-smi -q -d PERFORMANCE`), errors (`dmesg`).
3. Cordon the host and restart the run from its last checkpoint if the loss is worth it.

Quiet: `otel-straggler verdict mute NODE --for 8h --reason WHY`, or `otel-straggler maintenance
add --node NODE --for 4h --reason WHY`.
""",
)


def _as_warning(rule: AlertRule, scope: Scope) -> AlertRule:
    """The same for verdicts that do not page."""
    return dataclasses.replace(
        rule,
        severity="warning",
        expression=_slow(scope, rule.labels, pages=False),
        predicate=_slow_subjects(scope, pages=False),
    )


SCORE_RULES: Final = (
    _RANK_RULE,
    _as_warning(_RANK_RULE, "rank"),
    _HOST_RULE,
    _as_warning(_HOST_RULE, "host"),
    AlertRule(
        name="StragglerScoreLow",
        severity="info",
        domain="hardware",
        labels=(*OF_RANK, "section"),
        expression=_low_sections(semconv.SECTION_RELATIVE, "relative_threshold"),
        predicate=_low(attrgetter("section_relative"), "relative_threshold"),
        for_s=attrgetter("score_for_seconds"),
        keep_firing_s=attrgetter("keep_firing_seconds"),
        summary=Message(
            "Rank {rank}[ on {node}] has a low score in section {section} of run {run_id}"
        ),
        description=Message(
            "Section {section} of rank {rank}[ on {node}] in run {run_id}[, group {group},] "
            "runs at {value|percent} of the best rank's speed."
        ),
        runbook="""\
The median time of a section on this rank is long compared to the best rank of its role. That alone
does not page: a low score is a number, a verdict (StragglerRankStraggling) says that it costs
something.

1. `otel-straggler top` shows the scores of all ranks: one rank, one node, or all but one?
2. If it is one rank for hours: `otel-straggler verdict explain RANK` says why there is or is not a
   verdict.
3. With thousands of ranks the best one is lucky: lower `relative_threshold`, or use the recording
   rules with the reference `p5`.

Quiet: Silence `run_id` with this alert's name, or render the rules with another
`relative_threshold`.
""",
    ),
    AlertRule(
        name="StragglerRankDegraded",
        severity="warning",
        domain="hardware",
        labels=(*OF_RANK, "section"),
        expression=_low_sections(semconv.SECTION_INDIVIDUAL, "individual_threshold"),
        predicate=_low(attrgetter("section_individual"), "individual_threshold"),
        for_s=attrgetter("score_for_seconds"),
        keep_firing_s=attrgetter("keep_firing_seconds"),
        summary=Message(
            "Rank {rank}[ on {node}] is slower than it was in section {section} of run {run_id}"
        ),
        description=Message(
            "Section {section} of rank {rank}[ on {node}] in run {run_id}[, group {group},] "
            "runs at {value|percent} of its own best speed."
        ),
        runbook="""\
The rank has become slower than its own past in this section. If all ranks have, it is what they
share (storage, fabric, the data), or the work has grown.

1. `otel-straggler top`: is it one rank, one host, or all of them?
2. One rank or host: clocks, temperature and power limits of its GPU (`nvidia-smi -q -d
   PERFORMANCE`), other processes on the host.
3. All ranks: the last change of data, batch size or sequence length; storage; fabric.

Quiet: Silence `run_id` with this alert's name, or render the rules with another
`individual_threshold`.
""",
    ),
    AlertRule(
        name="StragglerGpuSlow",
        severity="warning",
        domain="hardware",
        labels=OF_RANK,
        expression=_low_gpus,
        predicate=_low(attrgetter("gpu_relative"), "gpu_threshold"),
        for_s=attrgetter("score_for_seconds"),
        keep_firing_s=attrgetter("keep_firing_seconds"),
        summary=Message("The GPU of rank {rank}[ on {node}] is slow in run {run_id}"),
        description=Message(
            "Kernels of rank {rank}[ on {node}] in run {run_id}[, group {group},] run at "
            "{value|percent} of the best rank's speed."
        ),
        runbook="""\
The same kernels take longer on this GPU than on that of the best rank. Kernel times do not include
waiting, so this is the GPU: clocks, heat, power, memory errors; or another process on it.

1. `nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE,POWER` there and on a peer: is it throttled?
2. `dmesg | grep -i xid` and `nvidia-smi -q -d ECC,ROW_REMAPPER`: is it faulty?
3. `nvidia-smi`: does another process use it? If not, cordon the host and have the GPU tested.

Quiet: Silence `run_id` with this alert's name, or render the rules with another `gpu_threshold`.
""",
    ),
    AlertRule(
        name="StragglerRunSlow",
        severity="warning",
        domain="model",
        labels=OF_RUN,
        expression=_slow_run,
        predicate=_slow_runs,
        for_s=attrgetter("run_slow_for_seconds"),
        keep_firing_s=attrgetter("keep_firing_seconds"),
        summary=Message("Run {run_id} is slow, and no rank or host is to blame[ (job {job_name})]"),
        description=Message(
            "Run {run_id}[, group {group},] takes {value|ratio} times what it would take if all "
            "ranks of a role and all stages were equal, but no rank or host has a slow verdict."
        ),
        runbook="""\
Time is lost to imbalance, but no rank in particular is at fault: uneven stages, sequences of
unequal length, experts, or different ranks in turn.

1. `/v1/report` (`verdicts`) has verdicts on roles and on the run: stage imbalance,
   sequence-length imbalance, expert imbalance.
2. `straggler_section_exposed_time_seconds` shows which sections the time goes to,
   `straggler_caused_wait_seconds_total` who makes others wait.
3. Nothing is broken: balance stages, pack sequences, or live with it and raise
   `run_slowdown_threshold`.

Quiet: Silence `run_id` with this alert's name, or render the rules with another
`run_slowdown_threshold`.
""",
    ),
)
