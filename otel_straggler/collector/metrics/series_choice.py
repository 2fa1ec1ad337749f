"""What a group's scores say of all ranks together: the worst few of each section, and quantiles.

A page that chose the worst few among 10,000 ranks, or took a quantile of them, would cost
Prometheus seconds of processor time, at every look of everybody who looks. Here it is made once a
window, from the same scores as the series of ranks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from otel_straggler import semconv
from otel_straggler.collector.metrics.families import Families, label, labels, rank_labels
from otel_straggler.model.observation import Floats
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores
from otel_straggler.semconv import LISTED_KINDS, Metric

QUANTILES: Final = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
MAX_WORST: Final = 20
"""Ranks of a section. Who is among the worst 20 of any moments is so at the moment itself, so 20
are enough to choose as many over any time; see `dashboards.queries.MAX_LINES`."""
_MAX_SERIES: Final = 1_000
"""Of the worst of a group: of more than 50 sections each has fewer, at least one. It is no part of
a budget, which signs of life of very many ranks may fill."""


@dataclass(frozen=True, slots=True)
class ShownRows:
    """Ranks of one window that are shown, and of which sections (by column)."""

    window: WindowScores
    sections: tuple[int, ...]
    rows: list[int]


def by_group(tables: Iterable[ShownRows]) -> dict[str, list[ShownRows]]:
    result: dict[str, list[ShownRows]] = {}
    for shown in tables:
        result.setdefault(shown.window.group, []).append(shown)
    return result


def worst_families(tables: Collection[ShownRows], constant_labels: str) -> Families:
    """The lowest relative scores of each section of one group, over its tables.

    Cost: O(ranks * sections), and a line for each of the few.
    """
    n_sections = len({name for shown in tables for name, _ in _listed(shown)})
    maximum = max(1, min(MAX_WORST, _MAX_SERIES // max(n_sections, 1)))
    result: dict[str, list[tuple[float, int, Source]]] = {}
    for shown in tables:
        for name, column in _listed(shown):
            values = shown.window.section_relative[shown.rows, column]
            for row, value in _lowest(values, maximum):
                source = shown.window.sources[shown.rows[row]]
                result.setdefault(name, []).append((value, source.rank, source))
    families = Families()
    for name, scores in result.items():
        for value, _, source in sorted(scores, key=lambda score: score[:2])[:maximum]:
            text = f"{label('section', name)},{rank_labels(source)},{constant_labels}"
            families.add(semconv.SECTION_WORST, text, value)
    return families


def quantile_families(
    tables: Collection[ShownRows], columns: dict[str, Metric], text: str
) -> Families:
    """Quantiles of what the ranks of one group show.

    Args:
        columns: name of a table in a window, and the metric that its series are of.
        text: labels of the run and the group.
    """
    families = Families()
    for column, metric in columns.items():
        over = semconv.OVER_RANKS[metric.name]
        for name, parts in _parts(tables, column).items():
            about = f"{label('section', name)},{text}" if name is not None else text
            add_quantiles_of(families, over, about, np.concatenate(parts))
    return families


def add_quantiles_of(families: Families, over: Metric, text: str, values: Floats) -> None:
    """Quantiles of what is known of ``values``; nothing if that is nothing."""
    known = values[np.isfinite(values)]
    if not len(known):
        return
    for q, value in zip(QUANTILES, np.quantile(known, QUANTILES).tolist(), strict=True):
        families.add(over, label("ranks_below", q) + "," + text, value)


def _parts(tables: Iterable[ShownRows], column: str) -> dict[str | None, list[Floats]]:
    """The values of a table, by section; None: of whole ranks."""
    result: dict[str | None, list[Floats]] = {}
    for shown in tables:
        values: Floats = getattr(shown.window, column)[shown.rows]
        if values.ndim == 1:
            result.setdefault(None, []).append(values)
            continue
        for at in shown.sections:
            result.setdefault(shown.window.sections[at].name, []).append(values[:, at])
    return result


def _listed(shown: ShownRows) -> Iterator[tuple[str, int]]:
    """Sections whose low scores tell of a slow rank: elsewhere those are victims."""
    for at in shown.sections:
        section = shown.window.sections[at]
        if section.kind in LISTED_KINDS:
            yield section.name, at


def _lowest(values: Floats, maximum: int) -> Iterator[tuple[int, float]]:
    """Places and values of the lowest that are known, in no order."""
    known = np.where(np.isfinite(values), values, np.inf)
    indexes = (
        np.argpartition(known, maximum - 1)[:maximum]
        if len(known) > maximum
        else np.arange(len(known))
    )
    for index in indexes[np.isfinite(known[indexes])].tolist():
        yield index, float(known[index])


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
