"""Scores of a run as series, within a budget.

Only numbers are kept; lines are formatted for what is shown. What does not fit is folded: of the
ranks, those that are flagged and the worst keep their series, and quantiles over all ranks stand
for the others. A metric says how many series are folded, so nothing is missing in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from otel_straggler import semconv
from otel_straggler.collector.metrics.families import Families, label, labels, rank_labels
from otel_straggler.collector.metrics.series_choice import (
    EVERYTHING,
    QUANTILES,
    RankKey,
    ShownLife,
    ShownRows,
    by_group,
    quantile_families,
    worst_families,
)
from otel_straggler.model.observation import Floats, Ints
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores

Sections: TypeAlias = tuple[int, ...]
"""Which sections of a window are meant, by column."""
Stragglers: TypeAlias = frozenset[tuple[str, int]]
"""(group, rank) of ranks whose verdict is confirmed or flapping."""

_ALWAYS_SHOWN = 100
"""Flagged ranks that keep their scores even where liveness alone fills the budget."""

_SECTION_SCORES = (
    "section_relative",
    "section_individual",
    "gpu_section_relative",
    "gpu_section_individual",
)
_RANK_SCORES = ("gpu_relative", "gpu_individual")
_REST = ("section_median_s", "section_slowdown")
_COLUMNS = (*_SECTION_SCORES, *_RANK_SCORES, *_REST)
"""Tables of a window that are shown, by name: those by section, and those of whole ranks."""
_METRIC = {
    "section_relative": semconv.SECTION_RELATIVE,
    "section_individual": semconv.SECTION_INDIVIDUAL,
    "section_median_s": semconv.SECTION_MEDIAN,
    "section_slowdown": semconv.SECTION_SLOWDOWN,
    "gpu_relative": semconv.GPU_RELATIVE,
    "gpu_individual": semconv.GPU_INDIVIDUAL,
    "gpu_section_relative": semconv.GPU_RELATIVE,
    "gpu_section_individual": semconv.GPU_INDIVIDUAL,
}
FOLDABLE = tuple(dict.fromkeys(_METRIC.values()))
_ALWAYS_OVER = ("section_relative", "section_median_s")
"""Of these the quantiles are told whether ranks are folded or not: pages read them, because those
of 10,000 series would cost Prometheus seconds."""


@dataclass(frozen=True, slots=True)
class _RankScores:
    """Where the newest scores of a rank stand."""

    window: WindowScores
    row: int
    scored_at_s: float

    @property
    def source(self) -> Source:
        return self.window.sources[self.row]


@dataclass(slots=True)
class _Group:
    """The newest scores of one group, by step windows and by time windows."""

    attempt: int
    by_step: dict[int, _RankScores] = field(default_factory=dict)
    by_time: dict[int, _RankScores] = field(default_factory=dict)
    newest_by_step: WindowScores | None = None
    newest_by_time: WindowScores | None = None

    @property
    def newest(self) -> WindowScores | None:
        """The newest window; windows by step are preferred."""
        return self.newest_by_step or self.newest_by_time

    def kinds_of_sections(self) -> dict[str, str]:
        """By name, of the newest windows."""
        windows = (self.newest_by_time, self.newest_by_step)
        sections = (section for window in windows if window for section in window.sections)
        return {section.name: section.kind for section in sections}

    @property
    def kinds(self) -> tuple[dict[int, _RankScores], dict[int, _RankScores]]:
        return self.by_step, self.by_time


class RunScores:
    """What one run shows of its scores. One thread owns it."""

    def __init__(self, run_id: str, *, keep_s: float) -> None:
        self.run_id = run_id
        self._keep_s = keep_s
        self._groups: dict[str, _Group] = {}
        self._scored_at_s: dict[str, float] = {}

    def take(self, window: WindowScores, now_s: float) -> None:
        """Show a closed window. Ranks that are not in it keep their last scores for a while."""
        group = self._groups.get(window.group)
        if group is None or window.attempt > group.attempt:
            group = self._groups[window.group] = _Group(window.attempt)
        if window.attempt < group.attempt:
            return
        self._scored_at_s[window.group] = now_s
        if window.first_step is None:
            table, group.newest_by_time = group.by_time, window
        else:
            table, group.newest_by_step = group.by_step, window
        for row, source in enumerate(window.sources):
            table[source.rank] = _RankScores(window, row, now_s)

    def keep_only(self, group_name: str, attempt: int, ranks: Iterable[int]) -> bool:
        """Forget older attempts and ranks that are no longer in the world; True on a change."""
        group = self._groups.get(group_name)
        if group is None:
            return False
        if group.attempt < attempt:
            del self._groups[group_name]
            return True
        alive = set(ranks)
        gone = [(t, rank) for t in group.kinds for rank in t if rank not in alive]
        for table, rank in gone:
            del table[rank]
        return bool(gone)

    def drop_group(self, group_name: str) -> None:
        self._groups.pop(group_name, None)
        self._scored_at_s.pop(group_name, None)

    def expire(self, now_s: float) -> bool:
        """Drop scores that nothing has renewed for long; True on a change."""
        limit_s = now_s - self._keep_s
        changed = False
        for group in self._groups.values():
            for table in group.kinds:
                for rank in [r for r, scores in table.items() if scores.scored_at_s < limit_s]:
                    del table[rank]
                    changed = True
        return changed

    def newest_windows(self) -> list[WindowScores]:
        """The newest closed window of every group."""
        return [group.newest for group in self._groups.values() if group.newest is not None]

    def newest_of_each_kind(self) -> list[WindowScores]:
        """The newest closed windows of every group, by step and by time."""
        windows = ((g.newest_by_step, g.newest_by_time) for g in self._groups.values())
        return [window for both in windows for window in both if window is not None]

    @property
    def scored_at_s(self) -> Mapping[str, float]:
        """When each group last got scores, also if they are no longer shown."""
        return self._scored_at_s

    def shown_rows(self) -> list[ShownRows]:
        """Everything that has scores, as tables: what :meth:`families` shows within no budget."""
        result: dict[tuple[int, int], ShownRows] = {}
        for group in self._groups.values():
            for scores in group.by_step.values():
                key = id(scores.window), 0
                if key not in result:
                    every = tuple(range(len(scores.window.sections)))
                    result[key] = ShownRows(scores.window, every, [])
                result[key].rows.append(scores.row)
            for rank, scores in group.by_time.items():
                stepped = group.by_step.get(rank)
                key = id(scores.window), id(stepped.window) if stepped else 0
                if key not in result:
                    result[key] = ShownRows(scores.window, _without_step(scores, stepped), [])
                result[key].rows.append(scores.row)
        return list(result.values())

    # --- series ----------------------------------------------------------------------------

    def ranks(self) -> list[RankKey]:
        """Every rank that has scores."""
        return [(s.group, s.rank) for s in self.sources()]

    def sources(self) -> list[Source]:
        """Every rank that has scores, as it was when they were made."""
        return [
            scores.source
            for group in self._groups.values()
            for scores in {**group.by_time, **group.by_step}.values()
        ]

    def families(
        self,
        constant_labels: str,
        budget: int,
        straggling: Stragglers = frozenset(),
        life: ShownLife = EVERYTHING,
        ahead_s: float = 0.0,
    ) -> Families:
        """All series of the run's scores.

        Args:
            constant_labels: label text that ends every line.
            budget: series that may be shown. Those about whole ranks and the run are never
                folded; :data:`FOLDABLE` get what they leave.
            straggling: the ranks that layer 2 calls slow; they keep their series first.
            life: which ranks show whether they straggle, and when they were scored.
            ahead_s: what the wall clock shows beyond the one by which they were scored.
        """
        families = Families()
        for name, group in self._groups.items():
            self._add_run(families, name, group, constant_labels)
        self._add_ranks(families, constant_labels, straggling, life, ahead_s)
        tables = by_group(self.shown_rows())
        for name, its in tables.items():
            families.extend(worst_families(its, constant_labels))
            self._add_quantiles(families, name, its, _ALWAYS_OVER, constant_labels)
        shown = self._shown()
        left = budget - len(families) - len(FOLDABLE)
        folding = _Folding.choose(shown, left, straggling)
        for scores, sections in shown:
            _add_scores(families, scores, sections, folding, self._tail(constant_labels, scores))
        reported = [c for c in _COLUMNS if folding.folded[c] and c not in _ALWAYS_OVER]
        for name, its in tables.items():
            self._add_quantiles(families, name, its, reported, constant_labels)
        for metric in FOLDABLE:
            texts = labels(run_id=self.run_id, family=metric.prometheus_name), constant_labels
            folded = sum(n for column, n in folding.folded.items() if _METRIC[column] is metric)
            families.add(semconv.COLLECTOR_SERIES_FOLDED, ",".join(texts), folded)
        return families

    def _shown(self) -> list[tuple[_RankScores, Sections]]:
        """Scores of every rank with the sections to show: by step, and by time what has no step."""
        shown = []
        all_of: dict[int, Sections] = {}
        for group in self._groups.values():
            for scores in group.by_step.values():
                window = scores.window
                every = all_of.setdefault(id(window), tuple(range(len(window.sections))))
                shown.append((scores, every))
            for rank, scores in group.by_time.items():
                shown.append((scores, _without_step(scores, group.by_step.get(rank))))
        return shown

    def _tail(self, constant_labels: str, scores: _RankScores) -> str:
        source = scores.source
        return rank_labels(source) + "," + constant_labels

    def _add_run(self, families: Families, name: str, group: _Group, constant_labels: str) -> None:
        newest = group.newest
        if newest is None:
            return
        text = labels(run_id=self.run_id, job_name=newest.job, group=name) + "," + constant_labels
        reporting = len(newest.sources)
        expected = max(newest.world_size, reporting, 1)
        families.add(semconv.RUN_RANKS_REPORTING, text, reporting)
        families.add(semconv.RUN_COVERAGE, text, reporting / expected)
        for section, kind in group.kinds_of_sections().items():
            about = labels(section=section, kind=kind)
            families.add(semconv.SECTION_INFO, f"{about},{text}", 1)

    def _add_ranks(
        self,
        families: Families,
        constant_labels: str,
        straggling: Stragglers,
        life: ShownLife,
        ahead_s: float,
    ) -> None:
        """Per rank: whether it straggles, and when it was scored. One that was scored last is
        always among them: alerts look at the newest."""
        for name, group in self._groups.items():
            newest = (group.newest_by_step, group.newest_by_time)
            of_rank = {**group.by_time, **group.by_step}
            last = max(of_rank, key=lambda rank: of_rank[rank].scored_at_s, default=None)
            for rank, scores in of_rank.items():
                text = self._tail(constant_labels, scores)
                if rank == last or life.shows(semconv.RANK_LAST_SCORED, (name, rank)):
                    families.add(semconv.RANK_LAST_SCORED, text, scores.scored_at_s + ahead_s)
                is_slow = (name, rank) in straggling
                is_new = any(scores.window is window for window in newest)
                shows_it = is_new and life.shows(semconv.RANK_STRAGGLING, (name, rank))
                if is_slow or shows_it:
                    families.add(semconv.RANK_STRAGGLING, text, int(is_slow))

    def _add_quantiles(
        self,
        families: Families,
        name: str,
        tables: list[ShownRows],
        columns: Iterable[str],
        constant_labels: str,
    ) -> None:
        job = tables[0].window.job
        text = labels(run_id=self.run_id, job_name=job, group=name) + "," + constant_labels
        of = {column: _METRIC[column] for column in columns}
        families.extend(quantile_families(tables, of, text))


def _without_step(timed: _RankScores, stepped: _RankScores | None) -> Sections:
    """Sections of a window by time which the rank's window by step does not have."""
    names = {s.name for s in stepped.window.sections} if stepped else set()
    sections = enumerate(timed.window.sections)
    return tuple(i for i, section in sections if section.name not in names)


@dataclass(slots=True)
class _Folding:
    """Which ranks keep their series.

    Attributes:
        scores, rest: rows (``id`` of a :class:`_RankScores`) that are shown; None = all.
        folded: series left out, by column.
    """

    scores: frozenset[int] | None
    rest: frozenset[int] | None
    folded: dict[str, int]

    @classmethod
    def choose(
        cls, shown: list[tuple[_RankScores, Sections]], budget: int, straggling: Stragglers
    ) -> _Folding:
        """Scores first, then the rest; within what does not fit, flagged and worst ranks first."""
        counter = _Counter()
        counts = {
            c: np.array([counter.count(c, s, rows) for s, rows in shown], np.int64)
            for c in _COLUMNS
        }
        scores = _sum_of(counts, (*_SECTION_SCORES, *_RANK_SCORES))
        rest = _sum_of(counts, _REST)
        ids = [id(s) for s, _ in shown]
        if sum(scores) + sum(rest) <= budget:
            return cls(None, None, dict.fromkeys(_COLUMNS, 0))
        order, flagged = _worst_first([s for s, _ in shown], straggling)
        always = min(flagged, _ALWAYS_SHOWN)
        sections = max((len(rows) for _, rows in shown), default=0)
        of_rest = len(QUANTILES) * sections * len(set(_REST) - set(_ALWAYS_OVER))
        if sum(scores) + of_rest <= budget:
            left = budget - sum(scores) - of_rest
            kept = _fitting(order, rest, left, always)
            rest_ids = frozenset(ids[i] for i in kept)
            folded = _left_out(counts, _REST, kept, len(ids))
            return cls(None, rest_ids, folded)
        tables = sum(
            bool(counts[column].any())
            for column in (*_SECTION_SCORES, *_REST)
            if column not in _ALWAYS_OVER
        )
        left = budget - len(QUANTILES) * (sections * tables + len(_RANK_SCORES))
        kept = _fitting(order, [a + b for a, b in zip(scores, rest, strict=True)], left, always)
        kept_ids = frozenset(ids[i] for i in kept)
        return cls(kept_ids, kept_ids, _left_out(counts, _COLUMNS, kept, len(ids)))


def _sum_of(counts: Mapping[str, Ints], chosen: Iterable[str]) -> list[int]:
    """Series per row, over the chosen columns."""
    columns = [counts[column].tolist() for column in chosen]
    return [sum(row) for row in zip(*columns, strict=True)]


def _left_out(
    counts: Mapping[str, Ints],
    folded: Iterable[str],
    kept: list[int],
    n: int,
) -> dict[str, int]:
    out = np.ones(n, bool)
    out[kept] = False
    return {
        column: int(series[out].sum()) if column in folded else 0
        for column, series in counts.items()
    }


def _worst_first(shown: list[_RankScores], straggling: Stragglers) -> tuple[list[int], int]:
    """Ranks that straggle, then those that are listed, by their score, then the others by their
    lowest relative score; and how many straggle or are listed."""
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

    def key(i: int) -> tuple[int, float]:
        window, row = shown[i].window, shown[i].row
        source = window.sources[row]
        listed_at = listed[id(window)].get(source.rank)
        lowest = float(worst[id(window)][row]) if listed_at is None else listed_at
        if (source.group, source.rank) in straggling:
            return 0, lowest
        return 2 if listed_at is None else 1, lowest

    keys = [key(i) for i in range(len(shown))]
    flagged = sum(order < 2 for order, _ in keys)
    return sorted(range(len(shown)), key=keys.__getitem__), flagged


def _fitting(order: list[int], sizes: list[int], left: int, always: int) -> list[int]:
    """The first of ``order`` that fit, and the first ``always`` whether they fit or not."""
    kept = []
    for index, i in enumerate(order):
        left -= sizes[i]
        if left < 0 and index >= always:
            break
        kept.append(i)
    return kept


class _Counter:
    """Counts the series of a rank, window by window."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str, Sections], list[int]] = {}

    def count(self, column: str, scores: _RankScores, sections: Sections) -> int:
        key = (id(scores.window), column, sections)
        known = self._known.get(key)
        if known is None:
            finite = np.isfinite(getattr(scores.window, column))
            rows = finite[:, list(sections)].sum(axis=1) if finite.ndim == 2 else finite
            known = self._known[key] = rows.astype(np.int64).tolist()
        return known[scores.row]


def _add_scores(
    families: Families, scores: _RankScores, sections: Sections, folding: _Folding, text: str
) -> None:
    window, row = scores.window, scores.row
    shows_scores = folding.scores is None or id(scores) in folding.scores
    shows_rest = folding.rest is None or id(scores) in folding.rest
    columns = (_SECTION_SCORES if shows_scores else ()) + (_REST if shows_rest else ())
    names = [label("section", window.sections[s].name) + "," + text for s in sections]
    for column in columns:
        values: list[float] = getattr(window, column)[row, list(sections)].tolist()
        for section_text, value in zip(names, values, strict=True):
            if value == value:  # no NaN
                families.add(_METRIC[column], section_text, value)
    for column in _RANK_SCORES if shows_scores else ():
        value = float(getattr(window, column)[row])
        if value == value:
            families.add(_METRIC[column], text, value)
