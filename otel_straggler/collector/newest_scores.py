"""The lowest of the scores that a run shows, as alerts look at them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from otel_straggler.alerts.rule import Score, Scores
from otel_straggler.model.alert import MAX_NAMED
from otel_straggler.model.observation import Floats
from otel_straggler.model.scores import WindowScores
from otel_straggler.publish.over_ranks import ShownRows, by_group
from otel_straggler.publish.score_series import RunScores
from otel_straggler.semconv import LISTED_KINDS

_Column = Literal["section_relative", "section_individual", "gpu_relative"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestScores:
    """Of one group: when it last got scores, its lowest ones, and its sections of kind "data"."""

    at_s: float | None = None
    lowest: Scores = field(default_factory=Scores)
    data_sections: frozenset[str] = frozenset()


def newest_scores(scores: RunScores) -> dict[str, NewestScores]:
    """By group. Cost: O(ranks * sections), and an object for each of at most 60 scores a group."""
    tables = by_group(scores.shown_rows())
    windows = scores.newest_of_each_kind()
    return {
        group: NewestScores(
            at_s=at_s,
            lowest=_lowest_of(tables.get(group, ())),
            data_sections=_data_sections(w for w in windows if w.group == group),
        )
        for group, at_s in scores.scored_at_s.items()
    }


def _data_sections(windows: Iterable[WindowScores]) -> frozenset[str]:
    sections = (section for window in windows for section in window.sections)
    return frozenset(section.name for section in sections if section.kind == "data")


def _lowest_of(tables: Iterable[ShownRows]) -> Scores:
    tables = tuple(tables)
    return Scores(
        section_relative=_lowest(tables, "section_relative"),
        section_individual=_lowest(tables, "section_individual"),
        gpu_relative=_lowest(tables, "gpu_relative"),
    )


def _lowest(tables: Iterable[ShownRows], column: _Column) -> tuple[Score, ...]:
    found = [score for shown in tables for score in _lowest_in(shown, column)]
    found.sort(key=lambda score: (score.value, score.rank, score.section))
    return tuple(found[:MAX_NAMED])


def _lowest_in(shown: ShownRows, column: _Column) -> Iterator[Score]:
    """The lowest 20 of one window, in no order. Sections of a kind that is never listed have
    low scores because others are slow, so they are left out."""
    window = shown.window
    values: Floats = getattr(window, column)[shown.rows]
    names = [""]
    if values.ndim == 1:
        values = values[:, None]
    else:
        listed = [s for s in shown.sections if window.sections[s].kind in LISTED_KINDS]
        names = [window.sections[s].name for s in listed]
        values = values[:, listed]
    flat = np.where(np.isnan(values), np.inf, values).ravel()
    if len(flat) > MAX_NAMED:
        places = np.argpartition(flat, MAX_NAMED - 1)[:MAX_NAMED]
    else:
        places = np.arange(len(flat))
    for place in places[np.isfinite(flat[places])].tolist():
        source = window.sources[shown.rows[place // len(names)]]
        yield Score(
            rank=source.rank,
            node=source.node,
            role=source.role,
            section=names[place % len(names)],
            value=float(flat[place]),
        )
