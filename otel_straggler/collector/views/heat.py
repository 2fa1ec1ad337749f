"""The matrix of workers, pipeline stages times data ranks: how slow each is, and who is silent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np

from otel_straggler.collector.views.numbers import rounded
from otel_straggler.collector.views.patterns import (
    PATTERN_TEXTS,
    Pattern,
    hot_cells,
    pattern_of,
    text_of,
)
from otel_straggler.collector.views.verdict_json import INDEXES, standing
from otel_straggler.collector.views.world_view import Parallel, RankHeartbeats, RankTable, WorldView
from otel_straggler.detect.hangs.states import LOST
from otel_straggler.detect.verdicts.pipeline import Workers, find_workers
from otel_straggler.model.causes import CAUSES
from otel_straggler.model.observation import Floats, Ints
from otel_straggler.model.rank import Source
from otel_straggler.model.verdict import CALLED_SLOW

Json: TypeAlias = dict[str, Any]
_Cells: TypeAlias = tuple[tuple[int, int, float], ...]
"""Stage, data rank and slowdown of workers."""
_Reported: TypeAlias = tuple[int, str, Parallel]
"""Number, role and place of a rank."""
_MAX_LAYOUTS: Final = 16
CANNOT_REPORT: Final = (
    "Who is slow cannot be told from these times: they are those of launches, or hold the waiting "
    "for others, so all workers look alike. On GPUs, their times (--gpu-timing) tell them apart."
)
ALIKE_AT_WORK: Final = "In the work that is measured all workers are alike."
NOBODY_ELSE: Final = "One rank: there is nobody to compare it with."
NOBODY_NOW: Final = "No worker stands out in the newest steps."


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Where each of R ranks stands.

    Attributes:
        workers: stages, data ranks and the place of each rank.
        row_of: rank number to its place among the R.
        by_rank: a cell is a rank, by its number, because nobody told more.
        has_data: ranks told their place in the data dimension; else they are numbered.
    """

    workers: Workers
    row_of: dict[int, int]
    by_rank: bool = False
    has_data: bool = True

    def index(self, rank: int) -> tuple[int, int] | None:
        """(stage, data rank) of a rank; None if it is not known."""
        row = self.row_of.get(rank)
        if row is None:
            return None
        workers = self.workers
        return (
            workers.stages[int(workers.stage[row])],
            workers.data_ranks[int(workers.data[row])],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Heat:
    """What the matrix of a world shows.

    Attributes:
        layout: where the ranks stand.
        cells: (P, D) slowdowns; NaN = not known.
        section: that they are of; None for all own work.
        pattern: the word.
        text: the same as a sentence.
        silent: (stage, data rank) of whom a hang waits for.
    """

    layout: Layout
    cells: Floats
    section: str | None
    pattern: Pattern
    text: str
    silent: list[list[int]]

    @property
    def stands_out(self) -> bool:
        """Whether somebody sees a worker, a stage or a data rank that is hot."""
        return self.pattern in ("hot_cell", "hot_row", "hot_column")

    def hottest(self) -> tuple[list[int], int, float]:
        """The ranks of the hottest worker, how many are hot, and its slowdown."""
        workers = self.layout.workers
        stage, data = np.unravel_index(np.nanargmax(self.cells), self.cells.shape)
        rows = workers.ranks_of(int(data), int(stage)).tolist()
        rank_of = {row: rank for rank, row in self.layout.row_of.items()}
        ranks = [rank_of[row] for row in rows]
        return ranks, int(hot_cells(self.cells).sum()), float(self.cells[stage, data])


def heat_of(view: WorldView) -> Heat | None:
    """None if nothing is known of any rank. Cost: O(R log R)."""
    layout = layout_of(view.table, view.heartbeats)
    world = view.world
    if layout is None:
        return None
    silent = _silent(view, layout)
    cells, section = _cells(view, layout)
    run_verdicts = {verdict.cause for verdict in standing(view.current) if verdict.scope == "run"}
    moves = any(CAUSES[cause].moves for cause in run_verdicts)
    pattern = pattern_of(
        cells,
        is_silent=view.hang is not None and view.hang.is_hung,
        slowdown=world.slowdown if world is not None and view.has_verdicts else float("nan"),
        moves=moves,
    )
    host = _host_of_all(view, layout, cells) if pattern == "spread" else ""
    if host or (pattern == "spread" and not moves and _are_called(view, cells)):
        pattern = "hot_cell"  # many cells, and one cause, or each its own
    text = text_of(
        pattern,
        cells,
        n_silent=len(silent),
        on_gpu=view.on_gpu,
        is_awaited=_has_victims(view),
    )
    if host:
        text = f"All that are hot are on {host}."
    if section and pattern != "silent":
        text = f"In {section}: {text}"
    if pattern == "even":
        pattern, text = _even(view, text)
    return Heat(layout, cells, section, pattern, text, silent)


def _are_called(view: WorldView, cells: Floats) -> bool:
    """Whether as many ranks as half of the hot workers are called slow: then heat does not move."""
    called = [v for v in standing(view.current) if v.state in CALLED_SLOW and v.scope == "rank"]
    return 2 * len(called) >= int(hot_cells(cells).sum()) > 0


def _even(view: WorldView, text: str) -> tuple[Pattern, str]:
    """What an even matrix means beside a verdict: never that all is well."""
    if len(view.table.ranks if view.table is not None else ()) == 1:
        return "unknown", NOBODY_ELSE
    every = standing(view.current)
    holds_waiting = view.world is not None and view.has_verdicts and view.world.waits_inside
    if holds_waiting or any(not verdict.is_localised for verdict in every):
        return "unknown", CANNOT_REPORT
    stands = [verdict for verdict in every if verdict.scope in INDEXES]
    if any(not CAUSES[verdict.cause].is_in_own_work for verdict in stands):
        return "even", ALIKE_AT_WORK
    return "even", NOBODY_NOW if stands else text


def heat_json(view: WorldView, ranks: Ints | None = None) -> Json:
    """The block ``heat``. Cost: O(R log R).

    Args:
        ranks: those of the picture, ascending.
    """
    heat = heat_of(view)
    if heat is None:
        return _nothing()
    workers = heat.layout.workers
    values = rounded(heat.cells.ravel())
    n_data = len(workers.data_ranks)
    return {
        "stages": list(workers.stages),
        "data_ranks": list(workers.data_ranks),
        "cells": [
            [stage, data, values[p * n_data + d]]
            for p, stage in enumerate(workers.stages)
            for d, data in enumerate(workers.data_ranks)
        ],
        "silent": heat.silent,
        "pattern": heat.pattern,
        "pattern_text": heat.text,
        "section": heat.section,
        "by_rank": heat.layout.by_rank,
        "data_of_rank": _data_of(heat.layout, ranks),
    }


def _data_of(layout: Layout, ranks: Ints | None) -> list[int | None] | None:
    """The data rank of each rank where they are numbered; None where ranks tell it, or are it."""
    if ranks is None or layout.has_data or layout.by_rank:
        return None
    indexes = (layout.index(rank) for rank in ranks.tolist())
    return [None if index is None else index[1] for index in indexes]


def _cells(view: WorldView, layout: Layout) -> tuple[Floats, str | None]:
    """(P, D) slowdowns, and the section that they are of; None for all work together.

    Layer 2 counts compute alone. Where a rank or host is called slow and does not stand out in
    that, what it was called slow for is shown: all own work, or else its section.
    """
    reported = _reported_cells(view, layout)
    whole = _cells_of_window(view.table, layout, None) if reported is None else reported
    slow = next(
        (v for v in standing(view.current) if v.state in CALLED_SLOW and v.scope in INDEXES), None
    )
    if slow is None or view.table is None or hot_cells(whole).any():
        return whole, None
    names = [section.name for section in view.table.sections]
    choices = [None, names.index(slow.section)] if slow.section in names else [None]
    for at in choices:
        cells = _cells_of_window(view.table, layout, at)
        if hot_cells(cells).any():
            return cells, None if at is None else names[at]
    return whole, None


def layout_of(table: RankTable | None, heartbeats: RankHeartbeats | None) -> Layout | None:
    """Where the ranks stand; None if there are none. Ranks of which only some tell a dimension are
    put in one row, by their number."""
    reported: dict[int, _Reported] = {}
    for part in (table, heartbeats):
        if part is None:
            continue
        for each in zip(part.ranks.tolist(), part.roles, part.parallels, strict=True):
            if each[2] or each[0] not in reported:
                reported[each[0]] = each
    return _layout(tuple(reported[rank] for rank in sorted(reported))) if reported else None


@lru_cache(maxsize=_MAX_LAYOUTS)
def _layout(reported: tuple[_Reported, ...]) -> Layout:
    """Of ranks in order. A layout lasts as long as a world, and pictures are made all the time."""
    ranks = [rank for rank, _, _ in reported]
    sources = [Source(run_id="", rank=r, role=role, parallel=index) for r, role, index in reported]
    workers = find_workers(sources)
    has_stages = any("pipeline" in dict(index) for _, _, index in reported)
    has_data = any("data" in dict(index) for _, _, index in reported)
    by_rank = workers is None or (
        not has_data and not has_stages and len(workers.data_ranks) == len(ranks)
    )
    row_of = {rank: row for row, rank in enumerate(ranks)}
    return Layout(
        _one_row(ranks) if workers is None or by_rank else workers, row_of, by_rank, has_data
    )


def _one_row(ranks: Sequence[int]) -> Workers:
    return Workers(
        data=np.arange(len(ranks)),
        stage=np.zeros(len(ranks), np.int64),
        data_ranks=tuple(ranks),
        stages=(0,),
    )


def _reported_cells(view: WorldView, layout: Layout) -> Floats | None:
    """What layer 2 says of each worker; None if it says nothing of this layout."""
    workers = layout.workers
    heat = view.world.heat if view.world is not None and view.has_verdicts else ()
    if not heat:
        return None
    if not layout.has_data:
        heat = _renumbered(heat, view, layout)
    stages = {stage: p for p, stage in enumerate(workers.stages)}
    data_ranks = {data: d for d, data in enumerate(workers.data_ranks)}
    cells = np.full((len(stages), len(data_ranks)), np.nan)
    for stage, data, slowdown in heat:
        if stage in stages and data in data_ranks:
            cells[stages[stage], data_ranks[data]] = slowdown
    return cells if np.isfinite(cells).any() else None


def _renumbered(heat: _Cells, view: WorldView, layout: Layout) -> _Cells:
    """By the numbers of the matrix: layer 2 numbers the ranks that it has times of, and among those
    of the matrix there may be others. Empty if it looked at others than the newest window has."""
    scored = layout_of(view.table, None)
    if scored is None or view.table is None:
        return ()
    numbers = Counter(stage for stage, _, _ in heat)
    of_index: dict[tuple[int, int], int] = {}
    for rank in view.table.ranks.tolist():
        row = scored.row_of[rank]
        stage = scored.workers.stages[int(scored.workers.stage[row])]
        of_index.setdefault((stage, int(scored.workers.data[row])), rank)
    if numbers != Counter(stage for stage, _ in of_index):
        return ()
    moved = []
    for stage, data, slowdown in heat:
        rank = of_index.get((stage, data))
        index = None if rank is None else layout.index(rank)
        if index is not None:
            moved.append((*index, slowdown))
    return tuple(moved)


def _cells_of_window(table: RankTable | None, layout: Layout, section: int | None) -> Floats:
    """Of the newest window, in all or one of its sections: the mean over the ranks of a worker."""
    workers = layout.workers
    n_data, n_stages = workers.shape
    if table is None:
        return np.full((n_stages, n_data), np.nan)
    rows = np.array([layout.row_of[rank] for rank in table.ranks.tolist()], np.int64)
    cell = workers.stage[rows] * n_data + workers.data[rows]
    result = table.slowdowns
    values = result.overall if section is None else result.by_section[:, section]
    known = np.isfinite(values)
    size = n_stages * n_data
    total = np.bincount(cell[known], values[known], size)
    count = np.bincount(cell[known], minlength=size)
    mean = np.full(size, np.nan)
    np.divide(total, count, out=mean, where=count > 0)
    return mean.reshape(n_stages, n_data)


def _silent(view: WorldView, layout: Layout) -> list[list[int]]:
    """The workers of whom nothing is heard, and those for whom a hang waits."""
    result = view.hang
    if result is None or not result.is_hung:
        return []
    ranks = set(result.ranks[result.rank_states == LOST].tolist())
    if result.blame is not None:
        ranks.update(result.ranks[result.blame.culprits].tolist())
    return _distinct(layout.index(rank) for rank in sorted(ranks))


def _host_of_all(view: WorldView, layout: Layout, cells: Floats) -> str:
    """The host that is called slow, if all hot workers have a rank on it; else empty."""
    workers, table = layout.workers, view.table
    hot = {tuple(index) for index in np.argwhere(hot_cells(cells)).tolist()}
    if table is None or not hot:
        return ""
    for verdict in standing(view.current):
        if verdict.scope != "host" or verdict.state not in CALLED_SLOW:
            continue
        rows = [
            layout.row_of[rank]
            for rank, node in zip(table.ranks.tolist(), table.nodes, strict=True)
            if node == verdict.node and rank in layout.row_of
        ]
        if hot <= {(int(workers.stage[row]), int(workers.data[row])) for row in rows}:
            return verdict.node
    return ""


def _has_victims(view: WorldView) -> bool:
    """Whether ranks are seen waiting for those that a hang is put down to."""
    blame = None if view.hang is None else view.hang.blame
    return blame is not None and bool(blame.victims.any())


def _distinct(indexes: Iterable[tuple[int, int] | None]) -> list[list[int]]:
    return [list(index) for index in dict.fromkeys(each for each in indexes if each is not None)]


def _nothing() -> Json:
    return {
        "stages": [],
        "data_ranks": [],
        "cells": [],
        "silent": [],
        "pattern": "unknown",
        "pattern_text": PATTERN_TEXTS["unknown"],
        "section": None,
        "by_rank": True,
        "data_of_rank": None,
    }
