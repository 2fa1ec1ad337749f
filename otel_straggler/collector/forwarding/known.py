"""Flagged ranks and slow steps: what scores say of the spans that wait."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple, TypeVar

from otel_straggler.model.observation import NO_STEP
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.step_table import StepTimes
from otel_straggler.model.verdict import RunVerdicts, Verdict
from otel_straggler.otlp.ids import step_trace_id
from otel_straggler.otlp.span_rules import Progress

_ACTIVE = frozenset({"suspect", "confirmed", "flapping"})
"""States of a verdict that flag a rank or a host."""

_TYPICAL_OF = 200
"""Steps whose median is the typical step of a run."""
_MIN_STEPS = 10
_MAX_SLOW = 10_000
_MAX_WORLDS = 4_096


class WorldKey(NamedTuple):
    """The ranks whose steps are scored together."""

    run_id: str
    group: str
    attempt: int

    @classmethod
    def of(cls, source: Source) -> WorldKey:
        return cls(source.run_id, source.group, source.attempt)


@dataclass(slots=True)
class _Flags:
    """Ranks and nodes of one run and group."""

    listed: frozenset[int] = frozenset()
    ranks: frozenset[int] = frozenset()
    nodes: frozenset[str] = frozenset()


@dataclass(slots=True)
class Known:
    """Flagged ranks and slow steps. One thread writes, another reads.

    Args:
        slow_ratio: a step is slow if its slowest rank took so many times the typical step of the
            run.
    """

    slow_ratio: float
    _flags: dict[tuple[str, str], _Flags] = field(default_factory=dict)
    _passed: dict[WorldKey, Progress] = field(default_factory=dict)
    _typical: dict[tuple[str, str], deque[float]] = field(default_factory=dict)
    _slow: OrderedDict[int, None] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record_steps(self, times: Iterable[StepTimes]) -> None:
        with self._lock:
            for world in times:
                if not world.is_timed:
                    self._record_steps(world)
            while len(self._slow) > _MAX_SLOW:
                self._slow.popitem(last=False)

    def _record_steps(self, world: StepTimes) -> None:
        known = _entry(self._typical, (world.run_id, world.group), deque(maxlen=_TYPICAL_OF))
        for step, seconds in zip(world.steps, world.slowest_s, strict=True):
            if len(known) >= _MIN_STEPS and seconds > self.slow_ratio * median(known):
                trace_id = step_trace_id(world.run_id, world.attempt, world.group, step)
                self._slow[int.from_bytes(trace_id[8:], "big")] = None
            known.append(seconds)

    def record_windows(
        self, windows: Sequence[WindowScores], run_verdicts: RunVerdicts
    ) -> set[WorldKey]:
        """Record closed windows of one run and its verdicts; returns their worlds."""
        with self._lock:
            for window in windows:
                flags = _entry(self._flags, (window.run_id, window.group), _Flags())
                flags.listed = _standing_out(window)
                active = [v for v in run_verdicts.current if _is_active(v, window)]
                flags.ranks = frozenset(v.rank for v in active if v.rank is not None)
                flags.nodes = frozenset(v.node for v in active if v.scope == "host" and v.node)
                self._pass(window)
            return {WorldKey(w.run_id, w.group, w.attempt) for w in windows}

    def _pass(self, window: WindowScores) -> None:
        key = WorldKey(window.run_id, window.group, window.attempt)
        passed = _entry(self._passed, key, Progress())
        step = passed.step if window.last_step is None else max(passed.step, window.last_step)
        self._passed[key] = Progress(step=step, end_ns=max(passed.end_ns, window.end_ns))

    def is_flagged(self, source: Source) -> bool:
        """Whether a verdict or the newest window names the rank or its host."""
        flags = self._flags.get((source.run_id, source.group))
        if flags is None:
            return False
        is_listed = source.rank in flags.ranks or source.rank in flags.listed
        return is_listed or (bool(source.node) and source.node in flags.nodes)

    def has_passed(self, source: Source, progress: Progress) -> bool:
        """Whether everything of a source in a request has been scored."""
        return self.has_scored(WorldKey.of(source), progress)

    def has_scored(self, world: WorldKey, progress: Progress) -> bool:
        passed = self._passed.get(world)
        if passed is None:
            return False
        if progress.step != NO_STEP:
            return progress.step <= passed.step
        return progress.end_ns <= passed.end_ns

    def slow_traces(self) -> frozenset[int]:
        """Second halves of the trace ids of the newest slow steps."""
        with self._lock:
            return frozenset(self._slow)


def _standing_out(window: WindowScores) -> frozenset[int]:
    """Ranks that the window lists in a section in which most ranks are not listed; of two halves,
    the one that is listed if the other is so nowhere.

    In a section that contains waiting, as ``backward`` does under DDP, the slow rank waits least:
    it is the fast one there, and all others are listed.
    """
    listed: dict[tuple[str, str], set[int]] = {}
    for straggler in window.stragglers:
        key = straggler.kind_of_score, straggler.section
        listed.setdefault(key, set()).add(straggler.source.rank)
    everywhere = frozenset[int]().union(*listed.values())
    half = len(window.sources) / 2
    few = [
        ranks
        for ranks in listed.values()
        if len(ranks) < half or (len(ranks) == half and ranks == everywhere)
    ]
    return frozenset[int]().union(*few)


def _is_active(verdict: Verdict, window: WindowScores) -> bool:
    if verdict.state not in _ACTIVE or verdict.scope not in ("rank", "host"):
        return False
    return verdict.scope == "host" or verdict.group == window.group


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _entry(table: dict[_Key, _Value], key: _Key, new: _Value) -> _Value:
    """The value of a key, moved to the end; the first is evicted beyond the limit."""
    value = table.pop(key, new)
    table[key] = value
    if len(table) > _MAX_WORLDS:
        del table[next(iter(table))]
    return value
