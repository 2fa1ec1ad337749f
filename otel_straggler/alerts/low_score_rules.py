"""Alerts on scores: ranks that are slow against the best one or their own past, slow GPUs, and runs
that have become slower as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from operator import attrgetter
from typing import Final

from otel_straggler import semconv
from otel_straggler.alerts.many import counted
from otel_straggler.alerts.messages import Lookup, Message
from otel_straggler.alerts.naming import (
    GPU_SLOW,
    RANK_DEGRADED,
    RUN_DEGRADED,
    SCORE_LOW,
    SEVERITY,
    low_scores,
    slowest_section,
)
from otel_straggler.alerts.promql import (
    TYPICAL,
    WORLD,
    Recorded,
    by,
    duration,
    number,
    recorded_name,
    series,
    since,
)
from otel_straggler.alerts.rule import (
    APART,
    AlertRule,
    Expression,
    FleetStatus,
    Instance,
    Predicate,
)
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.semconv import OF_RANK, OF_RUN

_OF_WORLD: Final = ("cluster", "collector", "run_id", "group")
_OF_RANK: Final = f"{WORLD}, rank"
_LISTED: Final = series(semconv.SECTION_INFO, f'kind=~"{"|".join(sorted(semconv.LISTED_KINDS))}"')
_RELATIVE: Final = series(semconv.SECTION_RELATIVE, 'section!=""')
_INDIVIDUAL: Final = series(semconv.SECTION_INDIVIDUAL, 'section!=""')

# --- ranks ---------------------------------------------------------------------------------------


def _low(settings: AlertSettings, alert: str) -> str:
    """The lowest score of every rank below the threshold, with its section: a rank that is slow is
    slow, whichever others are slower in this window."""
    listed = f"and on ({WORLD}, section) {_LISTED}"
    if alert == GPU_SLOW:
        gpus = series(semconv.GPU_RELATIVE, 'section=""')
        return f"min {by(OF_RANK)} ({gpus} < {number(settings.gpu_threshold)})"
    low = f"{_RELATIVE} < {number(settings.relative_threshold)}\n  {listed}"
    if alert == RANK_DEGRADED:
        typical = f"({number(APART)} * {TYPICAL.name})"
        low = (
            f"({_INDIVIDUAL} < {number(settings.individual_threshold)})\n"
            f"  < on ({WORLD}, section) group_left () {typical}\n  {listed}"
        )
    return f"bottomk by ({_OF_RANK}) (1, min {by((*OF_RANK, 'section'))} (\n  {low}\n))"


def _recorded(alert: str) -> tuple[Recorded, Recorded]:
    """What is low, and since when."""
    low, since_s = _series_of(alert), _series_of(alert, "since_seconds")
    return (
        Recorded(low, partial(_low, alert=alert), of=(*OF_RANK, "section")),
        Recorded(since_s, since(since_s, _OF_RANK, low), of=("run_id", "group", "rank")),
    )


def _series_of(alert: str, what: str = "min") -> str:
    kinds = {SCORE_LOW: "relative_score", RANK_DEGRADED: "individual_score", GPU_SLOW: "gpu_score"}
    return f"rank:straggler_{kinds[alert]}_low:{what}"


LOW_RECORDED: Final = (*_recorded(SCORE_LOW), *_recorded(RANK_DEGRADED), *_recorded(GPU_SLOW))


def _lasting(alert: str) -> Expression:
    """Low for long enough, or again while its alert would keep firing."""
    subjects = recorded_name(alert, SEVERITY[alert], "subjects")

    def expression(settings: AlertSettings) -> str:
        for_s = number(settings.score_for_seconds)
        kept_s = settings.keep_firing_seconds + 1.5 * settings.evaluation_seconds
        return (
            f"{_series_of(alert)}\n"
            f"and on ({_OF_RANK}) (time() - {_series_of(alert, 'since_seconds')} >= {for_s}\n"
            f"  or last_over_time({subjects}[{duration(kept_s)}]))"
        )

    return expression


def _low_ranks(alert: str) -> Predicate:
    def predicate(fleet: FleetStatus, settings: AlertSettings) -> Iterable[Instance]:
        for run in fleet.runs:
            for s in low_scores(run, settings)[alert]:
                held_s = run.low_for_s.get((alert, s.rank), 0.0)
                if held_s >= settings.score_for_seconds:
                    labels = {"rank": str(s.rank), "node": s.node, "role": s.role}
                    details = {"section": s.section} if s.section else {}
                    facts = {"best": s.best_text}
                    yield Instance(run, labels, s.value, facts, held_s, details)

    return predicate


# --- runs ----------------------------------------------------------------------------------------


def _low_runs(settings: AlertSettings) -> str:
    return (
        f"bottomk by ({WORLD}) (1,\n"
        f"  {TYPICAL.name} < {number(settings.individual_threshold)}\n"
        f"  and on ({WORLD}, section) {_LISTED}\n)"
    )


def _degraded_runs(fleet: FleetStatus, settings: AlertSettings) -> Iterable[Instance]:
    for run in fleet.runs:
        slowest = slowest_section(run, settings)
        if slowest is not None:
            yield Instance(run, value=slowest.median, details={"section": slowest.section})


# --- the rules -----------------------------------------------------------------------------------


_BEST: Final = Lookup(
    metric=semconv.RANK_BEST, of=(*_OF_WORLD, "rank"), label="text", more='text!=""'
)


def _on_rank(alert: str, summary: str, past: str, description: str) -> AlertRule:
    return AlertRule(
        name=alert,
        severity=SEVERITY[alert],
        domain="hardware",
        labels=OF_RANK,
        details=() if alert == GPU_SLOW else ("section",),
        expression=_lasting(alert),
        predicate=_low_ranks(alert),
        during="working",
        is_lasting=True,
        for_s=attrgetter("score_for_seconds"),
        keep_firing_s=attrgetter("keep_firing_seconds"),
        summary=Message(summary),
        past=Message(past),
        description=Message(description, {"best": _BEST}),
    )


_SCORE_LOW: Final = _on_rank(
    SCORE_LOW,
    "Rank {rank}[ on {node}] has a low score in run {run_id}",
    "Rank {rank}[ on {node}] had a low score in run {run_id}",
    "Rank {rank}[ on {node}] of run {run_id}[, group {group},] runs at {value|percent} of the best "
    "rank's speed[ in section {section}]. Next: see whether it has a verdict, which says what that "
    "costs.",
)
_DEGRADED: Final = _on_rank(
    RANK_DEGRADED,
    "Rank {rank}[ on {node}] is slower than it was in run {run_id}",
    "Rank {rank}[ on {node}] was slower than before in run {run_id}",
    "Rank {rank}[ on {node}] of run {run_id}[, group {group},] runs at {value|percent} of its own "
    "best speed[ in section {section}], and most others have not lost as much.[ {best}] Next: "
    "compare clocks, temperature and power limits of its GPU with a peer's, and look for other "
    "processes on its host.",
)
_GPU_SLOW: Final = _on_rank(
    GPU_SLOW,
    "The GPU of rank {rank}[ on {node}] is slow in run {run_id}",
    "The GPU of rank {rank}[ on {node}] was slow in run {run_id}",
    "Kernels of rank {rank}[ on {node}] in run {run_id}[, group {group},] run at {value|percent} "
    "of the best rank's speed. Next: look at clocks, heat, power and memory errors of this GPU, "
    "and for another process on it.",
)
LOW_SCORE_RULES: Final = (
    _SCORE_LOW,
    counted(
        _SCORE_LOW,
        (),
        summary=Message("Many ranks have a low score in run {run_id}"),
        past=Message("Many ranks had a low score in run {run_id}"),
        description="{value|count} ranks of run {run_id}[, group {group},] are slow compared to "
        "the best rank.[ The worst: {worst}.] Next: see whether any has a verdict, which says what "
        "that costs; of many ranks the best is lucky.",
    ),
    _DEGRADED,
    counted(
        _DEGRADED,
        (),
        summary=Message("Many ranks of run {run_id} are slower than they were"),
        past=Message("Many ranks of run {run_id} were slower than before"),
        description="{value|count} ranks of run {run_id}[, group {group},] are slower than they "
        "were, and most others have not lost as much.[ The worst: {worst}.] Next: look for what "
        "they share: hosts, a rack, a switch, storage.",
    ),
    AlertRule(
        name=RUN_DEGRADED,
        severity="warning",
        domain="model",
        labels=OF_RUN,
        details=("section",),
        expression=_low_runs,
        predicate=_degraded_runs,
        during="working",
        for_s=attrgetter("score_for_seconds"),
        keep_firing_s=attrgetter("keep_firing_seconds"),
        summary=Message("Most ranks of run {run_id} are slower than they were[ (job {job_name})]"),
        past=Message("Most ranks of run {run_id} were slower than before[ (job {job_name})]"),
        description=Message(
            "Half of the ranks of run {run_id}[, group {group},] run at {value|percent} of their "
            "own best speed or less[, in section {section}]: it is none of them alone. Next: look "
            "at what all share: the last change of data, batch size or sequence length; storage; "
            "fabric; power and cooling."
        ),
    ),
    _GPU_SLOW,
    counted(
        _GPU_SLOW,
        (),
        summary=Message("The GPUs of many ranks are slow in run {run_id}"),
        past=Message("The GPUs of many ranks were slow in run {run_id}"),
        description="Kernels of {value|count} ranks of run {run_id}[, group {group},] are slow "
        "compared to the best rank.[ The worst: {worst}.] Next: look for what they share: a model "
        "of GPU, a driver, a power limit, cooling.",
    ),
)
