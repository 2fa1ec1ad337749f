"""The matrix of workers, pipeline stages by data ranks: their slowdowns, and who is silent."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from otel_straggler.collector.views.numbers import rounded
from otel_straggler.collector.views.patterns import (
    PATTERN_TEXTS,
    Pattern,
    hot_cells,
    pattern_of,
    text_of,
)
from otel_straggler.collector.views.verdict_json import SUBJECTS, standing
from otel_straggler.collector.views.world_view import Parallel, RankHeartbeats, RankTable, WorldView
from otel_straggler.detect.hangs.states import LOST
from otel_straggler.detect.verdicts.pipeline import Workers, find_workers
from otel_straggler.model.causes import CAUSES
from otel_straggler.model.observation import Floats, Ints
from otel_straggler.model.rank import Source
from otel_straggler.model.verdict import CALLED_SLOW, Verdict

Json: TypeAlias = dict[str, Any]
_Cells: TypeAlias = tuple[tuple[int, int, float], ...]
"""Stage, data rank, and slowdown of workers."""
_Reported: TypeAlias = tuple[int, str, Parallel]
"""Rank, role, and place."""
Base: TypeAlias = Literal["step", "peers"]
"""What 1.0 is: a step in which all workers take the mean (a cell is then the step if only its
worker were as it is), or the time of the peers."""
_MAX_LAYOUTS: Final = 16
CANNOT_REPORT: Final = (
    "These times do not show which worker is slow: they are times of kernel launches, or include "
    "waiting for others. Waiting in collectives, if ranks report it, or GPU times show it."
)
ALIKE_AT_WORK: Final = "In the measured work all workers are alike."
_NOBODY_ELSE: Final = "One rank: there is no peer to compare it with."
NOBODY_NOW: Final = "No worker stands out in the newest steps."


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Positions of R ranks in the matrix.

    Attributes:
        workers: stages, data ranks, and the position of each rank.
        row_of: rank number to its row among the R.
        by_rank: each cell is one rank, by number, because no layout was reported.
        has_data: ranks reported their place in the data dimension; else they are numbered.
    """

    workers: Workers
    row_of: dict[int, int]
    by_rank: bool
    has_data: bool

    def index(self, rank: int) -> tuple[int, int] | None:
        """(stage, data rank) of a rank; None if unknown."""
        cell = self.cell(rank)
        return cell and (self.workers.stages[cell[0]], self.workers.data_ranks[cell[1]])

    def cell(self, rank: int) -> tuple[int, int] | None:
        """Row and column of a rank; None if unknown."""
        row = self.row_of.get(rank)
        if row is None:
            return None
        return int(self.workers.stage[row]), int(self.workers.data[row])


@dataclass(frozen=True, slots=True, eq=False)
class Heat:
    """The matrix of a world.

    Attributes:
        cells: (P, D) slowdowns; NaN = unknown.
        section: of the slowdowns; None for all own work.
        base: what the slowdowns are compared with.
        silent: (stage, data rank) of silent workers and of culprits of a hang.
    """

    layout: Layout
    cells: Floats
    section: str | None
    base: Base
    pattern: Pattern
    text: str
    silent: list[list[int]]

    @property
    def stands_out(self) -> bool:
        return self.pattern in ("hot_cell", "hot_row", "hot_column")

    def hottest(self) -> tuple[list[int], int, float]:
        """The ranks of the hottest worker, the number of hot workers, and its slowdown."""
        workers = self.layout.workers
        stage, data = np.unravel_index(np.nanargmax(self.cells), self.cells.shape)
        rows = workers.ranks_of(int(data), int(stage)).tolist()
        rank_of = {row: rank for rank, row in self.layout.row_of.items()}
        ranks = [rank_of[row] for row in rows]
        return ranks, int(hot_cells(self.cells).sum()), float(self.cells[stage, data])


def heat_of(view: WorldView) -> Heat | None:
    """None if no rank is known. Cost: O(R log R)."""
    layout = layout_of(view.table, view.heartbeats)
    world = view.world
    if layout is None:
        return None
    silent = _silent(view, layout)
    stands = standing(view.current)
    cells, section, base = _cells(view, layout)
    moves = any(CAUSES[verdict.cause].moves for verdict in stands if verdict.scope == "run")
    pattern = pattern_of(
        cells,
        is_silent=view.is_hung,
        slowdown=world.slowdown if world is not None and view.has_verdicts else float("nan"),
        moves=moves,
    )
    host = _host_of_all(view, layout, cells) if pattern == "spread" else ""
    if host or (pattern == "spread" and not moves and _are_called(view, cells)):
        pattern = "hot_cell"  # many cells, and one cause, or each its own
    blame = None if view.hang is None else view.hang.blame
    is_awaited = blame is not None and bool(blame.victims.any())
    n_silent = len(silent)
    text = text_of(pattern, cells, n_silent=n_silent, on_gpu=view.on_gpu, is_awaited=is_awaited)
    if host:
        text = f"All hot workers are on {host}."
    if pattern == "spread" and not hot_cells(cells).any():  # time is lost, and no cell shows where
        pattern, text = ("spread", "") if moves else _even(view, "")
    elif pattern == "even":
        pattern, text = _even(view, text)
    if section and text and pattern != "silent":
        text = f"In {section}: {text}"
    return Heat(layout, cells, section, base, pattern, text, silent)


def _are_called(view: WorldView, cells: Floats) -> bool:
    """True if as many ranks as half of the hot workers are slow: then the heat does not move."""
    called = [v for v in standing(view.current) if v.state in CALLED_SLOW and v.scope == "rank"]
    return 2 * len(called) >= int(hot_cells(cells).sum()) > 0


def _even(view: WorldView, text: str) -> tuple[Pattern, str]:
    """Interpret an even matrix, given the verdicts: never as an all-clear."""
    if view.table is not None and len(view.table.ranks) == 1:
        return "unknown", _NOBODY_ELSE
    every = standing(view.current)
    holds_waiting = view.world is not None and view.has_verdicts and view.world.hides_waiting
    if holds_waiting or any(not verdict.is_localised for verdict in every):
        return "unknown", CANNOT_REPORT
    stands = [verdict for verdict in every if verdict.scope in SUBJECTS]
    if any(not CAUSES[verdict.cause].is_in_own_work for verdict in stands):
        return "even", ALIKE_AT_WORK
    return "even", NOBODY_NOW if stands else text


def heat_json(view: WorldView, ranks: Ints | None = None) -> Json:
    """The block ``heat``. Cost: O(R log R)."""
    heat = heat_of(view)
    if heat is None:
        return {
            "stages": [],
            "data_ranks": [],
            "cells": [],
            "silent": [],
            "pattern": "unknown",
            "pattern_text": PATTERN_TEXTS["unknown"],
            "section": None,
            "base": "peers",
            "by_rank": True,
            "data_of_rank": None,
        }
    workers = heat.layout.workers
    places = itertools.product(workers.stages, workers.data_ranks)
    values = rounded(heat.cells.ravel())
    return {
        "stages": list(workers.stages),
        "data_ranks": list(workers.data_ranks),
        "cells": [[*place, value] for place, value in zip(places, values, strict=True)],
        "silent": heat.silent,
        "pattern": heat.pattern,
        "pattern_text": heat.text,
        "section": heat.section,
        "base": heat.base,
        "by_rank": heat.layout.by_rank,
        "data_of_rank": _data_of(heat.layout, ranks),
    }


def _data_of(layout: Layout, ranks: Ints | None) -> list[int | None] | None:
    """The data rank of each rank where those are numbered; else None."""
    if ranks is None or layout.has_data or layout.by_rank:
        return None
    indexes = (layout.index(rank) for rank in ranks.tolist())
    return [None if index is None else index[1] for index in indexes]


def _cells(view: WorldView, layout: Layout) -> tuple[Floats, str | None, Base]:
    """(P, D) slowdowns, their section (None for all work), and what they are compared with.

    Where a rank or host is called slow, they are as its verdict states them: own time against the
    peers, in its section, as far as it stands out there or in all own work in the newest window.
    """
    slow = _slow_subject(view)
    if slow is not None and view.table is not None:
        names = [section.name for section in view.table.sections]
        choices = [names.index(slow.section), None] if slow.section in names else [None]
        for at in choices:
            cells = _cells_of_window(view.table, layout, at, slowest=True)
            if hot_cells(cells).any():
                return cells, None if at is None else names[at], "peers"
    reported = _reported_cells(view, layout)
    if reported is None:
        return _cells_of_window(view.table, layout, None), None, "peers"
    return reported, None, "step"


def _slow_subject(view: WorldView) -> Verdict | None:
    """The costliest rank or host that is called slow; None if none is."""
    slow = (v for v in standing(view.current) if v.state in CALLED_SLOW and v.scope in SUBJECTS)
    return next(slow, None)


def layout_of(table: RankTable | None, heartbeats: RankHeartbeats | None) -> Layout | None:
    """None without ranks. If only some ranks report a dimension, all are in one row, by number."""
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
    ranks = [rank for rank, _, _ in reported]
    sources = [Source(run_id="", rank=r, role=role, parallel=index) for r, role, index in reported]
    workers = find_workers(sources)
    has_stages = any("pipeline" in dict(index) for _, _, index in reported)
    has_data = any("data" in dict(index) for _, _, index in reported)
    by_rank = workers is None or (
        not has_data and not has_stages and len(workers.data_ranks) == len(ranks)
    )
    if workers is None or by_rank:  # one row
        columns, rows = np.arange(len(ranks)), np.zeros(len(ranks), np.int64)
        workers = Workers(data=columns, stage=rows, data_ranks=tuple(ranks), stages=(0,))
    row_of = {rank: row for row, rank in enumerate(ranks)}
    return Layout(workers, row_of, by_rank, has_data)


def _reported_cells(view: WorldView, layout: Layout) -> Floats | None:
    """Slowdowns of the verdict engine; None if it has none for this layout."""
    workers = layout.workers
    heat = view.world.heat if view.world is not None and view.has_verdicts else ()
    if not heat:
        return None
    if not layout.has_data:
        heat = _renumbered(heat, view, layout)
    known = {(stage, data): slowdown for stage, data, slowdown in heat}
    cells = np.array(
        [[known.get((s, d), np.nan) for d in workers.data_ranks] for s in workers.stages]
    )
    return cells if np.isfinite(cells).any() else None


def _renumbered(heat: _Cells, view: WorldView, layout: Layout) -> _Cells:
    """Renumber the data ranks of verdicts, which count only ranks with times, as in the matrix.
    Empty if the verdicts are about other ranks than the newest window."""
    scored = layout_of(view.table, None)
    if scored is None or view.table is None:
        return ()
    index_of: dict[tuple[int, int], tuple[int, int] | None] = {}
    for rank in view.table.ranks.tolist():
        cell = scored.cell(rank)
        assert cell is not None
        index_of.setdefault((scored.workers.stages[cell[0]], cell[1]), layout.index(rank))
    if Counter(stage for stage, _, _ in heat) != Counter(stage for stage, _ in index_of):
        return ()
    indexes = ((index_of.get((stage, data)), slowdown) for stage, data, slowdown in heat)
    return tuple((*index, slowdown) for index, slowdown in indexes if index is not None)


def _cells_of_window(
    table: RankTable | None, layout: Layout, section: int | None, *, slowest: bool = False
) -> Floats:
    """Mean over the ranks of each worker, or its slowest rank, in the newest window, of all or one
    of its sections."""
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
    if slowest:
        highest = np.full(size, -np.inf)
        np.maximum.at(highest, cell[known], values[known])
        return np.where(np.isfinite(highest), highest, np.nan).reshape(n_stages, n_data)
    total = np.bincount(cell[known], values[known], size)
    count = np.bincount(cell[known], minlength=size)
    mean = np.full(size, np.nan)
    np.divide(total, count, out=mean, where=count > 0)
    return mean.reshape(n_stages, n_data)


def _silent(view: WorldView, layout: Layout) -> list[list[int]]:
    hang = view.hang
    if hang is None or not hang.is_hung:
        return []
    ranks = set(hang.ranks[hang.rank_states == LOST].tolist())
    if hang.blame is not None:
        ranks.update(hang.ranks[hang.blame.culprits].tolist())
    indexes = (layout.index(rank) for rank in sorted(ranks))
    return [list(index) for index in dict.fromkeys(each for each in indexes if each is not None)]


def _host_of_all(view: WorldView, layout: Layout, cells: Floats) -> str:
    """The slow host, if all hot workers have a rank on it; else empty."""
    table = view.table
    hot = {tuple(index) for index in np.argwhere(hot_cells(cells)).tolist()}
    if table is None or not hot:
        return ""
    for verdict in standing(view.current):
        if verdict.scope != "host" or verdict.state not in CALLED_SLOW:
            continue
        ranks = zip(table.ranks.tolist(), table.nodes, strict=True)
        if hot <= {layout.cell(rank) for rank, node in ranks if node == verdict.node}:
            return verdict.node
    return ""
