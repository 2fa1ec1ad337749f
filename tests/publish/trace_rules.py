"""Rules of tracing backends for the traces that they are sent, and a check of them.

Believed, from the documentation of Grafana Tempo (overrides: ``max_bytes_per_trace`` is 5,000,000
bytes), of Jaeger (a missing parent and a second span of one id are warnings), and of OTLP (ids have
16 and 8 bytes, not all 0; a span does not end before it begins).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

MAX_BYTES = 5_000_000

Rank = int | None


def traces_in(bodies: Iterable[bytes]) -> dict[bytes, list[tuple[Rank, Any]]]:
    """(rank, span) by trace."""
    traces: dict[bytes, list[tuple[Rank, Any]]] = defaultdict(list)
    for body in bodies:
        for part in ExportTraceServiceRequest.FromString(body).resource_spans:
            values = {a.key: a.value.int_value for a in part.resource.attributes}
            rank = values.get("training.rank")
            for scope in part.scope_spans:
                for span in scope.spans:
                    traces[span.trace_id].append((rank, span))
    return traces


def broken_rules(bodies: Iterable[bytes], max_spans: int) -> list[str]:
    """What a backend would complain of; empty if nothing."""
    broken: list[str] = []
    for trace_id, spans in traces_in(bodies).items():
        name = trace_id.hex()[:8]
        broken += [f"{name}: {text}" for text in _broken([span for _, span in spans], max_spans)]
    return broken


def _broken(spans: list[Any], max_spans: int) -> list[str]:
    ids = Counter(span.span_id for span in spans)
    roots = [span for span in spans if not span.parent_span_id]
    orphans = [s for s in spans if s.parent_span_id and s.parent_span_id not in ids]
    size = sum(span.ByteSize() for span in spans)
    checks = {
        f"{len(roots)} roots": len(roots) != 1,
        f"{len(orphans)} of {len(spans)} spans without their parent": bool(orphans),
        f"ids that occur twice: {len(spans) - len(ids)}": len(ids) != len(spans),
        f"{len(spans)} spans": len(spans) > max_spans,
        f"{size} bytes": size > MAX_BYTES,
        "an id of a wrong size": any(
            (len(s.trace_id), len(s.span_id)) != (16, 8) or not any(s.span_id) for s in spans
        ),
        "ends before it begins": any(s.end_time_unix_nano < s.start_time_unix_nano for s in spans),
        "a span outside of its root": bool(roots)
        and any(
            s.start_time_unix_nano < roots[0].start_time_unix_nano
            or s.end_time_unix_nano > roots[0].end_time_unix_nano
            for s in spans
        ),
    }
    return [text for text, is_broken in checks.items() if is_broken]
