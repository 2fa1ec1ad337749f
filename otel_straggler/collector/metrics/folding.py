"""The choice of ranks that keep the series of their scores within a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from otel_straggler.collector.metrics.series_choice import QUANTILES
from otel_straggler.model.observation import Bools, Floats, Ints
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores

Sections: TypeAlias = tuple[int, ...]
"""Columns of a window."""
Stragglers: TypeAlias = frozenset[tuple[str, int]]
"""(group, rank) of ranks whose verdict is confirmed or flapping."""
SECTION_SCORES: Final = (
    "section_relative",
    "section_individual",
    "gpu_section_relative",
    "gpu_section_individual",
)
RANK_SCORES: Final = ("gpu_relative", "gpu_individual")
REST: Final = ("section_median_s", "section_slowdown")
COLUMNS: Final = (*SECTION_SCORES, *RANK_SCORES, *REST)
ALWAYS_OVER: Final = ("section_relative", "section_individual", "section_median_s")
"""Always with quantiles, for dashboards and rules: those over 10,000 series would take Prometheus
seconds, and those over the series that are left are not those over all ranks."""
_N_SCORES: Final = len(SECTION_SCORES) + len(RANK_SCORES)
_ALWAYS_SHOWN: Final = 100
"""Flagged ranks that keep their scores in any case."""


@dataclass(frozen=True, slots=True)
class RankScores:
    """Location of the newest scores of a rank."""

    window: WindowScores
    row: int
    scored_at_s: float

    @property
    def source(self) -> Source:
        return self.window.sources[self.row]


Shown: TypeAlias = tuple[RankScores, Sections]


@dataclass(frozen=True, slots=True)
class Folding:
    """
    Attributes:
        scores, rest: (n,) True for ranks that keep these series.
        folded: folded series, by column.
    """

    scores: Bools
    rest: Bools
    folded: dict[str, int]


def folding(shown: Sequence[Shown], budget: int, straggling: Stragglers) -> Folding:
    """Scores first, then the rest; of what does not fit, flagged and worst ranks first."""
    counts = _counts(shown)
    scores, rest = counts[:, :_N_SCORES].sum(axis=1), counts[:, _N_SCORES:].sum(axis=1)
    keeps_scores = keeps_rest = np.ones(len(shown), np.bool_)
    if counts.sum() > budget or budget < 0:
        order, flagged = _worst_first([each for each, _ in shown], straggling)
        always = min(flagged, _ALWAYS_SHOWN)
        n_sections = max((len(sections) for _, sections in shown), default=0)
        n_rest = len(QUANTILES) * n_sections * len(set(REST) - set(ALWAYS_OVER))
        left = budget - int(scores.sum()) - n_rest
        if left >= 0:
            keeps_rest = _fitting(order, rest, left, always)
        else:
            n_tables = sum(
                bool(counts[:, at].any())
                for at, column in enumerate(COLUMNS)
                if column not in (*RANK_SCORES, *ALWAYS_OVER)
            )
            left = budget - len(QUANTILES) * (n_sections * n_tables + len(RANK_SCORES))
            keeps_scores = keeps_rest = _fitting(order, scores + rest, left, always)
    folded = {}
    for at, column in enumerate(COLUMNS):
        keeps = keeps_scores if at < _N_SCORES else keeps_rest
        folded[column] = int(counts[~keeps, at].sum())
    return Folding(keeps_scores, keeps_rest, folded)


def _counts(shown: Sequence[Shown]) -> Ints:
    """(n, columns) series of each rank."""
    known: dict[tuple[int, int], Ints] = {}
    rows = []
    for scores, sections in shown:
        key = id(scores.window), id(sections)
        if key not in known:
            known[key] = _counts_of(scores.window, sections)
        rows.append(known[key][scores.row])
    return np.array(rows, np.int64).reshape(-1, len(COLUMNS))


def _counts_of(window: WindowScores, sections: Sections) -> Ints:
    columns = []
    for name in COLUMNS:
        is_known = np.isfinite(getattr(window, name))
        if is_known.ndim == 2:
            is_known = is_known[:, list(sections)].sum(axis=1)
        columns.append(is_known)
    return np.column_stack(columns).astype(np.int64)


def _worst_first(shown: list[RankScores], straggling: Stragglers) -> tuple[Ints, int]:
    """Order of the ranks, and the number of flagged ones: slow ranks, then listed ones by their
    score, then the others by their lowest relative score."""
    worst: dict[int, Floats] = {}
    listed: dict[int, dict[int, float]] = {}
    for scores in shown:
        window = scores.window
        if id(window) not in worst:
            table = np.column_stack([window.section_relative, window.gpu_relative])
            worst[id(window)] = np.nanmin(
                np.where(np.isnan(table), np.inf, table), axis=1, initial=np.inf
            )
            lowest: dict[int, float] = {}
            for s in window.stragglers:
                lowest[s.source.rank] = min(s.score, lowest.get(s.source.rank, np.inf))
            listed[id(window)] = lowest

    def key(scores: RankScores) -> tuple[int, float]:
        source = scores.source
        listed_at = listed[id(scores.window)].get(source.rank)
        lowest = float(worst[id(scores.window)][scores.row]) if listed_at is None else listed_at
        if (source.group, source.rank) in straggling:
            return 0, lowest
        return 2 if listed_at is None else 1, lowest

    keys = [key(scores) for scores in shown]
    flagged = sum(order < 2 for order, _ in keys)
    return np.array(sorted(range(len(shown)), key=keys.__getitem__), np.int64), flagged


def _fitting(order: Ints, sizes: Ints, left: int, always: int) -> Bools:
    """(n,) True for the first of ``order`` that fit, and for the first ``always`` in any case."""
    is_over = np.cumsum(sizes[order]) > left
    is_over[:always] = False
    keeps = np.zeros(len(order), np.bool_)
    keeps[order[~np.maximum.accumulate(is_over)]] = True
    return keeps
