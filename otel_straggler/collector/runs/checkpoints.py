"""Saves of checkpoints as the ranks of one world report them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from otel_straggler import semconv
from otel_straggler.collector.runs.passthrough import RankNumbers
from otel_straggler.detect.checkpoints import LastSave, RankSave, Save, WriterVerdicts
from otel_straggler.detect.slow_writers import SAVES
from otel_straggler.model.rank import Source
from otel_straggler.model.verdict import Verdict

_TOTALS: Final = (
    semconv.CHECKPOINT_SAVE_TIME,
    semconv.CHECKPOINT_WRITE_TIME,
    semconv.CHECKPOINT_BLOCKING_TIME,
    semconv.CHECKPOINT_SIZE,
)
_BYTES_PER_RANK: Final = 2_000


@dataclass(slots=True)
class _RankTotals:
    """What one session of a rank has reported: saves, and the sums of these."""

    source: Source
    saves: float = 0.0
    sums: tuple[float, ...] = (0.0,) * len(_TOTALS)


@dataclass(slots=True)
class _OpenSave:
    """A save by rank: sums of the totals, and of how many saves of the same step."""

    step: int | None
    at_s: float
    ranks: dict[int, tuple[float, tuple[float, ...]]] = field(default_factory=dict)

    def add(self, rank: int, count: float, sums: tuple[float, ...]) -> None:
        before, old = self.ranks.get(rank, (0.0, (0.0,) * len(sums)))
        both = tuple(one + other for one, other in zip(old, sums, strict=True))
        self.ranks[rank] = before + count, both

    def save(self) -> Save:
        means = {
            rank: RankSave(*(total / count for total in sums))
            for rank, (count, sums) in self.ranks.items()
        }
        return Save(step=self.step, at_s=self.at_s, ranks=means)


class WorldCheckpoints:
    """One thread owns it; time is an argument."""

    def __init__(self) -> None:
        self._ranks: dict[int, _RankTotals] = {}
        self._saves: dict[int, _OpenSave] = {}
        self._attempt = -1
        self._verdicts = WriterVerdicts()
        self._schedule = 0.0, 0.0
        self._last: LastSave | None = None

    @property
    def last(self) -> LastSave | None:
        """The newest save, as far as its ranks have reported. Cost: O(ranks) after a report."""
        if self._last is None and self._saves:
            self._last = LastSave.of(self._saves[max(self._saves)].save(), *self._schedule)
        return self._last

    @property
    def changes(self) -> tuple[Verdict, ...]:
        return self._verdicts.changes

    @property
    def nbytes(self) -> int:
        """Memory, roughly."""
        return _BYTES_PER_RANK * len(self._ranks)

    def observe(self, numbers: RankNumbers, wall_s: float) -> None:
        """A rank has reported its totals; what has grown since is a save, or several alike. Cost:
        O(1); O(ranks) for the last of a save, and for the first of the next one."""
        source, values = numbers.source, _newest(numbers)
        if source.attempt > self._attempt:
            self._last = self.last  # until there is a newer one
            self._attempt, self._ranks, self._saves = source.attempt, {}, {}
        if source.attempt < self._attempt or semconv.CHECKPOINT_SAVES not in values:
            return
        interval_s = values.get(semconv.CHECKPOINT_INTERVAL, 0.0)
        if interval_s > 0.0:
            self._schedule = interval_s, values.get(semconv.CHECKPOINT_MTBF, 0.0)
        known = self._ranks.get(source.rank)
        if known is None or known.source.session != source.session:
            known = _RankTotals(source)
        saves, sums = values[semconv.CHECKPOINT_SAVES], tuple(values.get(m, 0.0) for m in _TOTALS)
        count, before = saves - known.saves, known.sums
        self._ranks[source.rank] = _RankTotals(source, saves, sums)
        if count > 0.0:
            grown = tuple(max(0.0, new - old) for new, old in zip(sums, before, strict=True))
            self._add(source, values, count, grown, wall_s)

    def _add(
        self,
        source: Source,
        values: Mapping[semconv.Metric, float],
        count: float,
        grown: tuple[float, ...],
        wall_s: float,
    ) -> None:
        step = values.get(semconv.CHECKPOINT_STEP)
        number = int(values[semconv.CHECKPOINT_SAVES] if step is None else step)
        is_new = number not in self._saves
        save = self._saves.setdefault(number, _OpenSave(None if step is None else number, wall_s))
        save.add(source.rank, count, grown)
        self._last = None
        for old in sorted(self._saves)[: -SAVES - 1]:
            del self._saves[old]
        newest = self._saves[max(self._saves)]
        is_whole = len(newest.ranks) >= self._expected(source)
        if not (is_new or is_whole):
            return  # nothing is judged by a part of a save: its slowest ranks may be missing
        in_order = [self._saves[each].save() for each in sorted(self._saves)]
        complete = in_order if is_whole else in_order[:-1]
        self._verdicts.observe(complete, {rank: its.source for rank, its in self._ranks.items()})

    def _expected(self, source: Source) -> int:
        return source.world_size or len(self._ranks)


def _newest(numbers: RankNumbers) -> dict[semconv.Metric, float]:
    return {
        metric: value
        for (metric, _), (value, _) in numbers.values.items()
        if metric in semconv.CHECKPOINT_METRICS
    }
