"""The collector about itself."""

from __future__ import annotations

from otel_straggler.semconv.names import Metric

# --- the collector about itself ---------------------------------------------------------------
COLLECTOR_SPANS = Metric(
    "straggler.collector.spans",
    "{span}",
    "counter",
    "spans received, by outcome",
    labels=("outcome", "reason"),
)
COLLECTOR_REQUESTS = Metric(
    "straggler.collector.requests",
    "{request}",
    "counter",
    "requests, by signal and answer",
    labels=("signal", "answer"),
)
COLLECTOR_RUNS = Metric("straggler.collector.runs", "{run}", "gauge", "runs in memory")
COLLECTOR_REJECTED = Metric(
    "straggler.collector.turned_away",
    "{report}",
    "counter",
    "requests of runs and groups beyond the most that are watched, by what there is too much of",
    labels=("what",),
)
COLLECTOR_NAMES_FOLDED = Metric(
    "straggler.collector.names_folded",
    "{run}",
    "counter",
    "section runs scored as <other>, because their run has too many section names",
)
COLLECTOR_WINDOWS = Metric(
    "straggler.collector.windows",
    "{window}",
    "counter",
    "windows closed, by cause",
    labels=("cause",),
)
COLLECTOR_QUEUE = Metric(
    "straggler.collector.queue", "By", "gauge", "request bytes that wait to be scored"
)
COLLECTOR_SERIES_FOLDED = Metric(
    "straggler.collector.series_folded",
    "{series}",
    "gauge",
    "series folded by the budget",
    labels=("run_id", "family"),
)
COLLECTOR_FORWARDED = Metric(
    "straggler.collector.forwarded",
    "{request}",
    "counter",
    "requests forwarded, by outcome",
    labels=("outcome",),
)
COLLECTOR_START = Metric(
    "straggler.collector.start.timestamp", "s", "gauge", "when this collector started"
)
COLLECTOR_PAGES = Metric(
    "straggler.collector.pages", "{flag}", "gauge", "1 if this collector's alerts may call somebody"
)
COLLECTOR_ROWS = Metric(
    "straggler.collector.rows",
    "{row}",
    "counter",
    "section runs, by what became of them",
    labels=("outcome",),
)
COLLECTOR_POINTS = Metric(
    "straggler.collector.points",
    "{point}",
    "counter",
    "data points received, by use",
    labels=("use",),
)
COLLECTOR_SECTION_TIMES = Metric(
    "straggler.collector.section_times",
    "{point}",
    "counter",
    "points of section histograms, by what became of them",
    labels=("outcome",),
)
COLLECTOR_KERNEL_TIMES = Metric(
    "straggler.collector.kernel_times",
    "{point}",
    "counter",
    "points of kernel histograms, by what became of them",
    labels=("outcome",),
)
COLLECTOR_FORWARD_QUEUE = Metric(
    "straggler.collector.forward_queue", "By", "gauge", "request bytes that wait to be forwarded"
)
COLLECTOR_FORWARD_SPANS = Metric(
    "straggler.collector.forward_spans",
    "{span}",
    "counter",
    "spans that sampled forwarding kept or left out, by reason",
    labels=("outcome", "reason"),
)
COLLECTOR_FORWARD_HELD = Metric(
    "straggler.collector.forward_held",
    "By",
    "gauge",
    "requests that sampled forwarding holds until their steps are scored",
)
COLLECTOR_HISTORY_SIZE = Metric(
    "straggler.collector.history.size", "By", "gauge", "size of the history's file and its log"
)
COLLECTOR_HISTORY_OLDEST = Metric(
    "straggler.collector.history.oldest.timestamp",
    "s",
    "gauge",
    "when the oldest window or verdict of the history was written",
)
COLLECTOR_HISTORY_FAILURES = Metric(
    "straggler.collector.history.failures",
    "{item}",
    "counter",
    "states, verdicts and windows that the history could not keep, by reason",
    labels=("reason",),
)
COLLECTOR_DECISIONS = Metric(
    "straggler.collector.decisions",
    "{decision}",
    "counter",
    "verdicts that people dismissed, muted or restored, by the verdict's cause",
    labels=("action", "cause"),
)
COLLECTOR_COMMANDS = Metric(
    "straggler.collector.commands",
    "{command}",
    "counter",
    "what ranks were asked for, by what came of it; outcome asked counts all",
    labels=("verb", "outcome"),
)
COLLECTOR_NOTIFICATIONS = Metric(
    "straggler.collector.notifications",
    "{request}",
    "counter",
    "requests that told a receiver of alerts, by outcome; of dropped ones, alerts",
    labels=("receiver", "outcome"),
)
COLLECTOR_HTTP_ANSWERS = Metric(
    "straggler.collector.http_answers",
    "{answer}",
    "counter",
    "OTLP/HTTP answers, by status",
    labels=("signal", "status"),
)
COLLECTOR_CONNECTIONS_CUT = Metric(
    "straggler.collector.connections_cut",
    "{connection}",
    "counter",
    "connections that asked for nothing, or slowly, closed for others because all were taken",
    labels=("address",),
)
COLLECTOR_GPU_TIMES_REFUSED = Metric(
    "straggler.collector.gpu_times_refused",
    "{time}",
    "counter",
    "GPU times on spans that make no sense; their sections go by the host's clock",
)
COLLECTOR_FAILURES = Metric(
    "straggler.collector.failures",
    "{failure}",
    "counter",
    "mistakes of ours, survived; see the log",
)
