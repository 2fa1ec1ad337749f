"""Signs of life in C++ say what those in Python say, field by field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from otel_straggler.client.native_export import REASONS
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.encode_metrics import (
    encode_heartbeat,
    encode_point_attributes,
    heartbeat_texts,
)
from otel_straggler.otlp.encode_spans import encode_resource
from otel_straggler.semconv import OUTCOMES

native = pytest.importorskip(
    "otel_straggler._native",
    reason="the extension was not built: it would show that C++ says what Python says",
)
NO_STEP = -(2**63)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
NAMES = TEXT.filter(bool)
COUNTS = st.dictionaries(NAMES, st.integers(0, 2**40), max_size=3)
ATTRIBUTES = st.dictionaries(NAMES, st.one_of(TEXT, st.integers(-(2**40), 2**40)), max_size=4)
NOW_NS = 1_790_000_000_123_456_789


@given(
    step=st.none() | st.integers(-(2**62), 2**62),
    open_section=st.none() | st.tuples(NAMES, st.integers(0, 2**45)),
    phase=TEXT,
    outcome=st.none() | st.sampled_from(OUTCOMES),
    dropped=COUNTS,
    folded=COUNTS,
    resource=ATTRIBUTES,
    info=ATTRIBUTES,
    since_progress_ns=st.integers(0, 2**45),
)
def test_a_heartbeat_means_what_one_in_python_means(
    step: int | None,
    open_section: tuple[str, int] | None,
    phase: str,
    outcome: Any,
    dropped: dict[str, int],
    folded: dict[str, int],
    resource: dict[str, Any],
    info: dict[str, Any],
    since_progress_ns: int,
) -> None:
    """What is not known is left out of both."""
    progress_ns = NOW_NS - since_progress_ns
    name, open_ns = open_section or (None, 0)
    in_python = encode_heartbeat(
        Heartbeat(
            source=Source(run_id="r", rank=0),
            sent_at_s=NOW_NS / 1e9,
            progress_at_s=progress_ns / 1e9,
            step=step,
            open_section=name or "",
            open_time_s=open_ns / 1e9 if open_section else None,
            phase=phase,
            finished_at_s=NOW_NS / 1e9 if outcome else None,
            outcome=outcome,
            dropped=dropped,
            folded=folded,
        ),
        resource=resource,
        info=info,
        started_at_s=1.5,
    )
    in_cpp = native.heartbeat(
        (*heartbeat_texts(), *(reason.encode() for reason in REASONS)),
        encode_resource(resource),
        encode_point_attributes(info),
        int(NOW_NS / 1e9 * 1_000_000_000),  # Python keeps seconds
        1_500_000_000,
        progress_ns,
        NO_STEP if step is None else step,
        name,
        open_ns,
        phase,
        outcome or "",
        encoded(dropped),
        encoded(folded),
    )
    expected, result = decoded(in_python), decoded(in_cpp)
    assert result == expected


def encoded(counts: dict[str, int]) -> dict[bytes, int]:
    return {name.encode(): count for name, count in counts.items()}


def decoded(body: bytes) -> ExportMetricsServiceRequest:
    """The message; running totals in order of their names, Python's seconds to a microsecond."""
    message = ExportMetricsServiceRequest.FromString(body)
    for metric in message.resource_metrics[0].scope_metrics[0].metrics:
        metric.sum.data_points.sort(key=lambda p: p.attributes[0].value.string_value)
        for point in metric.gauge.data_points:
            if point.HasField("as_double"):
                point.as_double = round(point.as_double, 6)
    return message
