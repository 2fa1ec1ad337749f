"""Labels of the series that rules and dashboards look at, as a collector publishes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from otel_straggler import semconv
from otel_straggler.alerts.promql import OF_RANK, OF_RUN
from otel_straggler.alerts.recorded import RECORDED
from otel_straggler.alerts.recording import LABELS, label_of
from otel_straggler.semconv import Metric

CONSTANT: Final = frozenset({"collector", "cluster"})
"""On every series; ``cluster`` only where ``metrics.cluster`` is set."""
_SUBJECT: Final = (*OF_RUN, "subject_id", "scope", "rank", "node", "role", "section")
_DESCRIPTION: Final = tuple(
    str(key).replace(".", "_")
    for key in (
        semconv.RUN_ATTEMPT,
        semconv.SESSION_ID,
        semconv.LOCAL_RANK,
        semconv.GPU_UUID,
        semconv.GPU_TIMING_TIER,
        semconv.GPU_TIMING_REASON,
        *semconv.PARALLEL_RANK.values(),
    )
)
_LABELS: Final[dict[Metric, tuple[str, ...]]] = {
    semconv.RUN_STATE: (*OF_RUN, "state"),
    semconv.RUN_HUNG: OF_RUN,
    semconv.RUN_HANG_INFO: (*OF_RUN, "why", "sentence"),
    semconv.RUN_RANKS: (*OF_RUN, "state"),
    semconv.RUN_PAGES: OF_RUN,
    semconv.RUN_INFO: (*OF_RUN, "team", "attempt"),
    semconv.RUN_SLOWDOWN: OF_RUN,
    semconv.RUN_FINISHED: OF_RUN,
    semconv.RUN_STARTED: OF_RUN,
    semconv.RUN_RECORDS_DROPPED: (*OF_RUN, "reason"),
    semconv.RUN_IDENTITY_CLASHES: ("run_id",),
    semconv.RANK_CULPRIT: (*OF_RANK, "why"),
    semconv.RANK_STRAGGLING: OF_RANK,
    semconv.RANK_LAST_SCORED: OF_RANK,
    semconv.HOST_STRAGGLING: (*OF_RUN, "node"),
    semconv.LAST_HEARTBEAT: OF_RANK,
    semconv.RANK_INFO: (*OF_RANK, *_DESCRIPTION),
    semconv.RECORDS_DROPPED: (*OF_RANK, "reason"),
    semconv.SECTION_INFO: (*OF_RUN, "section", "kind"),
    semconv.SECTION_RELATIVE: (*OF_RANK, "section"),
    semconv.SECTION_INDIVIDUAL: (*OF_RANK, "section"),
    semconv.GPU_RELATIVE: (*OF_RANK, "section"),
    semconv.VERDICT_INFO: (*_SUBJECT, "cause", "state", "evidence"),
    semconv.VERDICT_SLOWDOWN: _SUBJECT,
    semconv.VERDICT_LOSS: _SUBJECT,
    semconv.VERDICT_PAGES: _SUBJECT,
    semconv.VERDICT_SILENCED: _SUBJECT,
    semconv.MAINTENANCE_UNTIL: ("node", "reason", "by"),
    semconv.COLLECTOR_START: (),
    semconv.COLLECTOR_PAGES: (),
}
_OF_HISTOGRAM: Final = frozenset({*map(label_of, LABELS.values()), "cluster"})
_OF_ALERT: Final = frozenset(
    {"alertname", "alertstate", "severity", "domain", "mode", "team", *OF_RANK, "section", "cause"}
)


def labels_by_name() -> Mapping[str, frozenset[str]]:
    """Labels that a series may have, by its name in Prometheus; also of what is recorded here."""
    histogram = semconv.SECTION_DURATION.prometheus_name
    return {
        **{m.prometheus_name: CONSTANT.union(labels) for m, labels in _LABELS.items()},
        **{recorded.name: CONSTANT.union(recorded.labels) for recorded in RECORDED},
        f"{histogram}_bucket": _OF_HISTOGRAM | {"le"},
        f"{histogram}_sum": _OF_HISTOGRAM,
        f"{histogram}_count": _OF_HISTOGRAM,
        "ALERTS": _OF_ALERT | CONSTANT,
    }
