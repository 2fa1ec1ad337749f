"""A recorded run from a file or a pipe: CSV, OTLP-JSON or OTLP protobuf, gzipped or not.

The content decides, never the name. OTLP is read as the OpenTelemetry Collector's file exporter
writes it: one JSON request a line, or protobuf requests preceded by their length; a single request,
pretty-printed or bare, is read too.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import math
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, NoReturn, cast

from otel_straggler import semconv
from otel_straggler.errors import InputError
from otel_straggler.model.kernels import KernelTimes
from otel_straggler.model.observation import ObservationBatch, merge_batches, overlapping_sessions
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import SectionTimes
from otel_straggler.otlp import span_rules
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.otlp.identity import NO_RANK
from otel_straggler.otlp.metric_rules import DecodedMetrics
from otel_straggler.otlp.section_rows import (
    HistogramDeltas,
    NewestPoints,
    process_of,
    rows_of,
    rows_within,
)
from otel_straggler.otlp.span_rules import DecodedSpans
from otel_straggler.recordings.csv import read_csv, split_csv_clashes

Format = Literal["csv", "otlp-json", "otlp-proto"]
FORMATS: tuple[Format, ...] = ("csv", "otlp-json", "otlp-proto")

_MAX_ROWS = 4_000_000
_SCORED = frozenset({span_rules.ROW, span_rules.STEP})


STDIN = "<stdin>"
SNIFFED_BYTES = 4_096

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_BOM = b"\xef\xbb\xbf"
_NEVER_IN_TEXT = frozenset((*range(9), *range(14, 27), *range(28, 32)))

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Decoders:
    spans: SpanDecoder = field(default_factory=SpanDecoder)
    metrics: MetricDecoder = field(default_factory=MetricDecoder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Content of a file.

    Attributes:
        batch: rows in the order of the file.
        not_scored: spans left out, by reason.
        skipped: requests with logs, or with metrics other than histograms of sections and kernels.
        kernels: histograms of kernels, in the order of the file.
        clashes: sessions that claim a rank that another one has.
    """

    batch: ObservationBatch
    form: Format
    not_scored: dict[str, int] = field(default_factory=dict)
    skipped: int = 0
    kernels: tuple[KernelTimes, ...] = ()
    clashes: tuple[Source, ...] = ()


class _Builder:
    """Collects the decoded requests of an OTLP file."""

    def __init__(self, form: Format, decoders: Decoders) -> None:
        self._form = form
        self.decoders = decoders
        self._batches: list[ObservationBatch] = []
        self._outcomes: dict[str, int] = {}
        self._deltas = HistogramDeltas(math.inf)
        self._newest: NewestPoints = {}
        self._times: list[SectionTimes] = []
        self._kernels: list[KernelTimes] = []
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

    def recording(self) -> Recording:
        batch = merge_batches([*self._batches, *self._histogram_rows()])
        return Recording(
            batch=batch,
            form=self._form,
            not_scored={
                outcome: n for outcome, n in self._outcomes.items() if outcome not in _SCORED
            },
            skipped=self.skipped,
            kernels=tuple(self._kernels),
            clashes=overlapping_sessions(batch),
        )

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


def open_input(path: str) -> BinaryIO:
    """Open ``path``, or standard input for ``-``.

    Raises:
        InputError: it cannot be read.
    """
    if path == "-":
        return sys.stdin.buffer
    if Path(path).is_dir():
        _fail(path, "a directory", "a file", "Name one file in it.")
    try:
        return Path(path).open("rb")
    except OSError as error:
        _fail(path, str(error.strerror), "a file that can be read", "Is the path right?")


def read_recording(
    file: BinaryIO,
    name: str,
    form: Format | None = None,
    note: Note = lambda _: None,
    decoders: Decoders | None = None,
) -> Recording:
    """Read all of ``file``.

    Args:
        name: for messages.
        form: required format; None: by the content.
        note: called with what was ignored.
        decoders: meaning of attributes and span names in OTLP.

    Raises:
        InputError: the content is wrong, or nothing in it can be scored.
    """
    try:
        with _unzipped(file, name) as plain:
            result = _sniff(plain.peek(SNIFFED_BYTES)[:SNIFFED_BYTES], name)
            if form not in (None, result):
                value, expected = f"content that looks like {result}", f"{form}, as --format says"
                _fail(name, value, expected, f"Use --format {result}.")
            if result == "csv":
                batch, clashes = split_csv_clashes(read_csv(plain, name, note))
                recording = Recording(batch=batch, form="csv", clashes=clashes)
            else:
                builder = _Builder(result, decoders or Decoders())
                (_read_json if result == "otlp-json" else _read_proto)(plain, name, builder)
                recording = builder.recording()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        _fail(name, str(error), "a complete gzip file", "Was the download or copy cut off?")
    except OSError as error:
        _fail(name, str(error.strerror or error), "a file that can be read", "Is the disk well?")
    if len(recording.batch) == 0:
        _fail(name, _nothing(recording), "spans of ranks", _remedy_for_nothing(recording))
    return recording


@contextlib.contextmanager
def _unzipped(file: BinaryIO, name: str) -> Iterator[io.BufferedReader]:
    """The plain content of ``file``, which stays open."""
    packed: io.BufferedReader = io.BufferedReader(cast("io.RawIOBase", file))
    try:
        start = packed.peek(4)[:4]
        if not start:
            _fail(name, "an empty file", "CSV, OTLP-JSON or OTLP protobuf", "There is no data.")
        if start == _ZSTD:
            _fail(name, "a file compressed by zstd", "plain or gzip", "Unpack it first: zstd -d.")
        if start[:2] != _GZIP:
            yield packed
            return
        raw = cast("io.RawIOBase", gzip.GzipFile(fileobj=packed))
        with cast("io.BufferedReader", io.BufferedReader(raw)) as plain:
            if not plain.peek(1):
                _fail(name, "gzip of nothing", "CSV, OTLP-JSON or OTLP protobuf", "It is empty.")
            if plain.peek(2)[:2] == _GZIP:
                _fail(name, "gzip within gzip", "one layer of it", "Unpack it first: gunzip.")
            yield plain
    finally:
        packed.detach()


def _sniff(start: bytes, name: str) -> Format:
    text = start.removeprefix(_BOM).lstrip()
    if text[:1] in (b"{", b"["):
        return "otlp-json"
    is_text_so_far = start[:1] >= b" "  # a length before a message, or the tag of a field, is not
    if not is_text_so_far and not _NEVER_IN_TEXT.isdisjoint(start):
        return "otlp-proto"
    if not text:
        _fail(name, "only blanks", "CSV, OTLP-JSON or OTLP protobuf", "There is no data.")
    return "csv"


# --- OTLP-JSON ---------------------------------------------------------------------------------


def _read_json(file: io.BufferedReader, name: str, to: _Builder) -> None:
    for document, line in _documents(file, name):
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
        elif b'"resourceMetrics"' in document or b'"resourceLogs"' in document:
            to.skipped += 1
        else:
            remedy = "Write it with the Collector's file exporter, or use CSV."
            _fail(f"{name}:{line}", _shortened(document), f"{_REQUEST} (resourceSpans)", remedy)


_REQUEST = "an OTLP-JSON ExportTraceServiceRequest"
_HISTOGRAMS = tuple(
    f'"{metric.name}"'.encode() for metric in (semconv.SECTION_DURATION, semconv.KERNEL_DURATION)
)


def _documents(file: io.BufferedReader, name: str) -> Iterator[tuple[bytes, int]]:
    """JSON documents with the line where each begins: one a line or, if the first line is none by
    itself, pretty-printed."""
    first = file.readline().removeprefix(_BOM)
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
    decoder = json.JSONDecoder()
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


def _read_proto(file: io.BufferedReader, name: str, to: _Builder) -> None:
    if file.peek(1)[:1] == b"\n":  # the tag of resource_spans; a length would be 160 MB and more
        try:
            to.add_spans(to.decoders.spans.decode(file.read()))
        except InputError as error:
            expected = "an OTLP protobuf ExportTraceServiceRequest"
            _fail(name, "bytes that are none", expected, f"({error})")
        return
    for number, (message, offset) in enumerate(_messages(file, name), 1):
        try:
            to.add_spans(to.decoders.spans.decode(message))
        except InputError as error:
            where = f"{name}, message {number} at byte {offset}"
            _fail(where, _shortened(message), "an ExportTraceServiceRequest", f"({error})")


def _messages(file: io.BufferedReader, name: str) -> Iterator[tuple[bytes, int]]:
    """Messages preceded by their lengths (4 bytes, big-endian), and where each begins."""
    offset = 0
    number = 1
    while head := file.read(4):
        length = int.from_bytes(head, "big")
        message = file.read(length) if len(head) == 4 else b""
        if len(head) < 4 or len(message) < length:
            where = f"{name}, message {number} at byte {offset}"
            expected = f"{length} bytes" if len(head) == 4 else "4 bytes of length"
            remedy = "Was the file cut off, or is it no file of OTLP protobuf messages?"
            _fail(where, f"{len(message) or len(head)} bytes", expected, remedy)
        yield message, offset
        offset += 4 + length
        number += 1


# --- what both have in common ------------------------------------------------------------------


def _nothing(recording: Recording) -> str:
    result = [f"{n} spans not scored ({reason})" for reason, n in recording.not_scored.items()]
    if recording.skipped:
        result.append(f"{recording.skipped} requests of metrics or logs")
    return "no data: " + (", ".join(result) or "no spans")


def _remedy_for_nothing(recording: Recording) -> str:
    if NO_RANK in recording.not_scored:
        return "Put training.rank on the resource or on the spans."
    return "Record the run's traces."


def _shortened(content: bytes) -> str:
    text = content[:60].decode("utf-8", "replace").strip()
    return text + "..." if len(content) > 60 else text


def _fail(where: str, value: object, expected: str, remedy: str) -> NoReturn:
    raise InputError.of(where, value, expected, remedy) from None
