"""Section times of different ranks, brought together.

Ranks export histograms every minute or so, each at its own time of day. If their rows went on as
they came, the window of the first rank would be closed before the last rank has told of it. So what
they add is held until every rank has told once more, and then goes on together, as rows that begin
now: one round. A rank that fell silent is waited for once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from otel_straggler.model.observation import ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import SectionTimes
from otel_straggler.wire.section_rows import rows_at_most, rows_of

_MOST_ROWS = 1_000_000
_MOST_HELD = 200_000
_LONGEST_INTERVAL_S = 120.0

_WorldKey = tuple[str, str, int]
_Process = tuple[int, str, str]


@dataclass(slots=True)
class _Round:
    """What one world of ranks has told since the round before."""

    expected: frozenset[_Process] | None = None
    """Who told in the round before; None if there was none."""
    interval_ns: float = 0.0
    """The longest of any point so far."""
    opened_at_ns: int = 0
    told: set[_Process] = field(default_factory=set)
    times: list[SectionTimes] = field(default_factory=list)
    ahead_ns: list[int] = field(default_factory=list)
    """Sender's clock at the end of a point minus our clock when it came."""
    world_size: int = 0

    def take(self, times: SectionTimes, now_ns: int) -> None:
        if not self.times:
            self.opened_at_ns = now_ns
        if times.start_ns:
            self.interval_ns = max(self.interval_ns, times.end_ns - times.start_ns)
        self.told.add(_process(times.source))
        self.world_size = max(self.world_size, times.source.world_size)
        self.times.append(times)
        self.ahead_ns.append(times.end_ns - now_ns)

    def is_complete(self) -> bool:
        if self.expected is None:
            return 0 < self.world_size <= len(self.told)
        return self.expected <= self.told

    def is_over(self, now_ns: int, grace_ns: float) -> bool:
        """Whether every rank that lives has had the time to tell."""
        longest_ns = min(self.interval_ns, _LONGEST_INTERVAL_S * 1e9)
        return now_ns - self.opened_at_ns >= longest_ns + grace_ns

    def rows(self, now_ns: int) -> ObservationBatch:
        most_rows = rows_at_most(len(self.times), _MOST_ROWS)
        return rows_of(self.times, most_rows, at_ns=now_ns + int(median(self.ahead_ns)))


class Rounds:
    """The rounds of all worlds. Time is an argument.

    Args:
        grace_s: how long a round waits beyond the longest interval of its points.
    """

    def __init__(self, grace_s: float) -> None:
        self._grace_ns = grace_s * 1e9
        self._rounds: dict[_WorldKey, _Round] = {}

    def take(self, times: SectionTimes, now_ns: int) -> None:
        """Hold what one rank has added."""
        source = times.source
        key = (source.run_id, source.group, source.attempt)
        self._rounds.setdefault(key, _Round()).take(times, now_ns)

    def due(self, now_ns: int) -> list[ObservationBatch]:
        """The rows of rounds in which every rank has told, or that have waited long enough."""
        due = [key for key, held in self._rounds.items() if self._is_due(held, now_ns)]
        return [self._close(key, now_ns) for key in due]

    def all(self, now_ns: int) -> list[ObservationBatch]:
        """The rows of every round (end of input)."""
        held = [key for key, held in self._rounds.items() if held.times]
        return [self._close(key, now_ns) for key in held]

    def forget(self, run_ids: tuple[str, ...]) -> None:
        for key in [key for key in self._rounds if key[0] in run_ids]:
            del self._rounds[key]

    def forget_group(self, run_id: str, group: str) -> None:
        for key in [key for key in self._rounds if key[:2] == (run_id, group)]:
            del self._rounds[key]

    def _is_due(self, held: _Round, now_ns: int) -> bool:
        if not held.times:
            return False
        is_full = len(held.times) >= _MOST_HELD
        return is_full or held.is_complete() or held.is_over(now_ns, self._grace_ns)

    def _close(self, key: _WorldKey, now_ns: int) -> ObservationBatch:
        held = self._rounds[key]
        self._rounds[key] = _Round(frozenset(held.told), held.interval_ns)
        return held.rows(now_ns)


def _process(source: Source) -> _Process:
    return source.rank, source.session_id, source.node
