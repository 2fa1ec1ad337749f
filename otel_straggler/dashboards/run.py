"""One run: whether it is healthy, which ranks are slow, since when, and what it costs."""

from __future__ import annotations

from typing import Final

from otel_straggler import semconv
from otel_straggler.dashboards import panels as p
from otel_straggler.dashboards import queries as q
from otel_straggler.dashboards.page import hidden, many, page, run_variables, section_variable

_OF_SECTION = f"{q.RUN}, section"
_CHOSEN = f"{q.OF_SECTIONS}, {q.is_chosen('node')}"
_TO_RANK = (
    p.link("Rank ${__field.labels.rank}", "rank", "job_name", "run_id", "rank"),
    *p.next_steps("StragglerRankStraggling", rank=True),
)
_ROW_TO_RANK = (
    p.link("Rank ${__data.fields.rank}", "rank", "rank", is_table=True, of_run=True),
    *p.next_steps("StragglerScoreLow", rank=True, is_table=True, of_run=True),
)


_TEXT: Final = p.texts(
    """
1 Slowdown. Actual step / step with equal work and slow ranks like their peers. Above 1.15 an
alert waits: see below who it is.
Empty: No window was scored yet

2 Time lost now, in ranks. The time of this many ranks (GPUs, where each rank has one) is lost to
imbalance. Weigh it against the cost of a restart without the slow host.

3 Rank time lost [s]. The same summed up over the range of the page. Quote it when a host is sent
for repair.

4 Coverage [percentunit]. Ranks scored / ranks expected in the newest window. Below 1 ranks are
silent or late: look at the liveness page before you trust a comparison.
Empty: No window was scored yet

5 Slowdown that can show. The smallest slowdown that 20 steps of this run can show. Less than this
is noise: do not act on it.
Empty: Not known yet

6 Ranks in the newest window. How many ranks sent sections. If it fell, look at the liveness page.

7 Slowdown of the run over time. When it began. A step up at a restart points at the new hosts, a
slow rise at heat or at a leak, a sawtooth at data or at evaluation.

8 Worst 20 sections of ranks over time [percentunit]. Best rank's median / own median, of the 20
that were lowest at any time of the range; sections in which ranks wait for others are left out.
Gaps: a large run folds scores of ranks that are well. One rank in red throughout: look at its page.
Rows of one host: look at the host.
Empty: No section of a rank has a score in this range.

9 Worst 20 now. Low against the best but high against its own best: it was always slow, compare the
hardware. Low in both: it has become slow, look at clocks and temperature.
Empty: No section of a rank has a score now: the run has ended, or is too young.

10 Who others waited for [s]. Time that peers waited for the rank that came last, in the range.
These are the culprits: begin with the longest bar.
Empty: Nobody waited

11 Who waited [s]. Time that the rank waited for others, in the range. These are victims: leave them
alone, however slow their step looks.
Empty: Nobody waited

12 Scores of all ranks [percentunit]. Quantiles over all ranks; of several chosen sections the
lowest. Only the lowest line falls: few ranks are slow, see above. All fall: the whole run is
uneven, see the matrix.

13 Time of sections: median rank and slowest rank [s]. The 6 chosen sections that add most to a
step. A gap between the two lines of a section is what the slowest rank adds to it.

14 Time of a step, by section [s]. What each section adds to a step on the slowest path; together
about a step. Work on the thickest band; a band that grows while others stay is where the change is.

15 Time of a step [s]. Median rank and slowest rank, newest steps. Both rise together: the run as a
whole is slower, look at the sections. Only the slowest does: see who it is below.

16 Goodput [percentunit]. Useful time / time since the run began. Below 0.9: the longest bar next to
it shows what to work on first.
Empty: The run reports none

17 Time that was not useful [s]. By reason, since the run began. checkpoint: write fewer, or in the
background; redone: write more; restart and start_up: images and data near the hosts; stragglers:
see above.
Empty: Nothing was lost, or the run reports no goodput

18 Last save of a checkpoint [s]. How long it took, and how long the training stood still for it. If
both are alike the save is synchronous: write in the background. A save that grows while its size
does not: look for a rank that writes slowly.
Empty: The run reports no saves

19 Size of the last checkpoint [bytes]. What all ranks wrote. A step up without a change of the
model: something is saved that should not be, or by more ranks than needed.
Empty: The run reports no saves

20 Goodput over time [percentunit]. Since the run began, and of the last hour and day once it is as
old. A dip is a restart, a hang, or a long save: otel-straggler goodput says which.
Empty: The run reports none
"""
)


def render() -> str:
    node = many("node", q.series(semconv.LAST_HEARTBEAT)).all_value(q.ALL_OR_SOME)
    worst = hidden(q.WORST_RANKS, q.which_ranks(), "rank")
    return page(
        "run",
        "Run",
        [*run_variables(), section_variable(), node, worst],
        [
            ("Is it healthy", [*_health(), _step_times(), _slowdown_over_time()]),
            ("Who is slow", [_worst_over_time(), _worst_now(), *_waits()]),
            ("All ranks", [_distribution(), _section_times()]),
            ("Where a step's time goes", [_ledger()]),
            ("What the run got for its time", _goodput()),
            ("Checkpoints", _checkpoints()),
        ],
    )


def _health() -> list[p.Panel]:
    return [
        p.number(_TEXT[1], q.newest(semconv.RUN_SLOWDOWN, q.RUN), p.RUN_SLOWDOWNS),
        p.number(_TEXT[2], q.rate(semconv.RUN_GPU_TIME_LOST, q.RUN)),
        p.number(_TEXT[3], q.increase(semconv.RUN_GPU_TIME_LOST, q.RUN)),
        p.number(_TEXT[4], q.newest(semconv.RUN_COVERAGE, q.RUN), p.SHARES),
        p.number(_TEXT[5], q.newest(semconv.RUN_RESOLVABLE, q.RUN)),
        p.number(_TEXT[6], q.newest(semconv.RUN_RANKS_REPORTING, q.RUN), is_count=True),
    ]


def _slowdown_over_time() -> p.Panel:
    return p.lines(
        _TEXT[7],
        [("slowdown {{group}}", q.newest(semconv.RUN_SLOWDOWN, q.RUN))],
        steps=p.RUN_SLOWDOWNS,
        lowest=1,
    )


def _step_times() -> p.Panel:
    return p.lines(
        _TEXT[15],
        [
            ("median rank {{group}}", q.newest(semconv.RUN_STEP_TIME, q.RUN)),
            ("slowest rank {{group}}", q.newest(semconv.RUN_SLOWEST_STEP, q.RUN)),
        ],
    )


def _worst_over_time() -> p.Panel:
    return p.timeline(
        _TEXT[8],
        "rank {{rank}} {{section}} {{node}} {{group}}",
        q.worst_over_time(),
        steps=p.SCORES,
        links=_TO_RANK,
    )


def _worst_now() -> p.Panel:
    score = q.newest(semconv.SECTION_RELATIVE, q.SECTION_OF_RANK, _CHOSEN)
    worst = f"bottomk({q.MAX_LINES}, {score} {q.no_work()})"
    own = q.newest(semconv.SECTION_INDIVIDUAL, q.SECTION_OF_RANK, _CHOSEN)
    median = q.newest(semconv.SECTION_MEDIAN, q.SECTION_OF_RANK, _CHOSEN)
    among = f"and on ({q.SECTION_OF_RANK}) {worst}"
    return p.rows(
        _TEXT[9],
        [
            ("against the best", "percentunit", worst, p.SCORES),
            ("against its own best", "percentunit", f"{own} {among}", p.SCORES),
            ("median", "s", f"{median} {among}", p.PLAIN),
        ],
        links=_ROW_TO_RANK,
        is_lowest_first=True,
        dropped=p.OF_ONE_RUN,
    )


def _waits() -> list[p.Panel]:
    legend = "rank {{rank}} {{node}} {{group}}"
    metrics = {10: semconv.CAUSED_WAIT, 11: semconv.SUFFERED_WAIT}
    return [
        p.bars(_TEXT[n], legend, f"topk(10, {q.increase(metric, q.RANK)} > 0)", links=_TO_RANK)
        for n, metric in metrics.items()
    ]


def _distribution() -> p.Panel:
    names = (
        (0.05, "slowest 5 %"),
        (0.25, "slowest 25 %"),
        (0.5, "median rank"),
        (0.95, "best 5 %"),
    )
    return p.lines(
        _TEXT[12],
        [
            (
                f"{name} {{{{group}}}}",
                f"min by ({q.RUN}) ("
                + q.over_ranks(semconv.SECTION_RELATIVE, quantile, _OF_SECTION, q.OF_SECTIONS)
                + f" {q.no_work()})",
            )
            for quantile, name in names
        ],
        steps=p.SCORES,
    )


def _section_times() -> p.Panel:
    exposed = f"max_over_time({q.series(semconv.SECTION_EXPOSED, q.OF_SECTIONS)}[$__range] @ end())"
    costly = f"topk(6, max by ({_OF_SECTION}) ({exposed}))"

    def longest(quantile: float) -> str:
        times = q.over_ranks(semconv.SECTION_MEDIAN, quantile, _OF_SECTION, q.OF_SECTIONS)
        return f"{times} and on ({_OF_SECTION}) {costly}"

    return p.lines(
        _TEXT[13],
        [("{{section}} median rank", longest(0.5)), ("{{section}} slowest rank", longest(1.0))],
    )


def _ledger() -> p.Panel:
    return p.lines(
        _TEXT[14],
        [("{{section}} {{group}}", q.highest(semconv.SECTION_EXPOSED, _OF_SECTION, q.OF_RUN, 15))],
        stacked=True,
        span=24,
    )


def _goodput() -> list[p.Panel]:
    rolling = q.newest(semconv.RUN_ROLLING_GOODPUT, f"{q.RUN}, window")
    whole = q.newest(semconv.RUN_GOODPUT, q.RUN)
    return [
        p.number(_TEXT[16], q.newest(semconv.RUN_GOODPUT, q.RUN), p.GOODPUTS, span=8),
        p.bars(
            _TEXT[17],
            "{{reason}} {{group}}",
            f"{q.newest(semconv.RUN_LOST, f'{q.RUN}, reason')} > 0",
            links=p.next_steps("StragglerGoodputLow"),
            span=16,
        ),
        p.lines(
            _TEXT[20],
            [("goodput {{window}} {{group}}", f"{rolling} or {whole}")],
            steps=p.GOODPUTS,
            span=24,
        ),
    ]


def _checkpoints() -> list[p.Panel]:
    return [
        p.lines(
            _TEXT[18],
            [
                ("save {{group}}", q.newest(semconv.RUN_CHECKPOINT_SAVE, q.RUN)),
                ("training waits {{group}}", q.newest(semconv.RUN_CHECKPOINT_BLOCKING, q.RUN)),
            ],
        ),
        p.number(_TEXT[19], q.newest(semconv.RUN_CHECKPOINT_SIZE, q.RUN)),
    ]
