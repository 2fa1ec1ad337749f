"""Scores of a run as series, within a budget.

Beyond the budget, series are folded: flagged and worst ranks keep theirs, quantiles over all ranks
replace the others, and a metric counts the folded series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from otel_straggler import semconv
from otel_straggler.collector.metrics.families import Families, label, labels, rank_labels
from otel_straggler.collector.metrics.folding import (
    ALWAYS_OVER,
    COLUMNS,
    RANK_SCORES,
    REST,
    SECTION_SCORES,
    RankScores,
    Sections,
    Shown,
    Stragglers,
    folding,
)
from otel_straggler.collector.metrics.series_choice import (
    EVERYTHING,
    RankKey,
    ShownLife,
    ShownRows,
    by_group,
    quantile_families,
    worst_families,
)
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores

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


@dataclass(slots=True)
class _Group:
    """The newest scores of one group, by rank, of windows by step and by time."""

    attempt: int
    by_step: dict[int, RankScores] = field(default_factory=dict)
    by_time: dict[int, RankScores] = field(default_factory=dict)
    newest_by_step: WindowScores | None = None
    newest_by_time: WindowScores | None = None

    @property
    def newest(self) -> WindowScores | None:
        return self.newest_by_step or self.newest_by_time

    @property
    def newest_windows(self) -> list[WindowScores]:
        windows = (self.newest_by_step, self.newest_by_time)
        return [window for window in windows if window is not None]

    def drop(self, is_gone: Callable[[int, RankScores], bool]) -> bool:
        gone = [
            (table, rank)
            for table in (self.by_step, self.by_time)
            for rank, scores in table.items()
            if is_gone(rank, scores)
        ]
        for table, rank in gone:
            del table[rank]
        return bool(gone)


def coverage_of(window: WindowScores) -> float:
    """Part of the ranks of its world that a window has."""
    return len(window.sources) / max(window.world_size, len(window.sources), 1)


class RunScores:
    """The scores of one run. Owned by one thread.

    Attributes:
        scored_at_s: time of each group's last scores, including expired ones.
    """

    def __init__(self, run_id: str, *, keep_s: float) -> None:
        self.run_id = run_id
        self._keep_s = keep_s
        self._groups: dict[str, _Group] = {}
        self.scored_at_s: dict[str, float] = {}

    def observe(self, window: WindowScores, now_s: float) -> None:
        """Add a closed window. Ranks that are not in it keep their scores until they expire."""
        group = self._groups.get(window.group)
        if group is None or window.attempt > group.attempt:
            group = self._groups[window.group] = _Group(window.attempt)
        if window.attempt < group.attempt:
            return
        self.scored_at_s[window.group] = now_s
        if window.first_step is None:
            table, group.newest_by_time = group.by_time, window
        else:
            table, group.newest_by_step = group.by_step, window
        for row, source in enumerate(window.sources):
            table[source.rank] = RankScores(window, row, now_s)

    def keep_only(self, group_name: str, attempt: int, ranks: Iterable[int]) -> bool:
        """Drop older attempts and ranks that left the world; True on a change."""
        group = self._groups.get(group_name)
        if group is None:
            return False
        if group.attempt < attempt:
            del self._groups[group_name]
            return True
        alive = set(ranks)
        return group.drop(lambda rank, _: rank not in alive)

    def drop_group(self, group_name: str) -> None:
        self._groups.pop(group_name, None)
        self.scored_at_s.pop(group_name, None)

    def expire(self, now_s: float) -> bool:
        """Drop old scores; True on a change."""
        limit_s = now_s - self._keep_s
        groups = self._groups.values()
        dropped = [g.drop(lambda _, scores: scores.scored_at_s < limit_s) for g in groups]
        return any(dropped)

    def newest_windows(self) -> list[WindowScores]:
        return [group.newest for group in self._groups.values() if group.newest is not None]

    def newest_of(self, group: str) -> WindowScores | None:
        """The newest closed window of a group."""
        its = self._groups.get(group)
        return None if its is None else its.newest

    def shown_rows(self) -> list[ShownRows]:
        """All scores as tables: what :meth:`families` shows without folding."""
        result: dict[tuple[int, int], ShownRows] = {}
        for scores, sections in self._shown():
            key = id(scores.window), id(sections)
            if key not in result:
                result[key] = ShownRows(scores.window, sections, [])
            result[key].rows.append(scores.row)
        return list(result.values())

    def _shown(self) -> list[Shown]:
        """Scores of every rank with the sections to show: by step, and by time what has no step.
        Ranks of the same windows share the tuple of sections."""
        shown: list[Shown] = []
        known: dict[tuple[int, int], Sections] = {}
        for group in self._groups.values():
            for scores in group.by_step.values():
                key = id(scores.window), 0
                if key not in known:
                    known[key] = tuple(range(len(scores.window.sections)))
                shown.append((scores, known[key]))
            for rank, scores in group.by_time.items():
                stepped = group.by_step.get(rank)
                key = id(scores.window), id(stepped.window) if stepped else 0
                if key not in known:
                    known[key] = _without_step(scores, stepped)
                shown.append((scores, known[key]))
        return shown

    # --- series ----------------------------------------------------------------------------

    def ranks(self) -> list[RankKey]:
        return [(s.group, s.rank) for s in self.sources()]

    def sources(self) -> list[Source]:
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
            budget: maximum number of series. Those about whole ranks and the run are never
                folded; :data:`FOLDABLE` get the rest.
            straggling: slow ranks, which keep their series first.
            life: ranks that show whether they straggle, and when they were scored.
            ahead_s: offset of the wall clock from the clock of the scores.
        """
        families = Families()
        for group in self._groups.values():
            self._add_run(families, group, constant_labels)
        self._add_ranks(families, constant_labels, straggling, life, ahead_s)
        tables = by_group(self.shown_rows())
        for its in tables.values():
            families.extend(worst_families(its, constant_labels))
            self._add_quantiles(families, its, ALWAYS_OVER, constant_labels)
        shown = self._shown()
        kept = folding(shown, budget - len(families) - len(FOLDABLE), straggling)
        for at, (scores, sections) in enumerate(shown):
            columns: tuple[str, ...] = SECTION_SCORES if kept.scores[at] else ()
            columns += REST if kept.rest[at] else ()
            text = f"{rank_labels(scores.source)},{constant_labels}"
            _add_sections(families, scores, sections, columns, text)
            for column in RANK_SCORES if kept.scores[at] else ():
                value = float(getattr(scores.window, column)[scores.row])
                if value == value:  # no NaN
                    families.add(_METRIC[column], text, value)
        reported = [c for c in COLUMNS if kept.folded[c] and c not in ALWAYS_OVER]
        for its in tables.values():
            self._add_quantiles(families, its, reported, constant_labels)
        for metric in FOLDABLE:
            text = labels(run_id=self.run_id, family=metric.prometheus_name)
            folded = sum(n for column, n in kept.folded.items() if _METRIC[column] is metric)
            families.add(semconv.COLLECTOR_SERIES_FOLDED, f"{text},{constant_labels}", folded)
        return families

    def _add_run(self, families: Families, group: _Group, constant_labels: str) -> None:
        newest = group.newest
        if newest is None:
            return
        text = self._group_labels(newest, constant_labels)
        families.add(semconv.RUN_RANKS_REPORTING, text, len(newest.sources))
        families.add(semconv.RUN_COVERAGE, text, coverage_of(newest))
        windows = reversed(group.newest_windows)
        sections = (section for window in windows for section in window.sections)
        for section, kind in {section.name: section.kind for section in sections}.items():
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
        """Whether each rank straggles, and when it was scored. The rank scored last is always
        included, for alerts."""
        for name, group in self._groups.items():
            newest = group.newest_windows
            of_rank = {**group.by_time, **group.by_step}
            last = max(of_rank, key=lambda rank: of_rank[rank].scored_at_s, default=None)
            for rank, scores in of_rank.items():
                text = f"{rank_labels(scores.source)},{constant_labels}"
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
        tables: list[ShownRows],
        columns: Iterable[str],
        constant_labels: str,
    ) -> None:
        text = self._group_labels(tables[0].window, constant_labels)
        of = {column: _METRIC[column] for column in columns}
        families.extend(quantile_families(tables, of, text))

    def _group_labels(self, window: WindowScores, constant_labels: str) -> str:
        text = labels(run_id=self.run_id, job_name=window.job, group=window.group)
        return f"{text},{constant_labels}"


def _without_step(timed: RankScores, stepped: RankScores | None) -> Sections:
    """Sections of a window by time that the rank's window by step lacks."""
    names = {s.name for s in stepped.window.sections} if stepped else set()
    sections = enumerate(timed.window.sections)
    return tuple(i for i, section in sections if section.name not in names)


def _add_sections(
    families: Families, scores: RankScores, sections: Sections, columns: tuple[str, ...], text: str
) -> None:
    window = scores.window
    names = [f"{label('section', window.sections[s].name)},{text}" for s in sections]
    for column in columns:
        values: list[float] = getattr(window, column)[scores.row, list(sections)].tolist()
        for section_text, value in zip(names, values, strict=True):
            if value == value:  # no NaN
                families.add(_METRIC[column], section_text, value)
