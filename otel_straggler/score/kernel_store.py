"""Kernel histograms of all runs, until the windows that they belong to are scored.

Ranks tell what they counted at intervals of their own (10 s), which no window knows of. So an
interval belongs to every window that it overlaps, on its rank's clock. Where none does, because
windows are shorter or close sooner than intervals are told, the newest one before the window
stands in, if it ended at most a minute before. What only some ranks have told of, because the
others' is still on its way, is left for the next window: ranks are compared over the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from otel_straggler.model.kernels import KernelCell, KernelTimes, join_kernel_times
from otel_straggler.model.observation import Codes, Ints
from otel_straggler.model.rank import Source
from otel_straggler.score.kernels import KernelMedians
from otel_straggler.score.sources import session_of
from otel_straggler.score.step_tables import Bools

KEPT = "kept"
REPEATED = "repeated"
OVER_LIMIT = "over_limit"
OUTCOMES = (KEPT, REPEATED, OVER_LIMIT)
"""What becomes of a point."""

STANDS_IN_S = 60.0
"""How old the newest interval may be that stands in for one within the window."""
_LONGEST_S = 120.0
_MOST_CELLS = 65_536
_MOST_WORLDS = 1_000
_CELL_BYTES = 400

_WorldKey: TypeAlias = tuple[str, str, int]
_Process: TypeAlias = tuple[int, str, str]
_Key: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Interval:
    """What one process told of one interval, or a part of that.

    Attributes:
        number: tells it apart in its world.
        start_ns, end_ns: on the sender's clock.
        times: its points; their cells are codes of the world.
    """

    number: int
    start_ns: int
    end_ns: int
    times: KernelTimes


@dataclass(slots=True)
class _World:
    """The ranks of one run, group and attempt."""

    cells: dict[KernelCell, int] = field(default_factory=dict)
    by_code: list[KernelCell] = field(default_factory=list)
    kernels: set[str] = field(default_factory=set)
    intervals: dict[_Process, list[Interval]] = field(default_factory=dict)
    longest_ns: int = 0
    nbytes: int = 0
    taken: int = 0
    scored: tuple[_Key, KernelMedians | None] | None = None


class KernelStore:
    """Owned by one thread. Time is that of the senders.

    Args:
        most_bytes: of all that is kept; the oldest histograms of the largest run go first.
        most_kernels: names of kernels of one run's attempt; further ones are left out.
    """

    def __init__(self, most_bytes: int, most_kernels: int) -> None:
        self._most_bytes = most_bytes
        self._most_kernels = most_kernels
        self._worlds: dict[_WorldKey, _World] = {}
        self._nbytes = 0
        self.counts: Counter[str] = Counter()

    def take(self, times: KernelTimes) -> None:
        """Keep what was not told before. ``counts`` says what became of the points."""
        for source, part in _by_interval(times):
            world = self._world(_world_of(source))
            codes = self._codes(world, times.cells)
            cell = codes[part.cell]
            known = world.intervals.setdefault(_process_of(source), [])
            is_over = cell < 0
            is_repeated = ~is_over & _is_told(known, part, cell)
            is_new = ~(is_over | is_repeated)
            self.counts[OVER_LIMIT] += int(is_over.sum())
            self.counts[REPEATED] += int(is_repeated.sum())
            self.counts[KEPT] += int(is_new.sum())
            if is_new.any():
                self._keep(world, known, replace(part, cell=cell), is_new)

    def of_window(
        self, sources: Sequence[Source], first_ns: Ints, last_ns: Ints
    ) -> KernelMedians | None:
        """What the histograms say that belong to a window of one world.

        Args:
            sources: the ranks.
            first_ns, last_ns: (ranks,) of each on its own clock.

        Returns:
            Medians of these ranks; None: they have told of nothing. Forgets what is too old for any
            later window.
        """
        world = self._worlds.get(_world_of(sources[0]))
        if world is None:
            return None
        chosen = self.intervals_of_window(sources, first_ns, last_ns)
        key = tuple((line, interval.number) for line, interval in chosen)
        if world.scored is None or world.scored[0] != key:  # short windows share intervals
            world.scored = key, _medians_of(world, sources, chosen)
        return world.scored[1]

    def intervals_of_window(
        self, sources: Sequence[Source], first_ns: Ints, last_ns: Ints
    ) -> list[tuple[int, Interval]]:
        """The intervals that belong to a window, each with the place of its rank; see
        :meth:`of_window`."""
        world = self._worlds[_world_of(sources[0])]
        held = [world.intervals.get(_process_of(source), []) for source in sources]
        until_ns = _told_by_all(held, world.longest_ns)
        chosen: list[tuple[int, Interval]] = []
        for line, (intervals, first, last) in enumerate(
            zip(held, first_ns.tolist(), last_ns.tolist(), strict=True)
        ):
            chosen += [(line, each) for each in _belonging(intervals, first, last, until_ns)]
            self._drop_old(world, intervals, first)
        return chosen

    def forget(self, run_id: str, group: str | None = None, attempt: int | None = None) -> None:
        """Let a run go, or one attempt of one of its groups."""
        for key in [k for k in self._worlds if k[0] == run_id]:
            if group is None or key[1:] == (group, attempt):
                self._let_go(key)

    # --- keeping ---------------------------------------------------------------------------

    def _world(self, key: _WorldKey) -> _World:
        """The world, as the newest of those that are kept: some never send a span."""
        world = self._worlds.pop(key, None) or _World()
        if len(self._worlds) >= _MOST_WORLDS:
            self._let_go(next(iter(self._worlds)))
        self._worlds[key] = world
        return world

    def _let_go(self, key: _WorldKey) -> None:
        self._nbytes -= self._worlds.pop(key).nbytes

    def _codes(self, world: _World, cells: Iterable[KernelCell]) -> Codes:
        """Codes of cells; -1 where there is no room for another name."""
        return np.array([self._code(world, cell) for cell in cells], np.int32)

    def _code(self, world: _World, cell: KernelCell) -> int:
        known = world.cells.get(cell)
        if known is not None:
            return known
        name = cell.kernel.name
        has_room = name in world.kernels or len(world.kernels) < self._most_kernels
        if not has_room or len(world.by_code) >= _MOST_CELLS:
            return -1
        self._grow(world, _CELL_BYTES + len(name) + len(cell.section))
        world.kernels.add(name)
        world.by_code.append(cell)
        return world.cells.setdefault(cell, len(world.by_code) - 1)

    def _keep(
        self,
        world: _World,
        known: list[Interval],
        times: KernelTimes,
        is_new: Bools,
    ) -> None:
        kept = times if is_new.all() else times.take(is_new)
        kept = replace(kept, sources=(), cells=())
        end_ns = int(kept.end_ns[0])
        start_ns = int(kept.start_ns[0]) or end_ns
        world.taken += 1
        known.append(Interval(world.taken, start_ns, end_ns, kept))
        world.longest_ns = max(world.longest_ns, min(end_ns - start_ns, int(_LONGEST_S * 1e9)))
        self._grow(world, kept.nbytes)
        while self._nbytes > self._most_bytes:
            self._make_room()

    def _make_room(self) -> None:
        """The largest world gives up half of its intervals, so that this is seldom done; one that
        has none is let go."""
        key = max(self._worlds, key=lambda each: self._worlds[each].nbytes)
        world = self._worlds[key]
        ends = sorted(i.end_ns for held in world.intervals.values() for i in held)
        if not ends:
            self._let_go(key)
            return
        limit_ns = ends[len(ends) // 2]
        for held in world.intervals.values():
            gone = [i for i in held if i.end_ns <= limit_ns]
            self.counts[KEPT] -= sum(len(i.times) for i in gone)
            self.counts[OVER_LIMIT] += sum(len(i.times) for i in gone)
            self._drop(world, held, gone)

    def _drop_old(self, world: _World, held: list[Interval], first_ns: int) -> None:
        limit_ns = first_ns - int(STANDS_IN_S * 1e9) - 2 * world.longest_ns
        self._drop(world, held, [i for i in held if i.end_ns < limit_ns])

    def _drop(self, world: _World, held: list[Interval], gone: list[Interval]) -> None:
        if gone:
            self._grow(world, -sum(i.times.nbytes for i in gone))
            left = {id(i) for i in gone}
            held[:] = [i for i in held if id(i) not in left]

    def _grow(self, world: _World, nbytes: int) -> None:
        world.nbytes += nbytes
        self._nbytes += nbytes


def _by_interval(times: KernelTimes) -> Iterator[tuple[Source, KernelTimes]]:
    """Points by source and interval: nearly always one request is one of each."""
    keys = np.stack([times.source.astype(np.int64), times.start_ns, times.end_ns])
    if len(times) == 0 or (keys == keys[:, :1]).all():
        if len(times):
            yield times.sources[int(times.source[0])], times
        return
    distinct, number = np.unique(keys, axis=1, return_inverse=True)
    for each in range(distinct.shape[1]):
        yield times.sources[int(distinct[0, each])], times.take(number.ravel() == each)


def _medians_of(
    world: _World, sources: Sequence[Source], chosen: Sequence[tuple[int, Interval]]
) -> KernelMedians | None:
    if not chosen:
        return None
    parts = [
        replace(each.times, source=np.full(len(each.times), line, np.int32))
        for line, each in chosen
    ]
    times = join_kernel_times(parts)
    return KernelMedians(replace(times, sources=tuple(sources), cells=tuple(world.by_code)))


def _is_told(known: list[Interval], part: KernelTimes, cell: Codes) -> Bools:
    """Which points of an interval come again."""
    start_ns, end_ns = int(part.start_ns[0]) or int(part.end_ns[0]), int(part.end_ns[0])
    again = np.zeros(len(cell), bool)
    for interval in known:
        if (interval.start_ns, interval.end_ns) == (start_ns, end_ns):
            again |= np.isin(cell, interval.times.cell)
    return again


def _told_by_all(held: Sequence[list[Interval]], longest_ns: int) -> int:
    """Until when the ranks have told that tell at all; a clock may be off by half an interval."""
    newest = [max(i.end_ns for i in intervals) for intervals in held if intervals]
    if not newest:
        return 0
    least = max(newest) - longest_ns * 3 // 2
    return min(end for end in newest if end >= least) + longest_ns // 2


def _belonging(
    intervals: list[Interval], first_ns: int, last_ns: int, until_ns: int
) -> list[Interval]:
    """Those that overlap the window; else the newest before it, in all its parts."""
    told = [i for i in intervals if i.end_ns <= until_ns and i.start_ns <= last_ns]
    inside = [i for i in told if i.end_ns > first_ns]
    if inside or not told:
        return inside
    newest = max(i.end_ns for i in told)
    is_fresh = first_ns - newest <= STANDS_IN_S * 1e9
    return [i for i in told if i.end_ns == newest] if is_fresh else []


def _world_of(source: Source) -> _WorldKey:
    return source.run_id, source.group, source.attempt


def _process_of(source: Source) -> _Process:
    return (source.rank, *session_of(source))
