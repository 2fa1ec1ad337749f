"""Tail sampling: spans are held until their steps are scored, and then kept or dropped.

A receiver thread only puts a request into a table. The sampler's thread slices the requests whose
steps have been scored, and forwards the bytes of the spans that a rule keeps.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_straggler.collector.forwarding.kept_traces import (
    SETTLED_S,
    KeptTraces,
    Known,
    WorldKey,
)
from otel_straggler.collector.settings import ForwardSettings
from otel_straggler.errors import InputError
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.step_table import StepTimes
from otel_straggler.model.verdict import RunVerdicts
from otel_straggler.otlp.decode_json import message_from_json
from otel_straggler.otlp.identity import Aliases
from otel_straggler.otlp.slices import Bools, ScopeSlice, Slices, SpanOwners, Text, slices_of
from otel_straggler.otlp.span_rules import DecodedSpans, Progress

_log = logging.getLogger(__name__)

FLAGGED, SLOW_STEP, SAMPLED, ROOT = "flagged", "slow_step", "sampled", "root"
KEPT = {
    FLAGGED: "kept: of a rank that a verdict or the newest window names",
    SLOW_STEP: "kept: of a slow step",
    SAMPLED: "kept: its trace is one in `forward.sample_every`",
    ROOT: "kept: the root of a step's trace, made here",
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

_TICK_S = 0.25
_CROWDED = 0.75
"""Part of the budget beyond which the oldest are decided before they are scored."""
_OVERHEAD_BYTES = 512
_MAX_AT_ONCE = 1_000_000
_FEW = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One trace request that waits; ``at_s``: its arrival on a monotonic clock."""

    body: bytes
    is_json: bool
    spans: int
    progress: Mapping[Source, Progress]
    at_s: float

    @property
    def size(self) -> int:
        return len(self.body) + _OVERHEAD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingCounts:
    """Spans by outcome, and the bytes that wait."""

    kept: dict[str, int]
    left_out: dict[str, int]
    held_bytes: int


class Sampler:
    """Holds requests and decides.

    ``hold`` may be called from any thread and never waits for a decision; ``observe_*`` from the
    scoring thread.

    Args:
        put: sends a request in binary protobuf.
        aliases: attributes of a rank.
    """

    def __init__(
        self,
        settings: ForwardSettings,
        put: Callable[[bytes], None],
        aliases: Aliases | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._put = put
        self._owners = SpanOwners(aliases)
        self._now_s = monotonic_s
        self._known = Known(settings.slow_step_ratio)
        self._traces = KeptTraces(settings.max_trace_spans)
        self._held: OrderedDict[int, Held] = OrderedDict()
        self._waits_for: dict[WorldKey, list[int]] = {}
        self._due: list[int] = []
        self._held_bytes = 0
        self._deciding_bytes = 0
        self._number = 0
        self._kept: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._changed = threading.Condition()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="span-sampler", daemon=True)

    # --- from other threads ------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def hold(self, body: bytes, decoded: DecodedSpans, *, is_json: bool = False) -> None:
        """Hold a request. Cost: O(sources in it)."""
        at_s = self._now_s()
        n_spans = sum(decoded.outcomes.values())
        held = Held(body=body, is_json=is_json, spans=n_spans, progress=decoded.progress, at_s=at_s)
        with self._changed:
            self._number += 1
            self._held[self._number] = held
            self._held_bytes += held.size
            self._file(self._number, held)
            room = self._settings.max_held_bytes - self._deciding_bytes
            while self._held_bytes > room and len(self._held) > 1:
                self._left_out[NO_ROOM] += self._remove(next(iter(self._held))).spans
            if self._is_crowded():
                self._changed.notify()

    def observe_steps(self, times: Iterable[StepTimes]) -> None:
        self._known.record_steps(times)

    def observe_windows(self, windows: Sequence[WindowScores], run_verdicts: RunVerdicts) -> None:
        """Record closed windows of one run and its verdicts; what they cover becomes due."""
        worlds = self._known.record_windows(windows, run_verdicts)
        with self._changed:
            for world in worlds:
                for number in self._waits_for.pop(world, ()):
                    held = self._held.get(number)
                    if held is not None:
                        self._file(number, held)
            if self._due:
                self._changed.notify()

    def counts(self) -> SamplingCounts:
        with self._changed:
            return SamplingCounts(
                kept=dict(self._kept),
                left_out=dict(self._left_out),
                held_bytes=self._held_bytes + self._deciding_bytes,
            )

    def stop(self, deadline_s: float) -> None:
        """Decide all that waits within the deadline; the rest is counted."""
        until_s = self._now_s() + deadline_s
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(deadline_s)
        if not self._thread.is_alive():
            self.finish(until_s)

    # --- the sampler's own thread ------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._is_stopping and not self._due and not self._is_crowded():
                    self._changed.wait(_TICK_S)
                if self._is_stopping:
                    return
            try:
                self.tick()
            except Exception:  # noqa: BLE001 - logged; sampling goes on
                _log.exception("sampling failed; it goes on with the next request")

    def tick(self) -> None:
        """Decide what is due, then send the roots of settled traces."""
        now_s = self._now_s()
        slow = self._known.slow_traces()
        due = self._drain_due(now_s)
        due.reverse()
        while due:  # what is decided is freed at once
            held, is_early = due.pop()
            self._decide_guarded(held, slow, now_s, NO_ROOM if is_early else NOT_SAMPLED)
            with self._changed:
                self._deciding_bytes -= held.size
        self._send_roots(now_s - SETTLED_S)
        self._flush()

    def finish(self, until_s: float) -> None:
        """Decide all that waits, and send all roots."""
        slow = self._known.slow_traces()
        with self._changed:
            waiting = [self._remove(number) for number in list(self._held)]
        for held in sorted(waiting, key=lambda held: not self._has_flagged(held)):
            if self._now_s() < until_s:
                self._decide_guarded(held, slow, self._now_s(), NOT_SAMPLED)
            else:
                self._count(self._left_out, NO_ROOM, held.spans)
        self._send_roots(float("inf"))
        self._flush()

    def _drain_due(self, now_s: float) -> list[tuple[Held, bool]]:
        """Due requests, and whether each is early; those of flagged ranks first, so that nobody
        else fills their traces."""
        with self._changed:
            due, self._due = self._due, []
            drained = [(self._remove(n), False) for n in due if n in self._held]
            while self._held:
                number, held = next(iter(self._held.items()))
                is_late = held.at_s + self._settings.hold_seconds <= now_s
                if not is_late and not self._is_crowded():
                    break
                drained.append((self._remove(number), not is_late))
            self._deciding_bytes = sum(held.size for held, _ in drained)
        return sorted(drained, key=lambda item: not self._has_flagged(item[0]))

    def _is_crowded(self) -> bool:
        return self._held_bytes > _CROWDED * self._settings.max_held_bytes

    def _file(self, number: int, held: Held) -> None:
        """File it under the first world that is not scored so far; as due if there is none."""
        for source, progress in held.progress.items():
            if not self._known.has_passed(source, progress):
                waiting = self._waits_for.setdefault(WorldKey.of(source), [])
                waiting.append(number)
                if len(waiting) > 2 * len(self._held) + _FEW:  # of requests that are long gone
                    waiting[:] = [n for n in waiting if n in self._held]
                return
        self._due.append(number)

    def _remove(self, number: int) -> Held:
        held = self._held.pop(number)
        self._held_bytes -= held.size
        if not self._held:
            self._waits_for.clear()
        return held

    def _has_flagged(self, held: Held) -> bool:
        return any(map(self._known.is_flagged, held.progress))

    # --- deciding ----------------------------------------------------------------------------

    def _decide_guarded(
        self, held: Held, slow: frozenset[int], now_s: float, otherwise: str
    ) -> None:
        try:
            self._decide(held, slow, now_s, otherwise)
        except Exception as error:  # noqa: BLE001 - logged and counted; sampling goes on
            if not isinstance(error, InputError):
                _log.exception("a request could not be sampled")
            self._count(self._left_out, UNREADABLE, held.spans)

    def _decide(self, held: Held, slow: frozenset[int], now_s: float, otherwise: str) -> None:
        slices = slices_of(_protobuf(held))
        has_flagged = self._has_flagged(held)
        masks: list[Bools] = []
        for scope in slices.scopes:
            traces = slices.traces_of(scope)
            reasons = self._reasons(slices, scope, traces, slow, has_flagged=has_flagged)
            masks.append(self._admitted(slices, scope, reasons, now_s))
            named = sum(len(rows) for _, rows in reasons)
            self._count(self._left_out, otherwise, len(scope) - named)
        body = slices.rebuild(masks)
        if body:
            self._send(body)

    def _reasons(
        self,
        slices: Slices,
        scope: ScopeSlice,
        traces: Text,
        slow: frozenset[int],
        *,
        has_flagged: bool,
    ) -> list[tuple[str, list[int]]]:
        """Rows by rule, each row under the first rule that keeps it."""
        rules = [
            (SLOW_STEP, _is_in(traces, slow)),
            (SAMPLED, (traces[:, 1] % np.uint64(self._settings.sample_every)) == 0),
        ]
        if has_flagged:
            flagged = self._owners.of(slices, scope, self._known.is_flagged)
            rules.insert(0, (FLAGGED, flagged))
        free = traces.any(axis=1)
        named = []
        for reason, mask in rules:
            mine = mask & free
            free &= ~mine
            named.append((reason, np.flatnonzero(mine).tolist()))
        return named

    def _admitted(
        self,
        slices: Slices,
        scope: ScopeSlice,
        reasons: list[tuple[str, list[int]]],
        now_s: float,
    ) -> Bools:
        """The rows for which their trace has room."""
        mask = np.zeros(len(scope), bool)
        if not any(rows for _, rows in reasons):
            return mask
        source = self._owners.source_of(slices.resources[scope.resource])
        contents, ends = scope.contents.tolist(), scope.ends.tolist()
        traces = slices.traces_of(scope).astype(">u8")
        for reason, rows in reasons:
            admitted = [row for row in rows if self._traces.admit(traces[row].tobytes())]
            for row in admitted:
                self._traces.record(slices.body[contents[row] : ends[row]], source, now_s)
            mask[admitted] = True
            self._count(self._kept, reason, len(admitted))
            self._count(self._left_out, TRACE_FULL, len(rows) - len(admitted))
        return mask

    def _count(self, counter: Counter[str], what: str, spans: int) -> None:
        if spans:
            with self._changed:
                counter[what] += spans

    # --- sending -----------------------------------------------------------------------------

    def _send_roots(self, settled_before_s: float) -> None:
        bodies, n_roots = self._traces.drain_roots(settled_before_s)
        for body in bodies:
            self._send(body)
        self._count(self._kept, ROOT, n_roots)

    def _send(self, body: bytes) -> None:
        """Join requests: concatenated protobuf messages are one message."""
        if self._out and self._out_bytes + len(body) > _MAX_AT_ONCE:
            self._flush()
        self._out.append(body)
        self._out_bytes += len(body)

    def _flush(self) -> None:
        if self._out:
            self._put(b"".join(self._out))
            self._out.clear()
            self._out_bytes = 0


def _protobuf(held: Held) -> bytes:
    if not held.is_json:
        return held.body
    encoded: bytes = message_from_json(held.body, ExportTraceServiceRequest).SerializeToString()
    return encoded


def _is_in(traces: Text, wanted: frozenset[int]) -> Bools:
    """Mask of spans of the wanted traces. Cost: O(distinct traces of the request)."""
    if not wanted or not len(traces):
        return np.zeros(len(traces), bool)
    distinct, index = np.unique(traces[:, 1], return_inverse=True)
    return np.array([word in wanted for word in distinct.tolist()], bool)[index.ravel()]
