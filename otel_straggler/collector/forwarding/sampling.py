"""What waits until its step is scored, and what is forwarded of it then.

Mode ``sampled`` holds all requests; ``all`` only those of worlds whose traces are larger than their
bound, for which the choice of ranks takes scores. A receiver thread only puts a request into a
table; this thread decides.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from otel_straggler.collector.forwarding.deciding import (
    KEPT,
    NO_ROOM,
    NOT_SAMPLED,
    ROOT,
    STAND_IN,
    SUMMARY,
    UNREADABLE,
    Decider,
    Held,
    turn_of,
)
from otel_straggler.collector.forwarding.kept_traces import KeptTraces
from otel_straggler.collector.forwarding.known import Known, WorldKey
from otel_straggler.collector.forwarding.trace_spans import spans_of
from otel_straggler.collector.ingest.intake import PROTOBUF, Request
from otel_straggler.collector.settings import ForwardSettings
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.step_table import StepTimes
from otel_straggler.model.verdict import RunVerdicts
from otel_straggler.otlp.identity import Aliases
from otel_straggler.otlp.span_rules import DecodedSpans, Progress

_log = logging.getLogger(__name__)

_TICK_S = 0.25
_CROWDED = 0.75
"""Part of the budget beyond which the oldest are decided before they are scored."""
_MAX_AT_ONCE = 1_000_000
_BATCH, _BATCH_BYTES = 256, 8_000_000
"""Requests that are cut at once."""
_FEW = 100


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
        put: sends a request.
        aliases: attributes of a rank.
    """

    def __init__(
        self,
        settings: ForwardSettings,
        put: Callable[[Request], None],
        aliases: Aliases | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._put = put
        self._now_s = monotonic_s
        self._known = Known(settings.slow_step_ratio)
        self._traces = KeptTraces(settings.max_trace_spans)
        self._decider = Decider(settings, self._known, self._traces, self._count, aliases)
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

    def hold(self, request: Request, decoded: DecodedSpans) -> None:
        """Hold a request of spans. Cost: O(sources in it)."""
        n_spans = sum(decoded.outcomes.values())
        held = Held(request=request, spans=n_spans, progress=decoded.progress, at_s=self._now_s())
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

    def has_sent(self, trace_id: bytes) -> bool:
        """Whether a span of the trace was forwarded, of the newest 100,000 traces."""
        return self._traces.has_sent(trace_id)

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
        """Decide what is due, then send what is made for settled traces."""
        now_s = self._now_s()
        slow = self._slow_traces()
        due = self._drain_due(now_s)
        due.reverse()
        while due:  # what is decided is freed at once
            batch = _next_batch(due)
            self._decide(batch, slow, now_s)
            with self._changed:
                self._deciding_bytes -= sum(held.size for held, _ in batch)
        self._close_traces(now_s)
        self._flush()

    def finish(self, until_s: float) -> None:
        """Decide all that waits, and send all roots."""
        slow = self._slow_traces()
        with self._changed:
            waiting = [(self._remove(number), NOT_SAMPLED) for number in list(self._held)]
        waiting.sort(key=lambda item: self._turn_of(item[0]))
        waiting.reverse()
        while waiting:
            batch = _next_batch(waiting)
            if self._now_s() < until_s:
                self._decide(batch, slow, self._now_s())
            else:
                self._count(NO_ROOM, sum(held.spans for held, _ in batch))
        self._close_traces(self._now_s(), is_end=True)
        self._flush()

    def _drain_due(self, now_s: float) -> list[tuple[Held, str]]:
        """Due requests, and the reason for spans of them that no rule names; those of flagged ranks
        first, so that nobody else fills their traces, and of the others always the same."""
        with self._changed:
            due, self._due = self._due, []
            drained = [(self._remove(n), NOT_SAMPLED) for n in due if n in self._held]
            while self._held:
                number, held = next(iter(self._held.items()))
                is_late = held.at_s + self._settings.hold_seconds <= now_s
                if not is_late and not self._is_crowded():
                    break
                drained.append((self._remove(number), NOT_SAMPLED if is_late else NO_ROOM))
            self._deciding_bytes = sum(held.size for held, _ in drained)
        if self._settings.is_sampled or self._traces.large:
            drained.sort(key=lambda item: self._turn_of(item[0]))
        return drained

    def _is_crowded(self) -> bool:
        return self._held_bytes > _CROWDED * self._settings.max_held_bytes

    def _file(self, number: int, held: Held) -> None:
        """File it under the first world that is not scored so far; as due if there is none."""
        for source, progress in held.progress.items():
            if self._waits(source, progress):
                waiting = self._waits_for.setdefault(WorldKey.of(source), [])
                waiting.append(number)
                if len(waiting) > 2 * len(self._held) + _FEW:  # of requests that are long gone
                    waiting[:] = [n for n in waiting if n in self._held]
                return
        self._due.append(number)

    def _waits(self, source: Source, progress: Progress) -> bool:
        if not self._settings.is_sampled and WorldKey.of(source) not in self._traces.large:
            return False
        return not self._known.has_passed(source, progress)

    def _remove(self, number: int) -> Held:
        held = self._held.pop(number)
        self._held_bytes -= held.size
        if not self._held:
            self._waits_for.clear()
        return held

    def _turn_of(self, held: Held) -> tuple[bool, int]:
        is_flagged = any(map(self._known.is_flagged, held.progress))
        return turn_of(next(iter(held.progress), None), is_flagged=is_flagged)

    # --- deciding ----------------------------------------------------------------------------

    def _slow_traces(self) -> frozenset[int]:
        return self._known.slow_traces() if self._settings.is_sampled else frozenset()

    def _decide(self, due: Sequence[tuple[Held, str]], slow: frozenset[int], now_s: float) -> None:
        try:
            outcomes = self._decider.decide(due, slow, now_s)
        except Exception:  # noqa: BLE001 - logged and counted; forwarding goes on
            _log.exception("requests could not be decided")
            self._count(UNREADABLE, sum(held.spans for held, _ in due))
            outcomes = [] if self._settings.is_sampled else [held.request for held, _ in due]
        for outcome in outcomes:
            if isinstance(outcome, Request):
                self._flush()  # in order
                self._put(replace(outcome, body=b""))  # only raw_body waits
            else:
                self._send(outcome)

    def _count(self, reason: str, spans: int) -> None:
        if spans:
            with self._changed:
                (self._kept if reason in KEPT else self._left_out)[reason] += spans

    # --- sending -----------------------------------------------------------------------------

    def _close_traces(self, now_s: float, *, is_end: bool = False) -> None:
        """Send the spans that no rank sends, of the traces of which nothing more is expected."""
        closed = self._traces.close(
            now_s, self._is_scored, longest_s=self._settings.hold_seconds, is_end=is_end
        )
        for trace in closed:
            made = spans_of(trace)
            self._send(made.body)
            self._count(ROOT, 1)
            self._count(SUMMARY, made.summaries)
            self._count(STAND_IN, made.stand_ins)

    def _is_scored(self, world: WorldKey, step: int) -> bool:
        return self._known.has_scored(world, Progress(step=step))

    def _send(self, body: bytes) -> None:
        """Join requests: concatenated protobuf messages are one message."""
        if self._out and self._out_bytes + len(body) > _MAX_AT_ONCE:
            self._flush()
        self._out.append(body)
        self._out_bytes += len(body)

    def _flush(self) -> None:
        if self._out:
            self._put(_request_of(b"".join(self._out)))
            self._out.clear()
            self._out_bytes = 0


def _next_batch(due: list[tuple[Held, str]]) -> list[tuple[Held, str]]:
    """Remove the last ones, last first; at least one."""
    batch: list[tuple[Held, str]] = []
    size = 0
    while due and len(batch) < _BATCH and size < _BATCH_BYTES:
        batch.append(due.pop())
        size += batch[-1][0].size
    return batch


def _request_of(body: bytes) -> Request:
    return Request(
        signal="traces", content_type=PROTOBUF, body=b"", raw_body=body, content_encoding=""
    )
