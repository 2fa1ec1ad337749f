"""The one thread that scores. Receivers hand over columns; pages read what it has published."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from otel_straggler.collector.admission import Admission
from otel_straggler.collector.beside_scores import BesideScores
from otel_straggler.collector.board import Board, Snapshot
from otel_straggler.collector.board_report import AlertsOf
from otel_straggler.collector.clock_steps import ClockSteps
from otel_straggler.collector.commands import Commands
from otel_straggler.collector.crowding import WHATS, Crowding
from otel_straggler.collector.forgetting import Forgetting
from otel_straggler.collector.gathering import Gathering
from otel_straggler.collector.hangs import Hangs
from otel_straggler.collector.histograms import Histograms
from otel_straggler.collector.keeper import Keeper
from otel_straggler.collector.letting_go import LettingGo
from otel_straggler.collector.liveness import Liveness
from otel_straggler.collector.pace import Pace
from otel_straggler.collector.recent import Recent
from otel_straggler.collector.settings import CollectorSettings, HistorySettings, MiB
from otel_straggler.collector.summaries import Summaries
from otel_straggler.collector.watching import Watching
from otel_straggler.model.alert import Mode
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import RunVerdicts, hang_subject, with_idle
from otel_straggler.publish.decisions import Decisions
from otel_straggler.publish.history import Summary
from otel_straggler.publish.maintenance_book import MaintenanceBook
from otel_straggler.publish.sampling import Sampler
from otel_straggler.score.hangs.detector import HangStatus
from otel_straggler.score.scorer import Scorer
from otel_straggler.wire.metric_rules import DecodedMetrics
from otel_straggler.wire.span_rules import DecodedSpans, Progress

_log = logging.getLogger(__name__)

_TICK_S = 0.1
_ROUND_S = 0.02
"""From one look at the queue to the next: many small requests cost less together, and nobody waits
for a score to come some milliseconds sooner."""
_AT_ONCE = 256
"""Items taken from the queue before due windows are looked for."""
_REFRESH_S = 1.0
_STALLED_S = 60.0
_STOP_S = 12.0
_SCORING_SHARE = 0.6
"""Of the time to stop in, for what waits; the rest is for the windows and the state."""
UNSCORED = "unscored"


@dataclass(frozen=True, slots=True)
class _Item:
    """What a receiver handed over, when, and how many bytes are reserved for it."""

    content: DecodedSpans | DecodedMetrics
    size: int
    now_ns: int
    now_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCounts:
    """What the scorer did so far: rows, windows and points of histograms by fate."""

    rows: dict[str, int]
    windows: dict[str, int]
    section_times: dict[str, int]
    kernel_times: dict[str, int] = field(default_factory=dict)
    failures: int = 0
    turned_away: dict[str, int] = field(default_factory=dict)
    names_folded: int = 0


class Worker:
    """Scores what it is given, in order, on its own thread (or step by step, in tests).

    Args:
        settings: of the collector.
        admission: where the reserved bytes are given back.
        monotonic_ns, wall_s: clocks.
        keeper: of what survives this process; None for one that keeps nothing.
        sampler: of the spans that are passed on, told what was found; None if there is none.
        decisions: of people about verdicts.
        maintenance: of nodes.
        mode: whether alerts may call somebody.
        alerts: gives those that fire about a run; from any thread.
    """

    def __init__(
        self,
        settings: CollectorSettings,
        admission: Admission,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wall_s: Callable[[], float] = time.time,
        keeper: Keeper | None = None,
        sampler: Sampler | None = None,
        decisions: Decisions | None = None,
        maintenance: MaintenanceBook | None = None,
        mode: Mode = "observe",
        alerts: AlertsOf = lambda _: (),
    ) -> None:
        scoring = settings.scoring
        self._admission = admission
        self._keeper = keeper or Keeper(HistorySettings(), scoring.max_runs)
        self._sampler = sampler
        self._decisions = decisions or Decisions(lambda: int(wall_s() * 1e9))
        self._maintenance = maintenance or MaintenanceBook(lambda: int(wall_s() * 1e9))
        self._monotonic_ns = monotonic_ns
        self._wall_s = wall_s
        self._clock = ClockSteps(monotonic_ns, wall_s)
        self._forgetting = Forgetting(
            forget_s=scoring.forget_run_seconds,
            give_up_s=settings.liveness.give_up_seconds,
            max_runs=scoring.max_runs,
        )
        self._crowding = Crowding(scoring)
        self._cluster = settings.metrics.cluster
        judging = settings.liveness.for_judge()
        self._hangs = Hangs(judging)
        self._watching = Watching(mode, judging, self.is_acknowledged)
        self._scorer = Scorer(
            scoring.for_scorer(), settings.verdicts.for_judge(), self._hangs.learn
        )
        self._histograms = Histograms(scoring.grace_seconds)
        self._liveness = Liveness()
        self.commands = Commands(settings.commands, self._liveness.source_of)
        self._beside = BesideScores()
        self._board = Board(
            keep_s=settings.metrics.keep_scores_seconds,
            series_budget=settings.metrics.series_budget,
            alerts=alerts,
            beside=self._beside,
        )
        self.recent = Recent(settings.metrics.timeline_mib * MiB)
        keeping = self._histograms, self._hangs, self.commands, self._beside, self._board
        self._letting_go = LettingGo(
            self._crowding,
            self._forgetting,
            self._scorer,
            self._liveness,
            (*keeping, self.recent),
            max_groups=scoring.max_groups,
            hung=self._hangs.hung,
            needs_somebody=self._needs_somebody,
            show=self._show,
        )
        self._summaries = Summaries(alerts, mode)
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="straggler-scorer", daemon=True)
        self._is_dirty = True
        self._publishing = Pace()
        self._paging = Pace()
        self._ticked_at_ns = monotonic_ns()
        self._failures = 0
        self._give_up_at_ns: int | None = None
        self._unscored_rows = 0
        self._unscored_requests = 0
        self.problems: tuple[str, ...] = ()
        self.snapshot = Snapshot()

    # --- from any thread --------------------------------------------------------------------

    def take(self, content: DecodedSpans | DecodedMetrics, size: int) -> None:
        self._queue.put(_Item(content, size, self._monotonic_ns(), self._wall_s()))

    def ranks_of(self, run_id: str, group: str) -> list[int]:
        """The ranks of a world that were heard of."""
        return self._liveness.ranks_of(run_id, group)

    def show_soon(self) -> None:
        """Something else than what was handed over changes what is shown."""
        self._is_dirty = True

    def start(self, collector_id: str) -> None:
        """Restore what the keeper has, and begin; ``collector_id`` is the value of the label
        ``collector``."""
        self._keeper.restore(
            self._scorer, self._decisions, hangs=self._hangs, maintenance=self._maintenance
        )
        self.sign(collector_id)
        self._thread.start()

    def sign(self, collector_id: str) -> None:
        """Set the label ``collector``, before anything is shown."""
        self._board.sign(collector_id, self._cluster)
        self._watching.sign(collector_id, self._cluster)

    def stop(self, within_s: float = _STOP_S) -> bool:
        """Score what was handed over, close every window, publish, save, end.

        Args:
            within_s: what is not scored after the larger part of it is given up and counted.

        Returns:
            Whether all has ended within the time: if not, what has come since the state was last
            saved does not survive.
        """
        self._give_up_at_ns = self._monotonic_ns() + int(within_s * _SCORING_SHARE * 1e9)
        self._queue.put(None)
        self._thread.join(within_s)
        return not self._thread.is_alive()

    @property
    def given_up(self) -> tuple[int, int]:
        """Requests, and section runs in them, for which there was no time left when stopping."""
        return self._unscored_requests, self._unscored_rows

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs and is not stuck."""
        stalled_ns = self._monotonic_ns() - self._ticked_at_ns
        return self._thread.is_alive() and stalled_ns < _STALLED_S * 1e9

    def counts(self) -> WorkerCounts:
        counts = self._scorer.counts
        rows = {
            "scored": counts.scored,
            "duplicate": counts.duplicates,
            "superseded": counts.superseded,
            "late": counts.late,
            UNSCORED: self._unscored_rows,
        }
        return WorkerCounts(
            rows=rows,
            windows=dict(counts.windows),
            section_times=self._histograms.counts(),
            kernel_times=dict(counts.kernel_times),
            failures=self._failures,
            turned_away={what: self._crowding.counts[what] for what in WHATS},
            names_folded=counts.names_folded,
        )

    # --- the worker's thread ----------------------------------------------------------------

    def _run(self) -> None:
        is_running = True
        while is_running:
            items = self._wait_for_items(_TICK_S)
            began_s = time.monotonic()
            is_running = None not in items
            self._process([item for item in items if item is not None])
            self._guarded(self.tick)
            if is_running and len(items) <= _AT_ONCE:
                time.sleep(max(0.0, began_s + _ROUND_S - time.monotonic()))
        self._guarded(self.finish)

    def _wait_for_items(self, wait_s: float) -> list[_Item | None]:
        """What waits, up to None, which tells to stop; empty if nothing comes."""
        items: list[_Item | None] = []
        try:
            items.append(self._queue.get(timeout=wait_s))
            while items[-1] is not None and len(items) <= _AT_ONCE:
                items.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        return items

    def process_queued(self) -> None:
        """Process all that waits, now (for tests that run without the thread)."""
        items: list[_Item] = []
        while not self._queue.empty():
            item = self._queue.get_nowait()
            items += [] if item is None else [item]
        self._process(items)

    def _process(self, items: list[_Item]) -> None:
        """Score what was handed over, in order; batches of spans together, where that is the same.
        A failure is logged and counted; what follows goes on."""
        gathering = Gathering()
        self._guarded(self._follow_clock)
        for taken in items:
            if self._is_out_of_time():
                self._give_up(taken)
                continue
            item = replace(taken, now_s=self._clock.corrected(taken.now_s, taken.now_ns))
            content = self._admitted(item)
            if isinstance(content, DecodedSpans):
                if not gathering.has_room_for(content.batch):
                    self._score(gathering)
                gathering.add(content.batch, item.size, item.now_ns)
                self._guarded(partial(self._take_progress, content, item.now_s))
            else:
                if any(beat.finished_at_s is not None for beat in content.heartbeats):
                    self._score(gathering)  # a rank's end comes after all that it did
                self._guarded(partial(self._take_metrics, content, item))
                self._admission.release(item.size)
        self._score(gathering)
        self._is_dirty |= bool(items)

    def _is_out_of_time(self) -> bool:
        return self._give_up_at_ns is not None and self._monotonic_ns() >= self._give_up_at_ns

    def _give_up(self, item: _Item) -> None:
        """It is not scored, because whoever stops the collector waits no longer."""
        self._unscored_requests += 1
        if isinstance(item.content, DecodedSpans):
            self._unscored_rows += len(item.content.batch)
        self._admission.release(item.size)

    def _admitted(self, item: _Item) -> DecodedSpans | DecodedMetrics:
        """Who is let in; everybody, where that cannot be told."""
        try:
            return self._crowding.admitted(item.content, item.now_s)
        except Exception:  # noqa: BLE001 - logged and counted; scoring goes on
            self._failures += 1
            _log.exception("who is let in could not be told; the whole request is taken")
            return item.content

    def _score(self, gathering: Gathering) -> None:
        """Score what was gathered, and give back the bytes that are reserved for it."""
        size, now_ns = gathering.size, gathering.newest_ns
        try:
            batch = gathering.take()
            self._histograms.note_spans(batch)
            self._beside.note(batch)
            self._scorer.observe(batch, now_ns)
        except Exception:  # noqa: BLE001 - logged and counted; scoring goes on
            self._failures += 1
            _log.exception("requests could not be scored")
        finally:
            self._admission.release(size)

    def _take_progress(self, spans: DecodedSpans, now_s: float) -> None:
        for source, progress in spans.progress.items():
            self._liveness.take_progress(source, progress, now_s)

    def _take_metrics(self, metrics: DecodedMetrics, item: _Item) -> None:
        for beat in metrics.heartbeats:
            self._liveness.take_heartbeat(beat, item.now_s)
            if beat.finished_at_s is None:
                self._scorer.mark_alive(beat.source, item.now_ns)
            else:
                self._scorer.finish(beat.source, item.now_ns)
                self._crowding.end(beat.source.run_id, beat.source.group, item.now_s)
        for times in metrics.section_times:
            if self._histograms.take(times, item.now_ns):
                progress = Progress(end_ns=times.end_ns)
                self._liveness.take_progress(times.source, progress, item.now_s)
        if metrics.kernel_times is not None:
            self._scorer.observe_kernels(metrics.kernel_times)
        self._beside.take(metrics, item.now_s)

    def _follow_clock(self) -> None:
        """Before anything is compared with the wall clock."""
        step_s = self._clock.step_s()
        if step_s:
            for noted in (self._liveness, self._hangs, self._crowding):
                noted.move(step_s)

    def tick(self) -> None:
        """Close the windows that are due, forget what is over, publish what has changed."""
        self._follow_clock()
        now_ns, now_s = self._monotonic_ns(), self._wall_s()
        self._ticked_at_ns = now_ns
        for rows in self._histograms.due(now_ns):
            self._scorer.observe(rows, now_ns)
        windows = self._scorer.close_due(now_ns)
        self._show(windows, now_s)
        self._is_dirty |= bool(windows)
        self._guarded(
            lambda: self._keeper.tick(self._scorer, self._hangs, lambda: self._new_summaries(now_s))
        )
        # A tenth of the time at most goes into what pages read, and as much into the text of
        # /metrics, which takes several times as long: much of it is shown a little later.
        pause_s = _TICK_S if self._is_dirty else _REFRESH_S
        if self._publishing.since_ns(now_ns) >= pause_s * 1e9 and self._publishing.is_due(now_ns):
            self._publish(now_ns, now_s)

    def finish(self) -> None:
        """Close every window and publish a last time."""
        now_ns, now_s = self._monotonic_ns(), self._wall_s()
        self._guarded(lambda: self._close_all(now_ns, now_s))
        self._guarded(lambda: self._publish(now_ns, now_s, is_last=True))
        self._guarded(
            lambda: self._keeper.save(self._scorer, self._hangs, self._new_summaries(now_s))
        )

    def _close_all(self, now_ns: int, now_s: float) -> None:
        for rows in self._histograms.all(now_ns):
            self._scorer.observe(rows, now_ns)
        self._show(self._scorer.close_all(), now_s)

    def _new_summaries(self, now_s: float) -> list[Summary]:
        return self._summaries.take(self.snapshot, now_s)

    def _show(self, windows: list[WindowScores], now_s: float) -> None:
        """Hand closed windows to all who want them."""
        for window in windows:
            self._board.take(window, now_s)
            self._guarded(partial(self.recent.take, window))
        self._keeper.take(windows)
        self._guarded(lambda: self._tell(windows))

    def _tell(self, windows: list[WindowScores]) -> None:
        """Tell the sampler of spans what their windows and verdicts say."""
        if self._sampler is None:
            return
        self._sampler.tell_steps(self._scorer.drain_step_times())
        by_run: dict[str, list[WindowScores]] = {}
        for window in windows:
            by_run.setdefault(window.run_id, []).append(window)
        for run_id, of_run in by_run.items():
            self._sampler.tell_windows(of_run, self._scorer.verdicts(run_id))

    def _publish(self, now_ns: int, now_s: float, *, is_last: bool = False) -> None:
        with self._publishing.counted(now_ns):
            snapshot = self._new_snapshot(now_ns, now_s)
        if is_last or self._paging.is_due(now_ns):
            with self._paging.counted(now_ns):
                snapshot = replace(snapshot, page=self._board.page(snapshot))
        self.snapshot = snapshot
        self._is_dirty = False

    def _new_snapshot(self, now_ns: int, now_s: float) -> Snapshot:
        """All as it is now, with the last text of /metrics."""
        self._letting_go.look(now_s)
        self._board.follow(self._liveness, now_s)
        self._board.drop_unshown()
        self._beside.drop_old(now_s)
        clashes = {run_id: self._clashes(run_id, now_ns, now_s) for run_id in self._liveness.runs()}
        maintenance = self._maintenance.in_force()
        nodes = frozenset(each.node for each in maintenance)
        snapshot = self._board.snapshot(
            self._liveness,
            clashes,
            self._scorer.late_by_run,
            self._judged,
            lambda run_id: self._found(run_id, now_s),
            lambda runs: self._watching.watched(runs, nodes, now_s),
            maintenance,
        )
        self.problems = self._crowding.problems(self._scorer.folded_names())
        return replace(snapshot, page=self.snapshot.page)

    def _found(self, run_id: str, now_s: float) -> dict[str, HangStatus]:
        """Who is stuck or lost, by group."""
        looks = {
            group: self._hangs.look(run_id, group, world, now_s)
            for group, world in self._liveness.worlds(run_id).items()
        }
        seen = {
            group: self._forgetting.shown(run_id, found)
            for group, found in looks.items()
            if found is not None
        }
        for group, found in seen.items():
            self.commands.note(run_id, group, found)
        return seen

    def is_acknowledged(self, run_id: str, group: str) -> bool:
        """Whether a world hangs and a person has said that nobody is to be called for it."""
        hung = self._hangs.hung(run_id)
        return hang_subject(group) in self._decisions.silenced_hangs(run_id, hung)

    def _needs_somebody(self, run_id: str) -> bool:
        """Whether a world of the run hangs and nobody has acknowledged that."""
        hung = self._hangs.hung(run_id)
        return bool(hung.keys() - self._decisions.silenced_hangs(run_id, hung))

    def _judged(self, run_id: str) -> RunVerdicts:
        hung, idle = self._hangs.hung(run_id), self._hangs.idle_gpu_s(run_id)
        worlds = self._liveness.worlds(run_id)
        on_gpu = {group for group in idle if group in worlds and worlds[group].reports_gpu}
        judged = with_idle(self._scorer.verdicts(run_id), run_id, idle, on_gpu)
        return self._decisions.applied(judged, run_id, hung)

    def _clashes(self, run_id: str, now_ns: int, now_s: float) -> tuple[Source, ...]:
        found = (
            *self._scorer.clashes(run_id, now_ns),
            *self._liveness.clashes(run_id, now_s),
        )
        by_session = {(s.group, s.attempt, s.rank, s.session_id, s.node): s for s in found}
        return tuple(by_session.values())

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:  # noqa: BLE001 - logged and counted; scoring goes on
            self._failures += 1
            _log.exception("scoring failed; it goes on with the next request")
