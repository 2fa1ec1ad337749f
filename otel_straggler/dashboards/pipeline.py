"""Our own part: what collectors receive, score, lose and pass on."""

from __future__ import annotations

from otel_straggler import semconv
from otel_straggler.dashboards.page import many, page
from otel_straggler.dashboards.panels import (
    NONE_IS_GOOD,
    PLAIN,
    RATE_IS_ODD,
    Panel,
    Steps,
    lines,
    number,
)
from otel_straggler.dashboards.queries import (
    OF_COLLECTORS,
    highest,
    is_chosen,
    newest,
    series,
    total_rate,
)
from otel_straggler.semconv import Metric

_WHERE = "cluster, collector"
_LOSSES: tuple[tuple[str, Metric, str], ...] = (
    ("records lost by ranks", semconv.RUN_RECORDS_DROPPED, ""),
    ("spans rejected", semconv.COLLECTOR_SPANS, 'outcome="rejected"'),
    ("requests refused", semconv.COLLECTOR_HTTP_ANSWERS, 'status=~"4..|5.."'),
    ("requests rejected for load", semconv.COLLECTOR_REJECTED, ""),
    ("executions not scored", semconv.COLLECTOR_ROWS, 'outcome=~"late|superseded"'),
    ("kernel points over the limit", semconv.COLLECTOR_KERNEL_TIMES, 'outcome="over_limit"'),
    ("section points over the limit", semconv.COLLECTOR_SECTION_TIMES, 'outcome="over_limit"'),
    ("not kept in the history", semconv.COLLECTOR_HISTORY_FAILURES, ""),
    ("not forwarded", semconv.COLLECTOR_FORWARDED, 'outcome=~"refused|dropped"'),
    ("spans without room to wait", semconv.COLLECTOR_FORWARD_SPANS, 'reason=~"no_room|unreadable"'),
)
"""Everything that should be there and is not, and how it is called."""
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
    failures = series(semconv.COLLECTOR_FAILURES, OF_COLLECTORS)
    return [
        number(
            1,
            "Up for",
            "Time since each collector started. Short and again short: it is killed, look at its "
            "log and at the memory it may use.",
            "s",
            f"time() - {_newest(semconv.COLLECTOR_START)}",
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
        _losses(),
        number(
            3,
            "Runs in memory",
            "Runs that each collector scores. Many more than jobs: run ids differ between ranks.",
            "short",
            _newest(semconv.COLLECTOR_RUNS),
            PLAIN,
            span=8,
            is_count=True,
        ),
    ]


def _losses() -> Panel:
    """One line for each kind of loss of each collector, if there is any in the range."""
    every = "\nor\n".join(_loss(*loss) for loss in _LOSSES)
    return lines(
        21,
        "What is lost, and where",
        "Start here: since when, at which collector, and what. Only what was lost in the range is "
        "drawn; its panel below has the reasons and says what to do. Lost by ranks: the collector "
        "was down or cannot keep up. Refused or rejected: by the collector, see Requests. Not "
        "scored: clocks. Not kept: the disk. Not forwarded: the backend.",
        "cps",
        [("{{collector}} {{loss}}", every)],
        steps=RATE_IS_ODD,
        empty="Nothing was lost in this range.",
        span=24,
    )


def _loss(name: str, metric: Metric, more: str) -> str:
    of = series(metric, OF_COLLECTORS, more)
    rate = f"sum by ({_WHERE}) (rate({of}[$__rate_interval]))"
    has_any = f"sum by ({_WHERE}) (increase({of}[$__range] @ end())) > 0"
    return f'label_replace({rate} and on ({_WHERE}) {has_any}, "loss", "{name}", "", "")'


def _incoming() -> list[Panel]:
    answers = _rate(semconv.COLLECTOR_REQUESTS, "signal", "answer")
    refused = series(semconv.COLLECTOR_HTTP_ANSWERS, OF_COLLECTORS, 'status!~"2.."')
    refusals = f"sum by ({_WHERE}, signal, status) (rate({refused}[$__rate_interval]))"
    return [
        _rates(
            4,
            "Spans received",
            "By outcome. Spans that are refused or not scored: the reason says what is missing, "
            "docs/recipes/from-opentelemetry.md what to set.",
            semconv.COLLECTOR_SPANS,
            some=True,
        ),
        lines(
            5,
            "Requests",
            "By signal and answer, and by HTTP status. 429 and 503 for long: senders keep what "
            "they can and then drop; give the collector room, or a second one. 400 and 415: what "
            "is sent is no OTLP, its log names the sender. 401 and 403: tokens differ.",
            "cps",
            [
                ("{{collector}} {{signal}} {{answer}}", answers),
                ("{{collector}} {{signal}} HTTP {{status}}", refusals),
            ],
        ),
        _points(),
        _rates(
            6,
            "Records that ranks lost",
            "By reason, all runs. docs/reference/names-on-the-wire.md explains each: most mean "
            "that the collector was away, or that sections are too short to send one by one.",
            semconv.RECORDS_DROPPED,
            RATE_IS_ODD,
            empty="No rank has reported losses.",
        ),
        _losing_runs(),
        lines(
            7,
            "Bytes that wait to be scored",
            "Close to 0 when well. If it grows, the collector does not keep up: split "
            "runs over several collectors.",
            "bytes",
            [("{{collector}}", _newest(semconv.COLLECTOR_QUEUE))],
            span=24,
        ),
    ]


def _points() -> Panel:
    """Data points, and what became of those that are scored; only what there was in the range.

    Both kinds of histograms are series of one query: many a run sends neither.
    """
    kinds = {"sections": semconv.COLLECTOR_SECTION_TIMES, "kernels": semconv.COLLECTOR_KERNEL_TIMES}
    histograms = "\nor\n".join(
        f'label_replace({_some(metric, "outcome")}, "of", "{name}", "", "")'
        for name, metric in kinds.items()
    )
    return lines(
        22,
        "Data points received",
        "By use, and by outcome those of section and kernel histograms. spans_win: the same "
        "sections come as spans, turn one off. repeated: sent twice, counted once. over_limit: too "
        "many names, see docs/reference/names-on-the-wire.md. Points with use none: not needed.",
        "cps",
        [
            ("{{collector}} used: {{use}}", _some(semconv.COLLECTOR_POINTS, "use")),
            ("{{collector}} {{of}}: {{outcome}}", histograms),
        ],
        empty="No data points came in this range.",
    )


def _losing_runs() -> Panel:
    run = f"{_WHERE}, job_name, run_id, group"
    lost = series(semconv.RUN_RECORDS_DROPPED, OF_COLLECTORS)
    worst = f"topk(10, sum by ({run}) (increase({lost}[$__range] @ end())) > 0)"
    rates = f"sum by ({run}) (rate({lost}[$__rate_interval])) and on ({run}) {worst}"
    return lines(
        16,
        "Records lost, by run",
        "The 10 runs whose ranks lost most in the range. A run among the first whose sections are "
        "many and short: fold or leave out some of them. All runs alike: the collector was away, "
        "or does not keep up.",
        "cps",
        [("{{run_id}} {{group}}", rates)],
        steps=RATE_IS_ODD,
        empty="No run has lost records.",
    )


def _too_much() -> list[Panel]:
    return [
        _rates(
            17,
            "Turned away",
            "Requests of runs, or groups of a run, beyond the most that are watched. Above 0: does "
            "a job make a new run id for each process or restart? Its log names one. If there are "
            "so many jobs, raise scoring.max_runs.",
            semconv.COLLECTOR_REJECTED,
            RATE_IS_ODD,
            span=8,
        ),
        _rates(
            18,
            "Connections cut",
            "Idle or slow connections, closed to make room for others because all were taken, "
            "by address. Above 0 for long: a client keeps connections open, or there are more "
            "ranks than connections; split runs over several collectors.",
            semconv.COLLECTOR_CONNECTIONS_CUT,
            RATE_IS_ODD,
            span=8,
        ),
        lines(
            19,
            "Names and GPU times replaced",
            "Executions scored as <other>, because their run has too many section names: is the "
            "number of a step or a file part of a name? And GPU times that make no sense, whose "
            "sections go by the host's clock: please report them.",
            "cps",
            [
                ("{{collector}} runs of <other>", _rate(semconv.COLLECTOR_NAMES_FOLDED)),
                ("{{collector}} GPU times refused", _rate(semconv.COLLECTOR_GPU_TIMES_REFUSED)),
            ],
            steps=RATE_IS_ODD,
            span=8,
        ),
    ]


def _scored() -> list[Panel]:
    family = f"{_WHERE}, run_id, family"
    folded = highest(semconv.COLLECTOR_SERIES_FOLDED, family, OF_COLLECTORS, above=" > 0")
    return [
        _rates(
            8,
            "Section runs",
            "By what became of them. Many that are late or superseded: clocks or sessions of "
            "ranks are wrong, ask `otel-straggler doctor`.",
            semconv.COLLECTOR_ROWS,
            some=True,
        ),
        _rates(
            9,
            "Windows closed",
            "By cause. Windows that close because time is up, not because they are complete: "
            "ranks are silent or slow to send.",
            semconv.COLLECTOR_WINDOWS,
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
        _rates(
            11,
            "What the history could not keep",
            "By reason, items a second. disk_full and read_only need you; the others are "
            "explained in docs/reference/names-on-the-wire.md.",
            semconv.COLLECTOR_HISTORY_FAILURES,
            RATE_IS_ODD,
            empty="No collector keeps a history (history.path).",
            span=8,
        ),
        lines(
            20,
            "Size of the history",
            "The file and its log. Near the limit (history.max_mib) the oldest goes; near the end "
            "of the disk nothing can be kept.",
            "bytes",
            [("{{collector}}", _newest(semconv.COLLECTOR_HISTORY_SIZE))],
            empty="No collector keeps a history (history.path).",
            span=8,
        ),
        lines(
            23,
            "The history goes back",
            "Age of its oldest window or verdict. Grows up to history.keep_days; far below that "
            "the file is too small (history.max_mib). Back to 0: a new file was started, check "
            "the log.",
            "s",
            [("{{collector}}", f"time() - {_newest(semconv.COLLECTOR_HISTORY_OLDEST)}")],
            empty="No collector keeps a history (history.path).",
            span=8,
        ),
    ]


def _outgoing() -> list[Panel]:
    return [
        _rates(
            12,
            "Requests forwarded",
            "By outcome. What is dropped or refused: look at the backend behind the collector; "
            "scores do not suffer from it.",
            semconv.COLLECTOR_FORWARDED,
            empty=_NO_FORWARDING,
        ),
        lines(
            13,
            "Bytes that wait to be forwarded",
            "Grows while the backend is down or slow. When it is full, requests are dropped, and "
            "counted next to it. Held: until the steps are scored, by sampled forwarding; near "
            "forward.max_held_bytes spans pass without sampling.",
            "bytes",
            [
                ("{{collector}}", _newest(semconv.COLLECTOR_FORWARD_QUEUE)),
                ("{{collector}} held", _newest(semconv.COLLECTOR_FORWARD_HELD)),
            ],
            empty=_NO_FORWARDING,
        ),
        _rates(
            24,
            "Sampled forwarding",
            "Spans kept and left out, by reason. not_sampled is the saving; no_room and unreadable "
            "are losses: raise forward.max_held_bytes, look at the log.",
            semconv.COLLECTOR_FORWARD_SPANS,
            some=True,
            empty="No collector samples what it forwards (forward.mode).",
        ),
        _rates(
            25,
            "Decisions of people",
            "Verdicts dismissed, muted or restored, by cause. Many dismissals of one cause: its "
            "threshold is too low for these runs, or a silence hides a fault. The live page "
            "of the run has who and why.",
            semconv.COLLECTOR_DECISIONS,
            empty="Nobody has decided anything since the collectors started.",
        ),
        _rates(
            14,
            "Notifications",
            "Requests that notified a receiver of alerts, by outcome. If they keep failing: test "
            "the path with `otel-straggler alerts test`.",
            semconv.COLLECTOR_NOTIFICATIONS,
            empty="No collector notifies anybody (alerts.notify).",
        ),
    ]


def _rates(
    id_: int,
    title: str,
    description: str,
    metric: Metric,
    steps: Steps = PLAIN,
    *,
    some: bool = False,
    empty: str = "",
    span: int = 12,
) -> Panel:
    """Rates of a counter by its labels; ``some``: only that were above 0 in the range."""
    labels = metric.labels or ()
    legend = " ".join(f"{{{{{name}}}}}" for name in ("collector", *labels))
    queries = [(legend, _some(metric, *labels) if some else _rate(metric, *labels))]
    return lines(id_, title, description, "cps", queries, steps=steps, empty=empty, span=span)


def _newest(metric: Metric) -> str:
    return newest(metric, _WHERE, OF_COLLECTORS)


def _rate(metric: Metric, *labels: str) -> str:
    return total_rate(metric, ", ".join((_WHERE, *labels)), OF_COLLECTORS)


def _some(metric: Metric, *labels: str) -> str:
    """Rates of a counter by its labels; of those only that grew in the range."""
    by = ", ".join((_WHERE, *labels))
    gained = f"increase({series(metric, OF_COLLECTORS)}[$__range] @ end())"
    return f"{_rate(metric, *labels)} and on ({by}) sum by ({by}) ({gained}) > 0"
