"""Observations to files and requests: the inverse of receiving."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from otel_straggler import semconv
from otel_straggler.model.observation import (
    BASIS_NAMES,
    COLLECTIVE,
    CUPTI,
    HOST,
    Bools,
    GpuTimes,
    Ints,
    ObservationBatch,
    Section,
)
from otel_straggler.model.rank import Source
from otel_straggler.otlp.encode_spans import SpanGroup, encode_request, encode_resource, encode_rows
from otel_straggler.otlp.ids import Ids, SpanIds, step_trace_id
from otel_straggler.recordings.columns import PARALLEL
from otel_straggler.semconv import AttributeValue

ROWS_AT_ONCE = 4_096
HEADER = (
    "run_id", "rank", "node", "role", "section", "kind", "step", "start_ns", "duration_s",
    "local_rank", "microbatch",
)  # fmt: skip


def write_csv(batches: Iterable[ObservationBatch]) -> Iterator[str]:
    """Pieces of a CSV file of several batches; the first one decides on the columns.

    ``dp,pp,vpp,tp,cp,ep`` are written if a source reports them; ``microbatch`` is the number of
    executions that a row stands for.
    """
    reported: list[str] = []
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for number, batch in enumerate(batches):
        if number == 0:
            known = {name for source in batch.sources for name, _ in source.parallel}
            reported = [column for column, name in PARALLEL.items() if name in known]
            writer.writerow([*HEADER, *reported])
        for at, row in enumerate(_csv_rows(batch, reported), 1):
            writer.writerow(row)
            if at % ROWS_AT_ONCE == 0:
                yield _taken(text)
    yield _taken(text)


def _taken(text: io.StringIO) -> str:
    piece = text.getvalue()
    text.seek(0)
    text.truncate()
    return piece


def _csv_rows(batch: ObservationBatch, reported: list[str]) -> Iterator[tuple[object, ...]]:
    identity = [(s.run_id, s.rank, s.node, s.role) for s in batch.sources]
    sections = [(s.name, s.kind) for s in batch.sections]
    local = [s.local_rank if s.local_rank >= 0 else "" for s in batch.sources]
    indices = [dict(s.parallel) for s in batch.sources]
    position = [tuple(index.get(PARALLEL[column], "") for column in reported) for index in indices]
    columns = zip(
        batch.source.tolist(),
        batch.section.tolist(),
        batch.step.tolist(),
        batch.start_ns.tolist(),
        batch.duration_s.tolist(),
        [""] * len(batch) if batch.runs is None else batch.runs.tolist(),
        strict=True,
    )
    for source, section, step, start_ns, duration_s, runs in columns:
        shown = "" if step < 0 else step
        length = f"{duration_s:.9f}"
        yield (
            *identity[source], *sections[section], shown, start_ns, length,
            local[source], runs, *position[source],
        )  # fmt: skip


def encode_requests(
    batch: ObservationBatch, spans_at_once: int = 512, first_span: int = 0
) -> Iterator[bytes]:
    """OTLP trace requests of one rank each, in the order of a live run.

    ``first_span`` is the number of spans sent before; it keeps their ids apart.
    """
    ids = SpanIds(seed=1)
    at_once = spans_at_once * max(1, len(batch.sources))
    for first in range(0, len(batch), at_once):
        for rows in _by_source(batch, first, first + at_once):
            source = batch.sources[batch.source[rows[0]]]
            for at in range(0, len(rows), spans_at_once):
                part = rows[at : at + spans_at_once]
                yield _request(batch, source, part, ids.of((part + first_span).astype(np.uint64)))


def encode_requests_of(batches: Iterable[ObservationBatch]) -> Iterator[bytes]:
    sent = 0
    for batch in batches:
        yield from encode_requests(batch, first_span=sent)
        sent += len(batch)


def frame(request: bytes) -> bytes:
    """A request as the Collector's file exporter writes it with ``format: proto``."""
    return len(request).to_bytes(4, "big") + request


def as_json_line(request: bytes) -> str:
    """A request as the Collector's file exporter writes it with ``format: json``."""
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    message = ExportTraceServiceRequest.FromString(request)
    document: dict[str, Any] = MessageToDict(message, use_integers_for_enums=True)
    spans = (s for r in document["resourceSpans"] for g in r["scopeSpans"] for s in g["spans"])
    messages = (s for r in message.resource_spans for g in r.scope_spans for s in g.spans)
    for span, reported in zip(
        spans, messages, strict=True
    ):  # protobuf's JSON writes bytes in base64; OTLP's writes ids in hex
        span["traceId"] = reported.trace_id.hex()
        span["spanId"] = reported.span_id.hex()
        if reported.parent_span_id:
            span["parentSpanId"] = reported.parent_span_id.hex()
    return json.dumps(document, separators=(",", ":")) + "\n"


def _by_source(batch: ObservationBatch, first: int, end: int) -> Iterator[Ints]:
    """Rows of each source between two rows."""
    source = batch.source[first:end]
    order = np.argsort(source, kind="stable")
    cuts = np.flatnonzero(np.diff(source[order])) + 1
    for rows in np.split(order + first, cuts):
        if len(rows):
            yield rows


def _request(batch: ObservationBatch, source: Source, rows: Ints, span_ids: Ids) -> bytes:
    spans: list[bytes] = []
    order: list[int] = []
    for code in np.unique(batch.section[rows]).tolist():
        is_member = batch.section[rows] == code
        members = rows[is_member]
        for part in _alike(batch, members):
            group = _group(
                batch, source, batch.sections[code], members[part], span_ids[is_member][part]
            )
            spans += encode_rows(group)
            order += members[part].tolist()
    in_time = np.argsort(order, kind="stable").tolist()
    return encode_request(encode_resource(resource_of(source)), [spans[i] for i in in_time])


def _alike(batch: ObservationBatch, rows: Ints) -> Iterator[Bools]:
    """Rows with the same attributes: those that report tokens or GPU times, and the others."""
    kind = np.zeros(len(rows), np.int64)
    if batch.tokens is not None:
        kind += ~np.isnan(batch.tokens[rows])
    if batch.gpu is not None:
        kind += 2 * batch.gpu.basis[rows]
    yield from (kind == one for one in np.unique(kind)[::-1])


def _group(
    batch: ObservationBatch, source: Source, section: Section, rows: Ints, span_ids: Ids
) -> SpanGroup:
    steps = batch.step[rows]
    attempt, group = source.attempt, source.group
    traces = b"".join(step_trace_id(source.run_id, attempt, group, s) for s in steps.tolist())
    start_ns = batch.start_ns[rows]
    labels = [(semconv.SECTION, section.name), (semconv.SECTION_KIND, section.kind)]
    if section.parent:
        labels.append((semconv.SECTION_PARENT, section.parent))
    numbers: dict[str, Ints] = {semconv.STEP: steps, semconv.SEQ: batch.seq[rows]}
    if batch.tokens is not None and not np.isnan(batch.tokens[rows]).any():
        numbers[semconv.TOKENS] = batch.tokens[rows].astype(np.int64)
    if batch.gpu is not None:
        basis = int(batch.gpu.basis[rows[0]])
        labels.append((semconv.TIME_BASIS, BASIS_NAMES[basis]))
        numbers |= _gpu_numbers(batch.gpu, basis, rows)
    end_ns = start_ns + np.rint(batch.duration_s[rows] * 1e9).astype(np.int64)
    if semconv.COLLECTIVE_WAIT_TIME in numbers:  # rounding makes no wait longer than its span
        waited_ns = numbers[semconv.COLLECTIVE_WAIT_TIME]
        numbers[semconv.COLLECTIVE_WAIT_TIME] = np.minimum(waited_ns, end_ns - start_ns)
    return SpanGroup(
        name=section.name,
        labels=tuple(labels),
        numbers=numbers,
        trace_ids=np.frombuffer(traces, np.uint8).reshape(-1, 16),
        span_ids=span_ids,
        parent_ids=None,
        start_ns=start_ns,
        end_ns=end_ns,
    )


def _gpu_numbers(gpu: GpuTimes, basis: int, rows: Ints) -> dict[str, Ints]:
    """Times of spans of one basis; the sum of kernels only if every row has it."""
    reported = {}
    if basis == COLLECTIVE:
        reported[semconv.COLLECTIVE_WAIT_TIME] = gpu.nccl_s
    elif basis != HOST:
        reported[semconv.GPU_BUSY_TIME] = gpu.busy_s
    if basis == CUPTI:
        reported[semconv.GPU_NCCL_TIME] = gpu.nccl_s
        if not np.isnan(gpu.kernel_s[rows]).any():
            reported[semconv.GPU_KERNEL_TIME] = gpu.kernel_s
    return {key: np.rint(1e9 * seconds[rows]).astype(np.int64) for key, seconds in reported.items()}


def resource_of(source: Source) -> dict[str, AttributeValue]:
    """The attributes of a source's resource."""
    ranks = {str(semconv.PARALLEL_RANK[name]): index for name, index in source.parallel}
    reported = {semconv.GPU_UUID: source.device, semconv.GPU_MODEL: source.device_model}
    device: dict[str, AttributeValue] = {key: text for key, text in reported.items() if text}
    group: dict[str, AttributeValue] = {semconv.GROUP: source.group} if source.group else {}
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
        **group,
        **device,
        **ranks,
    }
