"""One run: whether it is healthy, who is slow, since when, and what it costs."""

from __future__ import annotations

from otel_straggler import semconv
from otel_straggler.dashboards.page import hidden, many, page, run_variables, section_variable
from otel_straggler.dashboards.panels import (
    GOODPUTS,
    OF_ONE_RUN,
    PLAIN,
    RUN_SLOWDOWNS,
    SCORES,
    SHARES,
    Panel,
    bars,
    lines,
    link,
    number,
    rows,
    timeline,
)
from otel_straggler.dashboards.queries import (
    ALL_OR_SOME,
    MAX_LINES,
    OF_RUN,
    OF_SECTIONS,
    RANK,
    RUN,
    SECTION_OF_RANK,
    WORST_RANKS,
    highest,
    increase,
    is_chosen,
    newest,
    no_work,
    over_ranks,
    rate,
    series,
    which_ranks,
    worst_over_time,
)

_OF_SECTION = f"{RUN}, section"
_CHOSEN = f"{OF_SECTIONS}, {is_chosen('node')}"
_TO_RANK = link("Rank ${__field.labels.rank}", "rank", "job_name", "run_id", "rank")
_ROW_TO_RANK = link("Rank ${__data.fields.rank}", "rank", "rank", is_table=True, of_run=True)
_YOUNG = "No window was scored yet"


def render() -> str:
    node = many("node", series(semconv.LAST_HEARTBEAT)).all_value(ALL_OR_SOME)
    worst = hidden(WORST_RANKS, which_ranks(), "rank")
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
        ],
    )


def _health() -> list[Panel]:
    return [
        number(
            1,
            "Slowdown",
            "Time of the run / time if all ranks of a role and all stages were equal. Above 1.15 "
            "an alert waits: see below who it is.",
            "short",
            newest(semconv.RUN_SLOWDOWN, RUN),
            RUN_SLOWDOWNS,
            empty=_YOUNG,
        ),
        number(
            2,
            "Time lost now, in ranks",
            "The time of this many ranks (GPUs, where each rank has one) is lost to imbalance. "
            "Weigh it against the cost of a restart without the slow host.",
            "short",
            rate(semconv.RUN_GPU_TIME_LOST, RUN),
            PLAIN,
        ),
        number(
            3,
            "Rank time lost",
            "The same summed up over the range of the page. Quote it when a host is sent for "
            "repair.",
            "s",
            increase(semconv.RUN_GPU_TIME_LOST, RUN),
            PLAIN,
        ),
        number(
            4,
            "Coverage",
            "Ranks scored / ranks expected in the newest window. Below 1 ranks are silent or late: "
            "look at the liveness page before you trust a comparison.",
            "percentunit",
            newest(semconv.RUN_COVERAGE, RUN),
            SHARES,
            empty=_YOUNG,
        ),
        number(
            5,
            "Slowdown that can show",
            "The smallest slowdown that 20 steps of this run can show. Less than this is noise: "
            "do not act on it.",
            "short",
            newest(semconv.RUN_RESOLVABLE, RUN),
            PLAIN,
            empty="Not known yet",
        ),
        number(
            6,
            "Ranks in the newest window",
            "How many ranks sent sections. If it fell, look at the liveness page.",
            "short",
            newest(semconv.RUN_RANKS_REPORTING, RUN),
            PLAIN,
            is_count=True,
        ),
    ]


def _slowdown_over_time() -> Panel:
    return lines(
        7,
        "Slowdown of the run over time",
        "When it began. A step up at a restart points at the new hosts, a slow rise at heat or "
        "at a leak, a sawtooth at data or at evaluation.",
        "short",
        [("slowdown {{group}}", newest(semconv.RUN_SLOWDOWN, RUN))],
        steps=RUN_SLOWDOWNS,
        lowest=1,
    )


def _step_times() -> Panel:
    return lines(
        15,
        "Time of a step",
        "Median rank and slowest rank, newest steps. Both rise together: the run as a whole is "
        "slower, look at the sections. Only the slowest does: see who it is below.",
        "s",
        [
            ("median rank {{group}}", newest(semconv.RUN_STEP_TIME, RUN)),
            ("slowest rank {{group}}", newest(semconv.RUN_SLOWEST_STEP, RUN)),
        ],
    )


def _worst_over_time() -> Panel:
    return timeline(
        8,
        "Worst 20 sections of ranks over time",
        "Best rank's median / own median, of the 20 that were lowest at any time of the range; "
        "sections in which ranks wait for others are left out. Gaps: a large run folds scores of "
        "ranks that are well. One rank in red throughout: look at its page. Rows of one host: look "
        "at the host.",
        "percentunit",
        "rank {{rank}} {{section}} {{node}} {{group}}",
        worst_over_time(),
        steps=SCORES,
        links=[_TO_RANK],
        empty="No section of a rank has a score in this range.",
    )


def _worst_now() -> Panel:
    score = newest(semconv.SECTION_RELATIVE, SECTION_OF_RANK, _CHOSEN)
    worst = f"bottomk({MAX_LINES}, {score} {no_work()})"
    own = newest(semconv.SECTION_INDIVIDUAL, SECTION_OF_RANK, _CHOSEN)
    median = newest(semconv.SECTION_MEDIAN, SECTION_OF_RANK, _CHOSEN)
    among = f"and on ({SECTION_OF_RANK}) {worst}"
    return rows(
        9,
        "Worst 20 now",
        "Low against the best but high against its own best: it was always slow, compare the "
        "hardware. Low in both: it has become slow, look at clocks and temperature.",
        [
            ("against the best", "percentunit", worst, SCORES),
            ("against its own best", "percentunit", f"{own} {among}", SCORES),
            ("median", "s", f"{median} {among}", PLAIN),
        ],
        links=[_ROW_TO_RANK],
        is_lowest_first=True,
        dropped=OF_ONE_RUN,
        empty="No section of a rank has a score now: the run has ended, or is too young.",
    )


def _waits() -> list[Panel]:
    caused = increase(semconv.CAUSED_WAIT, RANK)
    suffered = increase(semconv.SUFFERED_WAIT, RANK)
    return [
        bars(
            10,
            "Who others waited for",
            "Time that peers waited for the rank that came last, in the range. These are the "
            "culprits: begin with the longest bar.",
            "s",
            "rank {{rank}} {{node}} {{group}}",
            f"topk(10, {caused} > 0)",
            links=[_TO_RANK],
            empty="Nobody waited",
        ),
        bars(
            11,
            "Who waited",
            "Time that the rank waited for others, in the range. These are victims: leave them "
            "alone, however slow their step looks.",
            "s",
            "rank {{rank}} {{node}} {{group}}",
            f"topk(10, {suffered} > 0)",
            links=[_TO_RANK],
            empty="Nobody waited",
        ),
    ]


def _distribution() -> Panel:
    names = (
        (0.05, "slowest 5 %"),
        (0.25, "slowest 25 %"),
        (0.5, "median rank"),
        (0.95, "best 5 %"),
    )
    return lines(
        12,
        "Scores of all ranks",
        "Quantiles over all ranks; of several chosen sections the lowest. Only the lowest line "
        "falls: few ranks are slow, see above. All fall: the whole run is uneven, see the matrix.",
        "percentunit",
        [
            (
                f"{name} {{{{group}}}}",
                f"min by ({RUN}) ("
                + over_ranks(semconv.SECTION_RELATIVE, quantile, _OF_SECTION, OF_SECTIONS)
                + f" {no_work()})",
            )
            for quantile, name in names
        ],
        steps=SCORES,
    )


def _section_times() -> Panel:
    exposed = f"max_over_time({series(semconv.SECTION_EXPOSED, OF_SECTIONS)}[$__range] @ end())"
    costly = f"topk(6, max by ({_OF_SECTION}) ({exposed}))"

    def longest(quantile: float) -> str:
        times = over_ranks(semconv.SECTION_MEDIAN, quantile, _OF_SECTION, OF_SECTIONS)
        return f"{times} and on ({_OF_SECTION}) {costly}"

    return lines(
        13,
        "Time of sections: median rank and slowest rank",
        "The 6 chosen sections that add most to a step. A gap between the two lines of a "
        "section is what the slowest rank adds to it.",
        "s",
        [("{{section}} median rank", longest(0.5)), ("{{section}} slowest rank", longest(1.0))],
    )


def _ledger() -> Panel:
    return lines(
        14,
        "Time of a step, by section",
        "What each section adds to a step on the slowest path; together about a step. Work on the "
        "thickest band; a band that grows while others stay is where the change is.",
        "s",
        [("{{section}} {{group}}", highest(semconv.SECTION_EXPOSED, _OF_SECTION, OF_RUN, 15))],
        stacked=True,
        span=24,
    )


def _goodput() -> list[Panel]:
    return [
        number(
            16,
            "Goodput",
            "Useful time / time since the run began. Below 0.9: the longest bar next to it shows "
            "what to work on first.",
            "percentunit",
            newest(semconv.RUN_GOODPUT, RUN),
            GOODPUTS,
            span=8,
            empty="The run reports none",
        ),
        bars(
            17,
            "Time that was not useful",
            "By reason, in the range. checkpoint: write fewer, or in the background; redone: write "
            "more; restart and start_up: images and data near the hosts; stragglers: see above.",
            "s",
            "{{reason}} {{group}}",
            f"{increase(semconv.RUN_LOST, f'{RUN}, reason')} > 0",
            span=16,
            empty="Nothing was lost, or the run reports no goodput",
        ),
    ]
