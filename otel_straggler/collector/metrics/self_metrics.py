"""The collector's metrics about itself, read at each scrape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from otel_straggler import semconv
from otel_straggler.collector.forwarding.sampling import KEPT, LEFT_OUT, SamplingCounts
from otel_straggler.collector.history.history import HistoryCounts
from otel_straggler.collector.ingest.intake import IntakeCounts
from otel_straggler.collector.metrics.families import Families, constant_labels, labels
from otel_straggler.collector.runs.section_histograms import SPANS_WIN
from otel_straggler.collector.worker import UNSCORED, WorkerCounts
from otel_straggler.detect.scores.settings import KERNEL_OUTCOMES as KERNEL_TIMES
from otel_straggler.otlp.identity import NO_RANK
from otel_straggler.otlp.section_rows import BASELINE, EMPTY, OVER_LIMIT, REPEATED
from otel_straggler.otlp.span_rules import MALFORMED, ROW, SPAN_OUTCOMES, STEP
from otel_straggler.semconv import Metric

_OUTCOME_OF = {ROW: "scored", STEP: "step", NO_RANK: "no_rank"}
_SECTION_TIMES = ("scored", SPANS_WIN, BASELINE, REPEATED, EMPTY, OVER_LIMIT)
_ROW_OUTCOMES = ("scored", "duplicate", "superseded", "late", UNSCORED)


def self_families(
    *,
    collector_id: str,
    cluster: str = "",
    started_at_s: float,
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
) -> Families:
    families = Families()
    constant = constant_labels(collector_id, cluster)

    def add(metric: Metric, value: float, **extra: object) -> None:
        families.add(metric, f"{labels(**extra)},{constant}" if extra else constant, value)

    def add_all(metric: Metric, counts: Iterable[tuple[Any, float]], *names: str) -> None:
        for key, value in counts:
            values = key if isinstance(key, tuple) else (key,)
            add(metric, value, **dict(zip(names, values, strict=True)))

    add(semconv.COLLECTOR_START, started_at_s)
    add(semconv.COLLECTOR_QUEUE, waiting_bytes)
    add(semconv.COLLECTOR_RUNS, runs)
    for outcome in SPAN_OUTCOMES:
        group, reason = _named(outcome)
        add(semconv.COLLECTOR_SPANS, intake.outcomes.get(outcome, 0), outcome=group, reason=reason)
    add_all(semconv.COLLECTOR_POINTS, sorted(intake.points.items()), "use")
    add_all(semconv.COLLECTOR_REQUESTS, sorted(intake.answers.items()), "signal", "answer")
    add_all(semconv.COLLECTOR_HTTP_ANSWERS, sorted(http_answers.items()), "signal", "status")
    add_all(semconv.COLLECTOR_CONNECTIONS_CUT, (connections_cut or {}).items(), "address")
    add(semconv.COLLECTOR_GPU_TIMES_REFUSED, intake.refused_gpu_times)
    add(semconv.COLLECTOR_FAILURES, worker.failures + alert_failures)
    add(semconv.COLLECTOR_NAMES_FOLDED, worker.names_folded)
    add_all(semconv.COLLECTOR_REJECTED, worker.rejected.items(), "what")
    for row_outcome in _ROW_OUTCOMES:
        add(semconv.COLLECTOR_ROWS, worker.rows.get(row_outcome, 0), outcome=row_outcome)
    for outcome in _SECTION_TIMES:
        add(semconv.COLLECTOR_SECTION_TIMES, worker.section_times.get(outcome, 0), outcome=outcome)
    for outcome in KERNEL_TIMES:
        add(semconv.COLLECTOR_KERNEL_TIMES, worker.kernel_times.get(outcome, 0), outcome=outcome)
    for cause in ("complete", "grace", "idle", "end"):
        add(semconv.COLLECTOR_WINDOWS, worker.windows.get(cause, 0), cause=cause)
    if forwarded is not None:
        add(semconv.COLLECTOR_FORWARD_QUEUE, forward_queue_bytes)
        for outcome in ("sent", "refused", "dropped"):
            add(semconv.COLLECTOR_FORWARDED, forwarded.get(outcome, 0), outcome=outcome)
    if sampling is not None:
        add(semconv.COLLECTOR_FORWARD_HELD, sampling.held_bytes)
        for reason in KEPT:
            kept = sampling.kept.get(reason, 0)
            add(semconv.COLLECTOR_FORWARD_SPANS, kept, outcome="kept", reason=reason)
        for reason in LEFT_OUT:
            left = sampling.left_out.get(reason, 0)
            add(semconv.COLLECTOR_FORWARD_SPANS, left, outcome="left_out", reason=reason)
    add_all(semconv.COLLECTOR_DECISIONS, sorted((decisions or {}).items()), "action", "cause")
    add_all(semconv.COLLECTOR_COMMANDS, sorted((commands or {}).items()), "verb", "outcome")
    notified = sorted((notifications or {}).items())
    add_all(semconv.COLLECTOR_NOTIFICATIONS, notified, "receiver", "outcome")
    if history is not None:
        add(semconv.COLLECTOR_HISTORY_SIZE, history.size_bytes)
        if history.oldest_at_s is not None:
            add(semconv.COLLECTOR_HISTORY_OLDEST, history.oldest_at_s)
        add_all(semconv.COLLECTOR_HISTORY_FAILURES, history.failures.items(), "reason")
    return families


def _named(outcome: str) -> tuple[str, str]:
    if outcome in _OUTCOME_OF:
        return _OUTCOME_OF[outcome], ""
    return ("rejected" if outcome in MALFORMED else "not_scored"), outcome
