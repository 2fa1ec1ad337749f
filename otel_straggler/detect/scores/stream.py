"""Rows of one run, group, attempt, and incarnation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from otel_straggler.detect.scores.rank_progress import Ends, RankProgress
from otel_straggler.detect.scores.rows_by_step import (
    MAX_BEGUN,
    Split,
    UsualSections,
    WindowIndex,
    lowest_steps,
    newest_by_rank,
    split_incarnations,
    split_steps,
)
from otel_straggler.detect.scores.settings import ScoreSettings, VerdictSettings
from otel_straggler.detect.scores.sources import SourceTables
from otel_straggler.detect.scores.step_tables import build_step_table, is_summed
from otel_straggler.detect.scores.window_scores import ClosedBy
from otel_straggler.detect.scores.windows import OpenWindow, WindowTrack, are_in_order
from otel_straggler.model.observation import (
    NO_KERNEL,
    NO_STEP,
    Bools,
    Codes,
    ObservationBatch,
    joined_columns,
)
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable

_BYTES_PER_ROW = 64
_BYTES_PER_SESSION = 1_000
_BYTES_PER_STREAM = 10_000
_BYTES_PER_CELL = 1_300
"""Of a rank and section in the state of verdicts: 0.32 GiB for 16,384 ranks and 16 sections."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows with the codes of the stream, whether verdicts sum them up, and their own sources."""

    batch: ObservationBatch
    is_summed: Bools
    sources: tuple[Source, ...]
    source: Codes

    def take(self, rows: Bools) -> _Rows:
        return _Rows(self.batch.take(rows), self.is_summed[rows], self.sources, self.source[rows])


class Stream:
    """Keeps rows by window and closes those that are due: windows of scores, and the shorter blocks
    of verdicts. Both hold the same arrays.

    Attributes:
        unfinished: rows of closed windows in which no step was worked in.
    """

    def __init__(
        self,
        settings: ScoreSettings,
        verdicts: VerdictSettings,
        now_ns: int,
        early_ends: Ends | None = None,
    ) -> None:
        self._settings = settings
        self._block_steps = verdicts.block_steps
        self._names = SourceTables()
        newest_step: dict[int, int] = {}
        self._by_step = WindowTrack(newest_step, settings.window_steps, settings.window_longest_s)
        self._by_time = WindowTrack({}, interval_s=settings.window_s)
        self._block_by_step = WindowTrack(newest_step, verdicts.block_steps)
        self._block_by_time = WindowTrack({}, interval_s=verdicts.block_s)
        self._tracks = self._by_step, self._by_time
        self._block_tracks = self._block_by_step, self._block_by_time
        self._idle_ns = int(settings.idle_s * 1e9)
        self._ranks = RankProgress(self._by_step, self._idle_ns, early_ends)
        self._max_names = settings.max_section_names
        self._usual = UsualSections()
        self.unfinished = 0
        self._longest_pause_ns = 0
        self.world_size = 0
        self.last_row_at_ns = now_ns
        self.last_alive_at_ns = now_ns

    def has_redone(self, source: Source, first_step: int) -> bool:
        """Whether a new session of a known rank repeats a step: the world was restarted, and its
        steps must not fall into old windows."""
        return self._ranks.is_other_session(
            source
        ) and NO_STEP < first_step <= self._by_step.newest.get(source.rank, NO_STEP)

    def observe(self, batch: ObservationBatch, now_ns: int) -> int:
        """Observe rows of this stream's sources; returns how many were late for their window."""
        rows = _Rows(self._with_own_codes(batch), is_summed(batch), batch.sources, batch.source)
        self._longest_pause_ns = max(self._longest_pause_ns, now_ns - self.last_row_at_ns)
        self.last_row_at_ns = self.last_alive_at_ns = now_ns
        self._ranks.expect_last_rows(batch.sources, now_ns)
        stepless = batch.step == NO_STEP
        if not stepless.any():
            return self._index_stepped(rows, now_ns)
        late = 0
        if not stepless.all():
            late = self._index_stepped(rows.take(~stepless), now_ns)
        return late + self._index_timed(rows.take(stepless), now_ns)

    def mark_alive(self, source: Source, now_ns: int, *, has_ended: bool) -> None:
        """A heartbeat of the session."""
        self.last_alive_at_ns = max(self.last_alive_at_ns, now_ns)
        if not has_ended:
            self._ranks.go_on(source)

    def finish(self, source: Source, now_ns: int, final_step: int | None = None) -> None:
        """The session's rank has ended: with the rows of its final step, or ``idle_s`` without
        them, it has passed every window."""
        self._ranks.finish(source, now_ns, final_step)

    def close_due(
        self, now_ns: int, *, replaced: bool
    ) -> Iterator[tuple[ObservationBatch, ClosedBy]]:
        """Close the windows that are due: rows, and what closed the window. ``replaced``: a newer
        attempt or incarnation of this run is sending."""
        for track in self._tracks:
            for window, cause in self._closed_of(track, now_ns, replaced=replaced):
                if self._is_worked_in(window, track):
                    yield self._rows_of([window]), cause

    def close_all(self) -> Iterator[ObservationBatch]:
        """Close every open window, oldest first."""
        for track in self._tracks:
            for window in track.close_all():
                if self._is_worked_in(window, track):
                    yield self._rows_of([window])

    def close_due_tables(self, now_ns: int, *, replaced: bool) -> Iterator[StepTable]:
        """Close the blocks that are due: their tables, for verdicts."""
        for track in self._block_tracks:
            for window, _ in self._closed_of(track, now_ns, replaced=replaced):
                if window.rows:
                    yield from self._tables(self._rows_of([window]), track)

    def close_all_tables(self) -> Iterator[StepTable]:
        """Close every open block: all steps in ascending order, world after world."""
        for track in self._block_tracks:
            windows = [window for window in track.close_all() if window.rows]
            at_once = 1 if track.interval_ns else self._block_steps
            had_restart = len(self._names.sources) > len(self._ranks)
            if are_in_order(windows) and not had_restart:
                for window in windows:
                    yield from self._tables(self._rows_of([window]), track)
            elif windows:
                for world in split_incarnations(self._rows_of(windows)):
                    for rows in split_steps(world, at_once, track.interval_ns):
                        yield from self._tables(rows, track)

    def state(self) -> dict[str, Any]:
        """Open windows, and which steps are closed, for a restart: JSON types and arrays."""
        return {
            "names": self._names.state(),
            "ranks": self._ranks.state(),
            "usual": self._usual.state(),
            "tracks": [track.state() for track in (*self._tracks, *self._block_tracks)],
            "world_size": self.world_size,
            "longest_pause_ns": self._longest_pause_ns,
        }

    def restore(self, state: Mapping[str, Any], now_ns: int) -> None:
        """Go on from :meth:`state`, before the first row."""
        self._names.restore(state["names"])
        self._ranks.restore(state["ranks"], now_ns)
        self._usual.restore(state.get("usual", {}))
        tracks = (*self._tracks, *self._block_tracks)
        for track, saved in zip(tracks, state["tracks"], strict=True):
            track.restore(saved, now_ns)
        self.world_size = state["world_size"]
        self._longest_pause_ns = state["longest_pause_ns"]

    @property
    def folded_names(self) -> tuple[int, str]:
        """Rows so far whose section counts as ``<other>``, and the name of the last one."""
        return self._names.folded, self._names.folded_name

    def fold_new_names(self) -> None:
        """Score sections that are new from now on as ``<other>``."""
        self._max_names = min(self._max_names, len(self._names.sections))

    @property
    def n_ranks(self) -> int:
        """Ranks that have sent rows."""
        return len(self._ranks)

    @property
    def nbytes(self) -> int:
        """Memory of rows, sessions and verdicts, roughly. Cost: O(open windows)."""
        n_rows = sum(window.n_rows for track in self._tracks for window in track.open.values())
        n_summed = sum(w.n_rows for track in self._block_tracks for w in track.open.values())
        return (
            _BYTES_PER_STREAM
            + _BYTES_PER_ROW * max(n_rows, n_summed)
            + _BYTES_PER_SESSION * len(self._names.sources)
            + _BYTES_PER_CELL * len(self._ranks) * len(self._names.sections)
        )

    @property
    def has_open_windows(self) -> bool:
        return any(track.open for track in (*self._tracks, *self._block_tracks))

    # --- rows in -----------------------------------------------------------------------------

    def _with_own_codes(self, batch: ObservationBatch) -> ObservationBatch:
        codes = self._names.codes_of_seen(batch.sources)
        sizes = (source.world_size for source in reversed(batch.sources))
        self.world_size = next(filter(None, sizes), self.world_size)
        if codes is None:
            first_steps = lowest_steps(batch).tolist()
            for source, first_step in zip(batch.sources, first_steps, strict=True):
                is_new = (source.rank, *source.session) not in self._names.source_code
                self._ranks.register(source, first_step, is_new_session=is_new)
            codes = self._names.codes_of(batch.sources)
        return self._names.recode(batch, codes, self._max_names)

    def _index_stepped(self, rows: _Rows, now_ns: int) -> int:
        tracks = self._by_step, self._block_by_step
        split = Split.of(rows.batch.step)
        starts_ns = rows.batch.start_ns[split.first_rows].tolist()
        # Ascending: a tail sampler sends a second's steps in any order.
        of_tracks = [
            track.numbers_of(sorted(zip(split.steps, starts_ns, strict=True)), now_ns)
            for track in tracks
        ]
        indices = [(of_tracks[0][step], of_tracks[1][step]) for step in split.steps]
        late = _put(rows, split, indices, tracks, now_ns)
        _record_senders(rows, split, indices, tracks)
        newest = newest_by_rank(rows.sources, rows.source, rows.batch.step)
        for track in tracks:
            track.advance(newest, now_ns)
        return late

    def _index_timed(self, rows: _Rows, now_ns: int) -> int:
        tracks = self._by_time, self._block_by_time
        if self._settings.window_steps is None:
            tracks = self._by_step, self._block_by_time
        lengths_ns = [track.interval_ns for track in tracks]
        unit_ns = math.gcd(*lengths_ns)
        split = Split.of(rows.batch.start_ns // unit_ns)
        indices: list[WindowIndex] = []
        for unit in split.steps:
            step, block = (unit * unit_ns // n if n else NO_STEP for n in lengths_ns)
            indices.append(
                (
                    tracks[0].number_of(step, unit * unit_ns, now_ns),
                    tracks[1].number_of(block, unit * unit_ns, now_ns),
                )
            )
        late = _put(rows, split, indices, tracks, now_ns)
        for track in tracks:
            if track.interval_ns:
                interval = rows.batch.start_ns // track.interval_ns
                track.advance(newest_by_rank(rows.sources, rows.source, interval), now_ns)
        return late

    # --- closing ---------------------------------------------------------------------------

    def _closed_of(
        self, track: WindowTrack, now_ns: int, *, replaced: bool
    ) -> Iterator[tuple[OpenWindow, ClosedBy]]:
        if self._ranks.drain_ended(now_ns):
            for each in (*self._tracks, *self._block_tracks):
                each.pass_all(now_ns)
        for window in track.in_order():
            cause = self._due(track, window, now_ns, replaced=replaced)
            if cause is None:
                break
            self._ranks.record_closed(window)
            yield track.close(window.number), cause

    def _due(
        self, track: WindowTrack, window: OpenWindow, now_ns: int, *, replaced: bool
    ) -> ClosedBy | None:
        grace_ns = int(self._settings.grace_s * 1e9)
        waited_ns = -1 if window.passed_at_ns is None else now_ns - window.passed_at_ns
        n_ranks = self.world_size or len(self._ranks)
        is_passed = waited_ns >= 0 and self._ranks.n_passed(track, window) >= n_ranks
        may_be_more = self.world_size == 0 and track.n_closed == 0
        is_complete = is_passed and (not may_be_more or waited_ns >= grace_ns)
        if (is_complete or waited_ns >= grace_ns) and (
            waited_ns >= self._idle_ns or not self._ranks.expects_more(track, window)
        ):
            return "complete" if is_complete else "grace"
        if replaced and now_ns - self.last_row_at_ns >= grace_ns:
            return "grace"
        interval_ns = track.interval_ns
        if interval_ns and now_ns - window.opened_at_ns >= interval_ns + grace_ns:
            return "grace"
        idle_ns = max(self._idle_ns, 4 * self._longest_pause_ns)
        if now_ns - self.last_alive_at_ns >= idle_ns:
            return "idle"
        if interval_ns or track.is_last(window):
            return None
        return "idle" if now_ns - window.last_row_at_ns >= max(idle_ns, grace_ns) else None

    def _tables(self, rows: ObservationBatch, track: WindowTrack) -> Iterator[StepTable]:
        """Of the last block, without steps at its end that were begun and not finished."""
        table = build_step_table(rows, world_size=self.world_size, interval_ns=track.interval_ns)
        if table is None:
            return
        self._usual.learn(table)
        if not track.interval_ns and not track.open and (n_begun := self._usual.n_begun(table)):
            if n_begun == len(table):
                return
            rows = rows.take(rows.step < table.steps[-n_begun])
            table = build_step_table(rows, world_size=self.world_size)
        if table is not None:
            yield table

    def _is_worked_in(self, window: OpenWindow, track: WindowTrack) -> bool:
        """Whether a closed window has a step that was not only begun; the rows of one that has none
        are counted."""
        if track.interval_ns or track.open or not 0 < len(window.steps) <= MAX_BEGUN:
            return True
        rows = self._rows_of([window])
        table = build_step_table(rows, world_size=self.world_size)
        if table is None or self._usual.n_begun(table) < len(table):
            return True
        self.unfinished += len(rows)
        return False

    def _rows_of(self, windows: Sequence[OpenWindow]) -> ObservationBatch:
        """Rows of windows, with only the sections that they hold."""
        parts = [part for window in windows for part in window.rows]
        section = np.concatenate([p.section for p in parts])
        sections = list(self._names.sections.values())
        used = np.flatnonzero(np.bincount(section))
        if len(used) < len(sections):
            index = np.zeros(len(sections), np.int32)
            index[used] = np.arange(len(used))
            section = index[section]
        has_kernels = bool(self._names.kernel_code)
        return ObservationBatch(
            sources=tuple(self._names.sources),
            sections=tuple(sections[code] for code in used.tolist()),
            kernels=tuple(self._names.kernel_code),
            source=np.concatenate([p.source for p in parts]),
            section=section,
            kernel=np.concatenate([p.kernel for p in parts])
            if has_kernels
            else np.broadcast_to(np.int32(NO_KERNEL), len(section)),
            **joined_columns(parts),
        )


def _record_senders(
    rows: _Rows, split: Split, indices: list[WindowIndex], tracks: tuple[WindowTrack, WindowTrack]
) -> None:
    """Window and block of a step have the same set of its senders."""
    ranks = [source.rank for source in rows.sources]
    codes_by_step = split.codes_by_step(rows.source, len(ranks))
    for step, numbers, codes in zip(split.steps, indices, codes_by_step, strict=True):
        windows = [track.open[n] for track, n in zip(tracks, numbers, strict=True) if n >= 0]
        senders = next((w.senders[step] for w in windows if step in w.senders), None) or set()
        senders.update(ranks if len(codes) == len(ranks) else [ranks[code] for code in codes])
        for window in windows:
            window.senders[step] = senders


def _put(
    rows: _Rows,
    split: Split,
    indices: list[WindowIndex],
    tracks: tuple[WindowTrack, WindowTrack],
    now_ns: int,
) -> int:
    """Put rows into their windows and blocks; returns how many were late for their window."""
    order, pieces = split.by_index(indices)
    batch = rows.batch if order is None else rows.batch.take(order)
    summed = rows.is_summed if order is None else rows.is_summed[order]
    all_summed = bool(summed.all())
    late = 0
    for (window, block), piece in pieces:
        part = batch if len(pieces) == 1 else batch.take(piece)
        if window < 0:
            late += len(part)
        else:
            tracks[0].open[window].add(part, now_ns)
        if block < 0:
            continue
        if all_summed:
            tracks[1].open[block].add(part, now_ns)
        elif summed[piece].any():
            tracks[1].open[block].add(part.take(summed[piece]), now_ns)
    return late
