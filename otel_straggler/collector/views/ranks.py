"""The block ``ranks`` of a view, column by column: location, progress, and state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from otel_straggler.collector.views.numbers import coded, rounded
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
        nodes, node = coded(self._reported("nodes", ""))
        roles, role = coded(self._reported("roles", ""))
        open_sections = self._open_sections()
        sections = list(dict.fromkeys(filter(None, open_sections)))
        index = {name: at for at, name in enumerate(sections)}
        ages = {
            name: rounded(np.round(self._of_heartbeats(name) + self._later_s, 1))
            for name in ("heartbeat_age_s", "progress_age_s")
        }
        steps = self._of_heartbeats("step").tolist()
        return {
            "rank": self.ranks.tolist(),
            "node": node.tolist(),
            "role": role.tolist(),
            **self._dimensions(),
            "state": self._states().tolist(),
            "states": list(STATES),
            **ages,
            "step": [int(step) if step >= 0 else None for step in steps],
            "pid": self._pids(),
            "open_section": [index.get(name) for name in open_sections],
            "nodes": nodes,
            "roles": roles,
            "open_sections": sections,
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

    def _of_heartbeats(self, name: str) -> Floats:
        heartbeats = self._view.heartbeats
        if heartbeats is None:
            return np.full(len(self), np.nan)
        return _spread(getattr(heartbeats, name), self._heartbeats)

    def _pids(self) -> list[int | None]:
        heartbeats = self._view.heartbeats
        if heartbeats is None or heartbeats.pids is None:
            return [None] * len(self)
        rows = self._heartbeats.tolist()
        return [heartbeats.pids[row] or None if row >= 0 else None for row in rows]

    def _open_sections(self) -> list[str]:
        heartbeats = self._view.heartbeats
        if heartbeats is None:
            return [""] * len(self)
        rows = self._heartbeats.tolist()
        return [heartbeats.open_section[row] if row >= 0 else "" for row in rows]


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


def reported(view: WorldView, rank: int, name: str) -> Any:
    """A value of the rank's heartbeats, or else of its scores; None without one."""
    for part in (view.heartbeats, view.table):
        row = row_of(part, rank)
        if row is not None and getattr(part, name)[row]:
            return getattr(part, name)[row]
    return None
