"""Which spans of requests are forwarded, by the rules and within the bound of their traces."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_straggler import semconv
from otel_straggler.collector.forwarding.batch import Piece, Sender, SpanBatch
from otel_straggler.collector.forwarding.kept_traces import KeptTraces
from otel_straggler.collector.forwarding.known import Known
from otel_straggler.collector.ingest.intake import JSON, Request
from otel_straggler.collector.settings import ForwardSettings
from otel_straggler.errors import InputError
from otel_straggler.model.rank import Source
from otel_straggler.otlp.decode_json import message_from_json
from otel_straggler.otlp.identity import Aliases
from otel_straggler.otlp.slices import Bools, ScopeSlice, Slices, SpanOwners, Text, slices_of
from otel_straggler.otlp.span_rules import Progress

_log = logging.getLogger(__name__)

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
    """A request; ``otherwise``: the reason for spans that no rule names."""

    held: Held
    otherwise: str
    slices: Slices


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
        cut: list[_Cut] = []
        outcomes: list[Request | bytes] = []
        for held, otherwise in due:
            slices = self._cut(held)
            if slices is not None:
                cut.append(_Cut(held, otherwise, slices))
            elif not self._settings.is_sampled:
                outcomes.append(held.request)
        batch = SpanBatch([each.slices for each in cut])
        self._name(batch, cut, slow)
        senders = [self._sender_of(cut[n].slices, scope) for n, scope in batch.scopes]
        counts: Counter[str] = Counter()
        for piece in sorted(batch.pieces(self._traces.root_of, senders), key=_turn):
            self._admit(piece, cut[batch.scopes[piece.scope][0]].otherwise, now_s, counts)
        for reason, spans in counts.items():
            self._count(reason, spans)
        bodies = map(self._forwarded, cut, batch.masks(len(cut)))
        return [*outcomes, *(body for body in bodies if body)]

    def _cut(self, held: Held) -> Slices | None:
        try:
            return slices_of(_protobuf(held.request))
        except Exception as error:  # noqa: BLE001 - logged and counted; forwarding goes on
            if not isinstance(error, InputError):
                _log.exception("a request could not be cut into spans")
            self._count(UNREADABLE, held.spans)
            return None

    def _forwarded(self, cut: _Cut, masks: list[Bools]) -> Request | bytes:
        if not self._settings.is_sampled and all(mask.all() for mask in masks):
            return cut.held.request
        return cut.slices.rebuild(masks)

    def _name(self, batch: SpanBatch, cut: Sequence[_Cut], slow: frozenset[int]) -> None:
        """Find the first rule that names each span."""
        if self._settings.is_sampled:
            sample_every = np.uint64(self._settings.sample_every)
            batch.reasons[batch.traces[:, 1] % sample_every == 0] = 2
            batch.reasons[_is_in(batch.traces, slow)] = 1
        else:
            batch.reasons[:] = 1
        bounds = batch.starts.tolist()
        flagged = [any(map(self._known.is_flagged, each.held.progress)) for each in cut]
        for (n, scope), begin, end in zip(batch.scopes, bounds, bounds[1:], strict=False):
            if flagged[n]:
                mine = self._owners.of(cut[n].slices, scope, self._known.is_flagged)
                batch.reasons[begin:end][mine] = 0

    def _sender_of(self, slices: Slices, scope: ScopeSlice) -> Sender:
        source = self._owners.source_of(slices.resources[scope.resource])
        return Sender(source, semconv.SCOPE_NAME.encode() in scope.head)

    def _admit(self, piece: Piece, otherwise: str, now_s: float, counts: Counter[str]) -> None:
        if not piece.is_traced:  # no rule of traces holds for it
            piece.batch.kept[piece.rows] = not self._settings.is_sampled
            counts[otherwise if self._settings.is_sampled else ALL] += piece.spans
            return
        admitted = self._traces.admit(piece, now_s)
        counts[otherwise] += piece.spans - piece.wanted
        if admitted is False:
            counts[TRACE_FULL] += piece.wanted
            return
        rows = piece.rows if piece.wanted == piece.spans else piece.wanted_rows()
        if admitted is not True:
            rows = rows[admitted]
            counts[TRACE_FULL] += piece.wanted - len(rows)
        piece.batch.kept[rows] = True
        if not len(rows):
            return
        reasons = piece.batch.reasons[rows] if piece.is_flagged else piece.batch.reasons[rows[:1]]
        n_flagged = int(np.count_nonzero(reasons == 0))
        counts[FLAGGED] += n_flagged
        # All others have the rule of their trace.
        counts[self._rules[int(reasons.max())]] += len(rows) - n_flagged


def turn_of(source: Source | None, *, is_flagged: bool) -> tuple[bool, int]:
    """A key to sort by: flagged ranks come first; of the others the same in every step, from all
    over the run."""
    rank = -1 if source is None else source.rank
    return not is_flagged, rank * _GOLDEN % _WORD


def _turn(piece: Piece) -> tuple[bool, int]:
    return turn_of(piece.sender.source, is_flagged=piece.is_flagged)


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
