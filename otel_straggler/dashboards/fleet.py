"""All runs: which lose time, and to which ranks."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.models.common import BigValueTextMode

from otel_straggler import semconv
from otel_straggler.dashboards import panels as p
from otel_straggler.dashboards import queries as q
from otel_straggler.dashboards.page import page, run_variables

_SUBJECT = f"{q.RUN}, subject_id, scope, rank, node, section"
_RUN = ("job_name", "run_id")
_STANDING = 'state=~"confirmed|flapping"'
_OVER = 'state=~"finished|cancelled|preempted|failed|ended|forgotten"'
"""What stood when a run ended is no current culprit, also where its collector has gone with it."""
_LOST = q.rate(semconv.RUN_GPU_TIME_LOST, q.RUN)
_LOST_NOW = q.newest(semconv.VERDICT_LOSS, _SUBJECT)


_TEXT: Final = p.texts(
    """
1 Runs by state. How many runs are in each state. If any are stuck, partly lost or lost, open the
table below and go to the run's liveness page.
Empty: No collector reports a run

2 Hung runs. Runs that make no progress and that nobody has acknowledged. Each wastes all of its
ranks: go to the run's liveness page first.

3 Time lost now, in ranks. The time of so many ranks (of GPUs, where each rank has one) is lost to
ranks that are slower than their peers. Start with the run that loses most.

4 Rank time lost [s]. Time of all ranks (of their GPUs, where each has one) lost to slow ranks in
the range of the page, all runs. Use it to decide whether a drain or a repair pays.

5 Runs, the most costly first. All runs that a collector knows. A slowdown of 1.15 means that equal
ranks would have saved 13 % of the time. Click a run for its pages.
Empty: No collector reports a run: is one scraped, and is the range right?

6 Time lost by run, in ranks. The 10 runs that lost most in the range. A step up that stays is a
fault that began then: open the run at that time.

7 Current culprits. The 20 confirmed verdicts that cost most. The cause says what to look at
(docs/operate/verdicts.md has what to do for each); drain a host that is named again and again.
Empty: No confirmed verdict is active: no rank is slow.

8 Time that is not useful, by reason. Runs' worth of time that all chosen runs together lose now, by
reason; 1 is one run that does nothing useful. Work on the thickest band that all runs share first.
Empty: No run reports its goodput

9 Firing alerts. What Prometheus fires now, the most urgent first: the runbook of each row says what
it means and what to do. Alerts in mode observe have notified no one.
Empty: No alert fires, or the rules (otel-straggler alerts export) are not loaded.
"""
)


def render() -> str:
    return page(
        "fleet",
        "Fleet",
        run_variables(is_one_run=False),
        [
            ("Now", [*_now(), _alerts()]),
            ("Runs", [_runs(), _lost_over_time(), _lost_by_reason()]),
            ("Who it is", [_culprits()]),
        ],
    )


def _now() -> list[p.Panel]:
    state = q.newest(semconv.RUN_STATE, f"{q.RUN}, state")
    return [
        p.number(
            _TEXT[1],
            f"count by (state) ({state} == 1)",
            span=12,
            is_count=True,
            shows=BigValueTextMode.VALUE_AND_NAME,
            colours=p.RUN_STATES,
        ),
        p.number(
            _TEXT[2], f"sum({q.newest(semconv.RUN_HUNG, q.RUN)})", p.NONE_IS_GOOD, is_count=True
        ),
        p.number(_TEXT[3], f"sum({_LOST})"),
        p.number(_TEXT[4], f"sum({q.increase(semconv.RUN_GPU_TIME_LOST, q.RUN)})"),
    ]


def _alerts() -> p.Panel:
    """The most severe first: by a number, as their names have another order."""
    labels = "cluster, alertname, severity, mode, job_name, run_id, group, rank, node"
    fires = 'alertname=~"Straggler.+", alertname!="StragglerWatchdog", alertstate="firing"'
    urgency = "\nor\n".join(
        f'{urgency} * max by ({labels}) (ALERTS{{{fires}, severity="{severity}", {q.OF_RUN}}})'
        for urgency, severity in ((3, "critical"), (2, "warning"), (1, "info"))
    )
    return p.rows(
        _TEXT[9],
        [("urgency", "short", f"topk(100, {urgency})", p.URGENCIES)],
        links=[
            p.link("Run ${__data.fields.run_id}", "run", *_RUN, is_table=True),
            *p.next_steps("${__data.fields.alertname:percentencode}", is_table=True),
        ],
    )


def _runs() -> p.Panel:
    return p.rows(
        _TEXT[5],
        [
            ("time lost, in ranks", "short", _LOST, p.PLAIN),
            ("slowdown", "short", q.newest(semconv.RUN_SLOWDOWN, q.RUN), p.RUN_SLOWDOWNS),
            ("goodput", "percentunit", q.newest(semconv.RUN_GOODPUT, q.RUN), p.GOODPUTS),
            ("coverage", "percentunit", q.newest(semconv.RUN_COVERAGE, q.RUN), p.SHARES),
            ("ranks", "short", q.newest(semconv.RUN_WORLD_SIZE, q.RUN), p.PLAIN),
            (
                "in state",
                "short",
                f"{q.newest(semconv.RUN_STATE, f'{q.RUN}, state')} == 1",
                p.PLAIN,
            ),
        ],
        links=[
            p.link(f"{title} of ${{__data.fields.run_id}}", name, *_RUN, is_table=True)
            for title, name in (("Page", "run"), ("Matrix", "matrix"), ("Liveness", "liveness"))
        ]
        + p.next_steps(is_table=True),
        dropped=["in state"],
        states=p.RUN_STATES,
    )


def _lost_over_time() -> p.Panel:
    chosen = f"topk(10, {q.increase_to_end(semconv.RUN_GPU_TIME_LOST, q.RUN)})"
    return p.lines(
        _TEXT[6],
        [("{{run_id}} {{group}}", f"{_LOST} and on ({q.RUN}) {chosen}")],
        links=[p.link("Run ${__field.labels.run_id}", "run", *_RUN), *p.next_steps()],
        has_exemplars=True,
        span=24,
    )


def _lost_by_reason() -> p.Panel:
    return p.lines(
        _TEXT[8],
        [("{{reason}}", q.total_slope(semconv.RUN_LOST, "cluster, reason"))],
        stacked=True,
        span=24,
    )


def _culprits() -> p.Panel:
    over = f"max by ({q.RUN}) ({q.series(semconv.RUN_STATE, q.OF_RUN, _OVER)} == 1)"
    worst = f"topk(20, {_LOST_NOW} unless on ({q.RUN}) {over})"
    info = (
        f"max by ({_SUBJECT}, cause, state) ({q.series(semconv.VERDICT_INFO, q.OF_RUN, _STANDING)})"
    )
    among = f"and on ({_SUBJECT}) {worst}"
    return p.rows(
        _TEXT[7],
        [
            ("time lost, in ranks", "short", worst, p.PLAIN),
            (
                "slowdown",
                "short",
                f"{q.newest(semconv.VERDICT_SLOWDOWN, _SUBJECT)} {among}",
                p.RUN_SLOWDOWNS,
            ),
            ("is reported", "short", f"{info} {among}", p.PLAIN),
        ],
        links=[
            p.link("Run ${__data.fields.run_id}", "run", *_RUN, is_table=True),
            p.link("Rank ${__data.fields.rank}", "rank", *_RUN, "rank", is_table=True),
            *p.next_steps("StragglerRankStraggling", rank=True, is_table=True),
        ],
        dropped=["is reported", "subject_id"],
    )
