"""What a rank tells of itself with a heartbeat."""

from __future__ import annotations

from typing import Final, Literal

from otel_straggler.semconv.names import Attribute, Metric

Outcome = Literal["ok", "failed", "cancelled", "preempted", "unknown"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("ok", "failed", "cancelled", "preempted", "unknown")

# --- data-point attributes of what the collector publishes -----------------------------------
OUTCOME: Final = Attribute("outcome", "how the rank ended, one of OUTCOMES")
REASON: Final = Attribute(
    "reason", "why a record or span was not used, a GPU was held back, or time was not useful"
)


# --- from a rank ------------------------------------------------------------------------------
HEARTBEAT = Metric("straggler.heartbeat.timestamp", "s", "gauge", "the rank's clock when sent")
PROGRESS = Metric("straggler.progress.timestamp", "s", "gauge", "when the rank last progressed")
PROGRESS_STEP = Metric("straggler.progress.step", "{step}", "gauge", "last step begun")
SECTION_OPEN = Metric(
    "straggler.section.open_time",
    "s",
    "gauge",
    "age of the open section; of section ``step``: since the last section of the open step ended",
)
RANK_FINISHED = Metric("straggler.rank.finished.timestamp", "s", "gauge", "when the rank ended")
RECORDS_DROPPED = Metric(
    "straggler.records.dropped", "{record}", "counter", "records a rank lost, by reason"
)
RECORDS_FOLDED = Metric(
    "straggler.records.folded",
    "{record}",
    "counter",
    "section runs that a rank sent in spans for several, by section",
)
RANK_INFO = Metric("straggler.rank.info", "{info}", "gauge", "rank description; always 1")
SECTION_DURATION = Metric(
    "straggler.section.duration", "s", "histogram", "section times of one rank"
)
KERNEL_DURATION = Metric(
    "straggler.kernel.duration",
    "s",
    "histogram",
    "times of CUDA kernels by kernel, class and section: exponential, delta, every 10 s",
)
