"""Which spans of requests are forwarded, by the rules and within the bound of their traces."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_straggler import semconv
from otel_straggler.collector.forwarding.kept_traces import KeptTraces, Piece
from otel_straggler.collector.forwarding.known import Known
from otel_straggler.collector.ingest.intake import JSON, Request
from otel_straggler.collector.settings import ForwardSettings
from otel_straggler.errors import InputError
from otel_straggler.model.observation import Ints
from otel_straggler.model.rank import Source
from otel_straggler.otlp.decode_json import message_from_json
from otel_straggler.otlp.identity import Aliases
from otel_straggler.otlp.slices import Bools, ScopeSlice, Slices, SpanOwners, Text, slices_of
from otel_straggler.otlp.span_heads import heads_of
from otel_straggler.otlp.span_rules import Progress

_log = logging.getLogger(__name__)
Codes = npt.NDArray[np.int8]

FLAGGED, SLOW_STEP, SAMPLED, ALL = "flagged", "slow_step", "sampled", "all"
ROOT, SUMMARY, STAND_IN = "root", "summary", "stand_in"
KEPT = {
    FLAGGED: "kept: of a rank that a verdict or the newest window names",
    SLOW_STEP: "kept: of a slow step",
    SAMPLED: "kept: its trace is one in `forward.sample_every`",
    ALL: "kept: `forward.mode` is all",
    ROOT: "kept: the root of a step's trace, made here",
    SUMMARY: "kept: stands for ranks that are left out of a step's trace, made here",
    STAND_IN: "kept: stands for a parent that did not come, made here",
}
"""Why a span was passed on; the first rule that names it counts."""
NOT_SAMPLED, TRACE_FULL, NO_ROOM, UNREADABLE = "not_sampled", "trace_full", "no_room", "unreadable"
LEFT_OUT = {
    NOT_SAMPLED: "left out: no rule names it",
    TRACE_FULL: "left out: `forward.max_trace_spans` of its trace were kept already",
    NO_ROOM: "left out: `forward.max_held_bytes` were in use before its step was scored",
    UNREADABLE: "left out: its request could not be cut; see the log",
}
"""Why a span was not."""

_OVERHEAD_BYTES = 512
_GOLDEN, _WORD = 0x9E3779B97F4A7C15, 2**64


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One trace request that waits; ``at_s``: its arrival on a monotonic clock."""

    request: Request
    spans: int
    progress: Mapping[Source, Progress]
    at_s: float

    @property
    def size(self) -> int:
        body, raw = self.request.body, self.request.raw_body
        return len(body) + (0 if raw is body else len(raw)) + _OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class _Cut:
    """A request, its spans by scope, and which of them are kept."""

    held: Held
    otherwise: str
    slices: Slices
    masks: list[Bools]


@dataclass(frozen=True, slots=True)
class _Part:
    """The spans of one trace in a scope. ``reasons``: the rule that names each, -1 if none does;
    ``mask``: of the whole scope, which spans are kept."""

    piece: Piece
    rows: Ints
    reasons: Codes
    mask: Bools
    otherwise: str


class Decider:
    """Cuts requests and rebuilds them from what is kept. For one thread.

    Args:
        aliases: attributes of a rank.
        count: called with a reason of :data:`KEPT` or :data:`LEFT_OUT`, and a number of spans.
    """

    def __init__(
        self,
        settings: ForwardSettings,
        known: Known,
        traces: KeptTraces,
        count: Callable[[str, int], None],
        aliases: Aliases | None = None,
    ) -> None:
        self._settings = settings
        self._known = known
        self._traces = traces
        self._count = count
        self._owners = SpanOwners(aliases)
        self._rules = (FLAGGED, SLOW_STEP, SAMPLED) if settings.is_sampled else (FLAGGED, ALL)

    def decide(
        self, due: Sequence[tuple[Held, str]], slow: frozenset[int], now_s: float
    ) -> list[Request | bytes]:
        """What is forwarded of requests: a request as it came where nothing is left out of it, else
        a body in binary protobuf.

        Args:
            due: with the reason for spans that no rule names.
            slow: second halves of the trace ids of slow steps.
        """
        cuts: list[_Cut | Held] = []
        parts: list[_Part] = []
        for held, otherwise in due:
            try:
                cut = _Cut(held, otherwise, slices_of(_protobuf(held.request)), [])
                of_this = self._parts_of(cut, slow)
            except Exception as error:  # noqa: BLE001 - logged and counted; forwarding goes on
                if not isinstance(error, InputError):
                    _log.exception("a request could not be cut into spans")
                cuts.append(held)
            else:
                cuts.append(cut)
                parts += of_this
        for part in sorted(parts, key=_turn):
            self._admit(part, now_s)
        return [body for body in map(self._outcome, cuts) if body]

    def _outcome(self, cut: _Cut | Held) -> Request | bytes:
        if isinstance(cut, Held):
            self._count(UNREADABLE, cut.spans)
            return b"" if self._settings.is_sampled else cut.request
        if not self._settings.is_sampled and all(mask.all() for mask in cut.masks):
            return cut.held.request
        return cut.slices.rebuild(cut.masks)

    def _parts_of(self, cut: _Cut, slow: frozenset[int]) -> list[_Part]:
        parts: list[_Part] = []
        has_flagged = any(map(self._known.is_flagged, cut.held.progress))
        for scope in cut.slices.scopes:
            traces = cut.slices.traces_of(scope)
            reasons = self._reasons(cut.slices, scope, traces, slow, has_flagged=has_flagged)
            mask = np.zeros(len(scope), bool)
            cut.masks.append(mask)
            untraced = ~traces.any(axis=1)
            if untraced.any():
                mask[untraced] = not self._settings.is_sampled
                reason = self._rules[-1] if not self._settings.is_sampled else cut.otherwise
                self._count(reason, int(np.count_nonzero(untraced)))
            parts += self._split(cut, scope, traces, reasons, mask)
        return parts

    def _reasons(
        self,
        slices: Slices,
        scope: ScopeSlice,
        traces: Text,
        slow: frozenset[int],
        *,
        has_flagged: bool,
    ) -> Codes:
        """(n,) the first rule that names the span, -1 if none does."""
        reasons = np.full(len(scope), -1, np.int8)
        if self._settings.is_sampled:
            reasons[(traces[:, 1] % np.uint64(self._settings.sample_every)) == 0] = 2
            reasons[_is_in(traces, slow)] = 1
        else:
            reasons[:] = 1
        if has_flagged:
            reasons[self._owners.of(slices, scope, self._known.is_flagged)] = 0
        return reasons

    def _split(
        self, cut: _Cut, scope: ScopeSlice, traces: Text, reasons: Codes, mask: Bools
    ) -> Iterator[_Part]:
        """By trace. Cost: O(spans), and some array operations per trace."""
        slices = cut.slices
        heads = heads_of(slices.body, scope.contents, scope.ends)
        source = self._owners.source_of(slices.resources[scope.resource])
        is_own = semconv.SCOPE_NAME.encode() in scope.head
        _, code = np.unique(traces[:, 1], return_inverse=True)
        order = np.argsort(code, kind="stable")
        for rows in np.split(order, np.cumsum(np.bincount(code))[:-1]) if len(scope) else ():
            words = traces[rows[0]]
            if not words.any():
                continue
            of_rows = reasons[rows]
            at, end = int(scope.contents[rows[0]]), int(scope.ends[rows[0]])
            piece = Piece(
                trace_id=words.astype(">u8").tobytes(),
                source=source,
                is_flagged=bool((of_rows == 0).any()),
                is_own=is_own,
                wanted=of_rows >= 0,
                heads=heads.of_rows(rows),
                sample=slices.body[at:end],
            )
            yield _Part(piece, rows, of_rows, mask, cut.otherwise)

    def _admit(self, part: _Part, now_s: float) -> None:
        admitted = self._traces.admit(part.piece, now_s)
        part.mask[part.rows] = admitted
        for code, reason in enumerate(self._rules):
            self._count(reason, int(np.count_nonzero(admitted & (part.reasons == code))))
        wanted = part.piece.wanted
        self._count(TRACE_FULL, int(np.count_nonzero(wanted & ~admitted)))
        self._count(part.otherwise, int(np.count_nonzero(~wanted)))


def turn_of(source: Source | None, *, is_flagged: bool) -> tuple[bool, int]:
    """A key to sort by: flagged ranks come first; of the others the same in every step, from all
    over the run."""
    rank = -1 if source is None else source.rank
    return not is_flagged, rank * _GOLDEN % _WORD


def _turn(part: _Part) -> tuple[bool, int]:
    return turn_of(part.piece.source, is_flagged=part.piece.is_flagged)


def _protobuf(request: Request) -> bytes:
    if request.content_type != JSON:
        return request.body
    encoded: bytes = message_from_json(request.body, ExportTraceServiceRequest).SerializeToString()
    return encoded


def _is_in(traces: Text, wanted: frozenset[int]) -> Bools:
    """Mask of spans of the wanted traces. Cost: O(distinct traces of the request)."""
    if not wanted or not len(traces):
        return np.zeros(len(traces), bool)
    distinct, index = np.unique(traces[:, 1], return_inverse=True)
    return np.array([word in wanted for word in distinct.tolist()], bool)[index.ravel()]
