"""Our own part: what collectors receive, score, lose and pass on."""

from __future__ import annotations

from collections.abc import Sequence

from otel_straggler import semconv
from otel_straggler.dashboards.marks import NONE_IS_GOOD, RATE_IS_ODD
from otel_straggler.dashboards.page import many, page
from otel_straggler.dashboards.panels import PLAIN, Panel, Steps, lines, number
from otel_straggler.dashboards.queries import (
    OF_COLLECTORS,
    highest,
    is_chosen,
    newest,
    series,
    total_pace,
)
from otel_straggler.semconv import Metric

_WHERE = "cluster, collector"
_NO_FORWARDING = "No collector forwards (forward.url)."


def render() -> str:
    name = semconv.COLLECTOR_START.prometheus_name
    collector = many("collector", f"{name}{{{is_chosen('cluster')}}}")
    return page(
        "pipeline",
        "Pipeline health",
        [many("cluster", name), collector],
        [
            ("Is it well", _now()),
            ("In", _incoming()),
            ("Scored", _scored()),
            ("Left out, because there is too much", _too_much()),
            ("Out", _outgoing()),
        ],
    )


def _now() -> list[Panel]:
    started = newest(semconv.COLLECTOR_START, _WHERE, OF_COLLECTORS)
    failures = series(semconv.COLLECTOR_FAILURES, OF_COLLECTORS)
    return [
        number(
            1,
            "Up for",
            "Time since each collector started. Short and again short: it is killed, look at its "
            "log and at the memory it may use.",
            "s",
            f"time() - {started}",
            PLAIN,
            span=8,
        ),
        number(
            2,
            "Mistakes of ours",
            "Mistakes that a collector survived, in the range. Above 0: please report the "
            "traceback in its log.",
            "short",
            f"sum by ({_WHERE}) (increase({failures}[$__range]))",
            NONE_IS_GOOD,
            span=8,
            is_count=True,
        ),
        number(
            3,
            "Runs in memory",
            "Runs that each collector scores. Many more than jobs: run ids differ between ranks.",
            "short",
            newest(semconv.COLLECTOR_RUNS, _WHERE, OF_COLLECTORS),
            PLAIN,
            span=8,
            is_count=True,
        ),
    ]


def _incoming() -> list[Panel]:
    return [
        _pace(
            4,
            "Spans received",
            "By fate. Spans that are refused or not scored: the reason says what is missing, "
            "docs/from-opentelemetry.md what to set.",
            semconv.COLLECTOR_SPANS,
            ("fate", "reason"),
            some=True,
        ),
        _pace(
            5,
            "Requests",
            "By signal and answer. Answers that refuse for long: senders keep what they can and "
            "then drop; give the collector room, or a second one.",
            semconv.COLLECTOR_REQUESTS,
            ("signal", "answer"),
        ),
        _pace(
            6,
            "Records that ranks lost",
            "By reason, all runs. docs/wire.md explains each: most mean that the collector was "
            "away, or that sections are too short to send one by one.",
            semconv.RECORDS_DROPPED,
            ("reason",),
            RATE_IS_ODD,
            empty="No rank has told of losses.",
        ),
        _losing_runs(),
        lines(
            7,
            "Bytes that wait to be scored",
            "Close to 0 when well. If it grows, the collector does not keep up: use receiver "
            "processes, or split runs over several collectors.",
            "bytes",
            [("{{collector}}", newest(semconv.COLLECTOR_QUEUE, _WHERE, OF_COLLECTORS))],
            span=24,
        ),
    ]


def _losing_runs() -> Panel:
    run = f"{_WHERE}, job_name, run_id, group"
    lost = series(semconv.RUN_RECORDS_DROPPED, OF_COLLECTORS)
    most = f"topk(10, sum by ({run}) (increase({lost}[$__range] @ end())) > 0)"
    return lines(
        16,
        "Records lost, by run",
        "The 10 runs whose ranks lost most in the range. A run among the first whose sections are "
        "many and short: fold or leave out some of them. All runs alike: the collector was away, "
        "or does not keep up.",
        "cps",
        [
            (
                "{{run_id}} {{group}}",
                f"sum by ({run}) (rate({lost}[$__rate_interval])) and on ({run}) {most}",
            )
        ],
        steps=RATE_IS_ODD,
        empty="No run has lost records.",
    )


def _too_much() -> list[Panel]:
    names = total_pace(semconv.COLLECTOR_NAMES_FOLDED, _WHERE, OF_COLLECTORS)
    times = total_pace(semconv.COLLECTOR_GPU_TIMES_REFUSED, _WHERE, OF_COLLECTORS)
    return [
        _pace(
            17,
            "Turned away",
            "Requests of runs, or groups of a run, beyond the most that are watched. Above 0: does "
            "a job make a new run id for each process or restart? Its log names one. If there are "
            "so many jobs, raise scoring.max_runs.",
            semconv.COLLECTOR_TURNED_AWAY,
            ("what",),
            RATE_IS_ODD,
            span=8,
        ),
        _pace(
            18,
            "Connections cut",
            "Connections that asked for nothing, or slowly, closed for others because all were "
            "taken, by address. Above 0 for long: somebody keeps connections open, or there are "
            "more ranks than connections; split runs over several collectors.",
            semconv.COLLECTOR_CONNECTIONS_CUT,
            ("address",),
            RATE_IS_ODD,
            span=8,
        ),
        lines(
            19,
            "Names and GPU times not taken as told",
            "Section runs scored as <other>, because their run has too many section names: is the "
            "number of a step or a file part of a name? And GPU times that make no sense, whose "
            "sections go by the host's clock: please report them.",
            "cps",
            [
                ("{{collector}} runs of <other>", names),
                ("{{collector}} GPU times refused", times),
            ],
            steps=RATE_IS_ODD,
            span=8,
        ),
    ]


def _scored() -> list[Panel]:
    family = f"{_WHERE}, run_id, family"
    folded = highest(semconv.COLLECTOR_SERIES_FOLDED, family, OF_COLLECTORS, least=" > 0")
    return [
        _pace(
            8,
            "Section runs",
            "By what became of them. Many that are late or superseded: clocks or sessions of "
            "ranks are wrong, ask `otel-straggler doctor`.",
            semconv.COLLECTOR_ROWS,
            ("fate",),
            some=True,
        ),
        _pace(
            9,
            "Windows closed",
            "By cause. Windows that close because time is up, not because they are complete: "
            "ranks are silent or slow to send.",
            semconv.COLLECTOR_WINDOWS,
            ("cause",),
            some=True,
        ),
        lines(
            10,
            "Series folded by the budget",
            "The 20 families that lost most series. Ranks that are flagged and the worst keep "
            "theirs, quantiles stand for the others; raise metrics.series_budget to see more.",
            "short",
            [("{{run_id}} {{family}}", folded)],
            empty="Nothing is folded: every rank shows all of its series.",
            span=24,
        ),
        _pace(
            11,
            "What the history could not keep",
            "By reason, items a second. disk_full and read_only need you; the others are "
            "explained in docs/wire.md.",
            semconv.COLLECTOR_HISTORY_FAILURES,
            ("reason",),
            RATE_IS_ODD,
            empty="No collector keeps a history (history.path).",
        ),
        lines(
            20,
            "Size of the history",
            "The file and its log. Near the limit (history.max_mib) the oldest goes; near the end "
            "of the disk nothing can be kept.",
            "bytes",
            [
                (
                    "{{collector}}",
                    newest(semconv.COLLECTOR_HISTORY_SIZE, _WHERE, OF_COLLECTORS),
                )
            ],
            empty="No collector keeps a history (history.path).",
        ),
    ]


def _outgoing() -> list[Panel]:
    waiting = newest(semconv.COLLECTOR_FORWARD_QUEUE, _WHERE, OF_COLLECTORS)
    return [
        _pace(
            12,
            "Requests forwarded",
            "By outcome. What is dropped or refused: look at the backend behind the collector; "
            "scores do not suffer from it.",
            semconv.COLLECTOR_FORWARDED,
            ("outcome",),
            empty=_NO_FORWARDING,
        ),
        lines(
            13,
            "Bytes that wait to be forwarded",
            "Grows while the backend is away or slow. When it is full, requests are dropped and "
            "counted beside.",
            "bytes",
            [("{{collector}}", waiting)],
            empty=_NO_FORWARDING,
        ),
        _pace(
            14,
            "Notifications",
            "Requests that told a receiver of alerts, by outcome. Anything that failed for long: "
            "try the way with `otel-straggler alerts test`.",
            semconv.COLLECTOR_NOTIFICATIONS,
            ("receiver", "outcome"),
            empty="No collector notifies anybody (alerts.notify).",
        ),
        _pace(
            15,
            "Receiver processes that were started again",
            "Above 0: they crash or are killed. Look at the collector's log and at its memory.",
            semconv.COLLECTOR_RECEIVER_RESTARTS,
            (),
            RATE_IS_ODD,
            empty="No collector has receiver processes (receivers.processes).",
        ),
    ]


def _pace(
    id_: int,
    title: str,
    description: str,
    metric: Metric,
    labels: Sequence[str],
    steps: Steps = PLAIN,
    *,
    some: bool = False,
    empty: str = "",
    span: int = 12,
) -> Panel:
    """``some``: only those that were above 0 at any time of the range."""
    by = ", ".join((_WHERE, *labels))
    legend = " ".join(f"{{{{{name}}}}}" for name in ("collector", *labels))
    expression = total_pace(metric, by, OF_COLLECTORS)
    if some:
        gained = f"increase({series(metric, OF_COLLECTORS)}[$__range] @ end())"
        expression += f" and on ({by}) sum by ({by}) ({gained}) > 0"
    queries = [(legend, expression)]
    return lines(id_, title, description, "cps", queries, steps=steps, empty=empty, span=span)
