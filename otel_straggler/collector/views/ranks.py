"""All ranks of a picture, column by column: where they are, how far, and how they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from otel_straggler.collector.views.numbers import Names, rounded
from otel_straggler.collector.views.world_view import Parallel, RankHeartbeats, WorldView
from otel_straggler.detect.hangs.states import RANK_STATES
from otel_straggler.model.observation import Floats, Ints

Json: TypeAlias = dict[str, Any]
Place: TypeAlias = np.typing.NDArray[np.intp]

DIMENSIONS: Final = {
    "dp": "data",
    "pp": "pipeline",
    "tp": "tensor",
    "cp": "context",
    "ep": "expert",
}
"""Keys of a picture and what they are called on the wire."""
MISSING: Final = "missing"
"""State of a rank that is expected and was never heard of."""
UNKNOWN: Final = "unknown"
"""State of a rank that sends no heartbeats, so that nobody knows whether it lives."""
STATES: Final = (*RANK_STATES, MISSING, UNKNOWN)


class ShownRanks:
    """The ranks of a picture: heard of, scored or expected; in order. Cost: O(R).

    Args:
        later_s: how long ago that was seen.
    """

    def __init__(self, seen: WorldView, later_s: float = 0.0) -> None:
        self._seen = seen
        self._later_s = later_s
        parts = [part.ranks for part in (seen.table, seen.signs, seen.found) if part is not None]
        self.ranks: Ints = np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)
        self._table = self._rows(None if seen.table is None else seen.table.ranks)
        self._signs = self._rows(None if seen.signs is None else seen.signs.ranks)
        self._found = self._rows(None if seen.found is None else seen.found.ranks)

    def __len__(self) -> int:
        return len(self.ranks)

    def _rows(self, ranks: Ints | None) -> Ints:
        """(R,) the row of each rank in a part, -1 where it has none."""
        rows = np.full(len(self.ranks), -1, np.int64)
        if ranks is not None:
            rows[np.searchsorted(self.ranks, ranks)] = np.arange(len(ranks))
        return rows

    def of_table(self, values: Floats) -> Floats:
        """(R,) values of the newest window, NaN for ranks that are not in it."""
        return _spread(values, self._table)

    def of_signs(self, values: Floats) -> Floats:
        return _spread(values, self._signs)

    def _texts(self, name: str) -> list[str]:
        """Of the signs of life, or else of the window."""
        found = [""] * len(self)
        seen = self._seen
        for part, rows in ((seen.table, self._table), (seen.signs, self._signs)):
            if part is None:
                continue
            told: Sequence[str] = getattr(part, name)
            for at in np.flatnonzero(rows >= 0).tolist():
                found[at] = told[rows[at]] or found[at]
        return found

    def parallels(self) -> list[Parallel]:
        found: list[Parallel] = [()] * len(self)
        seen = self._seen
        for part, rows in ((seen.table, self._table), (seen.signs, self._signs)):
            if part is not None:
                for at in np.flatnonzero(rows >= 0).tolist():
                    found[at] = part.parallels[rows[at]] or found[at]
        return found

    def as_json(self) -> Json:
        """The block ``ranks``."""
        seen = self._seen
        nodes, roles, sections = Names(), Names(), Names()
        signs = seen.signs
        told: Json = {
            "rank": self.ranks.tolist(),
            "node": [nodes.place(node) for node in self._texts("nodes")],
            "role": [roles.place(role) for role in self._texts("roles")],
            **self._dimensions(),
            "state": self._states().tolist(),
            "states": list(STATES),
            "heartbeat_age_s": self._ages(None if signs is None else signs.heartbeat_age_s),
            "progress_age_s": self._ages(None if signs is None else signs.progress_age_s),
            "step": self._steps(),
            "open_section": self._open_sections(sections),
        }
        return {
            **told,
            "nodes": nodes.table(),
            "roles": roles.table(),
            "open_sections": sections.table(),
        }

    def _dimensions(self) -> dict[str, list[int | None] | None]:
        told = [dict(parallel) for parallel in self.parallels()]
        known = {name for parallel in told for name in parallel}
        return {
            key: [parallel.get(name) for parallel in told] if name in known else None
            for key, name in DIMENSIONS.items()
        }

    def _states(self) -> Ints:
        found = self._seen.found
        states = np.full(len(self), STATES.index(UNKNOWN), np.int64)
        if found is None:
            return states
        is_known = self._found >= 0
        states[is_known] = found.rank_states[self._found[is_known]]
        states[is_known & (self._signs < 0)] = STATES.index(MISSING)
        return states

    def _ages(self, ages_s: Floats | None) -> list[float | None]:
        if ages_s is None:
            return [None] * len(self)
        return rounded(np.round(self.of_signs(ages_s) + self._later_s, 1))

    def _steps(self) -> list[int | None]:
        signs = self._seen.signs
        if signs is None:
            return [None] * len(self)
        steps = _spread(signs.step.astype(np.float64), self._signs).tolist()
        return [int(step) if step >= 0 else None for step in steps]

    def _open_sections(self, names: Names) -> list[int | None]:
        signs = self._seen.signs
        if signs is None:
            return [None] * len(self)
        return [
            names.place(signs.open_section[row]) if row >= 0 and signs.open_section[row] else None
            for row in self._signs.tolist()
        ]


def _spread(values: Floats, rows: Ints) -> Floats:
    found = np.full(len(rows), np.nan)
    is_known = rows >= 0
    found[is_known] = values[rows[is_known]]
    return found


def row_of(part: RankHeartbeats | Any, rank: int) -> int | None:
    """The row of a rank in a table of ascending ``ranks``; None if it is not there."""
    if part is None:
        return None
    at = int(np.searchsorted(part.ranks, rank))
    return at if at < len(part.ranks) and part.ranks[at] == rank else None
