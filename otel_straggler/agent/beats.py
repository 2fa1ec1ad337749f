"""What a rank reports, in memory that it shares with its node's agent.

The rank writes: no system call, no lock, no thread, some hundred nanoseconds. The agent reads
whenever it checks, also while the rank is stopped, holds the GIL, or has lost its connection, and
an agent that starts again sees the newest state at once. Cells are 64-bit integers, each of which
stands for itself; their order of writing keeps every state in between true. Times are
``CLOCK_MONOTONIC`` in nanoseconds, which a machine has once.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
from array import array
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Final

from otel_straggler.agent.frames import ProtocolError
from otel_straggler.detect.hangs.rank_timeouts import STEP_SECTION, Intervals, RankBeats

MAX_SECTIONS: Final = 256
NO_STEP: Final = -1
_MAGIC: Final = int.from_bytes(b"OTSBEAT1", "little")
_BUCKETS: Final = 64
_CELL: Final = 8
_MAX_STEP: Final = 2**62
_MAX_AHEAD_NS: Final = 5_000_000_000

(_AT_MAGIC, _SECTIONS, _STARTED, _BEATS, _BEAT_AT, _OUTSIDE, _STEP, _FIRST_STEP, _WARMUP, _OPENED,
 _STEPPED, _ENDED) = range(12)  # fmt: skip
_HEAD: Final = 16
_INITIAL, _GAPS, _OUTSIDE_ROW, _FIRST_ROW = range(4)

StepSource = Callable[[], int]
"""The step that the rank is in; ``NO_STEP`` if not known."""


class BeatPage:
    """The rank's side. For one thread at a time.

    Args:
        sections: that have a timeout; at most ``MAX_SECTIONS``.
        warmup_steps: steps that count as warm-up.
        step: where the rank is.
    """

    def __init__(
        self, sections: Sequence[str], warmup_steps: int = 0, step: StepSource = lambda: NO_STEP
    ) -> None:
        self.sections = tuple(sections)
        self.file = os.memfd_create("otel-straggler-beats", os.MFD_CLOEXEC)
        size = _size(len(self.sections))
        os.ftruncate(self.file, size)
        self._memory = mmap.mmap(self.file, size)
        self._cells = memoryview(self._memory).cast("q")
        self._open: dict[str, int] = {}
        self._cell_of = {name: _HEAD + n for n, name in enumerate(self.sections)}
        first = _HEAD + len(self.sections)
        self._rows = [first + row * 2 * _BUCKETS for row in range(_FIRST_ROW + len(self.sections))]
        self._row_of = {n: self._rows[_FIRST_ROW + i] for i, n in enumerate(self.sections)}
        self._step = step
        self._begin(warmup_steps)

    def _begin(self, warmup_steps: int) -> None:
        cells, now_ns = self._cells, monotonic_ns()
        cells[_SECTIONS] = len(self.sections)
        cells[_STARTED] = cells[_OUTSIDE] = now_ns
        cells[_STEP] = cells[_FIRST_STEP] = self._step()
        cells[_WARMUP] = warmup_steps
        cells[_AT_MAGIC] = _MAGIC

    def beat(self) -> None:
        """Count a heartbeat."""
        cells, now_ns = self._cells, monotonic_ns()
        last_ns = cells[_BEAT_AT]
        if last_ns:
            ns, row = now_ns - last_ns, self._rows[_GAPS]
        else:
            ns, row = now_ns - cells[_STARTED], self._rows[_INITIAL]
        row += ns.bit_length()
        cells[row] += 1
        if ns > cells[row + _BUCKETS]:
            cells[row + _BUCKETS] = ns
        cells[_STEP] = self._step()
        cells[_BEATS] += 1
        cells[_BEAT_AT] = now_ns

    def open(self, name: str) -> bool:
        """Open a section; False if it is open. One without a timeout is ignored."""
        cell = self._cell_of.get(name)
        if cell is None:
            return True
        if name in self._open:
            return False
        cells, now_ns = self._cells, monotonic_ns()
        if not self._open:
            self._count(self._rows[_OUTSIDE_ROW], now_ns - cells[_OUTSIDE])
            cells[_OPENED] = 1
        if name == STEP_SECTION:
            cells[_STEPPED] = 1
        cells[_STEP] = self._step()
        cells[cell] = self._open[name] = now_ns
        return True

    def close(self, name: str) -> bool:
        """Close a section; False if it is not open. One without a timeout is ignored."""
        since_ns = self._open.pop(name, None)
        if since_ns is None:
            return name not in self._cell_of
        now_ns = monotonic_ns()
        self._count(self._row_of[name], now_ns - since_ns)
        if not self._open:
            self._cells[_OUTSIDE] = now_ns  # before the cell below: a reader sees one of both
        self._cells[self._cell_of[name]] = 0
        return True

    @property
    def open_sections(self) -> tuple[str, ...]:
        """In the order in which they were opened."""
        return tuple(self._open)

    def close_all(self) -> None:
        for name in tuple(self._open):
            self.close(name)

    def _count(self, row: int, ns: int) -> None:
        cells = self._cells
        row += ns.bit_length()
        cells[row] += 1
        if ns > cells[row + _BUCKETS]:
            cells[row + _BUCKETS] = ns

    def count_time_outside(self) -> None:
        """Count the time since the last section, if none is open; it may be the longest."""
        if not self._open:
            self._count(self._rows[_OUTSIDE_ROW], monotonic_ns() - self._cells[_OUTSIDE])

    def end(self) -> None:
        """Say that this rank is watched no longer, and free the memory; nothing may be called after
        it."""
        self._cells[_ENDED] = 1
        self._cells.release()
        self._memory.close()
        os.close(self.file)


class BeatReader:
    """The agent's side: it believes nothing that it has not checked.

    Args:
        file: of the rank; owned from here on, also if it is no page.
        sections: names, in the order of the rank's page.

    Raises:
        ProtocolError: it is no such page.
    """

    def __init__(self, file: int, sections: Sequence[str]) -> None:
        self._file, self._sections = file, tuple(sections)
        try:
            self._check()
        except ProtocolError:
            self.close()
            raise

    def _check(self) -> None:
        found = os.fstat(self._file)
        try:
            fcntl.fcntl(self._file, fcntl.F_GET_SEALS)  # memory has seals: no disk, no network
        except OSError:
            raise ProtocolError("page", "it is no file in memory, and could be slow") from None
        if not stat.S_ISREG(found.st_mode) or found.st_size != _size(len(self._sections)):
            raise ProtocolError("page", f"a file of {found.st_size} bytes is no page of beats")
        cells = self._read(0, _HEAD)
        if cells[_AT_MAGIC] != _MAGIC or cells[_SECTIONS] != len(self._sections):
            raise ProtocolError("page", "it does not begin as a page of beats")

    @property
    def has_ended(self) -> bool:
        """Whether the rank wants to be watched no longer."""
        return self._read(0, _HEAD)[_ENDED] != 0

    def beats(self) -> RankBeats:
        """The state of now. Cost: a system call.

        Raises:
            ProtocolError: it makes no sense.
        """
        cells = self._read(0, _HEAD + len(self._sections))
        limit_ns = monotonic_ns() + _MAX_AHEAD_NS

        def time_s(cell: int) -> float:
            ns = cells[cell]
            if not 0 <= ns <= limit_ns:
                raise ProtocolError("page", f"cell {cell} is {cells[cell]}, which is no time")
            return ns * 1e-9

        def step(cell: int) -> int | None:
            return cells[cell] if 0 <= cells[cell] <= _MAX_STEP else None

        return RankBeats(
            started_s=time_s(_STARTED),
            heartbeats=max(0, cells[_BEATS]),
            last_heartbeat_s=time_s(_BEAT_AT) if cells[_BEAT_AT] else None,
            open_s={
                name: time_s(_HEAD + n) for n, name in enumerate(self._sections) if cells[_HEAD + n]
            },
            outside_since_s=time_s(_OUTSIDE),
            has_sections=cells[_OPENED] != 0,
            step=step(_STEP),
            first_step=step(_FIRST_STEP),
            has_stepped=cells[_STEPPED] != 0,
            warmup_steps=max(0, cells[_WARMUP]),
        )

    def intervals(self) -> dict[str, Intervals]:
        """All observed intervals, by :data:`INITIAL`, :data:`GAPS`, :data:`OUTSIDE`, or section.

        Raises:
            ProtocolError: they make no sense.
        """
        rows = _FIRST_ROW + len(self._sections)
        cells = self._read(_HEAD + len(self._sections), rows * 2 * _BUCKETS)
        limit_ns = monotonic_ns() - self._read(0, _HEAD)[_STARTED] + _MAX_AHEAD_NS
        names = (INITIAL, GAPS, OUTSIDE, *map(section_key, self._sections))
        result = {}
        for n, name in enumerate(names):
            row = cells[n * 2 * _BUCKETS : (n + 1) * 2 * _BUCKETS]
            if min(row) < 0:
                raise ProtocolError("page", "an interval is negative")
            if max(row[_BUCKETS:]) > limit_ns:
                raise ProtocolError("page", f"an interval of {name!r:.100} began before the page")
            result[name] = Intervals(row[:_BUCKETS].tolist(), row[_BUCKETS:].tolist())
        return result

    def close(self) -> None:
        os.close(self._file)

    def _read(self, first: int, count: int) -> array[int]:
        cells: array[int] = array("q")
        data = os.pread(self._file, count * _CELL, first * _CELL)
        if len(data) != count * _CELL:
            raise ProtocolError("page", "it has become shorter")
        cells.frombytes(data)
        return cells


INITIAL: Final = "initial"
GAPS: Final = "gaps"
OUTSIDE: Final = "outside"


def section_key(name: str) -> str:
    """The key of a section in :meth:`BeatReader.intervals`."""
    return f"section {name}"


def _size(sections: int) -> int:
    return _CELL * (_HEAD + sections + 2 * _BUCKETS * (_FIRST_ROW + sections))
