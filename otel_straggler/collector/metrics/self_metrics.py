"""The collector's metrics about itself, read at each scrape."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, Final, get_args

from otel_straggler import semconv
from otel_straggler._version import __version__
from otel_straggler.collector.access.expiry import Expiry
from otel_straggler.collector.api.commands import OUTCOMES
from otel_straggler.collector.forwarding.deciding import KEPT, LEFT_OUT
from otel_straggler.collector.forwarding.sampling import SamplingCounts
from otel_straggler.collector.history.history import HistoryCounts
from otel_straggler.collector.ingest.intake import AnswerStatus, IntakeCounts
from otel_straggler.collector.metrics.families import Families, constant_labels, labels
from otel_straggler.collector.metrics.process import process_families
from otel_straggler.collector.runs.observer import UNSCORED, WorkerCounts
from otel_straggler.collector.runs.section_histograms import SPANS_WIN
from otel_straggler.detect.scores.settings import KERNEL_OUTCOMES as KERNEL_TIMES
from otel_straggler.model.causes import CAUSES
from otel_straggler.model.verdict import ACTIONS
from otel_straggler.native import NATIVE
from otel_straggler.otlp.answers import SIGNALS
from otel_straggler.otlp.identity import NO_RANK
from otel_straggler.otlp.metric_rules import USES
from otel_straggler.otlp.section_rows import BASELINE, EMPTY, OVER_LIMIT, REPEATED
from otel_straggler.otlp.span_rules import MALFORMED, ROW, SPAN_OUTCOMES, STEP
from otel_straggler.semconv import Metric

_OUTCOME_OF = {ROW: "scored", STEP: "step", NO_RANK: "no_rank"}
_SECTION_TIMES = ("scored", SPANS_WIN, BASELINE, REPEATED, EMPTY, OVER_LIMIT)
_ROW_OUTCOMES = ("scored", "duplicate", "superseded", "late", "unfinished", UNSCORED)
_HTTP_STATUSES = (200, 400, 401, 403, 408, 413, 415, 429, 500, 503)
_FROM_THE_START: Final[Mapping[str, tuple[tuple[Any, ...], ...]]] = {
    semconv.COLLECTOR_REQUESTS.name: tuple(product(SIGNALS, get_args(AnswerStatus))),
    semconv.COLLECTOR_HTTP_ANSWERS.name: tuple(product(SIGNALS, _HTTP_STATUSES)),
    semconv.COLLECTOR_DECISIONS.name: tuple(product(ACTIONS, CAUSES)),
    semconv.COLLECTOR_COMMANDS.name: tuple(product(semconv.VERBS, ("asked", *OUTCOMES))),
}
"""Labels of counters that are 0 before the first of their kind: an increase from no series to 1 is
none to Prometheus."""


def self_families(
    *,
    collector_id: str,
    cluster: str = "",
    started_at_s: float,
    page_url: str,
    waiting_bytes: int,
    runs: int,
    intake: IntakeCounts,
    worker: WorkerCounts,
    http_answers: Mapping[tuple[str, int], int],
    forwarded: Mapping[str, int] | None,
    forward_queue_bytes: int,
    history: HistoryCounts | None = None,
    sampling: SamplingCounts | None = None,
    decisions: Mapping[tuple[str, str], int] | None = None,
    commands: Mapping[tuple[str, str], int] | None = None,
    notifications: Mapping[tuple[str, str], int] | None = None,
    alert_failures: int = 0,
    connections_cut: Mapping[str, int] | None = None,
    refused: Mapping[str, int] | None = None,
    troubles: Mapping[str, str] | None = None,
    expiries: Iterable[Expiry] = (),
) -> Families:
    constant = constant_labels(collector_id, cluster)
    own = _Own(constant)
    own.add_troubles(troubles or {}, expiries)
    own.add(semconv.COLLECTOR_START, started_at_s)
    build = {"version": __version__, "python": platform.python_version()}
    own.add(semconv.COLLECTOR_BUILD_INFO, 1, **build, native="no" if NATIVE is None else "yes")
    own.add(semconv.COLLECTOR_PAGE_INFO, 1, page_url=page_url)
    own.add(semconv.COLLECTOR_QUEUE, waiting_bytes)
    own.add(semconv.COLLECTOR_RUNS, runs)
    own.add_intake(intake)
    own.add_all(semconv.COLLECTOR_HTTP_ANSWERS, http_answers, "signal", "status")
    cut = connections_cut or {}
    own.add_of(semconv.COLLECTOR_CONNECTIONS_CUT, cut, cut, name="address")
    own.add_of(semconv.COLLECTOR_REFUSED, refused or {}, refused or {}, name="reason")
    own.add(semconv.COLLECTOR_FAILURES, worker.failures + alert_failures)
    own.add_worker(worker)
    if forwarded is not None:
        own.add(semconv.COLLECTOR_FORWARD_QUEUE, forward_queue_bytes)
        own.add_of(semconv.COLLECTOR_FORWARDED, forwarded, ("sent", "refused", "dropped"))
    if sampling is not None:
        own.add(semconv.COLLECTOR_FORWARD_HELD, sampling.held_bytes)
        for outcome, counts, reasons in (
            ("kept", sampling.kept, KEPT),
            ("left_out", sampling.left_out, LEFT_OUT),
        ):
            for reason in reasons:
                count = counts.get(reason, 0)
                own.add(semconv.COLLECTOR_FORWARD_SPANS, count, outcome=outcome, reason=reason)
    own.add_all(semconv.COLLECTOR_DECISIONS, decisions or {}, "action", "cause")
    own.add_all(semconv.COLLECTOR_COMMANDS, commands or {}, "verb", "outcome")
    own.add_all(semconv.COLLECTOR_NOTIFICATIONS, notifications or {}, "receiver", "outcome")
    if history is not None:
        own.add(semconv.COLLECTOR_HISTORY_SIZE, history.size_bytes)
        if history.oldest_at_s is not None:
            own.add(semconv.COLLECTOR_HISTORY_OLDEST, history.oldest_at_s)
        own.add_of(
            semconv.COLLECTOR_HISTORY_FAILURES, history.failures, history.failures, name="reason"
        )
        if history.spool_bytes is not None:
            own.add(semconv.COLLECTOR_SPOOL_SIZE, history.spool_bytes)
            failures = history.spool_failures
            own.add_of(semconv.COLLECTOR_SPOOL_FAILURES, failures, failures, name="reason")
    own.families.extend(process_families(constant))
    return own.families


class _Own:
    def __init__(self, constant: str) -> None:
        self.families = Families()
        self._constant = constant

    def add(self, metric: Metric, value: float, **extra: object) -> None:
        text = f"{labels(**extra)},{self._constant}" if extra else self._constant
        self.families.add(metric, text, value)

    def add_all(self, metric: Metric, counts: Mapping[Any, float], *names: str) -> None:
        """All counts, sorted, and 0 from the start; ``names`` are the labels of their keys."""
        known = {**dict.fromkeys(_FROM_THE_START.get(metric.name, ()), 0), **counts}
        for key in sorted(known):
            self.add(metric, known[key], **dict(zip(names, key, strict=True)))

    def add_of(
        self, metric: Metric, counts: Mapping[str, int], keys: Iterable[str], name: str = "outcome"
    ) -> None:
        """The counts of ``keys``, in order; 0 where there is none."""
        for key in keys:
            self.add(metric, counts.get(key, 0), **{name: key})

    def add_troubles(self, troubles: Mapping[str, str], expiries: Iterable[Expiry]) -> None:
        for what in semconv.TROUBLES:
            sentence = troubles.get(what, "")
            value = int(what in troubles)
            self.add(semconv.COLLECTOR_TROUBLE, value, what=what, sentence=sentence)
        for each in expiries:
            self.add(semconv.COLLECTOR_EXPIRY, each.at_s, what=each.what, name=each.name)

    def add_intake(self, intake: IntakeCounts) -> None:
        for each in SPAN_OUTCOMES:
            outcome, reason = _named(each)
            count = intake.outcomes.get(each, 0)
            self.add(semconv.COLLECTOR_SPANS, count, outcome=outcome, reason=reason)
        self.add_of(semconv.COLLECTOR_POINTS, intake.points, USES, name="use")
        self.add_all(semconv.COLLECTOR_REQUESTS, intake.answers, "signal", "answer")
        self.add(semconv.COLLECTOR_GPU_TIMES_REFUSED, intake.refused_gpu_times)

    def add_worker(self, worker: WorkerCounts) -> None:
        self.add(semconv.COLLECTOR_NAMES_FOLDED, worker.names_folded)
        self.add_of(semconv.COLLECTOR_REJECTED, worker.rejected, worker.rejected, name="what")
        self.add_of(semconv.COLLECTOR_ROWS, worker.rows, _ROW_OUTCOMES)
        self.add_of(semconv.COLLECTOR_SECTION_TIMES, worker.section_times, _SECTION_TIMES)
        self.add_of(semconv.COLLECTOR_KERNEL_TIMES, worker.kernel_times, KERNEL_TIMES)
        causes = ("complete", "grace", "idle", "end")
        self.add_of(semconv.COLLECTOR_WINDOWS, worker.windows, causes, name="cause")


def _named(outcome: str) -> tuple[str, str]:
    if outcome in _OUTCOME_OF:
        return _OUTCOME_OF[outcome], ""
    return ("rejected" if outcome in MALFORMED else "not_scored"), outcome
