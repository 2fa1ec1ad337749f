"""Spans of one shape, read as columns.

Senders repeat themselves: most spans of a request differ only in ids, times and a few integers. So
one span is parsed with upb; from its bytes comes a layout, which says where the numbers stand and
what every other byte must be. Spans of the same length whose bytes agree with the layout are then
read together, with NumPy. Agreement covers all tags, lengths and continuation bits, so a span that
agrees has exactly this structure; whatever does not agree is parsed by upb, one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bytes1D = npt.NDArray[np.uint8]
Bytes2D = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_CONTINUES = 0x80
_LONGEST_VARINT = 9
"""Longer ones are negative numbers, or wrong."""

_TRACE_ID, _SPAN_ID, _PARENT, _NAME, _KIND, _START, _END, _ATTRIBUTE = 1, 2, 4, 5, 6, 7, 8, 9
_STATUS, _FLAGS = 15, 16
_WIRE_TYPE = {
    _TRACE_ID: LENGTH,
    _SPAN_ID: LENGTH,
    _PARENT: LENGTH,
    _NAME: LENGTH,
    _KIND: VARINT,
    _START: FIXED64,
    _END: FIXED64,
    _ATTRIBUTE: LENGTH,
    _STATUS: LENGTH,
    _FLAGS: FIXED32,
}
_ID_SIZE = {_TRACE_ID: 16, _SPAN_ID: 8, _PARENT: 8}
_INT_VALUE = 3
_DOUBLE_VALUE = 4


class UnfamiliarError(ValueError):
    """Raised for bytes that have no layout; upb decides what they are."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message: its number and wire type, and where its content stands."""

    number: int
    wire_type: int
    begin: int
    end: int


def fields_of(data: bytes, begin: int, end: int) -> Iterator[Field]:
    """The fields of a message, in order.

    >>> [(f.number, f.begin, f.end) for f in fields_of(bytes.fromhex("0a0161 1001"), 0, 5)]
    [(1, 2, 3), (2, 4, 5)]

    Raises:
        UnfamiliarError: truncated, or of a wire type that OTLP does not use.
    """
    at = begin
    while at < end:
        tag, at = varint_at(data, at, end)
        wire_type = tag & 7
        content = at
        if wire_type == LENGTH:
            size, content = varint_at(data, at, end)
            at = content + size
        elif wire_type == VARINT:
            _, at = varint_at(data, at, end)
        elif wire_type == FIXED64:
            at += 8
        elif wire_type == FIXED32:
            at += 4
        else:
            raise UnfamiliarError
        if at > end or tag < 8:
            raise UnfamiliarError
        yield Field(tag >> 3, wire_type, content, at)


def varint_at(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The varint at ``at`` and where it ends."""
    value = shift = 0
    while at < end and shift < 63:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < _CONTINUES:
            return value, at
        shift += 7
    raise UnfamiliarError


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the numbers of a span stand, and what the other bytes are.

    Attributes:
        mask, expected: (L,) a span agrees if ``bytes & mask == expected``.
        trace_at, span_at, start_at, end_at: offsets.
        integers: offset and width of attributes that are integers, by key; the last of a key.
    """

    mask: Bytes1D
    expected: Bytes1D
    trace_at: int
    span_at: int
    start_at: int
    end_at: int
    integers: dict[str, tuple[int, int]]

    @classmethod
    def of(
        cls, span: bytes, variable_keys: frozenset[str], constant_keys: frozenset[str]
    ) -> Layout:
        """The layout of one span, which upb has already taken as valid.

        Args:
            span: its bytes.
            variable_keys: integer attributes whose value is read from every span.
            constant_keys: attributes whose value is part of the shape.

        Raises:
            UnfamiliarError: it has events, links, or anything that is not simple.
        """
        mask = np.full(len(span), 0xFF, np.uint8)
        places: dict[int, int] = {}
        integers: dict[str, tuple[int, int]] = {}
        for field in fields_of(span, 0, len(span)):
            if _WIRE_TYPE.get(field.number) != field.wire_type:
                raise UnfamiliarError
            if field.number == _ATTRIBUTE:
                _read_attribute(span, field, mask, integers, variable_keys, constant_keys)
                continue
            if field.number in places:
                raise UnfamiliarError
            places[field.number] = field.begin
            size = _ID_SIZE.get(field.number)
            if size is not None and field.end - field.begin != size:
                raise UnfamiliarError
            if size is not None or field.number in (_START, _END):
                mask[field.begin : field.end] = 0
        if not {_TRACE_ID, _SPAN_ID, _START, _END} <= places.keys():
            raise UnfamiliarError
        return cls(
            mask=mask,
            expected=np.frombuffer(span, np.uint8) & mask,
            trace_at=places[_TRACE_ID],
            span_at=places[_SPAN_ID],
            start_at=places[_START],
            end_at=places[_END],
            integers=integers,
        )

    def agrees(self, rows: Bytes2D) -> npt.NDArray[np.bool_]:
        """Which of the spans (n, L) have this layout."""
        agreed: npt.NDArray[np.bool_] = ((rows & self.mask) == self.expected).all(axis=1)
        return agreed

    def words(self, rows: Bytes2D, at: int) -> Words:
        """Eight bytes at ``at``, little-endian."""
        return np.ascontiguousarray(rows[:, at : at + 8]).view("<u8").ravel()

    def integer(self, rows: Bytes2D, key: str) -> Ints:
        """An attribute listed in ``integers``."""
        at, width = self.integers[key]
        value = np.zeros(len(rows), np.int64)
        for place in range(width):
            value |= (rows[:, at + place] & 0x7F).astype(np.int64) << (7 * place)
        return value


def _read_attribute(
    span: bytes,
    field: Field,
    mask: Bytes1D,
    integers: dict[str, tuple[int, int]],
    variable_keys: frozenset[str],
    constant_keys: frozenset[str],
) -> None:
    """Free the bytes of an attribute's number, if it may differ from span to span."""
    parts = list(fields_of(span, field.begin, field.end))
    if [(p.number, p.wire_type) for p in parts] != [(1, LENGTH), (2, LENGTH)]:
        raise UnfamiliarError
    key = span[parts[0].begin : parts[0].end].decode()
    values = list(fields_of(span, parts[1].begin, parts[1].end))
    if key in integers:
        raise UnfamiliarError
    if key in constant_keys or len(values) != 1:
        return
    value = values[0]
    if (value.number, value.wire_type) == (_DOUBLE_VALUE, FIXED64) and key not in variable_keys:
        mask[value.begin : value.end] = 0
    elif (value.number, value.wire_type) == (_INT_VALUE, VARINT):
        width = value.end - value.begin
        if width > _LONGEST_VARINT:
            raise UnfamiliarError
        mask[value.begin : value.end] = _CONTINUES
        if key in variable_keys:
            integers[key] = value.begin, width
