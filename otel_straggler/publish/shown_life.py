"""Which ranks show which of their signs of life, within a part of a run's budget of series.

Of a healthy rank among thousands, most of them say nothing that the run as a whole does not say.
So where they do not fit, kinds are folded one by one, but for the ranks that somebody will look at:
those that a hang or a verdict names, then those that are lost, stuck or late. Quantiles over all
ranks stand for what is folded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from otel_straggler import semconv
from otel_straggler.publish.prometheus import Families, labels
from otel_straggler.semconv import Metric

RankKey: TypeAlias = tuple[str, int]
"""Group and rank."""
KINDS: Final = (
    semconv.LAST_HEARTBEAT,  # a page finds ranks and nodes by it
    semconv.RANK_STATE,
    semconv.RANK_INFO,
    semconv.RANK_STEP,
    semconv.LAST_PROGRESS,
    semconv.RANK_STRAGGLING,
    semconv.RANK_TIMEOUT,
    semconv.RANK_LAST_SCORED,
)
"""A series each for every rank; the last is folded first."""
_PART: Final = 0.5
"""Of the budget, for signs of life; the rest is for verdicts, cells of workers, scores."""
_ALWAYS_WHOLE: Final = 100
"""Ranks that show all kinds even where there is no room."""


@dataclass(frozen=True, slots=True)
class ShownLife:
    """Attributes:
    kinds: what every rank shows.
    whole: ranks that show all kinds; None: all ranks do.
    n_ranks: of the run.
    """

    kinds: frozenset[Metric]
    whole: frozenset[RankKey] | None
    n_ranks: int

    def shows(self, metric: Metric, key: RankKey) -> bool:
        return self.whole is None or metric in self.kinds or key in self.whole

    def folded(self, run_id: str, constant_labels: str) -> Families:
        """How many series are left out, by family; nothing where none is."""
        families = Families()
        if self.whole is None:
            return families
        for metric in KINDS:
            if metric not in self.kinds:
                text = labels(run_id=run_id, family=metric.prometheus_name)
                count = self.n_ranks - len(self.whole)
                families.add(semconv.COLLECTOR_SERIES_FOLDED, f"{text},{constant_labels}", count)
        return families


EVERYTHING: Final = ShownLife(frozenset(KINDS), None, 0)


def choose(ranks: Iterable[RankKey], trouble: Mapping[RankKey, int], budget: int) -> ShownLife:
    """As many kinds of every rank as fit, then all kinds of as many ranks as fit.

    Args:
        ranks: of the run.
        trouble: smaller numbers first; ranks that are not in it come last, in their order, so that
            the same ones are shown each time: a series that comes and goes costs Prometheus more
            than one that stays.
        budget: series of the run.

    Cost: O(ranks), and sorting them where they do not fit.

    >>> few = choose([("", r) for r in range(1000)], {("", 777): 0}, 6000)
    >>> len(few.kinds), len(few.whole or ()), few.shows(KINDS[-1], ("", 777))
    (2, 166, True)
    """
    known = list(dict.fromkeys(ranks))
    room = int(budget * _PART)
    if len(known) * len(KINDS) <= room:
        return EVERYTHING
    n_kinds = max(k for k in range(len(KINDS)) if k == 0 or _needs(k, len(known)) <= room)
    n_whole = (room - n_kinds * len(known)) // (len(KINDS) - n_kinds)
    last = max(trouble.values(), default=0) + 1
    worst_first = sorted(known, key=lambda key: (trouble.get(key, last), key))
    whole = frozenset(worst_first[: max(n_whole, _ALWAYS_WHOLE)])
    return ShownLife(frozenset(KINDS[:n_kinds]), whole, len(known))


def _needs(kinds: int, ranks: int) -> int:
    return kinds * ranks + _ALWAYS_WHOLE * (len(KINDS) - kinds)
