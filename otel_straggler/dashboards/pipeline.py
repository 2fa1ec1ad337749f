"""The monitoring itself: what collectors receive, score, lose and forward."""

from __future__ import annotations

from typing import Final

from otel_straggler import semconv
from otel_straggler.dashboards import panels as p
from otel_straggler.dashboards import queries as q
from otel_straggler.dashboards.page import many, page, page_url_variable
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
"""Everything that should be there and is not, and its name."""


_TEXT: Final = p.texts(
    """
1 Up for [s]. Time since each collector started. Short and again short: it is killed, look at its
log and at the memory it may use.

2 Mistakes of ours. Mistakes that a collector survived, in the range. Above 0: please report the
traceback in its log.

3 Runs in memory. Runs that each collector scores. Many more than jobs: run ids differ between
ranks.

4 Spans received [cps]. By outcome. Spans that are refused or not scored: the reason says what is
missing, docs/recipes/from-opentelemetry.md what to set.

5 Requests [cps]. By signal and answer, and by HTTP status. 429 and 503 for long: senders keep what
they can and then drop; give the collector room, or a second one. 400 and 415: what is sent is no
OTLP, its log names the sender. 401 and 403: tokens differ.

6 Records that ranks lost [cps]. By reason, all runs. docs/reference/names-on-the-wire.md explains
each: most mean that the collector was away, or that sections are too short to send one by one.
Empty: No rank has reported losses.

7 Bytes that wait to be scored [bytes]. Close to 0 when well. If it grows, the collector does not
keep up: split runs over several collectors.

8 Section runs [cps]. By what became of them. Many that are late or superseded: clocks or sessions
of ranks are wrong, ask `otel-straggler doctor`.

9 Windows closed [cps]. By cause. Windows that close because time is up, not because they are
complete: ranks are silent or slow to send.

10 Series folded by the budget. The 20 families that lost most series. Ranks that are flagged and
the worst keep theirs, quantiles stand for the others; raise metrics.series_budget to see more.
Empty: Nothing is folded: every rank shows all of its series.

11 What the history could not keep [cps]. By reason, items a second. disk_full and read_only need
you; the others are explained in docs/reference/names-on-the-wire.md.
Empty: No collector keeps a history (history.path).

12 Requests forwarded [cps]. By outcome. What is dropped or refused: look at the backend behind the
collector; scores do not suffer from it.
Empty: No collector forwards (forward.url).

13 Bytes that wait to be forwarded [bytes]. Grows while the backend is down or slow. When it is
full, requests are dropped, and counted next to it. Held: until the steps are scored, by sampled
forwarding; near forward.max_held_bytes spans pass without sampling.
Empty: No collector forwards (forward.url).

14 Notifications [cps]. Requests that notified a receiver of alerts, by outcome. If they keep
failing: test the path with `otel-straggler alerts test`.
Empty: No collector notifies anybody (alerts.notify).

16 Records lost, by run [cps]. The 10 runs whose ranks lost most in the range. A run among the first
whose sections are many and short: fold or leave out some of them. All runs alike: the collector was
away, or does not keep up.
Empty: No run has lost records.

17 Rejected [cps]. Requests of runs, or groups of a run, beyond the most that are watched. Above
0: does a job make a new run id for each process or restart? Its log names one. If there are so many
jobs, raise scoring.max_runs.

18 Connections cut [cps]. Idle or slow connections, closed to make room for others because all were
taken, by address. Above 0 for long: a client keeps connections open, or there are more ranks than
connections; split runs over several collectors.

19 Names and GPU times replaced [cps]. Executions scored as <other>, because their run has too many
section names: is the number of a step or a file part of a name? And GPU times that make no sense,
whose sections go by the host's clock: please report them.

20 Size of the history [bytes]. The file and its log. Near the limit (history.max_mib) the oldest
goes; near the end of the disk nothing can be kept.
Empty: No collector keeps a history (history.path).

21 What is lost, and where [cps]. Start here: since when, at which collector, and what. Only what
was lost in the range is drawn; its panel below has the reasons and says what to do. Lost by ranks:
the collector was down or cannot keep up. Refused or rejected: by the collector, see Requests. Not
scored: clocks. Not kept: the disk. Not forwarded: the backend.
Empty: Nothing was lost in this range.

22 Data points received [cps]. By use, and by outcome those of section and kernel histograms.
spans_win: the same sections come as spans, turn one off. repeated: sent twice, counted once.
over_limit: too many names, see docs/reference/names-on-the-wire.md. Points with use none: not
needed.
Empty: No data points came in this range.

23 The history goes back [s]. Age of its oldest window or verdict. Grows up to history.keep_days;
far below that the file is too small (history.max_mib). Back to 0: a new file was started, check the
log.
Empty: No collector keeps a history (history.path).

24 Sampled forwarding [cps]. Spans kept and left out, by reason. not_sampled is the saving; no_room
and unreadable are losses: raise forward.max_held_bytes, look at the log.
Empty: No collector samples what it forwards (forward.mode).

25 Decisions of people [cps]. Verdicts dismissed, muted or restored, by cause. Many dismissals of
one cause: its threshold is too low for these runs, or a silence hides a fault. The live page of the
run has who and why.
Empty: Nobody has decided anything in this range.
"""
)


def render() -> str:
    name = semconv.COLLECTOR_START.prometheus_name
    collector = many("collector", f"{name}{{{q.is_chosen('cluster')}}}")
    return page(
        "pipeline",
        "Pipeline health",
        [many("cluster", name), collector, page_url_variable()],
        [
            ("Is it well", _now()),
            ("In", _incoming()),
            ("Scored", _scored()),
            ("Left out, because there is too much", _too_much()),
            ("Out", _outgoing()),
        ],
    )


def _now() -> list[p.Panel]:
    failures = q.series(semconv.COLLECTOR_FAILURES, q.OF_COLLECTORS)
    return [
        p.number(_TEXT[1], f"time() - {_newest(semconv.COLLECTOR_START)}", span=8),
        p.number(
            _TEXT[2],
            f"sum by ({_WHERE}) (increase({failures}[$__range]))",
            p.NONE_IS_GOOD,
            span=8,
            is_count=True,
        ),
        _losses(),
        p.number(_TEXT[3], _newest(semconv.COLLECTOR_RUNS), span=8, is_count=True),
    ]


def _losses() -> p.Panel:
    """One line for each kind of loss of each collector, if there is any in the range."""
    every = "\nor\n".join(_loss(*loss) for loss in _LOSSES)
    return p.lines(
        _TEXT[21],
        [("{{collector}} {{loss}}", every)],
        steps=p.RATE_IS_ODD,
        links=[p.runbook("StragglerSpansDropped")],
        span=24,
    )


def _loss(name: str, metric: Metric, more: str) -> str:
    of = q.series(metric, q.OF_COLLECTORS, more)
    rate = f"sum by ({_WHERE}) (rate({of}[$__rate_interval]))"
    has_any = f"sum by ({_WHERE}) (increase({of}[$__range] @ end())) > 0"
    return f'label_replace({rate} and on ({_WHERE}) {has_any}, "loss", "{name}", "", "")'


def _incoming() -> list[p.Panel]:
    answers = _some(semconv.COLLECTOR_REQUESTS, "signal", "answer")
    refusals = _some(semconv.COLLECTOR_HTTP_ANSWERS, "signal", "status", more='status!~"2.."')
    return [
        _rates(_TEXT[4], semconv.COLLECTOR_SPANS, some=True),
        p.lines(
            _TEXT[5],
            [
                ("{{collector}} {{signal}} {{answer}}", answers),
                ("{{collector}} {{signal}} HTTP {{status}}", refusals),
            ],
        ),
        _points(),
        _rates(_TEXT[6], semconv.RECORDS_DROPPED, p.RATE_IS_ODD),
        _losing_runs(),
        p.lines(_TEXT[7], [("{{collector}}", _newest(semconv.COLLECTOR_QUEUE))], span=24),
    ]


def _points() -> p.Panel:
    """Data points by use, and the outcome of those that are scored; only what came in the range.

    Both kinds of histograms are in one query: many runs send neither.
    """
    kinds = {"sections": semconv.COLLECTOR_SECTION_TIMES, "kernels": semconv.COLLECTOR_KERNEL_TIMES}
    histograms = "\nor\n".join(
        f'label_replace({_some(metric, "outcome")}, "of", "{name}", "", "")'
        for name, metric in kinds.items()
    )
    return p.lines(
        _TEXT[22],
        [
            ("{{collector}} used: {{use}}", _some(semconv.COLLECTOR_POINTS, "use")),
            ("{{collector}} {{of}}: {{outcome}}", histograms),
        ],
    )


def _losing_runs() -> p.Panel:
    run = f"{_WHERE}, job_name, run_id, group"
    lost = q.series(semconv.RUN_RECORDS_DROPPED, q.OF_COLLECTORS)
    worst = f"topk(10, sum by ({run}) (increase({lost}[$__range] @ end())) > 0)"
    rates = f"sum by ({run}) (rate({lost}[$__rate_interval])) and on ({run}) {worst}"
    return p.lines(_TEXT[16], [("{{run_id}} {{group}}", rates)], steps=p.RATE_IS_ODD)


def _too_much() -> list[p.Panel]:
    return [
        _rates(_TEXT[17], semconv.COLLECTOR_REJECTED, p.RATE_IS_ODD, span=8),
        _rates(_TEXT[18], semconv.COLLECTOR_CONNECTIONS_CUT, p.RATE_IS_ODD, span=8),
        p.lines(
            _TEXT[19],
            [
                ("{{collector}} runs of <other>", _rate(semconv.COLLECTOR_NAMES_FOLDED)),
                ("{{collector}} GPU times refused", _rate(semconv.COLLECTOR_GPU_TIMES_REFUSED)),
            ],
            steps=p.RATE_IS_ODD,
            span=8,
        ),
    ]


def _scored() -> list[p.Panel]:
    family = f"{_WHERE}, run_id, family"
    folded = q.highest(semconv.COLLECTOR_SERIES_FOLDED, family, q.OF_COLLECTORS, above=" > 0")
    return [
        _rates(_TEXT[8], semconv.COLLECTOR_ROWS, some=True),
        _rates(_TEXT[9], semconv.COLLECTOR_WINDOWS, some=True),
        p.lines(_TEXT[10], [("{{run_id}} {{family}}", folded)], span=24),
        _rates(_TEXT[11], semconv.COLLECTOR_HISTORY_FAILURES, p.RATE_IS_ODD, span=8),
        p.lines(_TEXT[20], [("{{collector}}", _newest(semconv.COLLECTOR_HISTORY_SIZE))], span=8),
        p.lines(
            _TEXT[23],
            [("{{collector}}", f"time() - {_newest(semconv.COLLECTOR_HISTORY_OLDEST)}")],
            span=8,
        ),
    ]


def _outgoing() -> list[p.Panel]:
    return [
        _rates(_TEXT[12], semconv.COLLECTOR_FORWARDED),
        p.lines(
            _TEXT[13],
            [
                ("{{collector}}", _newest(semconv.COLLECTOR_FORWARD_QUEUE)),
                ("{{collector}} held", _newest(semconv.COLLECTOR_FORWARD_HELD)),
            ],
        ),
        _rates(_TEXT[24], semconv.COLLECTOR_FORWARD_SPANS, some=True),
        _rates(_TEXT[25], semconv.COLLECTOR_DECISIONS, some=True),
        _rates(_TEXT[14], semconv.COLLECTOR_NOTIFICATIONS),
    ]


def _rates(
    text: p.Text, metric: Metric, steps: p.Steps = p.PLAIN, *, some: bool = False, span: int = 12
) -> p.Panel:
    """Rates of a counter by its labels; ``some``: only that were above 0 in the range."""
    labels = metric.labels or ()
    legend = " ".join(f"{{{{{name}}}}}" for name in ("collector", *labels))
    queries = [(legend, _some(metric, *labels) if some else _rate(metric, *labels))]
    return p.lines(text, queries, steps=steps, span=span)


def _newest(metric: Metric) -> str:
    return q.newest(metric, _WHERE, q.OF_COLLECTORS)


def _rate(metric: Metric, *labels: str, more: str = "") -> str:
    chosen = ", ".join(filter(None, (q.OF_COLLECTORS, more)))
    return q.total_rate(metric, ", ".join((_WHERE, *labels)), chosen)


def _some(metric: Metric, *labels: str, more: str = "") -> str:
    """Rates of a counter by its labels; only of those that grew in the range."""
    by = ", ".join((_WHERE, *labels))
    gained = f"increase({q.series(metric, q.OF_COLLECTORS, more)}[$__range] @ end())"
    return f"{_rate(metric, *labels, more=more)} and on ({by}) sum by ({by}) ({gained}) > 0"
