"""The spans of several requests as columns, and as pieces: what one scope has of one trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otel_straggler.model.observation import Ints
from otel_straggler.model.rank import Source
from otel_straggler.otlp.slices import Bools, ScopeSlice, Slices
from otel_straggler.otlp.span_heads import SpanHeads, heads_of

_LATEST = 2**63 - 1
_GOLDEN = 0x9E3779B97F4A7C15


class SpanTimes(NamedTuple):
    """Id of a span, as a little-endian number, and Unix time, ns."""

    span_id: int
    start_ns: int
    end_ns: int


class Sender(NamedTuple):
    """Of a scope: the rank that its resource names, and whether the scope is ours, so that every
    parent is a span of the same rank, or the root."""

    source: Source | None
    is_own: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """The spans of one trace in one scope of a request.

    Attributes:
        scope, rows: which scope of the batch, and which of its spans, ascending.
        wanted: how many of them a rule keeps.
        is_flagged: some are of a rank that a verdict or the newest window names.
        first_ns, last_ns: of all of them; ``last_ns`` is 0 if none has times.
        steps: those whose parent is the root.
        absent: parents that are not among them, with the times of a child.
    """

    batch: SpanBatch
    scope: int
    rows: Ints
    sender: Sender
    trace_id: bytes
    wanted: int
    is_flagged: bool
    first_ns: int
    last_ns: int
    steps: Sequence[SpanTimes]
    absent: Sequence[SpanTimes]

    @property
    def spans(self) -> int:
        return len(self.rows)

    @property
    def is_traced(self) -> bool:
        return any(self.trace_id)

    def wanted_rows(self) -> Ints:
        return self.rows[self.batch.reasons[self.rows] >= 0]

    def wanted_heads(self) -> SpanHeads:
        return self.batch.heads.of_rows(self.wanted_rows())

    def sample(self) -> bytes:
        """The bytes of one span."""
        return self.batch.content(int(self.rows[0]))


class SpanBatch:
    """n spans of requests that were cut.

    Attributes:
        scopes: the request, by its number, and the scope.
        starts: where each scope begins; n at the end.
        traces: (n, 2), see :meth:`.Slices.traces_of`.
        reasons: (n,) the rule that names the span, -1 if none does.
        kept: (n,) whether it is forwarded.
    """

    def __init__(self, requests: Sequence[Slices]) -> None:
        self.scopes = [(n, scope) for n, each in enumerate(requests) for scope in each.scopes]
        lengths = [len(scope) for _, scope in self.scopes]
        self.starts = np.cumsum([0, *lengths])
        self._scope = np.repeat(np.arange(len(lengths)), lengths)
        self._body = b"".join(each.body for each in requests)
        before = np.cumsum([0, *(len(each.body) for each in requests)])
        moved = np.repeat(before[[n for n, _ in self.scopes]], lengths) if lengths else before[:0]
        columns = (
            moved + np.concatenate([before[:0], *(getattr(s, name) for _, s in self.scopes)])
            for name in ("begins", "contents", "ends")
        )
        whole = self._whole = ScopeSlice(-1, b"", b"", *columns)
        self.traces = Slices(self._body, [], [], [], []).traces_of(whole)
        self.heads = heads_of(self._body, whole.contents, whole.ends)
        self.reasons = np.full(len(whole), -1, np.int8)
        self.kept = np.zeros(len(whole), bool)

    def __len__(self) -> int:
        return len(self._scope)

    def content(self, row: int) -> bytes:
        return self._body[int(self._whole.contents[row]) : int(self._whole.ends[row])]

    def masks(self, n_requests: int) -> list[list[Bools]]:
        """``kept`` of each scope, by request."""
        masks: list[list[Bools]] = [[] for _ in range(n_requests)]
        bounds = self.starts.tolist()
        for (request, _), begin, end in zip(self.scopes, bounds, bounds[1:], strict=False):
            masks[request].append(self.kept[begin:end])
        return masks

    def pieces(self, root_of: Callable[[bytes], int], senders: Sequence[Sender]) -> Iterator[Piece]:
        """Cost: O(spans) in some array operations, and O(1) for each piece.

        Args:
            root_of: id of the root of a trace.
            senders: of each scope.
        """
        if not len(self):
            return
        heads = self.heads
        trace_ids, code = self._distinct_traces()
        order = np.lexsort((code, self._scope))
        is_first = np.ones(len(self), bool)
        is_first[1:] = (np.diff(code[order]) != 0) | (np.diff(self._scope[order]) != 0)
        starts = np.flatnonzero(is_first)
        number = np.empty(len(self), np.int64)
        number[order] = np.cumsum(is_first) - 1
        roots = np.array([root_of(each) for each in trace_ids], np.uint64)[code]
        is_timed = (heads.start_ns > 0) & (heads.end_ns >= heads.start_ns)
        steps = _grouped(number, heads, heads.span_ids, (heads.parent_ids == roots) & is_timed)
        absent = _grouped(number, heads, heads.parent_ids, _lacks_parent(heads, roots, number))
        values = self._reduced(order, starts, is_timed)
        firsts = order[starts]
        scopes, codes = self._scope[firsts].tolist(), code[firsts].tolist()
        bounds = [*starts.tolist(), len(self)]
        for at, (wanted, is_flagged, first_ns, last_ns) in enumerate(values):
            yield Piece(
                batch=self,
                scope=scopes[at],
                rows=order[bounds[at] : bounds[at + 1]],
                sender=senders[scopes[at]],
                trace_id=trace_ids[codes[at]],
                wanted=wanted,
                is_flagged=is_flagged,
                first_ns=first_ns,
                last_ns=last_ns,
                steps=steps.get(at, ()),
                absent=absent.get(at, ()),
            )

    def _reduced(
        self, order: Ints, starts: Ints, is_timed: Bools
    ) -> Iterator[tuple[int, bool, int, int]]:
        """Of each piece: spans that a rule names, whether one is flagged, first start, last end."""
        heads = self.heads
        columns = (
            np.add.reduceat((self.reasons >= 0)[order].astype(np.int64), starts),
            np.logical_or.reduceat((self.reasons == 0)[order], starts),
            np.minimum.reduceat(np.where(is_timed, heads.start_ns, _LATEST)[order], starts),
            np.maximum.reduceat(np.where(is_timed, heads.end_ns, 0)[order], starts),
        )
        return zip(*(column.tolist() for column in columns), strict=True)

    def _distinct_traces(self) -> tuple[list[bytes], Ints]:
        """Ids, and the index of each span's; by one word, which is several times faster to sort."""
        word = self.traces[:, 0] * np.uint64(_GOLDEN) + self.traces[:, 1]
        _, first, code = np.unique(word, return_index=True, return_inverse=True)
        return [each.tobytes() for each in self.traces[first].astype(">u8")], code.ravel()


def absent_parents(heads: SpanHeads, root: int) -> list[SpanTimes]:
    """Parents that are neither among these spans nor their root, with the times of each child."""
    roots = np.full(len(heads.span_ids), root, np.uint64)
    lacks = _lacks_parent(heads, roots, np.zeros(len(roots), np.int64))
    return _times(heads.parent_ids, heads, lacks)


def _lacks_parent(heads: SpanHeads, roots: npt.NDArray[np.uint64], number: Ints) -> Bools:
    """Which spans have a parent that is not in the piece with the same number."""
    apart = number.astype(np.uint64) * np.uint64(_GOLDEN)
    parents = heads.parent_ids
    is_here = np.isin(parents ^ apart, heads.span_ids ^ apart)
    lacking: Bools = (parents != 0) & (parents != roots) & ~is_here
    return lacking


def _times(ids: npt.NDArray[np.uint64], heads: SpanHeads, at: Bools) -> list[SpanTimes]:
    columns = ids[at], heads.start_ns[at], heads.end_ns[at]
    return list(map(SpanTimes, *(column.tolist() for column in columns)))


def _grouped(
    number: Ints, heads: SpanHeads, ids: npt.NDArray[np.uint64], at: Bools
) -> dict[int, list[SpanTimes]]:
    """Of each piece, by its number."""
    found: dict[int, list[SpanTimes]] = {}
    for piece, times in zip(number[at].tolist(), _times(ids, heads, at), strict=True):
        found.setdefault(piece, []).append(times)
    return found
