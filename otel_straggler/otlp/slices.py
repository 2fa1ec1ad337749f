"""Trace requests cut at their spans, and rebuilt from the spans that are kept. Only the lengths
around them are encoded again; all else are the bytes that came."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_straggler.errors import InputError
from otel_straggler.model.observation import Ints
from otel_straggler.model.rank import Source
from otel_straggler.otlp.encode_spans import submessage
from otel_straggler.otlp.identity import Aliases, Resource, Resources
from otel_straggler.otlp.span_rules import Keys, SpanNames

Text = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_RESOURCE_SPANS, _RESOURCE, _SCOPE_SPANS, _SPANS = 1, 1, 2, 2
_SPAN_TAG = _SPANS << 3 | _LENGTH
_MIN_BYTES_AT_ONCE = 2_048
"""Of a scope; a smaller one is cut faster span by span."""
_TRACE_ID_HEAD = 0x0A, 0x10
"""How a span begins that names its trace first, as nearly all do."""


@dataclass(frozen=True, slots=True)
class ScopeSlice:
    """The spans of one scope, of the resource with this index.

    Attributes:
        head, tail: the other fields of the scope's message: those before the first span, and all
            others.
        begins: where each span's field begins; its tag and length included.
        contents, ends: where each span itself begins and ends.
    """

    resource: int
    head: bytes
    tail: bytes
    begins: Ints
    contents: Ints
    ends: Ints

    def __len__(self) -> int:
        return len(self.begins)


@dataclass(frozen=True, slots=True)
class Slices:
    """One ``ExportTraceServiceRequest``, cut.

    Attributes:
        heads, tails: of each ``ResourceSpans``, its fields but the scopes: those before the first
            scope, and all others.
        resources: of each, the message ``Resource``; the last where there are several.
    """

    body: bytes
    heads: list[bytes]
    tails: list[bytes]
    resources: list[bytes]
    scopes: list[ScopeSlice]

    def __len__(self) -> int:
        return sum(map(len, self.scopes))

    def traces_of(self, scope: ScopeSlice) -> Text:
        """(n, 2) trace ids as two big-endian words; 0 for a span without a proper one.

        Cost: O(spans), a few array operations if all spans begin with their trace id.
        """
        text = np.zeros((len(scope), 2), np.uint64)
        data = np.frombuffer(self.body, np.uint8)
        contents = scope.contents
        usual = scope.ends - contents >= len(_TRACE_ID_HEAD) + 16
        at = contents[usual]
        heads = (data[at] == _TRACE_ID_HEAD[0]) & (data[at + 1] == _TRACE_ID_HEAD[1])
        usual[usual] = heads
        at = contents[usual] + len(_TRACE_ID_HEAD)
        if len(at):
            everywhere: npt.NDArray[np.uint8] = np.ndarray(
                (len(self.body) - 15, 16), np.uint8, self.body, strides=(1, 1)
            )
            text[usual] = everywhere[at].view(">u8")
        for number in np.flatnonzero(~usual).tolist():
            text[number] = _parsed_text(self.body[contents[number] : scope.ends[number]])
        return text

    def rebuild(self, kept: Iterable[Bools]) -> bytes:
        """A request with the spans of which a mask for every scope is true; empty if none is."""
        by_resource: dict[int, list[bytes]] = {}
        for scope, mask in zip(self.scopes, kept, strict=True):
            if mask.any():
                cuts = zip(scope.begins[mask].tolist(), scope.ends[mask].tolist(), strict=True)
                spans = [self.body[a:b] for a, b in cuts]
                content = scope.head + b"".join(spans) + scope.tail
                by_resource.setdefault(scope.resource, []).append(submessage(_SCOPE_SPANS, content))
        return b"".join(
            submessage(_RESOURCE_SPANS, self.heads[number] + b"".join(scopes) + self.tails[number])
            for number, scopes in by_resource.items()
        )


def slices_of(body: bytes) -> Slices:
    """Cut a request in binary protobuf; one with a field of an unusual kind (a group) is first
    encoded again, by protobuf.

    Raises:
        InputError: it is no ``ExportTraceServiceRequest``.
    """
    try:
        return _cut(body)
    except UnfamiliarError:
        pass
    try:
        request = ExportTraceServiceRequest.FromString(body)
        request.DiscardUnknownFields()
        return _cut(request.SerializeToString())
    except (DecodeError, UnfamiliarError) as error:
        raise InputError(f"body: not an ExportTraceServiceRequest in protobuf: {error}") from error


def _cut(body: bytes) -> Slices:
    slices = Slices(body, [], [], [], [])
    for outer in _fields_of(body, 0, len(body)):
        if outer.number == _RESOURCE_SPANS and outer.wire_type == _LENGTH:
            _cut_resource(slices, outer.begin, outer.end)
    return slices


def _cut_resource(slices: Slices, begin: int, end: int) -> None:
    body, number = slices.body, len(slices.resources)
    head, tail, scopes = _split(body, begin, end, _SCOPE_SPANS)
    slices.scopes.extend(_cut_scope(body, number, first, last) for _, first, last in scopes)
    slices.heads.append(head)
    slices.tails.append(tail)
    others = head + tail
    resources = [
        others[field.begin : field.end]
        for field in _fields_of(others, 0, len(others))
        if (field.number, field.wire_type) == (_RESOURCE, _LENGTH)
    ]
    slices.resources.append(resources[-1] if resources else b"")


def _split(
    body: bytes, begin: int, end: int, number: int
) -> tuple[bytes, bytes, list[tuple[int, int, int]]]:
    """The fields of a message but those with this number: before the first of these, and all
    others; of these, where the field begins, its content begins, and it ends."""
    head: list[bytes] = []
    tail: list[bytes] = []
    cuts: list[tuple[int, int, int]] = []
    at = begin
    for field in _fields_of(body, begin, end):
        if (field.number, field.wire_type) == (number, _LENGTH):
            cuts.append((at, field.begin, field.end))
        else:
            (tail if cuts else head).append(body[at : field.end])
        at = field.end
    return b"".join(head), b"".join(tail), cuts


def _cut_scope(body: bytes, resource: int, begin: int, end: int) -> ScopeSlice:
    if end - begin >= _MIN_BYTES_AT_ONCE:
        scope = _cut_at_once(body, resource, begin, end)
        if scope is not None:
            return scope
    head, tail, spans = _split(body, begin, end, _SPANS)
    return ScopeSlice(resource, head, tail, *np.array(spans, np.int64).reshape(-1, 3).T.copy())


def _cut_at_once(body: bytes, resource: int, begin: int, end: int) -> ScopeSlice | None:
    """With NumPy: where a span that names its trace first may begin is guessed from four bytes. The
    guesses are right if every one ends where the next one begins, and the fields before the first
    and after the last can be read; None if not."""
    data = np.frombuffer(body, np.uint8, end - begin, begin)
    at = np.flatnonzero((data[:-1] == _TRACE_ID_HEAD[0]) & (data[1:] == _TRACE_ID_HEAD[1]))
    at = at[at >= 3]
    low, high = data[at - 2].astype(np.int64), data[at - 1].astype(np.int64)
    is_long = (data[at - 3] == _SPAN_TAG) & (low >= 0x80) & (high < 0x80)
    is_short = ~is_long & (low == _SPAN_TAG) & (high < 0x80)
    sizes = np.where(is_long, low & 0x7F | high << 7, high)
    begins = at - np.where(is_long, 3, 2)
    is_span = is_long | is_short
    begins, contents, sizes = begins[is_span], at[is_span], sizes[is_span]
    if not len(begins):
        return None
    ends = contents + sizes
    if (ends[:-1] != begins[1:]).any() or ends[-1] > end - begin:
        return None
    first, last = begin + int(begins[0]), begin + int(ends[-1])
    for field in (*_fields_of(body, begin, first), *_fields_of(body, last, end)):
        if (field.number, field.wire_type) == (_SPANS, _LENGTH):
            return None
    head, tail = body[begin:first], body[last:end]
    return ScopeSlice(resource, head, tail, begins + begin, contents + begin, ends + begin)


def _parsed_text(span: bytes) -> tuple[int, int]:
    try:
        trace_id: bytes = Span.FromString(span).trace_id
    except DecodeError:
        return 0, 0
    if len(trace_id) != 16:
        return 0, 0
    return int.from_bytes(trace_id[:8], "big"), int.from_bytes(trace_id[8:], "big")


class UnfamiliarError(ValueError):
    """Raised for bytes that cannot be cut; protobuf decides what they are."""


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of a message: its number and wire type, and where its content stands."""

    number: int
    wire_type: int
    begin: int
    end: int


def _fields_of(data: bytes, begin: int, end: int) -> Iterator[_Field]:
    """The fields of a message, in order.

    >>> [(f.number, f.begin, f.end) for f in _fields_of(bytes.fromhex("0a0161 1001"), 0, 5)]
    [(1, 2, 3), (2, 4, 5)]

    Raises:
        UnfamiliarError: truncated, or of a wire type that OTLP does not use.
    """
    at = begin
    while at < end:
        tag, at = _varint_at(data, at, end)
        wire_type = tag & 7
        content = at
        if wire_type == _LENGTH:
            size, content = _varint_at(data, at, end)
            at = content + size
        elif wire_type == _VARINT:
            _, at = _varint_at(data, at, end)
        elif wire_type == _FIXED64:
            at += 8
        elif wire_type == _FIXED32:
            at += 4
        else:
            raise UnfamiliarError
        if at > end or tag < 8:
            raise UnfamiliarError
        yield _Field(tag >> 3, wire_type, content, at)


def _varint_at(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 63:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise UnfamiliarError


class SpanOwners:
    """Senders of the spans of a request that was cut. For one thread."""

    def __init__(self, aliases: Aliases | None = None) -> None:
        self._keys = Keys.of(aliases or Aliases(), SpanNames())
        self._resources = Resources(self._keys.aliases)
        self._marks = _shortest(self._keys.identity)

    def source_of(self, resource: bytes) -> Source | None:
        try:
            return self._resources.read_bytes(resource).identity.source
        except DecodeError:
            return None

    def of(self, slices: Slices, scope: ScopeSlice, is_wanted: Callable[[Source], bool]) -> Bools:
        """Mark the spans of a scope whose source is wanted. Cost: one search per key through its
        bytes; spans are decoded only where they name their sender themselves."""
        try:
            resource = self._resources.read_bytes(slices.resources[scope.resource])
        except DecodeError:
            return np.zeros(len(scope), bool)
        begin, end = (int(scope.begins[0]), int(scope.ends[-1])) if len(scope) else (0, 0)
        if not any(slices.body.find(mark, begin, end) >= 0 for mark in self._marks):
            source = resource.identity.source
            return np.full(len(scope), source is not None and is_wanted(source))
        spans = zip(scope.contents.tolist(), scope.ends.tolist(), strict=True)
        owners = (self._owner(slices.body[a:b], resource) for a, b in spans)
        return np.array([o is not None and is_wanted(o) for o in owners], bool)

    def _owner(self, content: bytes, resource: Resource) -> Source | None:
        try:
            attributes = self._keys.find(Span.FromString(content))
        except DecodeError:
            return None
        return self._keys.identity_of(resource, attributes).source


def _shortest(keys: frozenset[str]) -> tuple[bytes, ...]:
    """Keys that are in none of the others: where they are not, no other is.

    >>> _shortest(frozenset({"rank", "training.rank", "group"}))
    (b'group', b'rank')
    """
    kept = (key for key in keys if not any(o != key and o in key for o in keys))
    return tuple(sorted(key.encode() for key in kept))
