"""Both layers in one place: batches go in, scores of closed windows and verdicts come out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from otel_straggler.model.kernels import KernelTimes
from otel_straggler.model.observation import NO_STEP, Ints, ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.step_table import StepTable, StepTimes
from otel_straggler.model.verdict import RunVerdicts, Verdict
from otel_straggler.score.judges import Judges
from otel_straggler.score.kernel_store import OUTCOMES, KernelStore
from otel_straggler.score.settings import ScorerCounts, ScoreSettings, VerdictSettings
from otel_straggler.score.sources import ClashWatch, SourceCache, session_of
from otel_straggler.score.stream import Stream
from otel_straggler.score.verdicts.log import Notification
from otel_straggler.score.window_scores import ClosedBy, History, score_window

__all__ = ["ScoreSettings", "Scorer", "ScorerCounts"]


@dataclass(slots=True)
class _World:
    """The incarnations of one (run, group, attempt), oldest first."""

    streams: list[Stream] = field(default_factory=list)
    stream_of_session: dict[tuple[int, str, str], Stream] = field(default_factory=dict)


_WorldKey = tuple[str, str, int]
RETIRE_S = 60.0
"""An attempt that has been replaced, and silent for so long, is let go: a job with a hundred
restarts must not hold a hundred worlds."""


class Scorer:
    """Scores every run it is shown. Pure: no clock, no I/O; ``now_ns`` is any monotonic time.

    Not thread-safe: one thread owns a scorer.

    Args:
        settings: of layer 1.
        verdicts: of layer 2.
        on_table: called with the times of steps that are judged, in order.
    """

    def __init__(
        self,
        settings: ScoreSettings | None = None,
        verdicts: VerdictSettings | None = None,
        on_table: Callable[[StepTable], None] | None = None,
    ) -> None:
        self._settings = settings or ScoreSettings()
        self._verdicts = verdicts or VerdictSettings()
        self._judges = Judges(self._verdicts, on_table)
        self._kernels = KernelStore(self._settings.kernel_bytes, self._settings.max_kernels)
        self._history = History.empty(self._settings.reference_half_life_s)
        self._worlds: dict[_WorldKey, _World] = {}
        self._routes: SourceCache[Stream] = SourceCache()
        self._retired_attempt: dict[tuple[str, str], int] = {}
        self._forgotten: list[WindowScores] = []
        self._clashes = ClashWatch(self._settings.grace_s)
        self.counts = ScorerCounts()
        self.late_by_run: dict[str, int] = {}

    def observe(self, batch: ObservationBatch, now_ns: int) -> None:
        """Take the rows of ``batch``; windows that became due are given by :meth:`close_due`."""
        if len(batch) == 0:
            return
        self.counts.observed += len(batch)
        for stream, run_id, part in self._by_stream(batch, now_ns):
            folded = stream.folded_names[0]
            self._count_late(run_id, stream.observe(part, now_ns))
            self.counts.names_folded += stream.folded_names[0] - folded
        self._clashes.observe(batch, now_ns)
        self._keep_within_limits()

    def observe_kernels(self, times: KernelTimes) -> None:
        """Take kernel histograms, for the windows that they belong to; see ``kernel_store.py``."""
        self._kernels.take(times)

    @property
    def kernel_counts(self) -> dict[str, int]:
        """Points of kernel histograms by what became of them."""
        return {fate: self._kernels.counts[fate] for fate in OUTCOMES}

    def alive(self, source: Source, now_ns: int) -> None:
        """A sign of life (a heartbeat): the rank's open windows are not idle."""
        for stream in self._streams_of(source):
            stream.last_alive_at_ns = max(stream.last_alive_at_ns, now_ns)

    def finish(self, source: Source, now_ns: int) -> None:
        """The rank has ended: it has passed every window of its stream."""
        for stream in self._streams_of(source):
            stream.finish(source, now_ns)

    def close_due(self, now_ns: int) -> list[WindowScores]:
        """Close and score the windows that all ranks have passed, or whose wait is over; judge the
        steps for which the same holds."""
        due = self.take_forgotten()
        newest = self._newest_streams()
        for stream in self._all_streams():
            for rows, cause in stream.take_due(now_ns, replaced=id(stream) not in newest):
                due.append(self._score(rows, stream, cause))
        self._judge_due(now_ns, newest)
        self._retire_old_attempts(now_ns)
        self._forget_idle(now_ns)
        return due

    def close_all(self) -> list[WindowScores]:
        """Close and score every open window, and judge all steps that are left (end of input)."""
        closed = self.take_forgotten()
        for stream in self._all_streams():
            closed += [self._score(rows, stream, "end") for rows in stream.take_all()]
        for worlds in self._attempts():
            for _, stream in worlds:
                self._judges.take_all(stream.take_all_tables())
        self._judges.finish()
        return closed

    def judged(self, run_id: str) -> RunVerdicts:
        """Layer 2 of a run: all changes of state in memory and the newest summaries."""
        return self._judges.judged(run_id)

    def pages(self, run_id: str) -> list[Notification]:
        """When somebody was called because of a run, in order."""
        return self._judges.pages(run_id)

    def new_changes(self) -> list[Verdict]:
        """The changes of state since the last call, over all runs, in order; also who has begun to
        page without one."""
        return self._judges.new_changes()

    def new_step_times(self) -> list[StepTimes]:
        """How long the steps took that were judged since the last call, of the newest tables."""
        return self._judges.new_step_times()

    def state(self) -> dict[str, Any]:
        """All that must survive a restart: JSON's types and NumPy arrays, nested in dicts and
        lists. ``references`` are of all runs; ``judges`` has one entry per judge, which a history
        keeps apart."""
        return {"references": self._history.state(), "judges": self._judges.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state` of an earlier process; call it before the first row.

        Raises:
            InputError: a part is no such state.
        """
        self._history.restore(state.get("references", {}))
        self._judges.restore(state.get("judges", {}))

    def folded_names(self) -> dict[str, str]:
        """The runs in memory with too many section names, each with one that has no place."""
        found = ((key[0], s.folded_names) for key, w in self._worlds.items() for s in w.streams)
        return {run_id: name for run_id, (rows, name) in found if rows}

    def clashes(self, run_id: str, now_ns: int) -> tuple[Source, ...]:
        """Sessions that go on sending although a newer session claims their rank."""
        return self._clashes.live(run_id, now_ns)

    def runs(self) -> tuple[str, ...]:
        """The runs in memory, in the order in which they were first seen."""
        return tuple(dict.fromkeys(key[0] for key in self._worlds))

    def forget(self, run_id: str) -> None:
        """Let a run go, if it is known; its open windows are given by :meth:`take_forgotten`."""
        self._forget(run_id)

    def take_forgotten(self) -> list[WindowScores]:
        """The windows that were open when their run or group was let go; a close method gives them
        as well."""
        taken, self._forgotten = self._forgotten, []
        return taken

    def forget_group(self, run_id: str, group: str) -> None:
        """The same for one group of a run."""
        self._routes.clear()
        for key in [key for key in self._worlds if key[:2] == (run_id, group)]:
            self._close_world(key)
            self._clashes.forget(*key)
            self._kernels.forget(*key)
        self._retired_attempt.pop((run_id, group), None)
        self._judges.forget_group(run_id, group)

    # --- where rows belong -----------------------------------------------------------------

    def _by_stream(
        self, batch: ObservationBatch, now_ns: int
    ) -> Iterator[tuple[Stream, str, ObservationBatch]]:
        """Split the rows by stream, in the order in which the streams appear."""
        used = np.flatnonzero(np.bincount(batch.source)).tolist()
        routes = self._routes.values_of([batch.sources[code] for code in used])
        first = routes[0]
        if first is not None and routes.count(first) == len(routes):  # as nearly always
            yield first, batch.sources[used[0]].run_id, _only_sources(batch, used)
            return
        first_step = _first_steps(batch)
        streams: dict[int, Stream] = {}
        codes: dict[int, list[int]] = {}
        for code, route in zip(used, routes, strict=True):
            stream = route or self._new_route(batch, code, int(first_step[code]), now_ns)
            if stream is not None:
                streams[id(stream)] = stream
                codes.setdefault(id(stream), []).append(code)
        for key, stream in streams.items():
            members = codes[key]
            is_all = len(members) == len(used)
            rows = batch if is_all else batch.take(np.isin(batch.source, members))
            yield stream, batch.sources[members[0]].run_id, _only_sources(rows, members)

    def _new_route(
        self, batch: ObservationBatch, code: int, first_step: int, now_ns: int
    ) -> Stream | None:
        """The stream of a source that was not seen before; None if its attempt is over."""
        source = batch.sources[code]
        if source.attempt <= self._retired_attempt.get((source.run_id, source.group), -1):
            self._count_late(source.run_id, int((batch.source == code).sum()))
            return None
        stream = self._stream_for(source, first_step, now_ns)
        self._routes.put(source, stream)
        return stream

    def _stream_for(self, source: Source, first_step: int, now_ns: int) -> Stream:
        world = self._worlds.setdefault(_world_key(source), _World())
        session = (source.rank, *session_of(source))
        known = world.stream_of_session.get(session)
        if known is not None:
            return known
        if not world.streams or world.streams[-1].has_redone(source, first_step):
            world.streams.append(Stream(self._settings, self._verdicts, now_ns))
        return world.stream_of_session.setdefault(session, world.streams[-1])

    def _streams_of(self, source: Source) -> Iterable[Stream]:
        world = self._worlds.get(_world_key(source))
        if world is None:
            return ()
        stream = world.stream_of_session.get((source.rank, *session_of(source)))
        return () if stream is None else (stream,)

    def _all_streams(self) -> list[Stream]:
        return [stream for world in self._worlds.values() for stream in world.streams]

    def _newest_streams(self) -> set[int]:
        """Ids of the newest stream of every (run, group); the others have been replaced."""
        return {
            id(self._worlds[run_id, group, attempt].streams[-1])
            for (run_id, group), attempt in self._newest_attempts().items()
        }

    def _newest_attempts(self) -> dict[tuple[str, str], int]:
        """By (run, group)."""
        newest: dict[tuple[str, str], int] = {}
        for run_id, group, attempt in self._worlds:
            newest[run_id, group] = max(attempt, newest.get((run_id, group), attempt))
        return newest

    def _count_late(self, run_id: str, rows: int) -> None:
        if rows:
            self.counts.late += rows
            self.late_by_run[run_id] = self.late_by_run.get(run_id, 0) + rows

    # --- scoring and forgetting --------------------------------------------------------------

    def _score(self, rows: ObservationBatch, stream: Stream, cause: ClosedBy) -> WindowScores:
        scores = score_window(
            rows,
            self._history,
            world_size=stream.world_size,
            threshold=self._settings.threshold,
            min_reference_samples=self._settings.min_reference_samples,
            closed_by=cause,
            counted_kernels=self._kernels.of_window,
        )
        counts = self.counts
        counts.duplicates += scores.duplicates
        counts.superseded += scores.superseded
        counts.scored += len(rows) - scores.duplicates - scores.superseded
        counts.windows[cause] = counts.windows.get(cause, 0) + 1
        return scores

    def _attempts(self) -> list[list[tuple[int, Stream]]]:
        """For every run and group its streams with their attempts, oldest first."""
        by_group: dict[tuple[str, str], list[tuple[int, Stream]]] = {}
        for (run_id, group, attempt), world in self._worlds.items():
            by_group.setdefault((run_id, group), []).extend((attempt, s) for s in world.streams)
        return [sorted(streams, key=lambda pair: pair[0]) for streams in by_group.values()]

    def _judge_due(self, now_ns: int, newest: set[int]) -> None:
        """Judge the blocks that are due; once an attempt has one, all of the attempts before it
        are: nothing of them would be judged any more."""
        for streams in self._attempts():
            due = [
                list(stream.take_due_tables(now_ns, replaced=id(stream) not in newest))
                for _, stream in streams
            ]
            judged = [a for (a, _), tables in zip(streams, due, strict=True) if tables]
            for (attempt, stream), tables in zip(streams, due, strict=True):
                self._judges.take_all(tables)
                if judged and attempt < judged[-1]:
                    self._judges.take_all(stream.take_all_tables())

    def _keep_within_limits(self) -> None:
        runs = self.runs()
        if len(runs) > self._settings.max_runs:
            self._forget(min(runs, key=self._last_alive))

    def _retire_old_attempts(self, now_ns: int) -> None:
        newest = self._newest_attempts()
        for key, world in list(self._worlds.items()):
            run_id, group, attempt = key
            last_row_ns = max(stream.last_row_at_ns for stream in world.streams)
            is_open = any(stream.has_open_windows for stream in world.streams)
            if attempt == newest[run_id, group] or is_open:
                continue
            if now_ns - last_row_ns >= RETIRE_S * 1e9:
                del self._worlds[key]
                self._routes.clear()
                self._clashes.forget(run_id, group, attempt)
                self._kernels.forget(run_id, group, attempt)
                known = self._retired_attempt.get((run_id, group), -1)
                self._retired_attempt[run_id, group] = max(known, attempt)

    def _forget_idle(self, now_ns: int) -> None:
        limit_ns = int(self._settings.forget_s * 1e9)
        for run_id in self.runs():
            if now_ns - self._last_alive(run_id) >= limit_ns:
                self._forget(run_id)
        self._judges.forget_all_but(self.runs(), now_ns, limit_ns)

    def _last_alive(self, run_id: str) -> int:
        return max(
            stream.last_alive_at_ns
            for key, world in self._worlds.items()
            if key[0] == run_id
            for stream in world.streams
        )

    def _forget(self, run_id: str) -> None:
        """Score what is open (given by the next call of a close method), then drop the run."""
        self._routes.clear()
        for world_key in [key for key in self._worlds if key[0] == run_id]:
            self._close_world(world_key)
        for key in [key for key in self._retired_attempt if key[0] == run_id]:
            del self._retired_attempt[key]
        self.late_by_run.pop(run_id, None)
        self._clashes.forget(run_id)
        self._kernels.forget(run_id)
        self._judges.forget(run_id)

    def _close_world(self, key: _WorldKey) -> None:
        for stream in self._worlds.pop(key).streams:
            self._forgotten += [self._score(rows, stream, "idle") for rows in stream.take_all()]


def _world_key(source: Source) -> _WorldKey:
    return source.run_id, source.group, source.attempt


def _first_steps(batch: ObservationBatch) -> Ints:
    """Per source code: the step of its first row that has one. Cost: O(n)."""
    stepped = np.flatnonzero(batch.step != NO_STEP)[::-1]  # the first row is written last
    first = np.full(len(batch.sources), NO_STEP, np.int64)
    first[batch.source[stepped]] = batch.step[stepped]
    return first


def _only_sources(rows: ObservationBatch, members: list[int]) -> ObservationBatch:
    """The same rows with only the sources in ``members`` in the table."""
    if len(members) == len(rows.sources):
        return rows
    new_code = np.full(len(rows.sources), -1, np.int32)
    new_code[members] = np.arange(len(members), dtype=np.int32)
    return replace(
        rows,
        sources=tuple(rows.sources[code] for code in members),
        source=new_code[rows.source],
    )
