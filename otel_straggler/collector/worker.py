"""The scoring thread. Receivers hand over columns; pages read what it has published."""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from otel_straggler import semconv
from otel_straggler.collector.api.commands import Commands, Key
from otel_straggler.collector.api.decisions import Decisions
from otel_straggler.collector.api.maintenance import MaintenanceBook
from otel_straggler.collector.api.profiling import Profiling
from otel_straggler.collector.forwarding.sampling import Sampler
from otel_straggler.collector.history.store import Summary
from otel_straggler.collector.history.writer import HistoryWriter, new_summaries
from otel_straggler.collector.ingest.intake import ByteBudget
from otel_straggler.collector.runs.admission import AdmissionControl, Eviction, Refusal
from otel_straggler.collector.runs.clock import CollectorClock
from otel_straggler.collector.runs.failures import RunGuard
from otel_straggler.collector.runs.observer import (
    BatchCoalescer,
    Guarded,
    Item,
    Observer,
    Step,
    WorkerCounts,
)
from otel_straggler.collector.runs.plausibility import Plausibility
from otel_straggler.collector.runs.store import RunStore
from otel_straggler.collector.settings import CollectorSettings, HistorySettings, MiB
from otel_straggler.collector.views.metrics_text import SeriesShares
from otel_straggler.collector.views.publisher import Publisher
from otel_straggler.collector.views.snapshot import Snapshot
from otel_straggler.collector.views.timeline import Column
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.detect.scores.scorer import Scorer
from otel_straggler.model.alert import Alert
from otel_straggler.model.flight_records import FlightRecord
from otel_straggler.model.operator_tables import OperatorTable
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.step_table import StepTable
from otel_straggler.otlp.metric_rules import DecodedMetrics
from otel_straggler.otlp.span_rules import DecodedSpans
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
_SCORING_SHARE, _EVALUATING_SHARE = 0.6, 0.7
"""Parts of the time to stop that are over when what waits has to be scored, and verdicts evaluated;
the rest is for the last views and the state."""


def _wake() -> None:
    """An item of the queue that ends the wait for one."""


class Worker:
    """Scores what it is given, in order, on its own thread (or step by step, in tests).

    Attributes:
        snapshot: published last; any thread may read it.
        is_backfilled: set once the timelines have the windows of the history.
        given_up: requests, and section executions in them, that are lost: there was no time left
            when stopping, and no spool has them.
        spooled: the same of those that the spool has: the next process scores them.
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
        self._guarded = Guarded()
        self._guard = RunGuard(store, lambda: self._clock.at_s(monotonic_ns()))
        # The scorer may hold as many as there are until the next view.
        scores = replace(scoring, max_runs=2 * scoring.max_runs)
        scorer = self._scorer = Scorer(scores, settings.verdicts, self._learn, self._guard)
        self._observer = Observer(
            store,
            scorer,
            self._clock,
            self._admission,
            self._plausibility,
            Eviction(scoring, settings.liveness.give_up_s),
            history=self._history,
            budget=budget,
            guarded=self._guarded,
            keep_windows=self._observe_windows,
        )
        self._publisher = Publisher(
            settings, store, scorer, self._clock, self._decisions, self._maintenance, self._guard,
            series_shares, None if sampler is None else sampler.has_sent,
        )  # fmt: skip
        self.commands = Commands(
            settings.commands,
            receive=self.receive_flight_record,
            receive_profile=self.receive_profile,
        )
        self._profiling = Profiling(settings.commands, self.commands)
        self._queue: queue.SimpleQueue[Item | Step | None] = queue.SimpleQueue()
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
        self._give_up_at_ns = self._evaluate_until_ns = math.inf
        self._is_behind = False
        self._through = 0
        self.given_up = self.spooled = (0, 0)
        self._at_work: list[Item | Step | None] = []
        self._alerts: Mapping[str, tuple[Alert, ...]] = {}
        self._has_backfill_ended = False
        self.is_backfilled = threading.Event()
        self.snapshot = Snapshot()

    # --- from any thread --------------------------------------------------------------------

    def ingest(self, content: DecodedSpans | DecodedMetrics, size: int, sequence: int = 0) -> None:
        """Queue a request; ``sequence``: of the spool, ascending, 0: it is not stored there."""
        self._queue.put(Item(content, size, self._monotonic_ns(), sequence))

    def claim(self, content: DecodedSpans | DecodedMetrics) -> Refusal:
        """Places for the senders of a request; asked before it is acknowledged."""
        return self._admission.claim(content, self._clock.at_s(self._monotonic_ns()))

    def backfill(self, view: WorldView, columns: Sequence[Column]) -> None:
        """Put windows of the history before those of this process."""
        self._queue.put(partial(self._store.put_before, view, tuple(columns)))

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

    def evict_runs(self, run_ids: Sequence[str]) -> None:
        """Another shard has them now."""
        evict = self._observer.evict_runs
        self._queue.put(lambda: evict(tuple(run_ids), self._monotonic_ns()))

    def receive_flight_record(self, key: Key, record: FlightRecord | None, age_s: float) -> None:
        """The flight record of a rank, or None if it has none."""
        read_at_ns = self._monotonic_ns() - int(age_s * 1e9)
        self._queue.put(partial(self._observer.observe_flight_record, key, record, read_at_ns))

    def receive_profile(self, key: Key, profile: OperatorTable | str) -> None:
        """The operators of a rank that was asked to profile, or why there are none."""
        self._queue.put(partial(self._observer.observe_profile, key, profile))

    def start(self, collector_id: str) -> None:
        """Restore the history, and begin; ``collector_id`` is the label ``collector``."""
        self.sign(collector_id)
        if self._thread.ident is None:
            self.resume()

    def resume(self) -> None:
        """Restore the history, and begin, before it is known under which label: requests of the
        spool come first."""
        self._history.restore(
            self._scorer,
            self._decisions,
            store=self._store,
            maintenance=self._maintenance,
            now_s=lambda: self._clock.at_s(self._monotonic_ns()),
        )
        self._through = self._history.through
        self._thread.start()

    def sign(self, collector_id: str) -> None:
        self._publisher.sign(collector_id)

    def stop(self, within_s: float = _STOP_S) -> bool:
        """Score what waits, close every window, publish, save, end; what is not scored after the
        larger part of the time is left to the spool, or dropped and counted. Returns whether it
        ended in time: if not, what has come since the last save is in the spool, or lost."""
        now_ns = self._monotonic_ns()
        self._is_behind = self._queue.qsize() > _AT_ONCE
        self._evaluate_until_ns = now_ns + int(within_s * _EVALUATING_SHARE * 1e9)
        self._give_up_at_ns = now_ns + int(within_s * _SCORING_SHARE * 1e9)
        self._queue.put(None)
        self._thread.join(within_s)
        if not self._thread.is_alive():
            return True
        for item in (*self._at_work, *self._drained()):
            if isinstance(item, Item):
                self._drop(item)
        self._queue.put(None)
        return False

    @property
    def is_short_of_memory(self) -> bool:
        return self._store.is_short

    @property
    def is_alive(self) -> bool:
        stalled_ns = self._monotonic_ns() - self._ticked_at_ns
        return self._thread.is_alive() and stalled_ns < _STALLED_S * 1e9

    def counts(self) -> WorkerCounts:
        counts = self._observer.counts(unscored=self.given_up[1])
        return replace(counts, failures=counts.failures + self._guard.count)

    # --- the worker's thread ----------------------------------------------------------------

    def _run(self) -> None:
        is_running, tick_due_s = True, 0.0
        while is_running:
            items = self._wait_for_items()
            began_s = time.monotonic()
            is_running = None not in items
            self._process(items)
            is_due = self._page_requests or not is_running or time.perf_counter() >= tick_due_s
            if is_due and not self._is_behind:  # else rows first: verdicts take ten times as long
                tick_due_s = time.perf_counter() + _TICK_S
                self._guarded(self.tick)
            if is_running and len(items) <= _AT_ONCE:
                time.sleep(max(0.0, began_s + _ROUND_S - time.monotonic()))
        self._guarded(self.finish)

    def _wait_for_items(self) -> list[Item | Step | None]:
        """What waits, up to None, which ends the thread."""
        items: list[Item | Step | None] = []
        try:
            items.append(self._queue.get(timeout=_TICK_S))
            while items[-1] is not None and len(items) <= _AT_ONCE:
                items.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        return items

    def _drained(self) -> Iterator[Item | Step | None]:
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._queue.get_nowait()

    def process_queued(self) -> None:
        """Process all that waits, now (for tests that run without the thread)."""
        self._process(list(self._drained()))

    def _process(self, items: list[Item | Step | None]) -> None:
        """Score in order; batches of spans together, where that gives the same scores."""
        waiting = BatchCoalescer()
        self._at_work = items
        through = self._through
        self._clock.follow_wall_clock()
        for item in items:
            if item is None:
                continue
            if not isinstance(item, Item):
                self._guarded(item)
                continue
            if self.spooled[0] or self._monotonic_ns() >= self._give_up_at_ns:
                self._drop(item)
                continue
            through = max(through, item.sequence)
            self._observer.observe(item, waiting)
        self._observer.score(waiting)
        self._through, self._at_work = through, []
        self._is_dirty |= any(item is not None and item is not _wake for item in items)

    def _drop(self, item: Item) -> None:
        new = len(item.content.batch) if isinstance(item.content, DecodedSpans) else 0
        requests, rows = self.spooled if item.sequence else self.given_up
        count = requests + 1, rows + new
        if item.sequence:
            self.spooled = count
        else:
            self.given_up = count
        self._budget.release(item.size)

    def tick(self) -> None:
        """Close due windows, evict, publish what has changed."""
        self._clock.follow_wall_clock()
        now_ns = self._monotonic_ns()
        self._ticked_at_ns = now_ns
        self._guarded(lambda: self._close_windows(now_ns))
        self._guarded(
            lambda: self._history.tick(
                self._scorer, self._store, self._new_summaries, self._clock.ahead_s, self._through
            )
        )
        pause_s = _TICK_S if self._is_dirty else _REFRESH_S
        is_due = now_ns - self._published_at_ns >= pause_s * 1e9 and not self._is_behind
        if is_due and self._publishing.wait_s() == 0.0:
            self._guarded(lambda: self._publish(now_ns))
        if self._page_requests and self._paging.wait_s() == 0.0:
            self._render_page()

    def _learn(self, table: StepTable) -> None:
        self._store.learn(table)
        self._guard.succeeded(table.sources[0].run_id, table.sources[0].group, "timeouts")

    def _close_windows(self, now_ns: int) -> None:
        self._observe_histograms(now_ns)
        due = self._scorer.close_due(now_ns, lambda: not self._is_behind)
        windows = [*due, *self._windows_over_budget(now_ns)]
        self._is_dirty |= bool(windows)
        self._observe_windows(windows, now_ns)

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
        """Close every window, publish, and save a last time. Windows stay open for what only the
        spool has: the next process goes on with them."""
        now_ns = self._monotonic_ns()
        is_last = not self.spooled[0]
        self._guarded(lambda: self._observe_histograms(now_ns, is_end=True))
        if is_last:
            self._guarded(lambda: self._observe_windows(self._close_all(), now_ns))
        self._guarded(lambda: self._publish(now_ns, is_last=True))
        self._guarded(
            lambda: self._history.save(
                self._scorer,
                self._store,
                self._new_summaries(),
                self._clock.ahead_s,
                self._through,
                is_last=is_last,
            )
        )

    def _close_all(self) -> list[WindowScores]:
        windows = self._scorer.close_all(lambda: self._monotonic_ns() < self._evaluate_until_ns)
        if self._scorer.unevaluated:
            _log.warning(
                "no time left for the verdicts on the last steps of %d groups of ranks; their "
                "windows are scored", self._scorer.unevaluated,
            )  # fmt: skip
        return windows

    def _observe_histograms(self, now_ns: int, *, is_end: bool = False) -> None:
        for rows in self._store.drain_histograms(now_ns, is_end=is_end):
            self._scorer.observe(rows, now_ns)

    def _new_summaries(self) -> list[Summary]:
        return new_summaries(self._store.runs, self.snapshot)

    def _observe_windows(self, windows: list[WindowScores], now_ns: int) -> None:
        for window in windows:
            at_s, run_id, group = self._clock.at_s(now_ns), window.run_id, window.group
            observe = partial(self._store.observe_window, window, at_s)
            self._guard.attempt(run_id, group, "windows", observe)
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
            evict = partial(self._observer.evict_due, now_ns, self._publisher.needs_somebody)
            self._guarded(evict)
            snapshot = self._publisher.evaluate(now_ns, self._alerts, is_last=is_last)
            problems = self._admission.problems(self._scorer.folded_names())
            problems += tuple(self._plausibility.problems.texts())
            snapshot = replace(snapshot, page=self.snapshot.page, problems=problems)
        self._publishing.spend(costly_before_s - self._publisher.costly_s)  # at a rate of their own
        self.snapshot = self.commands.snapshot = snapshot
        if is_last:
            self._render_page()
        self._is_dirty = False
        self._guarded(lambda: self._ask_hung(snapshot))
        self._guarded(lambda: self._ask_stragglers(snapshot))
        if self._has_backfill_ended:
            self.is_backfilled.set()

    def _render_page(self) -> None:
        requests = [self._page_requests.popleft() for _ in range(len(self._page_requests))]
        try:
            with self._paging.spending_cpu():
                page = self._publisher.metrics.text(self.snapshot)
            self.snapshot = self.commands.snapshot = replace(self.snapshot, page=page)
        finally:
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
