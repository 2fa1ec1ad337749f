"""The newest of what ranks tell and the collector shows as it is: of GPUs, and of a run's time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from otel_straggler import semconv
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import PassthroughMetric
from otel_straggler.semconv import Metric

KEPT_S: Final = 120.0
"""What was not told again for so long is shown no more: a sensor that is silent has no value."""
_MOST_OF_A_RANK: Final = 100
Series: TypeAlias = tuple[Metric, tuple[str, ...]]
"""A metric, and the values of its attributes in ``semconv.AS_TOLD``."""


@dataclass(slots=True)
class OfRank:
    """What one rank tells.

    Attributes:
        source: newest description.
        values: value and time of arrival of every series.
    """

    source: Source
    values: dict[Series, tuple[float, float]] = field(default_factory=dict)


class ToldNumbers:
    """Owned by the worker's thread; time is an argument. Memory: about 200 bytes a series."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[tuple[str, int], OfRank]] = {}

    def take(self, numbers: Iterable[PassthroughMetric], now_s: float) -> None:
        """Keep the newest of every series. What an older attempt tells is left out."""
        for told in numbers:
            source = told.source
            ranks = self._runs.setdefault(source.run_id, {})
            known = ranks.setdefault((source.group, source.rank), OfRank(source))
            if source.attempt < known.source.attempt:
                continue
            known.source = source
            series = told.metric, told.values
            if series in known.values or len(known.values) < _MOST_OF_A_RANK:
                known.values[series] = told.value, now_s

    def drop_old(self, now_s: float) -> None:
        """Forget series that nobody tells any more."""
        for ranks in self._runs.values():
            for of_rank in ranks.values():
                values = of_rank.values
                for series in [s for s, (_, at_s) in values.items() if now_s - at_s > KEPT_S]:
                    del values[series]

    def forget(self, run_ids: Iterable[str]) -> None:
        for run_id in run_ids:
            self._runs.pop(run_id, None)

    def forget_group(self, run_id: str, group: str) -> None:
        ranks = self._runs.get(run_id, {})
        for key in [key for key in ranks if key[0] == group]:
            del ranks[key]

    def hardware(self, run_id: str) -> list[OfRank]:
        """Ranks that tell of their GPU, by group and number."""
        found = sorted(self._runs.get(run_id, {}).items())
        return [rank for _, rank in found if any(m in _HARDWARE for m, _ in rank.values)]

    def goodput(self, run_id: str) -> Iterator[tuple[Source, Series, float]]:
        """What each group's time went to, by the rank that told it last."""
        newest: dict[str, OfRank] = {}
        for (group, _), rank in sorted(self._runs.get(run_id, {}).items()):
            known = newest.get(group)
            if known is None or _told_at_s(rank) > _told_at_s(known):
                newest[group] = rank
        for rank in newest.values():
            for series, (value, _) in rank.values.items():
                if series[0] in _GOODPUT:
                    yield rank.source, series, value


_HARDWARE: Final = frozenset(semconv.HARDWARE_METRICS)
_GOODPUT: Final = frozenset(semconv.GOODPUT_METRICS)


def _told_at_s(rank: OfRank) -> float:
    """When it last told of its run's time; 0: never."""
    return max((at_s for (m, _), (_, at_s) in rank.values.items() if m in _GOODPUT), default=0.0)
