"""The block ``ranks`` of a view, column by column: location, progress, and state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from otel_straggler.collector.views.numbers import Names, rounded
from otel_straggler.collector.views.world_view import RankHeartbeats, RankTable, WorldView
from otel_straggler.detect.hangs.detector import HangStatus
from otel_straggler.detect.hangs.states import RANK_STATES
from otel_straggler.model.observation import Floats, Ints

Json: TypeAlias = dict[str, Any]
_DIMENSIONS: Final = {
    "dp": "data",
    "pp": "pipeline",
    "tp": "tensor",
    "cp": "context",
    "ep": "expert",
}
"""Keys of the block, and their names on the wire."""
MISSING: Final = "missing"
"""State of an expected rank that has never reported."""
UNKNOWN: Final = "unknown"
"""State of a rank that sends no heartbeats."""
STATES: Final = (*RANK_STATES, MISSING, UNKNOWN)


class ShownRanks:
    """All ranks of a view, in order: reporting, scored, or expected. Cost: O(R)."""

    def __init__(self, view: WorldView, later_s: float) -> None:
        self._view = view
        self._later_s = later_s
        parts = [
            part.ranks for part in (view.table, view.heartbeats, view.hang) if part is not None
        ]
        self.ranks: Ints = np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)
        self._table = self._rows(view.table)
        self._heartbeats = self._rows(view.heartbeats)
        self._hang = self._rows(view.hang)

    def __len__(self) -> int:
        return len(self.ranks)

    def _rows(self, part: RankTable | RankHeartbeats | HangStatus | None) -> Ints:
        """(R,) the row of each rank in a part, -1 where it has none."""
        rows = np.full(len(self.ranks), -1, np.int64)
        if part is not None:
            rows[np.searchsorted(self.ranks, part.ranks)] = np.arange(len(part.ranks))
        return rows

    def of_table(self, values: Floats) -> Floats:
        """(R,) values of the newest window, NaN for ranks that are not in it."""
        return _spread(values, self._table)

    def _reported(self, name: str, default: Any) -> list[Any]:
        """Values of the heartbeats, or else of the window."""
        result = [default] * len(self)
        view = self._view
        for part, rows in ((view.table, self._table), (view.heartbeats, self._heartbeats)):
            if part is None:
                continue
            values: Sequence[Any] = getattr(part, name)
            for at in np.flatnonzero(rows >= 0).tolist():
                result[at] = values[rows[at]] or result[at]
        return result

    def as_json(self) -> Json:
        """The block ``ranks``."""
        view = self._view
        nodes, roles, sections = Names(), Names(), Names()
        heartbeats = view.heartbeats
        reported: Json = {
            "rank": self.ranks.tolist(),
            "node": [nodes.index(node) for node in self._reported("nodes", "")],
            "role": [roles.index(role) for role in self._reported("roles", "")],
            **self._dimensions(),
            "state": self._states().tolist(),
            "states": list(STATES),
            "heartbeat_age_s": self._ages(
                None if heartbeats is None else heartbeats.heartbeat_age_s
            ),
            "progress_age_s": self._ages(None if heartbeats is None else heartbeats.progress_age_s),
            "step": self._steps(),
            "open_section": self._open_sections(sections),
        }
        return {
            **reported,
            "nodes": nodes.table(),
            "roles": roles.table(),
            "open_sections": sections.table(),
        }

    def _dimensions(self) -> dict[str, list[int | None] | None]:
        reported = [dict(parallel) for parallel in self._reported("parallels", ())]
        known = {name for parallel in reported for name in parallel}
        return {
            key: [parallel.get(name) for parallel in reported] if name in known else None
            for key, name in _DIMENSIONS.items()
        }

    def _states(self) -> Ints:
        hang = self._view.hang
        states = np.full(len(self), STATES.index(UNKNOWN), np.int64)
        if hang is None:
            return states
        is_known = self._hang >= 0
        states[is_known] = hang.rank_states[self._hang[is_known]]
        states[is_known & (self._heartbeats < 0)] = STATES.index(MISSING)
        return states

    def _ages(self, ages_s: Floats | None) -> list[float | None]:
        if ages_s is None:
            return [None] * len(self)
        return rounded(np.round(_spread(ages_s, self._heartbeats) + self._later_s, 1))

    def _steps(self) -> list[int | None]:
        heartbeats = self._view.heartbeats
        if heartbeats is None:
            return [None] * len(self)
        steps = _spread(heartbeats.step.astype(np.float64), self._heartbeats).tolist()
        return [int(step) if step >= 0 else None for step in steps]

    def _open_sections(self, names: Names) -> list[int | None]:
        heartbeats = self._view.heartbeats
        if heartbeats is None:
            return [None] * len(self)
        return [
            names.index(heartbeats.open_section[row])
            if row >= 0 and heartbeats.open_section[row]
            else None
            for row in self._heartbeats.tolist()
        ]


def _spread(values: Floats, rows: Ints) -> Floats:
    result = np.full(len(rows), np.nan)
    is_known = rows >= 0
    result[is_known] = values[rows[is_known]]
    return result


def row_of(part: RankTable | RankHeartbeats | HangStatus | None, rank: int) -> int | None:
    """The row of a rank in a part with ascending ``ranks``; None if it is not there."""
    if part is None:
        return None
    at = int(np.searchsorted(part.ranks, rank))
    return at if at < len(part.ranks) and part.ranks[at] == rank else None
