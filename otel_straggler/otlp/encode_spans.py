"""Spans to OTLP protobuf, many at a time.

Spans of one section differ only in ids, times and a few integers. So one span is laid out once as a
template, the template is repeated into a matrix, and the columns that differ are written with
NumPy. Integers have the width of the largest of their column: a varint padded with zero groups is
legal protobuf.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from otel_straggler import semconv
from otel_straggler._version import __version__
from otel_straggler.model.observation import Ints
from otel_straggler.otlp.ids import Ids
from otel_straggler.semconv import AttributeValue

Bytes2D = npt.NDArray[np.uint8]

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_INTERNAL = 1
_ERROR = 2
_FLAGS = 0x103  # sampled, random trace id, and "the parent is not remote" is known


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanGroup:
    """n spans that share name, text attributes and shape.

    Attributes:
        numbers: (n,) integer attributes.
        trace_ids: (n, 16) bytes.
        span_ids, parent_ids: (n,); without parents None.
        start_ns, end_ns: (n,) Unix time.
    """

    name: str
    labels: tuple[tuple[str, str], ...] = ()
    numbers: Mapping[str, Ints] = field(default_factory=dict)
    trace_ids: Bytes2D
    span_ids: Ids
    parent_ids: Ids | None
    start_ns: Ints
    end_ns: Ints
    is_error: bool = False


def encode_rows(group: SpanGroup) -> list[bytes]:
    """One piece of bytes per span, ready to stand in a request. Cost: O(n * bytes of a span)."""
    widths = tuple((key, _varint_width(column)) for key, column in group.numbers.items())
    layout = _layout(group.name, group.labels, widths, group.parent_ids is not None, group.is_error)
    count = len(group.span_ids)
    rows = np.empty((count, len(layout.template)), np.uint8)
    rows[:] = layout.template
    _put(rows, layout.trace_at, group.trace_ids)
    _put(rows, layout.span_at, _octets(group.span_ids))
    if group.parent_ids is not None:
        _put(rows, layout.parent_at, _octets(group.parent_ids))
    _put(rows, layout.start_at, _octets(group.start_ns))
    _put(rows, layout.end_at, _octets(group.end_ns))
    for (key, width), at in zip(widths, layout.numbers_at, strict=True):
        _put_varints(rows, at, width, group.numbers[key])
    pieces: list[bytes] = rows.view(f"V{rows.shape[1]}").ravel().tolist()
    return pieces


def encode_resource(attributes: Mapping[str, AttributeValue]) -> bytes:
    return b"".join(submessage(1, _key_value(key, value)) for key, value in attributes.items())


def encode_request(resource: bytes, rows: Iterable[bytes]) -> bytes:
    """The message ``ExportTraceServiceRequest`` with one resource and one scope."""
    schema = submessage(3, semconv.SCHEMA_URL.encode())
    scope = submessage(1, submessage(1, semconv.SCOPE_NAME.encode()) + submessage(2, _VERSION))
    scope_spans = b"".join([scope, *rows, schema])
    return submessage(1, submessage(1, resource) + submessage(2, scope_spans) + schema)


_VERSION = __version__.encode()


@dataclass(frozen=True, slots=True)
class _Layout:
    template: Bytes2D
    trace_at: int
    span_at: int
    parent_at: int
    start_at: int
    end_at: int
    numbers_at: tuple[int, ...]


@lru_cache(maxsize=4096)
def _layout(
    name: str,
    labels: tuple[tuple[str, str], ...],
    widths: tuple[tuple[str, int], ...],
    has_parent: bool,
    is_error: bool,
) -> _Layout:
    body = bytearray()
    trace_at = _reserve(body, _tag(1, _LENGTH) + b"\x10", 16)
    span_at = _reserve(body, _tag(2, _LENGTH) + b"\x08", 8)
    parent_at = _reserve(body, _tag(4, _LENGTH) + b"\x08", 8) if has_parent else -1
    body += submessage(5, _utf8(name)) + _tag(6, _VARINT) + varint(_INTERNAL)
    start_at = _reserve(body, _tag(7, _FIXED64), 8)
    end_at = _reserve(body, _tag(8, _FIXED64), 8)
    for key, text in labels:
        body += submessage(9, _key_value(key, text))
    numbers_at = tuple(_reserve(body, _number_head(key, w), w) for key, w in widths)
    if is_error:
        body += submessage(15, _tag(3, _VARINT) + varint(_ERROR))
    body += _tag(16, _FIXED32) + _FLAGS.to_bytes(4, "little")
    head = _tag(2, _LENGTH) + varint(len(body))
    moved = len(head)
    return _Layout(
        template=np.frombuffer(head + bytes(body), np.uint8),
        trace_at=trace_at + moved,
        span_at=span_at + moved,
        parent_at=parent_at + moved,
        start_at=start_at + moved,
        end_at=end_at + moved,
        numbers_at=tuple(at + moved for at in numbers_at),
    )


def _reserve(body: bytearray, head: bytes, size: int) -> int:
    """The offset of the room for ``size`` bytes."""
    body += head
    at = len(body)
    body += bytes(size)
    return at


def _number_head(key: str, width: int) -> bytes:
    """All of an integer attribute but the integer."""
    value = _tag(3, _VARINT)
    inner = submessage(1, _utf8(key)) + _tag(2, _LENGTH) + varint(len(value) + width) + value
    return _tag(9, _LENGTH) + varint(len(inner) + width) + inner


def _put(rows: Bytes2D, at: int, columns: Bytes2D) -> None:
    rows[:, at : at + columns.shape[1]] = columns


def _put_varints(rows: Bytes2D, at: int, width: int, column: Ints) -> None:
    rest = column.astype(np.uint64)
    for index in range(width):
        group = (rest & np.uint64(0x7F)).astype(np.uint8)
        rows[:, at + index] = group if index == width - 1 else group | 0x80
        rest >>= np.uint64(7)


def _octets(column: Ids | Ints) -> Bytes2D:
    little_endian = np.ascontiguousarray(column, dtype=column.dtype.newbyteorder("<"))
    return little_endian.view(np.uint8).reshape(-1, 8)


def _varint_width(column: Ints) -> int:
    """Bytes of the longest varint of the column; a negative number takes 10."""
    if not len(column):
        return 1
    if int(column.min()) < 0:
        return 10
    return max(1, -(-int(column.max()).bit_length() // 7))


def _key_value(key: str, value: AttributeValue) -> bytes:
    return submessage(1, _utf8(key)) + submessage(2, _any_value(value))


def _any_value(value: AttributeValue) -> bytes:
    if isinstance(value, bool):
        return _tag(2, _VARINT) + varint(int(value))
    if isinstance(value, int):
        return _tag(3, _VARINT) + varint(value & 0xFFFF_FFFF_FFFF_FFFF)
    if isinstance(value, float):
        return _tag(4, _FIXED64) + struct.pack("<d", value)
    return submessage(1, _utf8(value))


def _utf8(text: str) -> bytes:
    """Half a surrogate pair, which is not text, becomes a question mark."""
    return text.encode("utf-8", "replace")


def submessage(field_number: int, body: bytes) -> bytes:
    return _tag(field_number, _LENGTH) + varint(len(body)) + body


def _tag(field_number: int, wire_type: int) -> bytes:
    return varint(field_number << 3 | wire_type)


def varint(value: int) -> bytes:
    """
    >>> varint(300).hex()
    'ac02'
    """
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
