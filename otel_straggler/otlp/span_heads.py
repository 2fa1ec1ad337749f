"""Ids and times of many spans, read from their bytes without decoding them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_straggler.model.observation import Ints
from otel_straggler.otlp.ids import Ids

_TRACE, _SPAN, _PARENT = (0x0A, 0x10), (0x12, 0x08), (0x22, 0x08)
"""Tags and lengths of the three ids, as nearly every sender writes them."""
_NAME, _KIND, _START, _END = 0x2A, 0x30, 0x39, 0x41
_MIN_BYTES = 48
"""Of a span with two ids, a name of no letter, and two times."""
_MAX_NS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SpanHeads:
    """n spans.

    Attributes:
        span_ids, parent_ids: (n,) the 8 bytes as a little-endian number, as in :class:`.SpanGroup`;
            0 without one.
        start_ns, end_ns: (n,) Unix time as sent, 0 if it is missing.
    """

    span_ids: Ids
    parent_ids: Ids
    start_ns: Ints
    end_ns: Ints

    def of_rows(self, at: Any) -> SpanHeads:
        return SpanHeads(self.span_ids[at], self.parent_ids[at], self.start_ns[at], self.end_ns[at])


def heads_of(body: bytes, contents: Ints, ends: Ints) -> SpanHeads:
    """Read spans that begin and end there.

    Cost: O(spans), some array operations if their fields come in the order of their numbers, as
    SDKs write them; the others are decoded one by one. Of one that is no span all numbers are 0.
    """
    n = len(contents)
    ids, times = np.zeros((2, n), np.uint64), np.zeros((2, n), np.uint64)
    data = np.frombuffer(body, np.uint8)
    last = len(data) - 1
    usual = ends - contents >= _MIN_BYTES

    def byte(at: Ints) -> npt.NDArray[np.uint8]:
        return data[np.minimum(at, last)]

    def has(at: Ints, mark: tuple[int, int]) -> npt.NDArray[np.bool_]:
        both: npt.NDArray[np.bool_] = (byte(at) == mark[0]) & (byte(at + 1) == mark[1])
        return both

    usual &= has(contents, _TRACE) & has(contents + 18, _SPAN)
    has_parent = has(contents + 28, _PARENT)
    name_at = contents + np.where(has_parent, 38, 28)
    length = byte(name_at + 1).astype(np.int64)
    usual &= (byte(name_at) == _NAME) & (length < 0x80)
    kind_at = name_at + 2 + length
    has_kind = byte(kind_at) == _KIND
    start_at = kind_at + np.where(has_kind, 2, 0)
    usual &= start_at + 18 <= ends
    usual &= (byte(start_at) == _START) & (byte(start_at + 9) == _END)
    if usual.any():
        words: npt.NDArray[np.uint8] = np.ndarray((last - 6, 8), np.uint8, body, strides=(1, 1))
        ids[0, usual] = words[contents[usual] + 20].view("<u8").ravel()
        with_parent = usual & has_parent
        ids[1, with_parent] = words[contents[with_parent] + 30].view("<u8").ravel()
        times[0, usual] = words[start_at[usual] + 1].view("<u8").ravel()
        times[1, usual] = words[start_at[usual] + 10].view("<u8").ravel()
    for row in np.flatnonzero(~usual).tolist():
        ids[:, row], times[:, row] = _decoded(body[contents[row] : ends[row]])
    start_ns, end_ns = np.minimum(times, np.uint64(_MAX_NS)).astype(np.int64)
    return SpanHeads(ids[0], ids[1], start_ns, end_ns)


def _decoded(content: bytes) -> tuple[tuple[int, int], tuple[int, int]]:
    try:
        span = Span.FromString(content)
    except DecodeError:
        return (0, 0), (0, 0)
    ids = _number(span.span_id), _number(span.parent_span_id)
    return ids, (span.start_time_unix_nano, span.end_time_unix_nano)


def _number(span_id: bytes) -> int:
    return int.from_bytes(span_id, "little") if len(span_id) == 8 else 0
