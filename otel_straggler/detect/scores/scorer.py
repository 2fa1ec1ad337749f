"""Scores and verdicts of any number of runs: batches in, closed windows and verdicts out."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, Final

import numpy as np

from otel_straggler.detect.scores.kernel_store import by_interval
from otel_straggler.detect.scores.settings import ScorerCounts, ScoreSettings, VerdictSettings
from otel_straggler.detect.scores.shared import Shared
from otel_straggler.detect.scores.sources import split_by_route
from otel_straggler.detect.scores.stream import Stream
from otel_straggler.detect.scores.world import WorldScorer
from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.detect.verdicts.losses import attributed
from otel_straggler.detect.verdicts.notifications import Notification
from otel_straggler.model.failure import Guard
from otel_straggler.model.kernels import KernelTimes
from otel_straggler.model.observation import NO_STEP, Ints, ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.step_table import StepTable, StepTimes
from otel_straggler.model.verdict import RunVerdicts, Verdict

__all__ = ["ScoreSettings", "Scorer", "ScorerCounts"]

MAX_SAVED_KERNEL_BYTES: Final = 16 * 1024 * 1024
"""Kernel histograms that are saved for a restart, over all worlds: all that is held may be half a
gigabyte, and it is saved every ten seconds."""


class Scorer:
    """Scores every run it is shown. Pure, not thread-safe; ``now_ns`` is any monotonic time.
    ``on_table`` is called with every step table that is evaluated, in order. With a ``guard`` an
    error ends neither the evaluation of its run nor that of others."""

    def __init__(
        self,
        settings: ScoreSettings | None = None,
        verdicts: VerdictSettings | None = None,
        on_table: Callable[[StepTable], None] | None = None,
        guard: Guard | None = None,
    ) -> None:
        self._shared = Shared(settings, verdicts, on_table, guard)
        self._settings = self._shared.settings
        self._runs: dict[str, dict[str, WorldScorer]] = {}
        self._evicted: list[WindowScores] = []
        self.counts = self._shared.counts
        self.unevaluated = 0

    def observe(self, batch: ObservationBatch, now_ns: int) -> None:
        """Observe rows; :meth:`close_due` returns the windows that became due."""
        if len(batch) == 0:
            return
        self.counts.observed += len(batch)
        find = self._finder(batch, now_ns)
        for stream, rows in split_by_route(batch, self._shared.routes, find):
            world, folded = self._world(rows.sources[0]), stream.folded_names[0]
            world.observe(stream, rows, now_ns)
            self.counts.names_folded += stream.folded_names[0] - folded
        runs = self.runs()
        if len(runs) > self._settings.max_runs:
            self._evicted += self.evict(min(runs, key=self._last_alive_ns))

    def observe_kernels(self, times: KernelTimes) -> None:
        """Observe kernel histograms, for the windows they belong to."""
        for source, points in by_interval(times):
            world = self._world(source)
            world.attempt("rows", partial(world.observe_kernels, source, points))
        held = [kernels for world in self._worlds() for kernels in world.kernels.values()]
        while sum(kernels.nbytes for kernels in held) > self._settings.kernel_bytes:
            max(held, key=lambda kernels: kernels.nbytes).drop_older_half()

    def mark_alive(self, source: Source, now_ns: int, *, has_ended: bool = False) -> None:
        """A heartbeat: the rank's open windows are not idle. A rank that was :meth:`finish`-ed goes
        on, unless it ``has_ended`` all the same: then the heartbeat was delivered late."""
        world = self._runs.get(source.run_id, {}).get(source.group)
        stream = None if world is None else world.stream_of(source)
        if world is not None and stream is not None:
            world.attempt("rows", partial(stream.mark_alive, source, now_ns, has_ended=has_ended))

    def finish(self, source: Source, now_ns: int, final_step: int | None = None) -> None:
        """The rank has ended: once the rows of its final step are there, and after ``idle_s``
        without them, it has passed every window of its stream."""
        world = self._world(source)
        world.attempt("rows", partial(world.finish, source, now_ns, final_step))

    def close_due(
        self, now_ns: int, has_time: Callable[[], bool] = lambda: True
    ) -> list[WindowScores]:
        """Score windows that are due, and those of evicted runs; evaluate their steps. Worlds for
        which there is no time wait for the next call."""
        closed, self._evicted = self._evicted, []
        for world in self._worlds():
            if not has_time():
                break
            closed += world.attempt("rows", partial(world.close_due, now_ns)) or ()
        limit_ns = int(self._settings.evict_run_s * 1e9)
        for run_id in list(self._runs):
            if now_ns - self._last_alive_ns(run_id) >= limit_ns:
                closed += self.evict(run_id)
        return closed

    def close_all(self, has_time: Callable[[], bool] = lambda: True) -> list[WindowScores]:
        """End of input: score every open window, and evaluate all remaining steps, world by world
        for as long as there is time; ``unevaluated`` counts the others."""
        closed, self._evicted = self._evicted, []
        for world in self._worlds():
            closed += world.attempt("rows", partial(world.close, "end")) or ()
        for world in self._worlds():
            if has_time():
                world.attempt("rows", world.evaluate_all)
            else:
                self.unevaluated += 1
        return closed

    def verdicts(self, run_id: str) -> RunVerdicts:
        """Changes of state of a run in memory by time, and the newest summaries; losses of the
        newest verdicts add up to at most what their world loses."""
        summaries = [world.summary() for world in self._runs.get(run_id, {}).values()]
        worlds = tuple(each for each in summaries if each is not None)
        engines = self._engines(run_id)
        changes = heapq.merge(*(engine.changes for engine in engines), key=lambda v: v.at_ns)
        return attributed(RunVerdicts(changes=tuple(changes), worlds=worlds))

    def notifications(self, run_id: str) -> list[Notification]:
        each = (engine.notifications for engine in self._engines(run_id))
        return list(heapq.merge(*each, key=lambda one: one.at_ns))

    def _engines(self, run_id: str) -> list[VerdictEngine]:
        worlds = self._runs.get(run_id, {}).values()
        return [world.engine for world in worlds if world.engine is not None]

    def drain_changes(self) -> list[Verdict]:
        """Changes of state since the last call, over all runs, and subjects that began to page
        without one; of more than ``max_changes`` the newest."""
        new = list(self._shared.changes)
        self._shared.changes.clear()
        return new

    def drain_step_times(self) -> list[StepTimes]:
        """Durations of the steps evaluated since the last call."""
        new = list(self._shared.step_times)
        self._shared.step_times.clear()
        return new

    def state(self) -> dict[str, Any]:
        """State for a restart: JSON types and NumPy arrays. ``references`` are of all runs,
        ``judges`` has an entry per run and group."""
        states = {
            json.dumps((run_id, group)): state
            for run_id, worlds in self._runs.items()
            for group, world in worlds.items()
            if world.engine is not None
            and (state := world.attempt("verdicts", world.engine.state)) is not None
        }
        return {"references": self._shared.references.state(), "judges": states}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state`, before the first row. Raises: InputError if it is none."""
        self._shared.references.restore(state.get("references", {}))
        for key, saved in state.get("judges", {}).items():
            run_id, group = json.loads(key)
            self._world_of(run_id, group).restore(saved)

    def open_state(self) -> dict[str, Any]:
        """Rows of open windows, and which steps are closed, so that no row is lost or counted
        twice if :meth:`state` of the same moment and what came later are restored as well: JSON
        types and NumPy arrays. Kernel histograms of the largest worlds are left out beyond
        ``MAX_SAVED_KERNEL_BYTES``."""
        opened = {
            json.dumps((run_id, group)): world
            for run_id, worlds in self._runs.items()
            for group, world in worlds.items()
            if world.has_rows
        }
        result, saved_bytes = {}, 0
        for key, world in sorted(opened.items(), key=lambda each: each[1].kernel_nbytes):
            saved_bytes += world.kernel_nbytes
            has_kernels = saved_bytes <= MAX_SAVED_KERNEL_BYTES
            state = world.attempt("rows", partial(world.open_state, has_kernels=has_kernels))
            if state is not None:
                result[key] = state
        return result

    def restore_open(self, state: Mapping[str, Any], now_ns: int) -> None:
        """Continue from :meth:`open_state`, after :meth:`restore` and before the first row.

        Raises:
            ValueError, KeyError, TypeError, AttributeError, IndexError: it is none.
        """
        for key, saved in state.items():
            run_id, group = json.loads(key)
            self._world_of(run_id, group).restore_open(saved, now_ns)

    def folded_names(self) -> dict[str, str]:
        """Runs with too many section names, each with one name that is folded."""
        return {
            run_id: world.folded_name
            for run_id, worlds in self._runs.items()
            for world in worlds.values()
            if world.folded_name
        }

    def late_rows(self, run_id: str) -> int:
        """Rows of a run that came after their window was closed."""
        return sum(world.late for world in self._runs.get(run_id, {}).values())

    def clashes(self, run_id: str, now_ns: int) -> tuple[Source, ...]:
        """Sessions that keep sending although a newer session claims their rank."""
        worlds = self._runs.get(run_id, {}).values()
        return tuple(source for world in worlds for source in world.clashes.live(now_ns))

    def runs(self) -> tuple[str, ...]:
        """Runs with rows in memory, in the order in which they were first seen."""
        return tuple(
            run_id
            for run_id, worlds in self._runs.items()
            if any(world.has_rows for world in worlds.values())
        )

    def evict(self, run_id: str, group: str | None = None) -> list[WindowScores]:
        """Drop a run, or one group of it; returns the scores of its open windows."""
        self._shared.routes.clear()
        worlds = self._runs.get(run_id, {})
        groups = list(worlds) if group is None else [group] * (group in worlds)
        closed = [window for name in groups for window in worlds.pop(name).close()]
        if not worlds:
            self._runs.pop(run_id, None)
        return closed

    def nbytes(self, run_id: str) -> int:
        """Memory of a run, roughly, without kernels. Cost: O(worlds and their open windows)."""
        return sum(world.nbytes for world in self._runs.get(run_id, {}).values())

    def shed(self, run_id: str) -> list[WindowScores]:
        """Free memory of a run: score what is open; further section names count as ``<other>``."""
        worlds = self._runs.get(run_id, {}).values()
        return [window for world in worlds for window in world.shed()]

    def _finder(self, batch: ObservationBatch, now_ns: int) -> Callable[[int], Stream | None]:
        first_steps = cache(lambda: _first_steps(batch))

        def find(code: int) -> Stream | None:
            source = batch.sources[code]
            world = self._world(source)
            first_step = int(first_steps()[code])
            route = world.attempt("rows", partial(world.route, source, first_step, now_ns))
            if route is None:
                world.count_late(int((batch.source == code).sum()))
            return route

        return find

    def _world(self, source: Source) -> WorldScorer:
        return self._world_of(source.run_id, source.group)

    def _world_of(self, run_id: str, group: str) -> WorldScorer:
        worlds = self._runs.setdefault(run_id, {})
        world = worlds.get(group)
        if world is None:
            world = worlds[group] = WorldScorer(self._shared, run_id, group)
        return world

    def _worlds(self) -> Iterator[WorldScorer]:
        return (world for worlds in self._runs.values() for world in worlds.values())

    def _last_alive_ns(self, run_id: str) -> int:
        return max(world.last_alive_ns for world in self._runs[run_id].values())


def _first_steps(batch: ObservationBatch) -> Ints:
    """Per source code: the step of its first row that has one."""
    stepped = np.flatnonzero(batch.step != NO_STEP)[::-1]  # the first row is written last
    first = np.full(len(batch.sources), NO_STEP, np.int64)
    first[batch.source[stepped]] = batch.step[stepped]
    return first
