"""Alerts on runs that make no progress, and on ranks that are missing."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from otel_straggler import semconv
from otel_straggler.alerts.messages import Lookup, Message
from otel_straggler.alerts.promql import (
    ANYWHERE,
    HUNG_AT,
    WORLD,
    by,
    duration,
    hung_when_last_seen,
    newest,
    number,
    series,
)
from otel_straggler.alerts.rule import AlertRule, Expression, FleetStatus, Instance, Predicate
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.detect.hangs.states import HangKind
from otel_straggler.semconv import OF_RANK, OF_RUN

_HANG_TEXT: Final = {
    "hang_text": Lookup(
        metric=semconv.RUN_HANG_INFO,
        of=("cluster", "collector", "run_id", "group"),
        label="sentence",
    )
}
_RUNNING: Final = ("starting", "training", "stuck", "partly_lost", "lost")

# --- the run -------------------------------------------------------------------------------------


def _hung(settings: AlertSettings) -> str:
    """Now; or when last seen; or, while a collector that has just started does not know yet, if
    the alert has fired before."""
    undecided = series(semconv.RUN_STATE, 'state=~"starting|training"')
    start = f"max by (cluster, collector) ({series(semconv.COLLECTOR_START)})"
    hung_at = f"last_over_time({HUNG_AT.name}[{duration(settings.give_up_seconds)}])"
    return (
        f"{newest(OF_RUN, semconv.RUN_HUNG)} == 1\n"
        f"or\n({hung_when_last_seen(settings.give_up_seconds)})\n"
        f"or\n(max {by(OF_RUN)} ({_firing('StragglerRunHung')})\n"
        f"and on ({WORLD}) ({undecided} == 1)\n"
        f"and on ({WORLD}) ({hung_at} < on (cluster, collector) group_left () {start})\n"
        f"and on (cluster, collector) (time() - {start} < {number(settings.keep_firing_seconds)}))"
    )


def _hung_runs(fleet: FleetStatus, _: AlertSettings) -> Iterable[Instance]:
    return (Instance(run, facts={"hang_text": run.hang_text}) for run in fleet.runs if run.is_hung)


def _forgotten(settings: AlertSettings) -> str:
    """By a collector; or of a collector that is gone for longer than anybody waits."""
    given_up = hung_when_last_seen(settings.remembered_s)
    not_yet = hung_when_last_seen(settings.give_up_seconds)
    state = newest(OF_RUN, semconv.RUN_STATE, 'state="forgotten"')
    known = series(semconv.RUN_STATE)
    return (
        f"{state} == 1\nor\n({given_up}\n"
        f"unless on ({ANYWHERE}) ({not_yet})\nunless on ({ANYWHERE}) {known})"
    )


def _forgotten_runs(fleet: FleetStatus, _: AlertSettings) -> Iterable[Instance]:
    return (Instance(run) for run in fleet.runs if run.state == "forgotten")


def _missing(_: AlertSettings) -> str:
    running = series(semconv.RUN_STATE, f'state=~"{"|".join(_RUNNING)}"')
    missing = newest(OF_RUN, semconv.RUN_RANKS, 'state="missing"')
    return f"{missing} > 0\nand on ({WORLD}) ({running} == 1)"


def _runs_with_missing(fleet: FleetStatus, _: AlertSettings) -> Iterable[Instance]:
    for run in fleet.runs:
        missing = run.ranks.get("missing", 0)
        if missing > 0 and run.state in _RUNNING:
            yield Instance(run, value=missing)


# --- ranks ---------------------------------------------------------------------------------------


def _culprits(name: str, *why: HangKind) -> Expression:
    """Those that a hang waits for; while no collector knows the run, those whose alert has fired
    already: that heartbeats have stopped is no recovery."""

    def expression(settings: AlertSettings) -> str:
        remembered = duration(settings.give_up_seconds)
        culprit = series(semconv.RANK_CULPRIT, f'why=~"{"|".join(why)}"')
        maintained = series(semconv.MAINTENANCE_UNTIL)
        return (
            f"max {by(OF_RANK)} ({culprit}) == 1\n"
            f"unless on (cluster, collector, node) ({maintained} > time())\n"
            f"or\n(max {by(OF_RANK)} ({_firing(name)})\n"
            f"unless on ({ANYWHERE}) {series(semconv.RUN_STATE)}\n"
            f"and on ({WORLD}, rank) last_over_time({culprit}[{remembered}]))"
        )

    return expression


def _culprit_ranks(*why: HangKind) -> Predicate:
    def predicate(fleet: FleetStatus, _: AlertSettings) -> Iterable[Instance]:
        for run in fleet.runs:
            for culprit in run.culprits:
                if culprit.why in why and culprit.node not in fleet.under_maintenance:
                    labels = {"rank": str(culprit.rank), "node": culprit.node, "role": culprit.role}
                    yield Instance(run, labels, facts={"hang_text": run.hang_text})

    return predicate


def _firing(name: str) -> str:
    return f'ALERTS{{alertname="{name}", alertstate="firing"}}'


HANG_RULES: Final = (
    AlertRule(
        name="StragglerRunHung",
        severity="critical",
        domain="platform",
        labels=OF_RUN,
        expression=_hung,
        predicate=_hung_runs,
        for_s=attrgetter("hang_for_seconds"),
        summary=Message("No progress is seen of run {run_id}[ (job {job_name})]"),
        description=Message(
            "Nothing shows that run {run_id}[, group {group},] gets on.[ {hang_text}] It stays so "
            "until it gets on, says how it ended, or somebody acknowledges it; that nothing more "
            "is heard is no recovery.",
            _HANG_TEXT,
        ),
        runbook="""\
The run as a whole shows no progress: its ranks are stuck or lost, or too many of them are, and its
machines are paid for and idle. Where all ranks are lost nobody knows: the job was ended, or the
network between it and the collector is cut and it trains on. Ask the scheduler first. If the
collector that said so is gone, this is the last word on the run.

1. `otel-straggler report RUN`, or the live page at the collector's address, says which ranks the
   others wait for, and why. The alerts on these ranks are inhibited, not absent.
2. Look at the host of the culprit: is the process there (`ps`), stopped, out of memory (`dmesg`),
   its GPU gone (`nvidia-smi`)? If all have joined and none gets on: `otel-straggler hang
   /shared/dumps` on the flight records.
3. Restart the run from its last checkpoint, without the host if it is at fault. With the same run
   id the alert ends as soon as ranks get on.

Quiet: Silence `run_id`; the alert of the next run is another.
""",
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
        description=Message(
            "The process of rank {rank}[ on {node}] of run {run_id}[, group {group},] has crashed "
            "or is stopped, or its host is cut off.[ {hang_text}]",
            _HANG_TEXT,
        ),
        runbook="""\
A rank that took part sends no heartbeats any more and has not said how it ended. Heartbeats come
from a thread of their own, so a busy or blocked training loop is no reason: the process, its host
or the way to the collector is gone.

1. Is the host there (`ping`, the scheduler's view of it)? If several ranks of one host are
   lost, it is the host.
2. Is the process there? `ps`, `dmesg` (out of memory, XID), the job's log; state `T` means
   stopped. `OTEL_STRAGGLER_RING_DIR` keeps what a dead process did last.
3. Cordon the host and restart the run without it; or let the launcher restart the rank.

Quiet: `otel-straggler maintenance add --node NODE --for 4h --reason WHY` if the host is being
worked on; else silence `run_id` and `rank`.
""",
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
        description=Message(
            "Rank {rank}[ on {node}] of run {run_id}[, group {group},] is alive or has ended, "
            "but has not joined what the others wait in.[ {hang_text}]",
            _HANG_TEXT,
        ),
        runbook="""\
The other ranks wait in something, most often a collective, that this rank has not reached (it is
behind them and does not get on) or never will (it has ended).

1. What does it do? `py-spy dump --pid PID` on its host; `straggler_rank_step` and the report's
   `liveness` say how far it came.
2. `otel-straggler hang /shared/dumps` says from PyTorch's flight records which ranks did not join
   which collective.
3. A rank that took another branch (data ran out, an exception was caught, a condition on its own
   rank) is a mistake in the training code; a blocked read is storage. Restart the run once that
   is known.

Quiet: Silence `run_id` and `rank`.
""",
    ),
    AlertRule(
        name="StragglerRanksMissing",
        severity="warning",
        domain="platform",
        labels=OF_RUN,
        expression=_missing,
        predicate=_runs_with_missing,
        for_s=attrgetter("missing_for_seconds"),
        summary=Message("Ranks of run {run_id} have never been heard of[ (job {job_name})]"),
        description=Message(
            "{value|count} expected ranks of run {run_id}[, group {group},] have never sent "
            "anything."
        ),
        runbook="""\
The run says how many ranks it has, and not all of them have ever reached this collector. They may
not have started, not be instrumented, or send elsewhere.

1. `otel-straggler top` shows who reports; the others are missing.
2. `otel-straggler doctor` in the environment of a missing rank says what stands between it and
   the collector.
3. Compare the endpoint, run id and group that the ranks were given: ranks under another run id
   are missing here and extra there.

Quiet: Silence `run_id` with this alert's name where some ranks are left out on purpose.
""",
    ),
    AlertRule(
        name="StragglerRunForgotten",
        severity="warning",
        domain="platform",
        labels=OF_RUN,
        expression=_forgotten,
        predicate=_forgotten_runs,
        summary=Message("Monitoring gave up on run {run_id}[ (job {job_name})]"),
        description=Message(
            "Monitoring gave up on run {run_id}[, group {group}]: nothing has been heard of it for "
            "so long that it is forgotten. How it ended is not known; it may still hang."
        ),
        runbook="""\
Nothing was heard of the run for so long that it is no longer watched. That is no all-clear:
nobody knows how it ended.

1. Ask the scheduler whether the job still runs; cancel it if nobody works on it.
2. Look for earlier alerts with the same `run_id`: a StragglerRunHung that nobody acted on has
   become this.
3. If the run is well and only its telemetry is not: `otel-straggler doctor` in its environment.

Quiet: It ends by itself; nobody is told when it does.
""",
    ),
)
