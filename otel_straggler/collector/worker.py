"""The scoring thread. Receivers hand over columns; pages read what it has published."""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from otel_straggler import semconv
from otel_straggler.collector.api.commands import Commands, Key
from otel_straggler.collector.api.decisions import Decisions
from otel_straggler.collector.api.maintenance import MaintenanceBook
from otel_straggler.collector.api.profiling import Profiling
from otel_straggler.collector.forwarding.sampling import Sampler
from otel_straggler.collector.history.store import Summary
from otel_straggler.collector.history.writer import HistoryWriter, new_summaries
from otel_straggler.collector.ingest.intake import ByteBudget
from otel_straggler.collector.runs.admission import WHATS, AdmissionControl, Eviction
from otel_straggler.collector.runs.batches import BatchCoalescer
from otel_straggler.collector.runs.clock import CollectorClock
from otel_straggler.collector.runs.plausibility import Plausibility
from otel_straggler.collector.runs.store import RunStore
from otel_straggler.collector.settings import CollectorSettings, HistorySettings, MiB
from otel_straggler.collector.views.publisher import Publisher, SeriesShares
from otel_straggler.collector.views.snapshot import Snapshot
from otel_straggler.collector.views.timeline import Column
from otel_straggler.detect.scores.scorer import Scorer
from otel_straggler.model.alert import Alert
from otel_straggler.model.flight_records import FlightRecord
from otel_straggler.model.operator_tables import OperatorTable
from otel_straggler.model.scores import WindowScores
from otel_straggler.otlp.metric_rules import DecodedMetrics
from otel_straggler.otlp.span_rules import DecodedSpans, Progress
from otel_straggler.throttle import Throttle

_log = logging.getLogger(__name__)

_SHARE = 0.1
"""Maximum part of the time for what pages read, without costly views, and as much for the text of
/metrics."""
_SPARE_SHARE, _SPARE_S = 0.02, 1.0
"""What both take of many small runs, as long as what is shown is not older than that."""
_TICK_S = 0.1
"""From one look at what is due, over all worlds, to the next."""
_ROUND_S = 0.02
"""From one round to the next: many small requests cost less together."""
_AT_ONCE = 256
"""Items of the queue per round."""
_REFRESH_S = 1.0
_WEIGH_S = 0.5
_STALLED_S = 60.0
_STOP_S = 12.0
_SCORING_SHARE = 0.6
"""Part of the time to stop for what waits; the rest is for the windows and the state."""
UNSCORED = "unscored"
_Step: TypeAlias = Callable[[], None]


def _wake() -> None:
    """An item of the queue that ends the wait for one."""


@dataclass(frozen=True, slots=True)
class _Item:
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


class Worker:
    """Scores what it is given, in order, on its own thread (or step by step, in tests).

    Attributes:
        snapshot: published last; any thread may read it.
        is_backfilled: set once the timelines have the windows of the history.
        given_up: requests, and section executions in them, dropped when stopping.
    """

    def __init__(
        self,
        settings: CollectorSettings,
        budget: ByteBudget,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wall_s: Callable[[], float] = time.time,
        history: HistoryWriter | None = None,
        sampler: Sampler | None = None,
        decisions: Decisions | None = None,
        maintenance: MaintenanceBook | None = None,
        series_shares: SeriesShares = dict.fromkeys,
    ) -> None:
        scoring = settings.scoring
        self._budget = budget
        self._history = history or HistoryWriter(HistorySettings(), scoring.max_runs)
        self._sampler = sampler
        self._decisions = decisions or Decisions(lambda: int(wall_s() * 1e9))
        self._maintenance = maintenance or MaintenanceBook(lambda: int(wall_s() * 1e9))
        self._monotonic_ns = monotonic_ns
        self._clock = CollectorClock(monotonic_ns, wall_s)
        store = self._store = RunStore(
            settings.liveness,
            grace_s=scoring.grace_s,
            keep_scores_s=settings.metrics.keep_scores_seconds,
            timeline_bytes=settings.metrics.timeline_mib * MiB,
            memory_bytes=scoring.memory_mib * MiB,
        )
        self._admission = AdmissionControl(scoring, store)
        self._plausibility = Plausibility(scoring, store)
        self._eviction = Eviction(scoring, settings.liveness.give_up_s)
        # The scorer may hold as many as there are until the next view.
        scores = replace(scoring, max_runs=2 * scoring.max_runs)
        scorer = self._scorer = Scorer(scores, settings.verdicts, store.learn)
        self._publisher = Publisher(
            settings, store, scorer, self._clock, self._decisions, self._maintenance, settings.mode,
            series_shares,
        )  # fmt: skip
        self.commands = Commands(
            settings.commands,
            receive=self.receive_flight_record,
            receive_profile=self.receive_profile,
        )
        self._profiling = Profiling(settings.commands, self.commands)
        self._queue: queue.SimpleQueue[_Item | _Step | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="straggler-scorer", daemon=True)
        self._is_dirty = True
        self._publishing, self._paging = (
            Throttle(
                _SHARE,
                now_s=lambda: monotonic_ns() / 1e9,
                counts_typical=True,
                spare_per_s=_SPARE_SHARE,
                spare_s=_SPARE_S,
            )
            for _ in range(2)
        )
        self._page_requests: deque[Future[None]] = deque()
        self._published_at_ns = self._weighed_at_ns = 0
        self._ticked_at_ns = monotonic_ns()
        self._failures = 0
        self._give_up_at_ns = math.inf
        self._through = 0
        self.given_up = (0, 0)
        self._alerts: Mapping[str, tuple[Alert, ...]] = {}
        self._has_backfill_ended = False
        self.is_backfilled = threading.Event()
        self.snapshot = Snapshot()

    # --- from any thread --------------------------------------------------------------------

    def ingest(self, content: DecodedSpans | DecodedMetrics, size: int, sequence: int = 0) -> None:
        """Queue a request; ``sequence``: of the spool, ascending, 0: it is not stored there."""
        self._queue.put(_Item(content, size, self._monotonic_ns(), sequence))

    def backfill(self, run_id: str, group: str, columns: Sequence[Column]) -> None:
        """Put windows of the history before those of this process."""
        self._queue.put(partial(self._store.put_before, run_id, group, tuple(columns)))

    def end_backfill(self) -> None:
        self._queue.put(partial(setattr, self, "_has_backfill_ended", True))

    def show_alerts(self, alerts: Mapping[str, tuple[Alert, ...]]) -> None:
        self._is_dirty |= alerts != self._alerts
        self._alerts = alerts

    def request_page(self) -> Future[None]:
        """Have the text of /metrics rendered; done once ``snapshot.page`` is as new as the rest.
        Nobody reads most of what a timer would render."""
        done: Future[None] = Future()
        self._page_requests.append(done)
        self._queue.put(_wake)
        return done

    def show_soon(self) -> None:
        """Publish at the next tick: a decision has changed."""
        self._is_dirty = True

    def ages(self) -> dict[str, float]:
        """Seconds since each run was last heard from, as of the last snapshot."""
        ages: dict[str, float] = {}
        for run_id, view in self.snapshot.runs.items():
            touched = [world.touched_at_s for world in view.worlds.values() if world.touched_at_s]
            if touched:
                ages[run_id] = max(0.0, view.now_s - view.ahead_s - max(touched))
        return ages

    def evict_runs(self, run_ids: Sequence[str]) -> None:
        """Another shard has them now."""
        self._queue.put(partial(self._evict_runs, tuple(run_ids)))

    def receive_flight_record(self, key: Key, record: FlightRecord | None, age_s: float) -> None:
        """The flight record of a rank, or None if it has none."""
        read_at_ns = self._monotonic_ns() - int(age_s * 1e9)
        self._queue.put(partial(self._observe_flight_record, key, record, read_at_ns))

    def receive_profile(self, key: Key, profile: OperatorTable | str) -> None:
        """The operators of a rank that was asked to profile, or why there are none."""
        self._queue.put(partial(self._observe_profile, key, profile))

    def start(self, collector_id: str) -> None:
        """Restore the history, and begin; ``collector_id`` is the label ``collector``."""
        self.sign(collector_id)
        if self._thread.ident is None:
            self.resume()

    def resume(self) -> None:
        """Restore the history, and begin, before it is known under which label: requests of the
        spool come first."""
        self._history.restore(
            self._scorer, self._decisions, store=self._store, maintenance=self._maintenance
        )
        self._through = self._history.through
        self._thread.start()

    def sign(self, collector_id: str) -> None:
        self._publisher.sign(collector_id)

    def stop(self, within_s: float = _STOP_S) -> bool:
        """Score what waits, close every window, publish, save, end; what is not scored after the
        larger part of the time is dropped and counted. Returns whether it ended in time: if not,
        what has come since the last save is lost."""
        self._give_up_at_ns = self._monotonic_ns() + int(within_s * _SCORING_SHARE * 1e9)
        self._queue.put(None)
        self._thread.join(within_s)
        return not self._thread.is_alive()

    @property
    def is_alive(self) -> bool:
        stalled_ns = self._monotonic_ns() - self._ticked_at_ns
        return self._thread.is_alive() and stalled_ns < _STALLED_S * 1e9

    def counts(self) -> WorkerCounts:
        counts = self._scorer.counts
        return WorkerCounts(
            rows={
                "scored": counts.scored,
                "duplicate": counts.duplicates,
                "superseded": counts.superseded,
                "late": counts.late,
                UNSCORED: self.given_up[1],
            },
            windows=dict(counts.windows),
            section_times=self._store.histograms.counts(),
            kernel_times=dict(counts.kernel_times),
            failures=self._failures,
            rejected={
                **{what: self._admission.counts[what] for what in WHATS},
                **self._plausibility.counts,
            },
            names_folded=counts.names_folded,
        )

    # --- the worker's thread ----------------------------------------------------------------

    def _run(self) -> None:
        is_running, tick_due_s = True, 0.0
        while is_running:
            items = self._wait_for_items()
            began_s = time.monotonic()
            is_running = None not in items
            self._process(items)
            if self._page_requests or not is_running or time.perf_counter() >= tick_due_s:
                tick_due_s = time.perf_counter() + _TICK_S
                self._guarded(self.tick)
            if is_running and len(items) <= _AT_ONCE:
                time.sleep(max(0.0, began_s + _ROUND_S - time.monotonic()))
        self._guarded(self.finish)

    def _wait_for_items(self) -> list[_Item | _Step | None]:
        """What waits, up to None, which ends the thread."""
        items: list[_Item | _Step | None] = []
        try:
            items.append(self._queue.get(timeout=_TICK_S))
            while items[-1] is not None and len(items) <= _AT_ONCE:
                items.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        return items

    def process_queued(self) -> None:
        """Process all that waits, now (for tests that run without the thread)."""
        self._process([self._queue.get_nowait() for _ in range(self._queue.qsize())])

    def _process(self, items: list[_Item | _Step | None]) -> None:
        """Score in order; batches of spans together, where that gives the same scores."""
        waiting = BatchCoalescer()
        through = self._through
        self._clock.follow_wall_clock()
        for item in items:
            if item is None:
                continue
            if not isinstance(item, _Item):
                self._guarded(item)
                continue
            if self._monotonic_ns() >= self._give_up_at_ns:
                self._drop(item)
                continue
            through = max(through, item.sequence)
            for admitted in self._admitted(item):
                self._process_one(admitted, waiting)
        self._score(waiting)
        self._through = through
        self._is_dirty |= any(item is not None and item is not _wake for item in items)

    def _process_one(self, item: _Item, waiting: BatchCoalescer) -> None:
        content = item.content
        if isinstance(content, DecodedSpans):
            if not waiting.has_room_for(content.batch):
                self._score(waiting)
            waiting.add(content.batch, item.size, item.now_ns)
            self._guarded(partial(self._observe_progress, content, item.now_ns))
            return
        if any(beat.finished_at_s is not None for beat in content.heartbeats):
            self._score(waiting)  # a rank's end comes after all that it did
        self._guarded(partial(self._observe_metrics, content, item.now_ns))
        self._budget.release(item.size)

    def _drop(self, item: _Item) -> None:
        requests, rows = self.given_up
        new = len(item.content.batch) if isinstance(item.content, DecodedSpans) else 0
        self.given_up = requests + 1, rows + new
        self._budget.release(item.size)

    def _admitted(self, item: _Item) -> list[_Item]:
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
            self._failures += 1
            _log.exception("admission failed; the whole request is admitted")
            return [item]
        *waited, own = ready
        ages_ns = [int((now_s - each.arrived_s) * 1e9) for each in waited]
        return [
            *(
                _Item(each.content, 0, item.now_ns - age_ns)
                for each, age_ns in zip(waited, ages_ns, strict=True)
            ),
            replace(item, content=own.content),
        ]

    def _restart_returned(self, now_ns: int) -> None:
        for run_id, group in self._plausibility.drain_returned():
            self._observe_windows(self._scorer.evict(run_id, group), now_ns)
            self._store.restart_world(run_id, group)

    def _score(self, waiting: BatchCoalescer) -> None:
        size = waiting.size
        self._guarded(partial(self._observe_spans, waiting))
        self._budget.release(size)

    def _observe_spans(self, waiting: BatchCoalescer) -> None:
        now_ns, batch = waiting.newest_ns, waiting.drain()
        self._store.observe_spans(batch)
        self._scorer.observe(batch, now_ns)

    def _observe_progress(self, spans: DecodedSpans, now_ns: int) -> None:
        now_s = self._clock.at_s(now_ns)
        for source, progress in spans.progress.items():
            liveness = self._store.world_of(source).liveness
            liveness.observe_progress(source, progress, now_s, now_s + self._clock.ahead_s)

    def _observe_flight_record(
        self, key: Key, record: FlightRecord | None, read_at_ns: int
    ) -> None:
        run_id, group, rank = key
        run = self._store.runs.get(run_id)
        world = None if run is None else run.worlds.get(group)
        if world is None:
            return
        if record is not None:
            record = replace(record, read_at_s=self._clock.at_s(read_at_ns))
        world.collectives.observe(rank, record)

    def _observe_profile(self, key: Key, profile: OperatorTable | str) -> None:
        run_id, group, rank = key
        run = self._store.runs.get(run_id)
        if run is not None:
            run.profiles.observe(group, rank, profile)

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
                self._scorer.finish(beat.source, now_ns, beat.step)
                self._admission.end(beat.source, now_s)
                self._plausibility.end(beat.source)
        for times in metrics.section_times:
            world = self._store.world_of(times.source)
            if self._store.histograms.observe(world.histograms, times, now_ns):
                progress = Progress(end_ns=times.end_ns)
                world.liveness.observe_progress(times.source, progress, now_s, wall_s)
        if metrics.kernel_times is not None:
            self._scorer.observe_kernels(metrics.kernel_times)
        self._store.observe_passthrough(metrics, now_s)

    def tick(self) -> None:
        """Close due windows, evict, publish what has changed."""
        self._clock.follow_wall_clock()
        now_ns = self._monotonic_ns()
        self._ticked_at_ns = now_ns
        self._observe_histograms(now_ns)
        windows = [*self._scorer.close_due(now_ns), *self._windows_over_budget(now_ns)]
        self._observe_windows(windows, now_ns)
        self._is_dirty |= bool(windows)
        self._guarded(
            lambda: self._history.tick(
                self._scorer, self._store, self._new_summaries, self._clock.ahead_s, self._through
            )
        )
        pause_s = _TICK_S if self._is_dirty else _REFRESH_S
        is_due = now_ns - self._published_at_ns >= pause_s * 1e9
        if is_due and self._publishing.wait_s() == 0.0:
            self._publish(now_ns)
        if self._page_requests and self._paging.wait_s() == 0.0:
            self._render_page()

    def _windows_over_budget(self, now_ns: int) -> list[WindowScores]:
        """Close the windows of the largest run early if memory is short."""
        if now_ns - self._weighed_at_ns < _WEIGH_S * 1e9:
            return []
        self._weighed_at_ns = now_ns
        crowding = self._store.find_crowding(self._scorer.nbytes)
        if not crowding:
            return []
        self._plausibility.record_full(crowding[0], self._clock.at_s(now_ns))
        return self._scorer.shed(crowding[0].run_id)

    def finish(self) -> None:
        """Close every window, publish, and save a last time."""
        now_ns = self._monotonic_ns()
        self._guarded(lambda: self._observe_histograms(now_ns, is_end=True))
        self._guarded(lambda: self._observe_windows(self._scorer.close_all(), now_ns))
        self._guarded(lambda: self._publish(now_ns, is_last=True))
        self._guarded(
            lambda: self._history.save(
                self._scorer,
                self._store,
                self._new_summaries(),
                self._clock.ahead_s,
                self._through,
                is_last=True,
            )
        )

    def _observe_histograms(self, now_ns: int, *, is_end: bool = False) -> None:
        for rows in self._store.drain_histograms(now_ns, is_end=is_end):
            self._scorer.observe(rows, now_ns)

    def _new_summaries(self) -> list[Summary]:
        return new_summaries(self._store.runs, self.snapshot)

    def _observe_windows(self, windows: list[WindowScores], now_ns: int) -> None:
        for window in windows:
            self._store.observe_window(window, self._clock.at_s(now_ns))
            self._guarded(partial(self._store.extend_timeline, window))
        self._history.put_windows(windows)
        self._guarded(lambda: self._inform_sampler(windows))

    def _inform_sampler(self, windows: list[WindowScores]) -> None:
        if self._sampler is None:
            return
        self._sampler.observe_steps(self._scorer.drain_step_times())
        for run_id in dict.fromkeys(window.run_id for window in windows):
            of_run = [window for window in windows if window.run_id == run_id]
            self._sampler.observe_windows(of_run, self._scorer.verdicts(run_id))

    def _publish(self, now_ns: int, *, is_last: bool = False) -> None:
        self._published_at_ns = now_ns
        costly_before_s = self._publisher.costly_s
        with self._publishing.spending_cpu():
            self._evict(now_ns)
            snapshot = self._publisher.evaluate(now_ns, self._alerts, is_last=is_last)
            problems = self._admission.problems(self._scorer.folded_names())
            problems += tuple(self._plausibility.problems.texts())
            snapshot = replace(snapshot, page=self.snapshot.page, problems=problems)
        self._publishing.spend(costly_before_s - self._publisher.costly_s)  # at a rate of their own
        self.snapshot = self.commands.snapshot = snapshot
        if is_last:
            self._render_page()
        self._is_dirty = False
        self._ask_hung(snapshot)
        self._ask_stragglers(snapshot)
        if self._has_backfill_ended:
            self.is_backfilled.set()

    def _render_page(self) -> None:
        requests = [self._page_requests.popleft() for _ in range(len(self._page_requests))]
        with self._paging.spending_cpu():
            page = self._publisher.metrics_text(self.snapshot)
        self.snapshot = self.commands.snapshot = replace(self.snapshot, page=page)
        for request in requests:
            request.set_result(None)

    def _ask_hung(self, snapshot: Snapshot) -> None:
        """Ask ranks that are stuck for their stacks and flight records."""
        now_s = self._clock.at_s(self._monotonic_ns())
        for view in snapshot.runs.values():
            for group, hang in view.hangs.items():
                world = self._store.world(view.run_id, group)
                if hang.blame is None:
                    world.collectives.clear()
                elif world.collectives.is_due(now_s):
                    world.asked.pop(semconv.DUMP_FLIGHT_RECORD, None)
                asked = self.commands.ask_hung(view.run_id, group, hang, world.asked)
                world.collectives.mark_asked(asked.get(semconv.DUMP_FLIGHT_RECORD, ()), now_s)

    def _ask_stragglers(self, snapshot: Snapshot) -> None:
        """Ask ranks that are slow, each with a healthy peer, to profile."""
        now_s = self._clock.at_s(self._monotonic_ns())
        for view in snapshot.runs.values() if self._profiling.is_on else ():
            if (run := self._store.runs.get(view.run_id)) is not None:
                self._profiling.ask(view, run.profiles, now_s)

    def _evict(self, now_ns: int) -> None:
        """Evict what is over or too much; windows that were open are still published and kept.
        Cost: O(runs)."""
        now_s = self._clock.at_s(now_ns)
        self._admission.drop_old(now_s)
        self._plausibility.drop_old(now_s)
        for run in list(self._store.runs.values()):
            for group in self._eviction.due_worlds(run, now_s):
                self._observe_windows(self._scorer.evict(run.run_id, group), now_ns)
                self._store.evict_world(run.run_id, group)
        runs = self._store.runs.values()
        self._evict_runs(self._eviction.due_runs(runs, self._publisher.needs_somebody, now_s))

    def _evict_runs(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            self._observe_windows(self._scorer.evict(run_id), self._monotonic_ns())
            self._store.evict(run_id)

    def _guarded(self, step: _Step) -> None:
        try:
            step()
        except Exception:  # noqa: BLE001 - logged and counted; scoring goes on
            self._failures += 1
            _log.exception("scoring failed; it goes on with the next request")
