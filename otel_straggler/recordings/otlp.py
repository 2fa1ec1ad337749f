"""Files of OTLP requests, JSON or protobuf, to rows."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from otel_straggler import semconv
from otel_straggler.errors import InputError
from otel_straggler.model.kernels import KernelTimes
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.model.observation import ObservationBatch, merge_batches
from otel_straggler.model.rank_metrics import SectionTimes
from otel_straggler.otlp import span_rules
from otel_straggler.otlp.decode_logs import decode_launch_events
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.otlp.metric_rules import DecodedMetrics
from otel_straggler.otlp.section_rows import (
    HistogramDeltas,
    NewestPoints,
    process_of,
    rows_of,
    rows_within,
)
from otel_straggler.otlp.span_rules import DecodedSpans, SpanNames
from otel_straggler.recordings.columns import NotARecordingError

BOM = b"\xef\xbb\xbf"
_MAX_ROWS = 4_000_000
_MAX_MESSAGE_BYTES = 2**30
_SCORED = frozenset({span_rules.ROW, span_rules.STEP})


@dataclass(frozen=True, slots=True)
class Decoders:
    spans: SpanDecoder = field(default_factory=SpanDecoder)
    metrics: MetricDecoder = field(default_factory=MetricDecoder)
    names: SpanNames = field(default_factory=SpanNames)


class OtlpBuilder:
    """Collects the decoded requests of OTLP files."""

    def __init__(self, decoders: Decoders) -> None:
        self.decoders = decoders
        self._batches: list[ObservationBatch] = []
        self._outcomes: dict[str, int] = {}
        self._deltas = HistogramDeltas(math.inf)
        self._newest: NewestPoints = {}
        self._times: list[SectionTimes] = []
        self._kernels: list[KernelTimes] = []
        self.launches: list[LaunchEvent] = []
        self.skipped = 0

    def add_spans(self, decoded: DecodedSpans) -> None:
        if len(decoded.batch):
            self._batches.append(decoded.batch)
        for outcome, count in decoded.outcomes.items():
            self._outcomes[outcome] = self._outcomes.get(outcome, 0) + count

    def add_metrics(self, decoded: DecodedMetrics) -> None:
        """Add histograms; a request without any is skipped."""
        self.skipped += not decoded.section_times and decoded.kernel_times is None
        if decoded.kernel_times is not None:
            self._kernels.append(decoded.kernel_times)
        added = (self._deltas.observe(times, self._newest) for times in decoded.section_times)
        self._times += [times for times in added if times is not None]

    def add_launches(self, events: Sequence[LaunchEvent]) -> None:
        """Add events of launchers; a request of log records without any is skipped."""
        self.skipped += not events
        self.launches += events

    @property
    def kernels(self) -> tuple[KernelTimes, ...]:
        return tuple(self._kernels)

    @property
    def not_scored(self) -> dict[str, int]:
        return {outcome: n for outcome, n in self._outcomes.items() if outcome not in _SCORED}

    @property
    def is_empty(self) -> bool:
        return not (self._outcomes or self._times or self._kernels or self.launches or self.skipped)

    def batch(self) -> ObservationBatch:
        return merge_batches([*self._batches, *self._histogram_rows()])

    def _histogram_rows(self) -> list[ObservationBatch]:
        """Of sections that the same process does not send as spans: nothing counts twice."""
        if not self._times:
            return []
        in_spans = {
            (process_of(source), section.name)
            for batch in self._batches
            for source, section in batch.pairs()
        }
        kept = [t for t in self._times if (process_of(t.source), t.section.name) not in in_spans]
        return [rows_of(kept, rows_within(len(kept), _MAX_ROWS))]


# --- OTLP-JSON ---------------------------------------------------------------------------------


def read_json(file: io.BufferedReader, name: str, to: OtlpBuilder) -> None:
    for document, line in documents(file, name):
        if b'"resourceSpans"' in document:
            try:
                to.add_spans(to.decoders.spans.decode_json(document))
            except (InputError, RecursionError) as error:
                _fail(f"{name}:{line}", _shortened(document), _REQUEST, f"({error})")
        elif any(name in document for name in _HISTOGRAMS):
            try:
                to.add_metrics(to.decoders.metrics.decode_json(document))
            except (InputError, RecursionError) as error:
                expected = "an OTLP-JSON ExportMetricsServiceRequest"
                _fail(f"{name}:{line}", _shortened(document), expected, f"({error})")
        elif b'"resourceLogs"' in document:
            try:
                to.add_launches(decode_launch_events(document, is_json=True))
            except (InputError, RecursionError) as error:
                expected = "an OTLP-JSON ExportLogsServiceRequest"
                _fail(f"{name}:{line}", _shortened(document), expected, f"({error})")
        elif b'"resourceMetrics"' in document:
            to.skipped += 1
        else:
            expected = f"{_REQUEST} (resourceSpans), or a trace of torch.profiler (traceEvents)"
            remedy = "Write it with the Collector's file exporter, or use CSV or Parquet."
            kind = NotARecordingError if to.is_empty else InputError
            raise kind.of(f"{name}:{line}", _shortened(document), expected, remedy)


_REQUEST = "an OTLP-JSON ExportTraceServiceRequest"
_HISTOGRAMS = tuple(
    f'"{metric.name}"'.encode() for metric in (semconv.SECTION_DURATION, semconv.KERNEL_DURATION)
)


def documents(file: io.BufferedReader, name: str) -> Iterator[tuple[bytes, int]]:
    """JSON documents with the line where each begins: one a line or, if the first line is none by
    itself, pretty-printed."""
    first = file.readline().removeprefix(BOM)
    line = 1
    while first and not first.strip():
        first = file.readline()
        line += 1
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        yield from _pretty_documents(first + file.read(), line, name)
        return
    yield first, line
    for later, content in enumerate(file, line + 1):
        if content.strip():
            yield content, later


def _pretty_documents(content: bytes, first_line: int, name: str) -> Iterator[tuple[bytes, int]]:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = first_line + content.count(b"\n", 0, error.start)
        _fail(f"{name}:{line}", content[error.start :][:8], "text in UTF-8", "Is it JSON?")
    decoder = json.JSONDecoder(parse_int=str)  # only its end counts; int() takes 4,300 digits
    at = 0
    while at < len(text):
        line = first_line + text.count("\n", 0, at)
        try:
            _, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            bad_line = first_line + error.lineno - 1
            shown = text[error.pos : error.pos + 40] or "the end of the file"
            _fail(f"{name}:{bad_line}", shown, f"valid JSON ({error.msg})", "Was it cut off?")
        except RecursionError:
            shown = _shortened(content)
            _fail(f"{name}:{line}", shown, "JSON of a usual depth", "Is it telemetry?")
        yield text[at:end].encode(), line
        while end < len(text) and text[end].isspace():
            end += 1
        at = end


# --- OTLP protobuf -----------------------------------------------------------------------------


def read_proto(file: io.BufferedReader, name: str, to: OtlpBuilder) -> None:
    if file.peek(1)[:1] == b"\n":  # the tag of resource_spans; a length would be 160 MB and more
        try:
            to.add_spans(to.decoders.spans.decode(file.read()))
        except InputError as error:
            expected = "an OTLP protobuf ExportTraceServiceRequest"
            _fail(name, "bytes that are none", expected, f"({error})")
        return
    for number, (message, offset) in enumerate(messages(file, name), 1):
        try:
            to.add_spans(to.decoders.spans.decode(message))
        except InputError as error:
            where = f"{name}, message {number} at byte {offset}"
            _fail(where, _shortened(message), "an ExportTraceServiceRequest", f"({error})")


def messages(file: io.BufferedReader, name: str) -> Iterator[tuple[bytes, int]]:
    """Messages preceded by their lengths (4 bytes, big-endian), and where each begins."""
    offset = 0
    number = 1
    while head := file.read(4):
        length = int.from_bytes(head, "big")
        if length > _MAX_MESSAGE_BYTES:
            value = f"a message of {length:,} bytes at byte {offset}"
            raise NotARecordingError.of(name, value, "OTLP protobuf", "Is it a recording?")
        message = file.read(length) if len(head) == 4 else b""
        if len(head) < 4 or len(message) < length:
            where = f"{name}, message {number} at byte {offset}"
            expected = f"{length} bytes" if len(head) == 4 else "4 bytes of length"
            remedy = "Was the file cut off, or is it no file of OTLP protobuf messages?"
            _fail(where, f"{len(message) or len(head)} bytes", expected, remedy)
        yield message, offset
        offset += 4 + length
        number += 1


def _shortened(content: bytes) -> str:
    text = content[:60].decode("utf-8", "replace").strip()
    return text + "..." if len(content) > 60 else text


def _fail(where: str, value: object, expected: str, remedy: str) -> NoReturn:
    raise InputError.of(where, value, expected, remedy) from None
