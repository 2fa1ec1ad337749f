"""All state of training runs: a run owns its worlds, a world owns everything known of it. Nothing
else keeps state by run, so evicting is deleting here."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from otel_straggler import semconv
from otel_straggler.collector.metrics.score_series import RunScores
from otel_straggler.collector.runs.claims import WorldClaims
from otel_straggler.collector.runs.contents import Content
from otel_straggler.collector.runs.goodput import WorldGoodput, goodput_state, restored_goodput
from otel_straggler.collector.runs.hangs import WorldHangs
from otel_straggler.collector.runs.hung_worlds import hung_state, restored_worlds
from otel_straggler.collector.runs.passthrough import checkpoint_ends
from otel_straggler.collector.runs.rank_status import RankStatus
from otel_straggler.collector.runs.run import Run, World
from otel_straggler.collector.runs.section_histograms import SectionHistograms
from otel_straggler.collector.runs.timeline import keep_within
from otel_straggler.collector.views.run_shown import RunShown
from otel_straggler.collector.views.timeline import Column
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.detect.hangs.detector import HungRun
from otel_straggler.detect.scores.settings import HangSettings
from otel_straggler.goodput.observations import activity_rows
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.model.observation import ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.step_table import StepTable
from otel_straggler.otlp.metric_rules import DecodedMetrics

_MAX_REMEMBERED: Final = 100
"""Absent worlds: of a restored state, and evicted ones, each."""
_MAX_EARLY: Final = 20
"""Events of launchers of a run that no rank has reported yet."""
_STATE_VERSION: Final = 1


@dataclass(slots=True)
class _Remembered:
    """State of an absent world, which may come back."""

    hangs: WorldHangs | None = None
    columns: tuple[Column, ...] = ()
    claims: WorldClaims[Content] | None = None
    goodput: WorldGoodput | None = None


class RunStore:
    """One thread owns it; time is an argument. ``grace_s``: see :class:`SectionHistograms`;
    ``timeline_bytes``: for the timelines of all worlds; ``memory_bytes``: for all that is known of
    all runs."""

    def __init__(
        self,
        hang_settings: HangSettings | None = None,
        *,
        grace_s: float = 0.0,
        keep_scores_s: float = 900.0,
        timeline_bytes: int = 64 << 20,
        memory_bytes: int = 2 << 30,
    ) -> None:
        self._hang_settings = hang_settings or HangSettings()
        self._keep_scores_s = keep_scores_s
        self._timeline_bytes = timeline_bytes
        self._memory_bytes = memory_bytes
        self.nbytes = 0
        self._remembered: OrderedDict[tuple[str, str], _Remembered] = OrderedDict()
        self._early: OrderedDict[str, deque[LaunchEvent]] = OrderedDict()
        self._learned = self._scored = 0
        self.histograms = SectionHistograms(grace_s)
        self.runs: dict[str, Run] = {}

    def run(self, run_id: str) -> Run:
        """A run; created if unknown."""
        run = self.runs.get(run_id)
        if run is None:
            run = Run(run_id, RunScores(run_id, keep_s=self._keep_scores_s))
            self.runs[run_id] = run
        return run

    def world(self, run_id: str, group: str) -> World:
        """A world; created, with its remembered state, if unknown."""
        run = self.run(run_id)
        world = run.worlds.get(group)
        if world is None:
            before = self._remembered.pop((run_id, group), _Remembered())
            hangs = before.hangs or WorldHangs(self._hang_settings)
            settings = self._hang_settings
            claims = before.claims or self._new_claims()
            world = run.worlds[group] = World(group, hangs, HungRun(settings), claims)
            world.timeline.put_before(before.columns)
            world.goodput = before.goodput or world.goodput
            for other in run.worlds.values():
                its, others = world.goodput.live, other.goodput.live
                its.launches = its.launches or others.launches.copy()
            for event in self._early.pop(run_id, ()):
                world.goodput.live.observe_launch(event)
        return world

    def _new_claims(self) -> WorldClaims[Content]:
        return WorldClaims(self._hang_settings.ending_s)

    def world_of(self, source: Source) -> World:
        return self.world(source.run_id, source.group)

    def worlds(self) -> Iterator[World]:
        return (world for run in self.runs.values() for world in run.worlds.values())

    # --- what comes in -----------------------------------------------------------------------

    def observe_spans(self, batch: ObservationBatch) -> None:
        """Record which sections come as spans, and checkpoints."""
        self.histograms.observe_spans(batch, lambda source: self.world_of(source).histograms)
        for source, row in activity_rows(batch):
            self.world_of(source).goodput.live.observe_activity(source, row)
        for source, step, end_s in checkpoint_ends(batch):
            self.world_of(source).passthrough.observe_checkpoint(source, step, end_s)

    def observe_passthrough(
        self, metrics: DecodedMetrics, now_s: float, wall_s: float = 0.0
    ) -> None:
        for number in metrics.passthrough:
            self.world_of(number.source).passthrough.observe_number(number, now_s)
        for source in _with_checkpoints(metrics):
            world = self.world_of(source)
            world.checkpoints.observe(world.passthrough.numbers[source.rank], wall_s)
        for event in metrics.launches:
            self._observe_launch(event)
        times = metrics.kernel_times
        if times is None:
            return
        columns = (times.source, times.cell, times.end_ns, times.sum_s, times.count)
        rows = zip(*(c.tolist() for c in columns), strict=True)
        for code, cell_code, end_ns, seconds, runs in rows:
            source, cell = times.sources[code], times.cells[cell_code]
            kernels = self.world_of(source).passthrough.kernels_of(source)
            if kernels is not None:
                kernels.add((cell.section, cell.kernel), end_ns, seconds, runs)

    def _observe_launch(self, event: LaunchEvent) -> None:
        """Of a run that no rank has reported yet, it waits for the first one."""
        run = self.runs.get(event.run_id)
        for world in () if run is None else run.worlds.values():
            world.goodput.live.observe_launch(event)
        if run is None or not run.worlds:
            early = self._early.setdefault(event.run_id, deque(maxlen=_MAX_EARLY))
            early.append(event)
            while len(self._early) > _MAX_REMEMBERED:
                self._early.popitem(last=False)

    def observe_exits(self, event: LaunchEvent, now_s: float) -> list[RankStatus]:
        """Ranks that have ended by what their launcher reports. It knows ranks and no groups: in a
        run of several it says nothing."""
        run = self.runs.get(event.run_id)
        worlds = () if run is None else tuple(run.known_worlds())
        return worlds[0].liveness.observe_launch(event, now_s) if len(worlds) == 1 else []

    def drain_histograms(self, now_ns: int, *, is_end: bool = False) -> list[ObservationBatch]:
        """See :meth:`SectionHistograms.drain`."""
        worlds = (world.histograms for world in self.worlds())
        return list(self.histograms.drain(worlds, now_ns, is_end=is_end))

    # --- what is bounded ---------------------------------------------------------------------

    @property
    def is_short(self) -> bool:
        """Whether all runs together had more than the memory for them when weighed last."""
        return self.nbytes > self._memory_bytes

    def find_crowding(self, scored_bytes: Callable[[str], int]) -> list[Run]:
        """Runs with more than an equal share of the memory, largest first, where all together have
        more than the budget; none else. Marks them as full. Cost: O(worlds).

        Args:
            scored_bytes: memory of a run in the scorer.
        """
        sizes = {
            run_id: scored_bytes(run_id) + sum(world.nbytes for world in run.worlds.values())
            for run_id, run in self.runs.items()
        }
        self.nbytes = sum(sizes.values())
        is_short = self.is_short
        share = self._memory_bytes / max(len(sizes), 1)
        for run_id, run in self.runs.items():
            run.is_full = is_short and sizes[run_id] > share
        crowding = [run for run in self.runs.values() if run.is_full]
        return sorted(crowding, key=lambda run: -sizes[run.run_id])

    # --- what is evicted ---------------------------------------------------------------------

    def evict(self, run_id: str) -> None:
        """Drop a run; one that comes back, as another attempt, still has its earlier hangs."""
        run = self.runs.pop(run_id, None)
        for world in () if run is None else run.worlds.values():
            self._remember(run_id, world)
        self._recount()

    def restart_world(self, run_id: str, group: str) -> None:
        """Evict all that is known of a world, but not what its ranks agree on."""
        claims = self.world(run_id, group).claims
        self.evict_world(run_id, group)
        self.world(run_id, group).claims = claims

    def restart_hangs(self, run_id: str, group: str) -> None:
        """Drop what hang detection has learned of a world."""
        run = self.runs.get(run_id)
        world = None if run is None else run.worlds.get(group)
        if world is not None:
            world.hangs = WorldHangs(self._hang_settings)
            world.collectives.clear()

    def evict_world(self, run_id: str, group: str) -> None:
        run = self.runs.get(run_id)
        world = None if run is None else run.worlds.pop(group, None)
        if run is not None and world is not None:
            run.scores.drop_group(group)
            run.shown = RunShown()
            self._remember(run_id, world)
            self._recount()

    def _remember(self, run_id: str, world: World) -> None:
        hangs = world.hangs.for_next_attempt()
        if hangs is not None:
            self._remembered[run_id, world.group] = _Remembered(hangs)
        evicted = [key for key, its in self._remembered.items() if _is_evicted(its)]
        for key in evicted[:-_MAX_REMEMBERED]:
            del self._remembered[key]

    def _recount(self) -> None:
        self.histograms.recount(world.histograms for world in self.worlds())

    # --- what is scored ----------------------------------------------------------------------

    def learn(self, table: StepTable) -> None:
        self._learned += 1
        self.world_of(table.sources[0]).hangs.learn(table, self._learned)

    def observe_window(self, window: WindowScores, now_s: float) -> None:
        run = self.run(window.run_id)
        if math.isinf(run.first_window):
            self._scored += 1
            run.first_window = self._scored
        run.scores.observe(window, now_s)
        run.shown.scores_have_changed()

    def extend_timeline(self, window: WindowScores) -> None:
        world = self.world(window.run_id, window.group)
        world.before = None
        world.timeline.observe(window)
        world.goodput.live.observe_window(window)
        self._bound_timelines()

    def put_before(self, view: WorldView, columns: Sequence[Column]) -> None:
        """Add windows of the history; they wait for their world if it is unknown. ``view``: what
        the last process has shown of it; of one that hangs it stays until a window closes."""
        run_id, group = view.run_id, view.group
        run = self.runs.get(run_id)
        world = None if run is None else run.worlds.get(group)
        if world is not None:
            if world.hangs.lasts and not world.timeline.columns:
                world.before = view
            world.timeline.put_before(columns)
            self._bound_timelines()
            return
        before = self._remembered.setdefault((run_id, group), _Remembered())
        before.columns = tuple(columns)

    def _bound_timelines(self) -> None:
        keep_within(self._timeline_bytes, (world.timeline for world in self.worlds()))

    # --- over restarts of the collector ------------------------------------------------------

    def hangs_state(self, ahead_s: float = 0.0) -> dict[str, Any]:
        """State of the 100 worlds that learned last, and of those that hung, in JSON's types;
        ``ahead_s``: the wall clock minus the collector's."""
        known = [
            ((run.run_id, world.group), world.hangs)
            for run in self.runs.values()
            for world in run.worlds.values()
        ]
        absent = [(key, its.hangs) for key, its in self._remembered.items() if its.hangs]
        hung = [each for each in known if each[1].episodes and not each[1].learned_at]
        learned = [each for each in (*known, *absent) if each[1].learned_at]
        learned.sort(key=lambda each: each[1].learned_at)
        return {
            "version": _STATE_VERSION,
            "past": [
                [*key, hangs.episodes.state(ahead_s)]
                for key, hangs in absent
                if not hangs.learned_at
            ],
            "worlds": [
                {"run_id": key[0], "group": key[1], **hangs.state(ahead_s)}
                for key, hangs in [*hung, *learned][-_MAX_REMEMBERED:]
            ],
        }

    def restore_hangs(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`hangs_state`, before any report.

        Raises:
            ValueError, KeyError, TypeError: it is none; nothing changes then.
        """
        if state["version"] != _STATE_VERSION:
            raise ValueError(f"version {state['version']!r}")
        restored: dict[tuple[str, str], _Remembered] = {}
        for run_id, group, episodes in state.get("past", ())[-_MAX_REMEMBERED:]:
            hangs = WorldHangs(self._hang_settings)
            hangs.restore_episodes(episodes)
            restored[str(run_id), str(group)] = _Remembered(hangs)
        for number, world in enumerate(state["worlds"][-_MAX_REMEMBERED:], start=1):
            hangs = WorldHangs(self._hang_settings)
            hangs.restore(world, number)
            restored[str(world["run_id"]), str(world["group"])] = _Remembered(hangs)
        self._learned = max(self._learned, _MAX_REMEMBERED)
        self._remembered.update(restored)

    def hung_state(self, ahead_s: float = 0.0) -> Callable[[], dict[str, Any]]:
        """Makes the state of the worlds that hang or have failed; see :mod:`.hung_worlds`."""
        return hung_state(self.runs.values(), ahead_s)

    def restore_hung(self, state: Mapping[str, Any], now_s: float) -> None:
        """Go on from :meth:`hung_state`, after the other states and before any report.

        Raises:
            ValueError, KeyError, TypeError: it is none; nothing changes then.
        """
        for each in restored_worlds(state, self._hang_settings, now_s):
            each.put_into(self.run(each.run_id), self.world(each.run_id, each.group))

    def goodput_state(self) -> dict[str, Any]:
        """Accounts of the 100 worlds that were accounted for last, in JSON's types."""
        known = (
            (run.run_id, world.group, world.goodput)
            for run in self.runs.values()
            for world in run.worlds.values()
        )
        return goodput_state(known, _MAX_REMEMBERED)

    def restore_goodput(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`goodput_state`, after :meth:`restore_hangs` and before any report.

        Raises:
            ValueError, KeyError, TypeError: it is none; nothing changes then.
        """
        for key, goodput in restored_goodput(state).items():
            self._remembered.setdefault(key, _Remembered()).goodput = goodput

    def waiting_state(self, ahead_s: float = 0.0) -> list[dict[str, Any]]:
        """Worlds with requests of the spool that wait for a quorum: what their ranks agree on, and
        which part of which request waits (its sequence, attempt and world size). JSON types and
        NumPy arrays; ``ahead_s`` as in :meth:`hangs_state`."""
        result = []
        for run in self.runs.values():
            for world in run.worlds.values():
                held = world.claims.held_sequences()
                if held:
                    claims = world.claims.state(ahead_s)
                    where = {"run_id": run.run_id, "group": world.group}
                    result.append({**where, "claims": claims, "held": held})
        return result

    def restore_waiting(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Go on from :meth:`waiting_state`, after :meth:`restore_hangs` and before any report: what
        waited must find those who spoke against it.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it is none.
        """
        for saved in state:
            claims = self._new_claims()
            claims.restore(saved["claims"])
            key = saved["run_id"], saved["group"]
            self._remembered.setdefault(key, _Remembered()).claims = claims


def _is_evicted(its: _Remembered) -> bool:
    return its.hangs is not None and not its.hangs.learned_at


def _with_checkpoints(metrics: DecodedMetrics) -> set[Source]:
    return {each.source for each in metrics.passthrough if each.metric is semconv.CHECKPOINT_SAVES}
