"""The rows of one world of ranks: one run, group, attempt and incarnation."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from otel_straggler.model.observation import (
    NO_KERNEL,
    NO_SEQ,
    NO_STEP,
    Ints,
    Kernel,
    ObservationBatch,
    Section,
)
from otel_straggler.model.rank import Source
from otel_straggler.score.layer1 import ClosedBy
from otel_straggler.score.medians import number_densely
from otel_straggler.score.settings import ScoreSettings
from otel_straggler.score.windows import OpenWindow, Windows
from otel_straggler.semconv import OTHER_SECTION


@dataclass(slots=True)
class _RankState:
    """How far a rank has come, in steps and in intervals of rows without a step."""

    session: tuple[str, str]
    last_step: int = NO_STEP
    last_interval: int = NO_STEP
    finished: bool = False


def session_of(source: Source) -> tuple[str, str]:
    """What tells two processes of one rank apart."""
    return source.session_id, source.node


@dataclass(slots=True)
class _Names:
    """Tables that only grow: what the code columns of this stream's rows index."""

    sources: list[Source] = field(default_factory=list)
    source_code: dict[tuple[int, str, str], int] = field(default_factory=dict)
    sections: dict[str, Section] = field(default_factory=dict)
    section_code: dict[str, int] = field(default_factory=dict)
    kernel_code: dict[Kernel, int] = field(default_factory=dict)

    def code_of_source(self, source: Source) -> int:
        """A changed description (a late role) replaces the old one of the same session."""
        code = self.source_code.setdefault((source.rank, *session_of(source)), len(self.sources))
        if code == len(self.sources):
            self.sources.append(source)
        else:
            self.sources[code] = source
        return code

    def code_of_section(self, section: Section, max_names: int) -> int:
        code = self.section_code.get(section.name)
        if code is not None:
            return code
        if len(self.sections) >= max_names and section.name != OTHER_SECTION:
            return self.code_of_section(Section(OTHER_SECTION, "other"), max_names)
        self.sections[section.name] = section
        return self.section_code.setdefault(section.name, len(self.section_code))


class Stream:
    """Takes rows, keeps them by window, says which windows are due."""

    def __init__(self, settings: ScoreSettings, now_ns: int) -> None:
        self._settings = settings
        self._names = _Names()
        self._ranks: dict[int, _RankState] = {}
        self._by_step = Windows(settings.window_steps)
        self._by_time = Windows(1)
        self._longest_pause_ns = 0
        self.world_size = 0
        self.last_row_at_ns = now_ns
        self.last_alive_at_ns = now_ns

    def has_redone(self, source: Source, first_step: int) -> bool:
        """Whether a new session of a known rank begins at a step that the rank has done before:
        the world was restarted, and its steps must not fall into the old windows."""
        state = self._ranks.get(source.rank)
        return (
            state is not None
            and state.session != session_of(source)
            and NO_STEP < first_step <= state.last_step
        )

    def observe(self, batch: ObservationBatch, now_ns: int) -> int:
        """Take rows; all sources belong to this stream. Returns how many were late."""
        rows = self._with_own_codes(batch)
        self._longest_pause_ns = max(self._longest_pause_ns, now_ns - self.last_row_at_ns)
        self.last_row_at_ns = self.last_alive_at_ns = now_ns
        stepless = rows.step == NO_STEP
        if self._settings.window_steps is None or not stepless.any():
            return self._put(self._by_step, rows, rows.step, now_ns)
        late = self._put(self._by_step, rows.take(~stepless), rows.step[~stepless], now_ns)
        timed = rows.take(stepless)
        interval = timed.start_ns // int(self._settings.window_s * 1e9)
        return late + self._put(self._by_time, timed, interval, now_ns)

    def finish(self, source: Source, now_ns: int) -> None:
        """The session's rank has ended: it has passed every window."""
        state = self._ranks.get(source.rank)
        if state is None or state.session != session_of(source):
            return
        state.finished = True
        for window in (*self._by_step.open.values(), *self._by_time.open.values()):
            window.passed_at_ns = window.passed_at_ns or now_ns

    def take_due(
        self, now_ns: int, *, replaced: bool
    ) -> Iterator[tuple[ObservationBatch, ClosedBy]]:
        """Close what is due: rows, and what closed the window.

        Args:
            replaced: a newer attempt or incarnation of this run is sending.
        """
        for windows in (self._by_step, self._by_time):
            for number in sorted(windows.open):
                cause = self._due(windows, windows.open[number], now_ns, replaced=replaced)
                if cause is None:
                    break
                yield self._rows_of(windows.close(number)), cause

    def take_all(self) -> Iterator[ObservationBatch]:
        """Close every open window, oldest first."""
        for windows in (self._by_step, self._by_time):
            for number in sorted(windows.open):
                yield self._rows_of(windows.close(number))

    @property
    def has_open_windows(self) -> bool:
        return bool(self._by_step.open or self._by_time.open)

    # --- taking rows -----------------------------------------------------------------------

    def _with_own_codes(self, batch: ObservationBatch) -> ObservationBatch:
        for source in batch.sources:
            self._meet(source)
        names = self._names
        source_codes = np.array([names.code_of_source(s) for s in batch.sources], np.int32)
        kernels = [names.kernel_code.setdefault(k, len(names.kernel_code)) for k in batch.kernels]
        kernel_codes = np.array([*kernels, NO_KERNEL], np.int32)  # code -1 picks the last
        section_codes = np.zeros(len(batch.sections), np.int32)
        seq = batch.seq
        for code in np.unique(batch.section).tolist():
            section = batch.sections[code]
            section_codes[code] = names.code_of_section(section, self._settings.max_names)
            if section.name not in names.section_code:
                seq = _keep_apart(seq, batch.section == code, section.name)
        return replace(
            batch,
            source=source_codes[batch.source],
            section=section_codes[batch.section],
            kernel=kernel_codes[batch.kernel],
            seq=seq,
        )

    def _meet(self, source: Source) -> None:
        self.world_size = source.world_size or self.world_size
        state = self._ranks.get(source.rank)
        if state is None:
            self._ranks[source.rank] = _RankState(session_of(source))
        elif state.session != session_of(source) and not self._is_known(source):
            state.session = session_of(source)
            state.finished = False

    def _is_known(self, source: Source) -> bool:
        return (source.rank, *session_of(source)) in self._names.source_code

    def _put(self, windows: Windows, rows: ObservationBatch, steps: Ints, now_ns: int) -> int:
        if len(rows) == 0:
            return 0
        number = windows.assign(steps, now_ns)
        for n in np.unique(number).tolist():
            if n >= 0:
                windows.open[n].rows.append(rows.take(number == n))
        self._advance(windows, rows, steps, now_ns)
        return int((number < 0).sum())

    def _advance(self, windows: Windows, rows: ObservationBatch, steps: Ints, now_ns: int) -> None:
        newest = np.full(len(self._names.sources), NO_STEP, np.int64)
        np.maximum.at(newest, rows.source, steps)
        for code in np.flatnonzero(newest > NO_STEP).tolist():
            state = self._ranks[self._names.sources[code].rank]
            if windows is self._by_step:
                state.last_step = max(state.last_step, int(newest[code]))
            else:
                state.last_interval = max(state.last_interval, int(newest[code]))
        furthest = int(newest.max(initial=NO_STEP))
        for window in windows.open.values():
            if window.passed_at_ns is None and furthest > window.last_step:
                window.passed_at_ns = now_ns

    # --- closing ---------------------------------------------------------------------------

    def _due(
        self, windows: Windows, window: OpenWindow, now_ns: int, *, replaced: bool
    ) -> ClosedBy | None:
        settings = self._settings
        grace_ns = int(settings.grace_s * 1e9)
        waited_ns = -1 if window.passed_at_ns is None else now_ns - window.passed_at_ns
        if waited_ns >= 0 and self._all_passed(windows, window):
            may_be_more = self.world_size == 0 and windows.n_closed == 0
            if not may_be_more or waited_ns >= grace_ns:
                return "complete"
        if waited_ns >= grace_ns or (replaced and now_ns - self.last_row_at_ns >= grace_ns):
            return "grace"
        interval_ns = int(settings.window_s * 1e9)
        if windows is self._by_time and now_ns - window.opened_at_ns >= interval_ns + grace_ns:
            return "grace"
        idle_ns = max(int(settings.idle_s * 1e9), 4 * self._longest_pause_ns)
        return "idle" if now_ns - self.last_alive_at_ns >= idle_ns else None

    def _all_passed(self, windows: Windows, window: OpenWindow) -> bool:
        by_step = windows is self._by_step
        passed = sum(
            state.finished
            or (state.last_step if by_step else state.last_interval) > window.last_step
            for state in self._ranks.values()
        )
        return passed >= (self.world_size or len(self._ranks))

    def _rows_of(self, window: OpenWindow) -> ObservationBatch:
        """The rows of a window, with only the sections that it holds."""
        parts = window.rows
        section = np.concatenate([p.section for p in parts])
        used, section_code = number_densely(section.astype(np.int64))
        sections = list(self._names.sections.values())
        return ObservationBatch(
            sources=tuple(self._names.sources),
            sections=tuple(sections[code] for code in used),
            kernels=tuple(self._names.kernel_code),
            source=np.concatenate([p.source for p in parts]),
            section=section_code.astype(np.int32),
            kernel=np.concatenate([p.kernel for p in parts]),
            step=np.concatenate([p.step for p in parts]),
            start_ns=np.concatenate([p.start_ns for p in parts]),
            duration_s=np.concatenate([p.duration_s for p in parts]),
            seq=np.concatenate([p.seq for p in parts]),
        )


def _keep_apart(seq: Ints, folded: npt.NDArray[np.bool_], name: str) -> Ints:
    """Sections folded into one name count their runs apart; mix the name in, so that two of
    their runs are not taken for one that was delivered twice."""
    mixed = seq ^ (np.int64(zlib.crc32(name.encode())) << np.int64(31))
    return np.where(folded & (seq != NO_SEQ), mixed, seq)
