"""Requests read as columns: spans grouped by shape, and every group read at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_straggler import semconv
from otel_straggler.model.gpu_times import CUPTI, HOST
from otel_straggler.model.observation import Floats, Ints
from otel_straggler.wire.identity import Resource, as_int, as_size
from otel_straggler.wire.mixed_ids import mix_columns
from otel_straggler.wire.span_fates import BAD_ID, BAD_TIME, DURATION_NOT_POSITIVE
from otel_straggler.wire.span_gpu import GPU_KEYS, LONGEST_NS, MOST_MORE_NS, MOST_TIMES, basis_of
from otel_straggler.wire.span_keys import Found, Keys, SectionKey, shape_of, step_of
from otel_straggler.wire.span_layouts import (
    LENGTH,
    Bytes2D,
    Layout,
    UnfamiliarError,
    fields_of,
    varint_at,
)
from otel_straggler.wire.span_rows import Rows

_FEWEST = 8
"""A smaller group is parsed span by span: that is faster."""
_LAYOUTS_PER_SIZE = 16
_MOST_SIZES = 2_048
_MOST_MISSES = 3
_SPAN_TAG = 2 << 3 | LENGTH
_MAX_NS = np.uint64(2**63 - 1)


@dataclass(frozen=True, slots=True)
class ScopePart:
    """The spans of one scope: bytes of resource and scope, offset and size of every span."""

    resource: bytes
    scope: bytes
    offsets: list[int]
    sizes: list[int]


def scopes_of(body: bytes) -> Iterator[ScopePart]:
    """The scopes of an ``ExportTraceServiceRequest``.

    Raises:
        UnfamiliarError: a field is unknown, missing its place, or cut off.
    """
    for outer in fields_of(body, 0, len(body)):
        if (outer.number, outer.wire_type) != (1, LENGTH):
            raise UnfamiliarError
        resource = None
        scopes = []
        for field in fields_of(body, outer.begin, outer.end):
            if field.wire_type != LENGTH or field.number not in (1, 2, 3):
                raise UnfamiliarError
            if field.number == 1:
                if resource is not None:
                    raise UnfamiliarError
                resource = body[field.begin : field.end]
            elif field.number == 2:
                scopes.append(field)
            else:
                _check_text(body, field.begin, field.end)
        for scope in scopes:
            yield _scope_part(body, resource or b"", scope.begin, scope.end)


def _scope_part(body: bytes, resource: bytes, begin: int, end: int) -> ScopePart:
    scope = b""
    offsets: list[int] = []
    sizes: list[int] = []
    at = begin
    while at < end:
        if body[at] == _SPAN_TAG:  # nearly always, with a size of two bytes: read it in line
            low, high = body[at + 1 : at + 3] if at + 3 <= end else (0x80, 0x80)
            if low >= 0x80 > high:
                size, content = low & 0x7F | high << 7, at + 3
            else:
                size, content = varint_at(body, at + 1, end)
            at = content + size
            offsets.append(content)
            sizes.append(size)
            continue
        field = next(fields_of(body, at, end))
        if field.wire_type != LENGTH or field.number not in (1, 3):
            raise UnfamiliarError
        if field.number == 3:
            _check_text(body, field.begin, field.end)
        elif scope:
            raise UnfamiliarError
        else:
            scope = body[field.begin : field.end]
        at = field.end
    if at != end:
        raise UnfamiliarError
    return ScopePart(resource, scope, offsets, sizes)


def _check_text(body: bytes, begin: int, end: int) -> None:
    try:
        body[begin:end].decode()
    except UnicodeDecodeError as error:
        raise UnfamiliarError from error


@dataclass(frozen=True, slots=True)
class Shape:
    """A layout, and what its constant bytes mean.

    Attributes:
        found: attributes that are the same in all its spans.
        section, fate: what its spans are scored as, or why they are not.
        step: fixed step; None if ``step_key`` names a column.
        seq: fixed seq; None if it is a column or comes from the ids.
        tokens: fixed work size; None if it is a column or not told.
        basis: what its times on the GPU rest on.
        gpu_keys: the attributes of these times that its spans have; what is no column is no number.
    """

    layout: Layout
    found: Found
    section: SectionKey | None
    fate: str
    step_key: str | None
    step: int
    seq: int | None
    tokens: float | None
    basis: int
    gpu_keys: tuple[str, ...]

    @classmethod
    def of(cls, content: bytes, keys: Keys, *, is_own: bool) -> Shape:
        """The shape of one span.

        Raises:
            UnfamiliarError: it has no layout.
            DecodeError: it is not a span.
        """
        span = Span.FromString(content)
        layout = Layout.of(content, keys.numbers, keys.wanted - keys.numbers)
        found = keys.find(span)
        if semconv.FOLD_COUNT in found:  # it stands for many rows
            raise UnfamiliarError
        section, fate = shape_of(span, found, keys, is_own=is_own)
        step_key = keys.step_key(found)
        basis = basis_of(found.get(semconv.TIME_BASIS))
        needed = GPU_KEYS[: {HOST: 0, CUPTI: 3}.get(basis, 1)]
        if any(isinstance(found.get(key), float) for key in needed):  # whole doubles are rare
            raise UnfamiliarError
        return cls(
            layout=layout,
            found={k: v for k, v in found.items() if k in keys.identity},
            section=section,
            fate=fate,
            step_key=step_key if step_key in layout.integers else None,
            step=step_of(found, keys),
            seq=as_int(found.get(semconv.SEQ)),
            tokens=as_size(found.get(semconv.TOKENS)),
            basis=basis,
            gpu_keys=tuple(key for key in needed if key in found),
        )

    def steps(self, rows: Bytes2D) -> Ints | int:
        return self.step if self.step_key is None else self.layout.integer(rows, self.step_key)

    def work_sizes(self, rows: Bytes2D) -> Floats | None:
        """None if they are not told."""
        if semconv.TOKENS in self.layout.integers:
            return self.layout.integer(rows, semconv.TOKENS).astype(np.float64)
        return None if self.tokens is None else np.full(len(rows), self.tokens)

    def gpu(self, rows: Bytes2D, lengths_ns: Ints) -> tuple[Floats | None, int]:
        """(n, 4) basis and nanoseconds, as :func:`.span_gpu.gpu_numbers` has them, and how many
        times are refused; None if nothing is told."""
        if self.basis == HOST:
            return None, 0
        told = np.full((len(rows), 4), np.nan)
        told[:, 0] = self.basis
        refused = 0
        most_ns = np.minimum(lengths_ns, LONGEST_NS) * MOST_TIMES + MOST_MORE_NS
        for column, key in enumerate(GPU_KEYS, 1):
            if key in self.layout.integers and key in self.gpu_keys:
                time_ns = self.layout.integer(rows, key)
                is_time = (time_ns >= 0) & (time_ns <= most_ns)
                told[:, column] = np.where(is_time, time_ns, np.nan)
                refused += int((~is_time).sum())
            elif key in self.gpu_keys:
                refused += len(rows)
        is_known = ~np.isnan(told[:, 1 : self.basis + 1]).any(axis=1)  # cupti needs two of them
        told[~is_known] = np.nan
        return told, refused

    def seqs(self, rows: Bytes2D) -> Ints | int:
        if semconv.SEQ in self.layout.integers:
            return self.layout.integer(rows, semconv.SEQ)
        if self.seq is not None:
            return self.seq
        layout = self.layout
        return mix_columns(
            layout.words(rows, layout.trace_at),
            layout.words(rows, layout.trace_at + 8),
            layout.words(rows, layout.span_at),
        )


class Shapes:
    """The shapes seen so far. Safe to use from several threads: a lost update is learnt again."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._known: dict[tuple[int, bool], tuple[Shape, ...]] = {}
        self._own_scopes: dict[bytes, bool] = {}

    def read(
        self, body: bytes, part: ScopePart, first_place: int, resource: Resource, rows: Rows
    ) -> None:
        """Take the spans of one scope.

        Raises:
            DecodeError: one of them is not a span.
        """
        is_own = self._is_own(part.scope)
        sizes = np.array(part.sizes, np.int64)
        offsets = np.array(part.offsets, np.int64)
        for size in sorted(set(part.sizes)):
            of_size = np.flatnonzero(sizes == size)
            rest = of_size
            if size and len(of_size) >= _FEWEST:
                window = (len(body) - size + 1, size)
                everywhere: Bytes2D = np.ndarray(window, np.uint8, body, strides=(1, 1))
                spans = everywhere[offsets[of_size]]
                places = of_size + first_place
                rest = of_size[self._read_group(spans, places, is_own, resource, rows)]
            for number in rest.tolist():
                at = part.offsets[number]
                span = Span.FromString(body[at : at + size])
                rows.add(span, resource, is_own=is_own, index=first_place + number)

    def _is_own(self, scope: bytes) -> bool:
        known = self._own_scopes.get(scope)
        if known is None:
            if len(self._own_scopes) >= _MOST_SIZES:
                self._own_scopes.clear()
            known = InstrumentationScope.FromString(scope).name == semconv.SCOPE_NAME
            self._own_scopes[scope] = known
        return known

    def _read_group(
        self, spans: Bytes2D, places: Ints, is_own: bool, resource: Resource, rows: Rows
    ) -> Ints:
        """Take the spans (n, size) that have a layout; the numbers of the others."""
        key = (spans.shape[1], is_own)
        left = np.arange(len(spans))
        for shape in self._known.get(key, ()):
            left = self._read_shape(shape, spans, left, places, resource, rows)
            if not len(left):
                return left
        misses = 0
        while len(left) >= _FEWEST and misses < _MOST_MISSES:
            try:
                shape = Shape.of(spans[left[0]].tobytes(), self._keys, is_own=is_own)
            except UnfamiliarError:
                break
            before = len(left)
            left = self._read_shape(shape, spans, left, places, resource, rows)
            misses += before - len(left) < _FEWEST
            self._learn(key, shape)
        return left

    def _learn(self, key: tuple[int, bool], shape: Shape) -> None:
        if len(self._known) >= _MOST_SIZES:
            self._known = {}
        self._known[key] = (shape, *self._known.get(key, ()))[:_LAYOUTS_PER_SIZE]

    def _read_shape(
        self,
        shape: Shape,
        spans: Bytes2D,
        left: Ints,
        places: Ints,
        resource: Resource,
        rows: Rows,
    ) -> Ints:
        """Take those of ``spans[left]`` that have this shape; the numbers of the others."""
        agreed = shape.layout.agrees(spans if len(left) == len(spans) else spans[left])
        if agreed.all():
            mine, others = left, left[:0]
        else:
            mine, others = left[agreed], left[~agreed]
        if len(mine):
            chosen = spans if len(mine) == len(spans) else spans[mine]
            _take(shape, chosen, places[mine], self._keys, resource, rows)
        return others


def _take(
    shape: Shape, spans: Bytes2D, places: Ints, keys: Keys, resource: Resource, rows: Rows
) -> None:
    """Decide over spans of one shape, in the order in which :class:`Rows` does for one."""
    layout = shape.layout
    trace = layout.words(spans, layout.trace_at) | layout.words(spans, layout.trace_at + 8)
    has_ids = (trace != 0) & (layout.words(spans, layout.span_at) != 0)
    spans, places = _only(spans, places, has_ids, BAD_ID, rows)
    identity = keys.who(resource, shape.found)
    if identity.source is None:
        rows.count(identity.fate, len(spans))
        return
    start, end = layout.words(spans, layout.start_at), layout.words(spans, layout.end_at)
    is_time = (start > 0) & (start <= _MAX_NS) & (end > 0) & (end <= _MAX_NS)
    lasts = end > start
    if not (is_time & lasts).all():
        rows.count(BAD_TIME, int((~is_time).sum()))
        rows.count(DURATION_NOT_POSITIVE, int((is_time & ~lasts).sum()))
        good = is_time & lasts
        spans, places, start, end = spans[good], places[good], start[good], end[good]
    if not len(spans):
        return
    steps = shape.steps(spans)
    starts_ns, ends_ns = start.view(np.int64), end.view(np.int64)
    rows.note_progress(identity.source, steps, ends_ns)
    if shape.section is None:
        rows.count(shape.fate, len(spans))
        return
    columns = (steps, starts_ns, ends_ns, shape.seqs(spans))
    sizes = shape.work_sizes(spans)
    gpu, refused = shape.gpu(spans, ends_ns - starts_ns)
    rows.add_columns(places, identity.source, shape.section, columns, sizes, gpu, refused)


def _only(
    spans: Bytes2D,
    places: Ints,
    good: np.ndarray[tuple[int], np.dtype[np.bool_]],
    fate: str,
    rows: Rows,
) -> tuple[Bytes2D, Ints]:
    if good.all():
        return spans, places
    rows.count(fate, int((~good).sum()))
    return spans[good], places[good]
