"""Aggregates of a group's scores, the worst ranks of each section and quantiles, and the choice of
series that are not folded.

Aggregating 10,000 series on a dashboard would take Prometheus seconds per refresh; here it is done
once per window.
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
"""Ranks per section, enough to choose as many over any time: `dashboards.queries.MAX_LINES`."""
_MAX_SERIES: Final = 1_000
"""Worst ranks of a group: with more than 50 sections each has fewer, but at least one. Not part of
a budget, which heartbeats of very many ranks may fill."""


@dataclass(frozen=True, slots=True)
class ShownRows:
    """Ranks of one window, and columns of their sections."""

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
            for row, value in lowest(values, maximum):
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
    families = Families()
    for column, metric in columns.items():
        over = semconv.OVER_RANKS[metric.name]
        for name, parts in _parts(tables, column).items():
            about = f"{label('section', name)},{text}" if name is not None else text
            add_quantiles_of(families, over, about, np.concatenate(parts))
    return families


def add_quantiles_of(families: Families, over: Metric, text: str, values: Floats) -> None:
    """Quantiles of the finite ``values``."""
    known = values[np.isfinite(values)]
    if not len(known):
        return
    for q, value in zip(QUANTILES, np.quantile(known, QUANTILES).tolist(), strict=True):
        families.add(over, label("ranks_below", q) + "," + text, value)


def _parts(tables: Iterable[ShownRows], column: str) -> dict[str | None, list[Floats]]:
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
    """Sections in which a low score means a slow rank, not a victim."""
    for at in shown.sections:
        section = shown.window.sections[at]
        if section.kind in LISTED_KINDS:
            yield section.name, at


def lowest(values: Floats, maximum: int) -> Iterator[tuple[int, float]]:
    """Indexes and values of the lowest finite ``values``, in no order."""
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
    semconv.LAST_HEARTBEAT,  # dashboards list ranks and nodes by it
    semconv.RANK_STATE,
    semconv.RANK_INFO,
    semconv.RANK_STEP,
    semconv.LAST_PROGRESS,
    semconv.RANK_STRAGGLING,
    semconv.RANK_TIMEOUT,
    semconv.RANK_LAST_SCORED,
)
"""One series each per rank; the last is folded first."""
_PART: Final = 0.5
"""Part of the budget for heartbeats; the rest is for verdicts, cells of workers, and scores."""
_ALWAYS_WHOLE: Final = 100
"""Ranks that show all kinds in any case."""


@dataclass(frozen=True, slots=True)
class ShownLife:
    """
    Attributes:
        kinds: shown by every rank.
        whole: ranks that show all kinds; None: all ranks.
    """

    kinds: frozenset[Metric]
    whole: frozenset[RankKey] | None
    n_ranks: int

    def shows(self, metric: Metric, key: RankKey) -> bool:
        return self.whole is None or metric in self.kinds or key in self.whole

    def folded(self, run_id: str, constant_labels: str) -> Families:
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
        trouble: order of ranks; others come last, in a fixed order: series that come and go cost
            Prometheus more than lasting ones.
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
