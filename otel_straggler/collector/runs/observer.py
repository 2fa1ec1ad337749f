"""What accepted requests change in the state of all runs: what is admitted of each, in order, and
spans of several together where that gives the same scores."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from otel_straggler.collector.api.commands import Key
from otel_straggler.collector.history.writer import HistoryWriter
from otel_straggler.collector.ingest.intake import ByteBudget
from otel_straggler.collector.runs.admission import WHATS, AdmissionControl, Eviction
from otel_straggler.collector.runs.clock import CollectorClock
from otel_straggler.collector.runs.plausibility import Plausibility
from otel_straggler.collector.runs.run import Run
from otel_straggler.collector.runs.store import RunStore
from otel_straggler.detect.scores.scorer import Scorer
from otel_straggler.model.flight_records import FlightRecord
from otel_straggler.model.observation import ObservationBatch, merge_batches
from otel_straggler.model.operator_tables import OperatorTable
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores
from otel_straggler.otlp.metric_rules import DecodedMetrics
from otel_straggler.otlp.span_rules import DecodedSpans, Progress

_log = logging.getLogger(__name__)

MAX_ROWS = 1 << 17
UNSCORED = "unscored"
Step: TypeAlias = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Item:
    """A request that waits: its bytes in the budget, its arrival, its number in the spool (0: it is
    not stored there)."""

    content: DecodedSpans | DecodedMetrics
    size: int
    now_ns: int
    sequence: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCounts:
    """Rows, windows, and points of histograms so far, by outcome."""

    rows: dict[str, int]
    windows: dict[str, int]
    section_times: dict[str, int]
    kernel_times: dict[str, int] = field(default_factory=dict)
    failures: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    names_folded: int = 0

    def with_rejected(self, counts: Mapping[str, int]) -> WorkerCounts:
        """The same with what others rejected."""
        return replace(self, rejected={**self.rejected, **counts})


class Guarded:
    """Runs steps of scoring; one that fails is logged and counted, and the next ones run."""

    def __init__(self) -> None:
        self.failures = 0

    def __call__(self, step: Step) -> None:
        try:
            step()
        except Exception:  # noqa: BLE001 - logged and counted; scoring goes on
            self.count("scoring failed; it goes on with the next request")

    def count(self, message: str) -> None:
        """Count the exception that is handled, and log it."""
        self.failures += 1
        _log.exception(message)


class BatchCoalescer:
    """Batches on their way to the scorer, in order of arrival.

    Two processes that claim one rank, or two descriptions of one process, are separated by which
    came later, so they are never in one batch.

    >>> from otel_straggler.model.observation import BatchBuilder
    >>> builder = BatchBuilder()
    >>> builder.add(Source(run_id="r", rank=0), 0, start_ns=1, duration_s=1.0)
    >>> coalescer = BatchCoalescer()
    >>> coalescer.add(builder.build(), 10, 1); coalescer.add(builder.build(), 10, 2)
    >>> coalescer.size, coalescer.newest_ns, len(coalescer.drain()), len(coalescer)
    (20, 2, 2, 0)

    Attributes:
        size: reserved bytes of the requests.
        newest_ns: arrival of the last batch.
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.size = 0
        self.newest_ns = 0
        self._batches: list[ObservationBatch] = []
        self._rows = 0
        self._claims: dict[tuple[str, str, int, int], Source] = {}

    def __len__(self) -> int:
        """Rows."""
        return self._rows

    def has_room_for(self, batch: ObservationBatch) -> bool:
        """Whether scoring it with the others equals scoring it after them."""
        if self._rows and self._rows + len(batch) > MAX_ROWS:
            return False
        claims = self._claims
        for source in batch.sources:
            claim = claims.get(_rank(source), source)
            if claim is not source and claim != source:
                return False
        return True

    def add(self, batch: ObservationBatch, size: int, now_ns: int) -> None:
        self.size += size
        self.newest_ns = now_ns
        self._batches.append(batch)
        self._rows += len(batch)
        for source in batch.sources:
            self._claims[_rank(source)] = source

    def drain(self) -> ObservationBatch:
        """Remove all rows, as one batch. Cost: a copy, where there are several."""
        batches = self._batches
        self._clear()
        return batches[0] if len(batches) == 1 else merge_batches(batches)


def _rank(source: Source) -> tuple[str, str, int, int]:
    return source.run_id, source.group, source.attempt, source.rank


class Observer:
    """On the worker's thread.

    Args:
        keep_windows: called with windows that closed, and when.
    """

    def __init__(
        self,
        store: RunStore,
        scorer: Scorer,
        clock: CollectorClock,
        admission: AdmissionControl,
        plausibility: Plausibility,
        eviction: Eviction,
        *,
        history: HistoryWriter,
        budget: ByteBudget,
        guarded: Guarded,
        keep_windows: Callable[[list[WindowScores], int], None],
    ) -> None:
        self._store, self._scorer, self._clock = store, scorer, clock
        self._admission, self._plausibility, self._eviction = admission, plausibility, eviction
        self._history, self._budget = history, budget
        self._guarded = guarded
        self._keep_windows = keep_windows

    def observe(self, item: Item, waiting: BatchCoalescer) -> None:
        """Observe one request now, or put its spans with those that wait."""
        for admitted in self._admitted(item):
            self._observe_one(admitted, waiting)

    def score(self, waiting: BatchCoalescer) -> None:
        """Score the spans that wait."""
        size = waiting.size
        self._guarded(partial(self._observe_spans, waiting))
        self._budget.release(size)

    def observe_flight_record(self, key: Key, record: FlightRecord | None, read_at_ns: int) -> None:
        run_id, group, rank = key
        run = self._store.runs.get(run_id)
        world = None if run is None else run.worlds.get(group)
        if world is None:
            return
        if record is not None:
            record = replace(record, read_at_s=self._clock.at_s(read_at_ns))
        world.collectives.observe(rank, record)

    def observe_profile(self, key: Key, profile: OperatorTable | str) -> None:
        """The operators of a rank that was asked to profile, or why there are none."""
        run_id, group, rank = key
        run = self._store.runs.get(run_id)
        if run is not None:
            run.profiles.observe(group, rank, profile)

    def evict_due(self, now_ns: int, needs_somebody: Callable[[Run], bool]) -> None:
        """Evict what is over or too much; windows that were open are still published and kept.
        Cost: O(runs)."""
        now_s = self._clock.at_s(now_ns)
        self._plausibility.drop_old(now_s)
        for run in list(self._store.runs.values()):
            for group in self._eviction.due_worlds(run, now_s):
                self._keep_windows(self._scorer.evict(run.run_id, group), now_ns)
                self._store.evict_world(run.run_id, group)
        runs = self._store.runs.values()
        self.evict_runs(self._eviction.due_runs(runs, needs_somebody, now_s), now_ns)
        self._admission.drop_old(now_s)

    def evict_runs(self, run_ids: Iterable[str], now_ns: int) -> None:
        for run_id in run_ids:
            self._keep_windows(self._scorer.evict(run_id), now_ns)
            self._store.evict(run_id)

    def counts(self, *, unscored: int) -> WorkerCounts:
        """For any thread. ``unscored``: rows for which there was no time."""
        counts = self._scorer.counts
        return WorkerCounts(
            rows={
                "scored": counts.scored,
                "duplicate": counts.duplicates,
                "superseded": counts.superseded,
                "late": counts.late,
                "unfinished": counts.unfinished,
                UNSCORED: unscored,
            },
            windows=dict(counts.windows),
            section_times=self._store.histograms.counts(),
            kernel_times=dict(counts.kernel_times),
            failures=self._guarded.failures,
            rejected={
                **{what: self._admission.counts[what] for what in WHATS},
                **self._plausibility.counts,
            },
            names_folded=counts.names_folded,
        )

    def _observe_one(self, item: Item, waiting: BatchCoalescer) -> None:
        content = item.content
        if isinstance(content, DecodedSpans):
            if not waiting.has_room_for(content.batch):
                self.score(waiting)
            waiting.add(content.batch, item.size, item.now_ns)
            self._guarded(partial(self._observe_progress, content, item.now_ns))
            return
        if any(beat.finished_at_s is not None for beat in content.heartbeats):
            self.score(waiting)  # a rank's end comes after all that it did
        self._guarded(partial(self._observe_metrics, content, item.now_ns))
        self._budget.release(item.size)

    def _admitted(self, item: Item) -> list[Item]:
        """What may be scored now: what waited for this request, and its own plausible part."""
        now_s = self._clock.at_s(item.now_ns)
        try:
            content = self._history.unsaved_part(item.content, item.sequence)
            content = self._plausibility.screened(content, now_s)
            content = self._admission.admitted(content, now_s)
            wall_s = now_s + self._clock.ahead_s
            ready = self._plausibility.settled(content, now_s, wall_s, item.sequence)
            self._restart_returned(item.now_ns)
        except Exception:  # noqa: BLE001 - logged and counted; scoring goes on
            self._guarded.count("admission failed; the whole request is admitted")
            return [item]
        *waited, own = ready
        ages_ns = [int((now_s - each.arrived_s) * 1e9) for each in waited]
        return [
            *(
                Item(each.content, 0, item.now_ns - age_ns)
                for each, age_ns in zip(waited, ages_ns, strict=True)
            ),
            replace(item, content=own.content),
        ]

    def _restart_returned(self, now_ns: int) -> None:
        for run_id, group in self._plausibility.drain_returned():
            self._keep_windows(self._scorer.evict(run_id, group), now_ns)
            self._store.restart_world(run_id, group)

    def _observe_spans(self, waiting: BatchCoalescer) -> None:
        now_ns, batch = waiting.newest_ns, waiting.drain()
        self._guarded(partial(self._store.observe_spans, batch))
        self._scorer.observe(batch, now_ns)

    def _observe_progress(self, spans: DecodedSpans, now_ns: int) -> None:
        now_s = self._clock.at_s(now_ns)
        for source, progress in spans.progress.items():
            liveness = self._store.world_of(source).liveness
            liveness.observe_progress(source, progress, now_s, now_s + self._clock.ahead_s)

    def _observe_metrics(self, metrics: DecodedMetrics, now_ns: int) -> None:
        now_s = self._clock.at_s(now_ns)
        wall_s = now_s + self._clock.ahead_s
        for beat in metrics.heartbeats:
            liveness = self._store.world_of(beat.source).liveness
            liveness.observe_heartbeat(beat, now_s, wall_s)
            if beat.finished_at_s is None:
                has_ended = liveness.has_ended(beat.source)  # this one was delivered late
                self._scorer.mark_alive(beat.source, now_ns, has_ended=has_ended)
            else:
                self._finish(beat.source, now_ns, beat.step)
        for times in metrics.section_times:
            world = self._store.world_of(times.source)
            if self._store.histograms.observe(world.histograms, times, now_ns):
                progress = Progress(end_ns=times.end_ns)
                world.liveness.observe_progress(times.source, progress, now_s, wall_s)
        if metrics.kernel_times is not None:
            self._scorer.observe_kernels(metrics.kernel_times)
        self._store.observe_passthrough(metrics, now_s, wall_s)
        for event in metrics.launches:
            for rank in self._store.observe_exits(event, now_s):
                self._finish(rank.source, now_ns, rank.step)

    def _finish(self, source: Source, now_ns: int, step: int | None) -> None:
        self._scorer.finish(source, now_ns, step)
        self._admission.end(source, self._clock.at_s(now_ns))
        self._plausibility.end(source)
