"""Observations to files and requests that other programs read: the inverse of receiving."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from otel_straggler import semconv
from otel_straggler.model.observation import Ints, ObservationBatch, Section
from otel_straggler.model.rank import Source
from otel_straggler.wire.encode_spans import (
    AttributeValue,
    SpanGroup,
    encode_request,
    encode_resource,
    encode_rows,
)
from otel_straggler.wire.ids import SpanIds, step_trace_id

ROWS_AT_ONCE = 4_096
HEADER = (
    "run_id", "rank", "node", "role", "section", "kind", "step", "start_ns", "duration_s",
    "local_rank", "microbatch",
)  # fmt: skip


def write_csv(batch: ObservationBatch) -> Iterator[str]:
    """Pieces of a CSV file, rows in the order of the batch."""
    sources = [(s.run_id, s.rank, s.node, s.role) for s in batch.sources]
    sections = [(s.name, s.kind) for s in batch.sections]
    local = [s.local_rank if s.local_rank >= 0 else "" for s in batch.sources]
    columns = zip(
        batch.source.tolist(),
        batch.section.tolist(),
        batch.step.tolist(),
        batch.start_ns.tolist(),
        batch.duration_s.tolist(),
        [""] * len(batch) if batch.runs is None else batch.runs.tolist(),
        strict=True,
    )
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for at, (source, section, step, start_ns, duration_s, runs) in enumerate(columns, 1):
        told = "" if step < 0 else step
        length = f"{duration_s:.9f}"
        writer.writerow(
            (*sources[source], *sections[section], told, start_ns, length, local[source], runs)
        )
        if at % ROWS_AT_ONCE == 0:
            yield text.getvalue()
            text.seek(0)
            text.truncate()
    yield text.getvalue()


def encode_requests(batch: ObservationBatch, spans_at_once: int = 512) -> Iterator[bytes]:
    """OTLP trace requests of one rank each, in the order in which a live run would send them."""
    ids = SpanIds(seed=1)
    for first in range(0, len(batch), spans_at_once * max(1, len(batch.sources))):
        part = slice(first, first + spans_at_once * max(1, len(batch.sources)))
        for code, source in enumerate(batch.sources):
            rows = np.flatnonzero(batch.source[part] == code) + first
            for at in range(0, len(rows), spans_at_once):
                yield _request(batch, source, rows[at : at + spans_at_once], ids)


def frame(request: bytes) -> bytes:
    """A request as the Collector's file exporter writes it with ``format: proto``."""
    return len(request).to_bytes(4, "big") + request


def as_json_line(request: bytes) -> str:
    """A request as the Collector's file exporter writes it with ``format: json``."""
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    message = ExportTraceServiceRequest.FromString(request)
    document: dict[str, Any] = MessageToDict(message, use_integers_for_enums=True)
    pairs = zip(_spans(document), _messages(message), strict=True)
    for span, told in pairs:  # protobuf's JSON writes bytes in base64; OTLP's writes ids in hex
        span["traceId"] = told.trace_id.hex()
        span["spanId"] = told.span_id.hex()
    return json.dumps(document, separators=(",", ":")) + "\n"


def _spans(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            yield from scope["spans"]


def _messages(request: Any) -> Iterator[Any]:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            yield from scope.spans


def _request(batch: ObservationBatch, source: Source, rows: Ints, ids: SpanIds) -> bytes:
    spans: list[bytes] = []
    order: list[int] = []
    for code in np.unique(batch.section[rows]).tolist():
        of_section = rows[batch.section[rows] == code]
        tells = np.zeros(len(of_section), bool)
        if batch.tokens is not None:
            tells = ~np.isnan(batch.tokens[of_section])
        for members in (of_section[tells], of_section[~tells]):
            if len(members):
                spans += encode_rows(_group(batch, source, batch.sections[code], members, ids))
                order += members.tolist()
    in_time = np.argsort(order, kind="stable").tolist()
    return encode_request(encode_resource(_resource(source)), [spans[i] for i in in_time])


def _group(
    batch: ObservationBatch, source: Source, section: Section, rows: Ints, ids: SpanIds
) -> SpanGroup:
    steps = batch.step[rows]
    traces = b"".join(step_trace_id(source.run_id, 0, source.group, s) for s in steps.tolist())
    start_ns = batch.start_ns[rows]
    labels = [(semconv.SECTION, section.name), (semconv.SECTION_KIND, section.kind)]
    if section.parent:
        labels.append((semconv.SECTION_PARENT, section.parent))
    numbers: dict[str, Ints] = {semconv.STEP: steps, semconv.SEQ: batch.seq[rows]}
    if batch.tokens is not None and not np.isnan(batch.tokens[rows]).any():
        numbers[semconv.TOKENS] = batch.tokens[rows].astype(np.int64)
    return SpanGroup(
        name=section.name,
        labels=tuple(labels),
        numbers=numbers,
        trace_ids=np.frombuffer(traces, np.uint8).reshape(-1, 16),
        span_ids=ids.of(rows.astype(np.uint64)),
        parent_ids=None,
        start_ns=start_ns,
        end_ns=start_ns + np.rint(batch.duration_s[rows] * 1e9).astype(np.int64),
    )


def _resource(source: Source) -> dict[str, AttributeValue]:
    return {
        semconv.SERVICE_NAME: source.job,
        semconv.HOST_NAME: source.node,
        semconv.SESSION_ID: source.session_id,
        semconv.RUN_ID: source.run_id,
        semconv.RUN_ATTEMPT: source.attempt,
        semconv.RANK: source.rank,
        semconv.LOCAL_RANK: source.local_rank,
        semconv.WORLD_SIZE: source.world_size,
        semconv.ROLE: source.role,
    }
