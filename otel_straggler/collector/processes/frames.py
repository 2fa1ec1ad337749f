"""What a receiver process and the scoring process say to each other, as bytes.

A frame is a head, then two parts. Columns travel as their bytes, tables of names and all small
things as JSON; nothing is pickled. The second part is a request as it came: it is kept apart, so
that columns that wait to be scored do not keep it in memory.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections import OrderedDict
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np

from otel_straggler.model.gpu_times import CUPTI, GpuTimes
from otel_straggler.model.observation import Kernel, ObservationBatch, Section
from otel_straggler.model.rank import Source
from otel_straggler.receive.handler import Answer, Request
from otel_straggler.wire.span_rules import DecodedSpans, Progress

Json: TypeAlias = dict[str, Any]


class Kind(IntEnum):
    """What a frame is."""

    READY = 1
    SPANS = 2
    REQUEST = 3
    COUNTS = 4
    POLL = 5
    SETTINGS = 16
    ANSWER = 17
    STOP = 18


HEAD = struct.Struct("<BxxxIII")
"""Kind, number of the request, sizes of both parts."""
MOST_BYTES = 2**31
"""Of one part: more is no frame of ours."""


class FrameError(ValueError):
    """Raised for bytes that are no frame; the process that sent them is not to be trusted."""


def frame(kind: Kind, number: int, part: bytes = b"", original: bytes = b"") -> bytes:
    """A whole frame."""
    return b"".join((HEAD.pack(kind, number, len(part), len(original)), part, original))


def read_head(head: bytes) -> tuple[Kind, int, int, int]:
    """Kind, number and the sizes of both parts.

    Raises:
        FrameError: it is no head.
    """
    kind, number, size, original = HEAD.unpack(head)
    if size > MOST_BYTES or original > MOST_BYTES:
        raise FrameError(f"a frame of {size} + {original} bytes")
    try:
        return Kind(kind), number, size, original
    except ValueError:
        raise FrameError(f"a frame of kind {kind}") from None


def dump(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def load(data: bytes | bytearray) -> Json:
    """What :func:`dump` has written.

    Raises:
        FrameError: it is something else.
    """
    try:
        value: Json = json.loads(bytes(data))
    except ValueError as error:
        raise FrameError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise FrameError("not a JSON object")
    return value


# --- spans ---------------------------------------------------------------------------------------

_SPANS_HEAD = struct.Struct("<IIQBxxxxxxx")
"""Sizes of both JSON texts, bytes of the request, which columns are there."""
_COLUMNS: tuple[tuple[str, type[np.generic]], ...] = (
    ("step", np.int64),
    ("start_ns", np.int64),
    ("duration_s", np.float64),
    ("seq", np.int64),
    ("tokens", np.float64),
    ("gpu.busy_s", np.float64),
    ("gpu.nccl_s", np.float64),
    ("gpu.kernel_s", np.float64),
    ("source", np.int32),
    ("section", np.int32),
    ("kernel", np.int32),
    ("runs", np.int32),
    ("gpu.basis", np.uint8),
)
"""Those of eight bytes first, so that all are aligned."""
_GPU = ("gpu.basis", "gpu.busy_s", "gpu.nccl_s", "gpu.kernel_s")
_OPTIONAL = {"tokens": 1, "runs": 2, **dict.fromkeys(_GPU, 4)}
"""Bits by column; the four of the GPU are there together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpansFrame:
    """One trace request that a receiver has decoded.

    Attributes:
        spans: what is in it.
        size: bytes of the request, decompressed: what admission counts.
        content_type, content_encoding: of the original, where that is sent along.
    """

    spans: DecodedSpans
    size: int
    content_type: str
    content_encoding: str


def encode_spans(spans: DecodedSpans, request: Request) -> bytes:
    """The first part of a ``SPANS`` frame. Cost: O(rows), copies of the columns."""
    batch = spans.batch
    sources = dict.fromkeys((*batch.sources, *spans.progress))
    code = {source: number for number, source in enumerate(sources)}
    tables = dump(
        {
            "n": len(batch.sources),
            "sources": [dataclasses.astuple(source) for source in sources],
            "sections": [dataclasses.astuple(section) for section in batch.sections],
            "kernels": [dataclasses.astuple(kernel) for kernel in batch.kernels],
        }
    )
    small = dump(
        {
            "rows": len(batch),
            "fates": spans.fates,
            "refused": spans.refused_gpu_times,
            "progress": [[code[s], p.step, p.end_ns] for s, p in spans.progress.items()],
            "type": request.content_type,
            "encoding": request.content_encoding,
        }
    )
    columns = [(name, _column(batch, name), kind) for name, kind in _COLUMNS]
    there = 0
    for name, column, _ in columns:
        there |= 0 if column is None else _OPTIONAL.get(name, 0)
    texts = _padded(small + tables)
    head = _SPANS_HEAD.pack(len(small), len(tables), len(request.body), there)
    pieces = [np.ascontiguousarray(c, kind).tobytes() for _, c, kind in columns if c is not None]
    return b"".join((head, texts, *pieces))


def _column(batch: ObservationBatch, name: str) -> Any:
    """None if the batch does not have it."""
    whole, _, part = name.partition(".")
    value = getattr(batch, whole)
    return getattr(value, part) if part and value is not None else value


def _padded(text: bytes) -> bytes:
    return text + bytes(-len(text) % 8)


Tables: TypeAlias = tuple[
    tuple[Source, ...], tuple[Source, ...], tuple[Section, ...], tuple[Kernel, ...]
]
"""All sources, those of the rows, sections, kernels."""
_REMEMBERED = 4_096


class SpansReader:
    """Reads ``SPANS`` frames. The same few tables of names come again and again, so they are
    remembered by their bytes; for one thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Tables] = OrderedDict()

    def read(self, part: bytearray) -> SpansFrame:
        """Columns are views of ``part``.

        Raises:
            FrameError: sizes or codes do not fit.
        """
        try:
            return self._read(part)
        except (struct.error, KeyError, TypeError, IndexError) as error:
            raise FrameError(f"not a request with spans: {error!r}") from error

    def _read(self, part: bytearray) -> SpansFrame:
        small_size, tables_size, size, there = _SPANS_HEAD.unpack_from(part)
        at = _SPANS_HEAD.size
        small = load(part[at : at + small_size])
        sources, of_rows, sections, kernels = self._tables(
            bytes(part[at + small_size : at + small_size + tables_size])
        )
        at += small_size + tables_size
        at += -at % 8
        batch = ObservationBatch(
            sources=of_rows,
            sections=sections,
            kernels=kernels,
            **_read_columns(part, at, int(small["rows"]), there),
        )
        _check_codes(batch)
        progress = {
            sources[code]: Progress(step=step, end_ns=end_ns)
            for code, step, end_ns in small["progress"]
        }
        return SpansFrame(
            spans=DecodedSpans(
                batch=batch,
                fates=small["fates"],
                progress=progress,
                refused_gpu_times=int(small["refused"]),
            ),
            size=size,
            content_type=small["type"],
            content_encoding=small["encoding"],
        )

    def _tables(self, text: bytes) -> Tables:
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = _read_tables(load(text))
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return known


def _read_tables(tables: Json) -> Tables:
    names = [f.name for f in dataclasses.fields(Source)]
    sources = tuple(
        Source(**dict(zip(names, [*row[:-1], tuple(map(tuple, row[-1]))], strict=True)))
        for row in tables["sources"]
    )
    sections = tuple(Section(*row) for row in tables["sections"])
    kernels = tuple(Kernel(*row) for row in tables["kernels"])
    return sources, sources[: tables["n"]], sections, kernels


def _read_columns(part: bytearray, at: int, rows: int, there: int) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name, kind in _COLUMNS:
        if name in _OPTIONAL and not there & _OPTIONAL[name]:
            continue
        size = rows * np.dtype(kind).itemsize
        if rows < 0 or at + size > len(part):
            raise FrameError(f"the column {name} ends after the frame")
        columns[name] = np.frombuffer(part, kind, rows, at)
        at += size
    if at != len(part):
        raise FrameError(f"{len(part) - at} bytes after the last column")
    gpu = [columns.pop(name) for name in _GPU if name in columns]
    if gpu and gpu[0].max(initial=0) > CUPTI:
        raise FrameError("there is no such time basis")
    return {**columns, "gpu": GpuTimes(*gpu) if gpu else None}


def _check_codes(batch: ObservationBatch) -> None:
    if not len(batch):
        return
    for codes, names, least in (
        (batch.source, batch.sources, 0),
        (batch.section, batch.sections, 0),
        (batch.kernel, batch.kernels, -1),
    ):
        if codes.min() < least or codes.max() >= len(names):
            raise FrameError("a code beyond its table")


# --- other requests, and answers -----------------------------------------------------------------


def encode_request(request: Request) -> tuple[bytes, bytes]:
    """Both parts of a ``REQUEST`` frame: a request that the scoring process decodes."""
    is_same = request.raw_body is request.body or request.raw_body == request.body
    head = {
        "signal": request.signal,
        "type": request.content_type,
        "encoding": request.content_encoding,
        "size": len(request.body),
    }
    return dump(head), request.body if is_same else request.body + request.raw_body


def read_request(part: bytearray, original: bytes) -> Request:
    """The request of a ``REQUEST`` frame.

    Raises:
        FrameError: sizes do not fit.
    """
    head = load(part)
    try:
        size = int(head["size"])
        body, raw = original[:size], original[size:]
        return Request(
            signal=head["signal"],
            content_type=head["type"],
            body=body,
            raw_body=raw or body,
            content_encoding=head["encoding"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FrameError(f"not a request: {error!r}") from error


def encode_answer(answer: Answer) -> bytes:
    return dump(dataclasses.asdict(answer))


def read_answer(part: bytes) -> Answer:
    return Answer(**load(part))
