"""The timeline: slowdowns by window and rank, as bytes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from otel_straggler.collector.views.numbers import ENCODING, Bytes, as_bytes, seconds
from otel_straggler.collector.views.world_view import RankTable
from otel_straggler.model.observation import Floats
from otel_straggler.semconv import FORMAT_VERSION

Json: TypeAlias = dict[str, Any]
RankNumbers: TypeAlias = npt.NDArray[np.int32]

_OVERALL = ""
"""Name of all sections together."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Column:
    """One window of R ranks and S sections.

    Attributes:
        at_s: end, seconds since 1970 on the senders' clocks.
        first_step, last_step: None for a window by time.
        ranks: (R,) ascending.
        sections: (S,) names.
        values: (1 + S, R) slowdowns as bytes: all sections together, then each.
    """

    seq: int
    at_s: float
    first_step: int | None
    last_step: int | None
    n_steps: int
    attempt: int
    ranks: RankNumbers
    sections: tuple[str, ...]
    values: Bytes

    @property
    def size(self) -> int:
        """Bytes of memory without shared tables."""
        return self.values.nbytes

    def of_section(self, section: str) -> Bytes | None:
        """(R,) of one section, or of all together; None if the window does not have it."""
        if section != _OVERALL and section not in self.sections:
            return None
        at = 0 if section == _OVERALL else 1 + self.sections.index(section)
        result: Bytes = self.values[at]
        return result

    def as_json(self) -> Json:
        return {
            "seq": self.seq,
            "at_s": seconds(self.at_s),
            "first_step": self.first_step,
            "last_step": self.last_step,
            "n_steps": self.n_steps,
        }


def column_of(table: RankTable, seq: int, attempt: int) -> Column:
    """Cost: O(R S log R)."""
    result = table.slowdowns
    both: Floats = np.concatenate([result.overall[None], result.by_section.T])
    return Column(
        seq=seq,
        at_s=table.end_ns / 1e9,
        first_step=table.first_step,
        last_step=table.last_step,
        n_steps=table.n_steps,
        attempt=attempt,
        ranks=table.ranks.astype(np.int32),
        sections=tuple(section.name for section in table.sections),
        values=as_bytes(both),
    )


def sharing(column: Column, before: Sequence[Column]) -> Column:
    """Share equal tables with the previous column: less memory, and no further comparison."""
    if not before:
        return column
    last = before[-1]
    if np.array_equal(last.ranks, column.ranks):
        column = replace(column, ranks=last.ranks)
    if last.sections == column.sections:
        column = replace(column, sections=last.sections)
    return column


def timeline_json(
    columns: Sequence[Column],
    *,
    run_id: str,
    group: str,
    section: str = _OVERALL,
) -> Json:
    """The body of ``/v1/timeline``; ``columns`` oldest first. Cost: O(columns * ranks)."""
    shown = _ranks_of(columns)
    return {
        "schema_version": FORMAT_VERSION,
        "run_id": run_id,
        "group": group,
        "section": section,
        "first": columns[0].seq if columns else None,
        "last": columns[-1].seq if columns else None,
        "ranks": shown.tolist(),
        "columns": [column.as_json() for column in columns],
        "encoding": ENCODING,
        "values": b64encode(spread(columns, section, shown).tobytes()).decode(),
    }


def _ranks_of(columns: Sequence[Column]) -> RankNumbers:
    tables = {id(column.ranks): column.ranks for column in columns}
    if not tables:
        return np.empty(0, np.int32)
    if len(tables) == 1:
        return columns[0].ranks
    return np.unique(np.concatenate(list(tables.values())))


def spread(columns: Sequence[Column], section: str, ranks: RankNumbers) -> Bytes:
    """(columns, ranks) bytes; 0 where a column does not have the rank or the section."""
    table = np.zeros((len(columns), len(ranks)), np.uint8)
    indexes: dict[int, tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]] = {}
    for line, column in zip(table, columns, strict=True):
        values = column.of_section(section)
        if values is None:
            continue
        if column.ranks is ranks:
            line[:] = values
            continue
        if id(column.ranks) not in indexes:
            _, theirs, ours = np.intersect1d(
                column.ranks, ranks, assume_unique=True, return_indices=True
            )
            indexes[id(column.ranks)] = theirs, ours
        theirs, ours = indexes[id(column.ranks)]
        line[ours] = values[theirs]
    return table
