"""The collector about itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from otel_straggler.semconv.names import Metric, counter, gauge

# --- the collector about itself ---------------------------------------------------------------
COLLECTOR_SPANS = counter(
    "straggler.collector.spans", "{span}", "spans received, by outcome", "outcome", "reason"
)
COLLECTOR_REQUESTS = counter(
    "straggler.collector.requests", "{request}", "requests by signal and answer", "signal", "answer"
)
COLLECTOR_RUNS = gauge("straggler.collector.runs", "{run}", "runs in memory")
COLLECTOR_REJECTED = counter(
    "straggler.collector.rejected",
    "{report}",
    "requests with runs and groups beyond their limit (429), reports with implausible numbers, and "
    "requests beyond a limit of a grant",
    "what",
)
COLLECTOR_REFUSED = counter(
    "straggler.collector.refused",
    "{request}",
    "requests refused because of who sent them, or for which run",
    "reason",
)
COLLECTOR_NAMES_FOLDED = counter(
    "straggler.collector.names_folded",
    "{run}",
    "executions scored as <other>: too many section names",
)
COLLECTOR_WINDOWS = counter(
    "straggler.collector.windows", "{window}", "windows closed, by cause", "cause"
)
COLLECTOR_QUEUE = gauge("straggler.collector.queue", "By", "request bytes that wait to be scored")
COLLECTOR_SERIES_FOLDED = gauge(
    "straggler.collector.series_folded",
    "{series}",
    "series folded by the budget",
    "run_id",
    "family",
)
COLLECTOR_FORWARDED = counter(
    "straggler.collector.forwarded", "{request}", "requests forwarded, by outcome", "outcome"
)
COLLECTOR_START = gauge("straggler.collector.start.timestamp", "s", "when this collector started")
COLLECTOR_PAGES = gauge(
    "straggler.collector.pages", "{flag}", "1 if alerts of this collector may notify people"
)
COLLECTOR_ROWS = counter("straggler.collector.rows", "{row}", "executions, by outcome", "outcome")
COLLECTOR_POINTS = counter(
    "straggler.collector.points", "{point}", "data points received, by use", "use"
)
COLLECTOR_SECTION_TIMES = counter(
    "straggler.collector.section_times",
    "{point}",
    "section histogram points, by outcome",
    "outcome",
)
COLLECTOR_KERNEL_TIMES = counter(
    "straggler.collector.kernel_times", "{point}", "kernel histogram points, by outcome", "outcome"
)
COLLECTOR_FORWARD_QUEUE = gauge(
    "straggler.collector.forward_queue", "By", "request bytes that wait to be forwarded"
)
COLLECTOR_FORWARD_SPANS = counter(
    "straggler.collector.forward_spans",
    "{span}",
    "spans that sampling kept or left out, by reason",
    "outcome",
    "reason",
)
COLLECTOR_FORWARD_HELD = gauge(
    "straggler.collector.forward_held", "By", "requests held until their steps are scored"
)
COLLECTOR_HISTORY_SIZE = gauge(
    "straggler.collector.history.size", "By", "size of the history on disk"
)
COLLECTOR_HISTORY_OLDEST = gauge(
    "straggler.collector.history.oldest.timestamp", "s", "when the oldest row was written"
)
COLLECTOR_HISTORY_FAILURES = counter(
    "straggler.collector.history.failures",
    "{item}",
    "rows that could not be kept, by reason",
    "reason",
)
COLLECTOR_SPOOL_SIZE = gauge("straggler.collector.spool.size", "By", "size of the spool's log")
COLLECTOR_SPOOL_FAILURES = counter(
    "straggler.collector.spool.failures",
    "{request}",
    "requests that the spool does not keep safe, by reason",
    "reason",
)
COLLECTOR_DECISIONS = counter(
    "straggler.collector.decisions",
    "{decision}",
    "people's decisions on verdicts",
    "action",
    "cause",
)
COLLECTOR_COMMANDS = counter(
    "straggler.collector.commands",
    "{command}",
    "commands to ranks, by outcome; outcome asked counts all",
    "verb",
    "outcome",
)
COLLECTOR_NOTIFICATIONS = counter(
    "straggler.collector.notifications",
    "{request}",
    "requests to receivers of alerts, by outcome; of dropped ones, alerts",
    "receiver",
    "outcome",
)
COLLECTOR_HTTP_ANSWERS = counter(
    "straggler.collector.http_answers",
    "{answer}",
    "OTLP/HTTP answers by status",
    "signal",
    "status",
)
COLLECTOR_CONNECTIONS_CUT = counter(
    "straggler.collector.connections_cut",
    "{connection}",
    "idle or slow connections that were closed to make room",
    "address",
)
COLLECTOR_GPU_TIMES_REFUSED = counter(
    "straggler.collector.gpu_times_refused",
    "{time}",
    "GPU times, or times waited in collectives, that make no sense; their sections go by the "
    "host's clock",
)
COLLECTOR_FAILURES = counter(
    "straggler.collector.failures", "{failure}", "mistakes of ours, survived; see the log"
)
COLLECTOR_BUILD_INFO = gauge(
    "straggler.collector.build_info",
    "{info}",
    "version of the collector and of Python, and whether the compiled part is loaded; always 1",
    "version",
    "python",
    "native",
)
COLLECTOR_PAGE_INFO = gauge(
    "straggler.collector.page.info",
    "{info}",
    "address of its live page for people; always 1",
    "page_url",
)

# --- the collector's process, as Prometheus' client libraries name it -------------------------
PROCESS_CPU = Metric("process.cpu", "s", "counter", "processor time, user and system", subject=())
PROCESS_RESIDENT_MEMORY = Metric(
    "process.resident_memory", "By", "gauge", "resident memory", subject=()
)
PROCESS_VIRTUAL_MEMORY = Metric(
    "process.virtual_memory", "By", "gauge", "virtual memory", subject=()
)
PROCESS_START = Metric("process.start_time", "s", "gauge", "when the process started", subject=())
PROCESS_OPEN_FDS = Metric("process.open_fds", "{fd}", "gauge", "open files", subject=())
PROCESS_MAX_FDS = Metric("process.max_fds", "{fd}", "gauge", "most open files", subject=())

# --- what keeps it from its work --------------------------------------------------------------
TROUBLES: Final[Mapping[str, str]] = {
    "requests": "too much waits to be scored: requests were refused (503) in the last minute",
    "memory": "all runs together exceed `scoring.memory_mib`",
    "connections": "connections were closed in the last minute to make room for others",
    "scoring": "the scoring thread has not responded for a minute, or has ended",
    "history": "the history cannot be written, or has lost something in the last five minutes",
    "spool": "the spool did not keep a request safe in the last five minutes",
    "notifications": "a receiver of alerts does not accept them",
    "forwarding": "the queue of what is forwarded is nearly full, or something was dropped or "
    "refused in the last five minutes",
    "runs": "runs beyond `scoring.max_runs` were refused (429) in the last five minutes",
    "groups": "groups beyond `scoring.max_groups` were refused (429) in the last five minutes",
    "ranks": "ranks beyond `scoring.max_ranks` were set aside in the last five minutes",
    "section_names": "sections beyond `scoring.max_section_names` were scored as `<other>` in the "
    "last five minutes",
    "quotas": "a limit of a grant was exceeded in the last five minutes",
    "certificate": "a certificate of the collector ends within `alerts.expiry_seconds`, or has "
    "ended",
    "grants": "a grant ends within `alerts.expiry_seconds`, or has ended",
}
"""Values of the label ``what``, and when the value is 1."""
COLLECTOR_TROUBLE = gauge(
    "straggler.collector.trouble",
    "{flag}",
    "1 while something keeps the collector from its work or is about to, else 0; the sentence says "
    "what it is",
    "what",
    "sentence",
)
COLLECTOR_EXPIRY = gauge(
    "straggler.collector.expiry.timestamp",
    "s",
    "when a certificate of the collector, or a grant with `expires`, ends",
    "what",
    "name",
)
