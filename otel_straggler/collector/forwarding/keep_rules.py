"""Which spans are worth keeping, as far as scoring has told."""

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

STANDING = frozenset({"suspect", "confirmed", "flapping"})
"""States of a verdict that flag a rank or a host."""

_TYPICAL_OF = 200
"""Steps whose median is the typical step of a run."""
_FEWEST_STEPS = 10
_MOST_SLOW = 10_000
_MOST_WORLDS = 4_096


class WorldKey(NamedTuple):
    """Whose steps are scored together."""

    run_id: str
    group: str
    attempt: int

    @classmethod
    def of(cls, source: Source) -> WorldKey:
        return cls(source.run_id, source.group, source.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far one source has come in one request."""

    source: Source
    step: int
    end_ns: int


@dataclass(slots=True)
class _Flags:
    """Ranks and nodes of one run and group."""

    listed: frozenset[int] = frozenset()
    ranks: frozenset[int] = frozenset()
    nodes: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Passed:
    """Up to where a world has been scored."""

    step: int = NO_STEP
    end_ns: int = 0


@dataclass(slots=True)
class Known:
    """What scoring has said. One thread tells, another asks.

    Args:
        slow_ratio: a step is slow if its slowest rank took so many times as long as the typical
            step of the run.
    """

    slow_ratio: float
    _flags: dict[tuple[str, str], _Flags] = field(default_factory=dict)
    _passed: dict[WorldKey, _Passed] = field(default_factory=dict)
    _typical: dict[tuple[str, str], deque[float]] = field(default_factory=dict)
    _slow: OrderedDict[int, None] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note_steps(self, times: Iterable[StepTimes]) -> None:
        """Take how long steps took; remember those that were slow by their traces."""
        with self._lock:
            for world in times:
                self._note_steps(world)

    def _note_steps(self, world: StepTimes) -> None:
        if world.is_timed:
            return
        known = _entry(self._typical, (world.run_id, world.group), deque(maxlen=_TYPICAL_OF))
        for step, seconds in zip(world.steps, world.slowest_s, strict=True):
            if len(known) >= _FEWEST_STEPS and seconds > self.slow_ratio * median(known):
                trace_id = step_trace_id(world.run_id, world.attempt, world.group, step)
                self._slow[int.from_bytes(trace_id[8:], "big")] = None
            known.append(seconds)
        while len(self._slow) > _MOST_SLOW:
            self._slow.popitem(last=False)

    def note_windows(self, windows: Sequence[WindowScores], judged: RunVerdicts) -> set[WorldKey]:
        """Take windows that were closed, of one run, and its verdicts; returns whose they were."""
        with self._lock:
            for window in windows:
                flags = _entry(self._flags, (window.run_id, window.group), _Flags())
                flags.listed = frozenset(s.source.rank for s in window.stragglers)
                standing = [v for v in judged.current if _stands(v, window)]
                flags.ranks = frozenset(v.rank for v in standing if v.rank is not None)
                flags.nodes = frozenset(v.node for v in standing if v.scope == "host" and v.node)
                self._pass(window)
            return {WorldKey(w.run_id, w.group, w.attempt) for w in windows}

    def _pass(self, window: WindowScores) -> None:
        key = WorldKey(window.run_id, window.group, window.attempt)
        passed = _entry(self._passed, key, _Passed())
        if window.last_step is not None:
            passed.step = max(passed.step, window.last_step)
        passed.end_ns = max(passed.end_ns, window.end_ns)

    def is_flagged(self, source: Source) -> bool:
        """Whether a verdict stands against the rank or its host, or the newest window lists it."""
        flags = self._flags.get((source.run_id, source.group))
        if flags is None:
            return False
        is_listed = source.rank in flags.ranks or source.rank in flags.listed
        return is_listed or (bool(source.node) and source.node in flags.nodes)

    def has_passed(self, reach: Reach) -> bool:
        """Whether all that a request holds of a source has been scored."""
        passed = self._passed.get(WorldKey.of(reach.source))
        if passed is None:
            return False
        if reach.step != NO_STEP:
            return reach.step <= passed.step
        return reach.end_ns <= passed.end_ns

    def slow_traces(self) -> frozenset[int]:
        """The second halves of the trace ids of the slow steps, the newest 10,000."""
        with self._lock:
            return frozenset(self._slow)


def _stands(verdict: Verdict, window: WindowScores) -> bool:
    if verdict.state not in STANDING or verdict.scope not in ("rank", "host"):
        return False
    return verdict.scope == "host" or verdict.group == window.group


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _entry(table: dict[_Key, _Value], key: _Key, new: _Value) -> _Value:
    """The value of a key, at the end of the table; the longest untouched goes beyond 4,096."""
    value = table.pop(key, new)
    table[key] = value
    if len(table) > _MOST_WORLDS:
        del table[next(iter(table))]
    return value
