"""All runs: which lose time, and to whom."""

from __future__ import annotations

from grafana_foundation_sdk.models.common import BigValueTextMode

from otel_straggler import semconv
from otel_straggler.dashboards.page import page, run_variables
from otel_straggler.dashboards.panels import (
    GOODPUTS,
    NONE_IS_GOOD,
    PLAIN,
    RUN_SLOWDOWNS,
    RUN_STATES,
    SHARES,
    Panel,
    lines,
    link,
    number,
    rows,
)
from otel_straggler.dashboards.queries import (
    OF_RUN,
    RUN,
    increase,
    increase_to_end,
    newest,
    rate,
    series,
    total_rate,
)

_SUBJECT = f"{RUN}, subject_id, scope, rank, node, section"
_RUN = ("job_name", "run_id")
_STANDING = 'state=~"confirmed|flapping"'
_LOST = rate(semconv.RUN_GPU_TIME_LOST, RUN)
_LOST_NOW = newest(semconv.VERDICT_LOSS, _SUBJECT)


def render() -> str:
    return page(
        "fleet",
        "Fleet",
        run_variables(is_one_run=False),
        [
            ("Now", _now()),
            ("Runs", [_runs(), _lost_over_time(), _lost_by_reason()]),
            ("Who it is", [_culprits()]),
        ],
    )


def _now() -> list[Panel]:
    state = newest(semconv.RUN_STATE, f"{RUN}, state")
    return [
        number(
            1,
            "Runs by state",
            "How many runs are in each state. If any are stuck, partly lost or lost, open the "
            "table below and go to the run's liveness page.",
            "short",
            f"count by (state) ({state} == 1)",
            PLAIN,
            span=12,
            is_count=True,
            shows=BigValueTextMode.VALUE_AND_NAME,
            colours=RUN_STATES,
            empty="No collector reports a run",
        ),
        number(
            2,
            "Hung runs",
            "Runs that make no progress and that nobody has acknowledged. Each wastes all of "
            "its ranks: go to the run's liveness page first.",
            "short",
            f"sum({newest(semconv.RUN_HUNG, RUN)})",
            NONE_IS_GOOD,
            is_count=True,
        ),
        number(
            3,
            "Time lost now, in ranks",
            "The time of so many ranks (of GPUs, where each rank has one) is lost to ranks that "
            "are slower than their peers. Start with the run that loses most.",
            "short",
            f"sum({_LOST})",
            PLAIN,
        ),
        number(
            4,
            "Rank time lost",
            "Time of all ranks (of their GPUs, where each has one) lost to slow ranks in the range "
            "of the page, all runs. Use it to decide whether a drain or a repair pays.",
            "s",
            f"sum({increase(semconv.RUN_GPU_TIME_LOST, RUN)})",
            PLAIN,
        ),
    ]


def _runs() -> Panel:
    return rows(
        5,
        "Runs, the most costly first",
        "All runs that a collector knows. A slowdown of 1.15 means that equal ranks would have "
        "saved 13 % of the time. Click a run for its pages.",
        [
            ("time lost, in ranks", "short", _LOST, PLAIN),
            ("slowdown", "short", newest(semconv.RUN_SLOWDOWN, RUN), RUN_SLOWDOWNS),
            ("goodput", "percentunit", newest(semconv.RUN_GOODPUT, RUN), GOODPUTS),
            ("coverage", "percentunit", newest(semconv.RUN_COVERAGE, RUN), SHARES),
            ("ranks", "short", newest(semconv.RUN_WORLD_SIZE, RUN), PLAIN),
            ("in state", "short", f"{newest(semconv.RUN_STATE, f'{RUN}, state')} == 1", PLAIN),
        ],
        links=[
            link(f"{title} of ${{__data.fields.run_id}}", name, *_RUN, is_table=True)
            for title, name in (("Page", "run"), ("Matrix", "matrix"), ("Liveness", "liveness"))
        ],
        dropped=["in state"],
        states=RUN_STATES,
        empty="No collector reports a run: is one scraped, and is the range right?",
    )


def _lost_over_time() -> Panel:
    chosen = f"topk(10, {increase_to_end(semconv.RUN_GPU_TIME_LOST, RUN)})"
    return lines(
        6,
        "Time lost by run, in ranks",
        "The 10 runs that lost most in the range. A step up that stays is a fault that began "
        "then: open the run at that time.",
        "short",
        [("{{run_id}} {{group}}", f"{_LOST} and on ({RUN}) {chosen}")],
        links=[link("Run ${__field.labels.run_id}", "run", *_RUN)],
        span=24,
    )


def _lost_by_reason() -> Panel:
    return lines(
        8,
        "Time that is not useful, by reason",
        "Runs' worth of time that all chosen runs together lose now, by reason; 1 is one run that "
        "does nothing useful. Work on the thickest band that all runs share first.",
        "short",
        [("{{reason}}", total_rate(semconv.RUN_LOST, "cluster, reason"))],
        stacked=True,
        span=24,
        empty="No run reports its goodput",
    )


def _culprits() -> Panel:
    worst = f"topk(20, {_LOST_NOW})"
    info = f"max by ({_SUBJECT}, cause, state) ({series(semconv.VERDICT_INFO, OF_RUN, _STANDING)})"
    among = f"and on ({_SUBJECT}) {worst}"
    return rows(
        7,
        "Current culprits",
        "The 20 confirmed verdicts that cost most. The cause says what to look at "
        "(docs/operate/verdicts.md has what to do for each); drain a host that is named again "
        "and again.",
        [
            ("time lost, in ranks", "short", worst, PLAIN),
            (
                "slowdown",
                "short",
                f"{newest(semconv.VERDICT_SLOWDOWN, _SUBJECT)} {among}",
                RUN_SLOWDOWNS,
            ),
            ("is reported", "short", f"{info} {among}", PLAIN),
        ],
        links=[
            link("Run ${__data.fields.run_id}", "run", *_RUN, is_table=True),
            link("Rank ${__data.fields.rank}", "rank", *_RUN, "rank", is_table=True),
        ],
        dropped=["is reported", "subject_id"],
        empty="No confirmed verdict is active: no rank is slow.",
    )
