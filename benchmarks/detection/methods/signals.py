"""Input of the baselines: the local sections of the newest steps, and who is comparable."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from otel_straggler.model.observation import Floats, Ints
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable

LOCAL_KINDS = ("compute", "data")
WINDOW_STEPS = 20


def role_codes(sources: Sequence[Source]) -> Ints:
    """(R,) equal numbers for ranks of one role: the same parallel indices but that of data."""
    codes: dict[object, int] = {}
    keys = (
        (source.role, tuple(pair for pair in source.parallel if pair[0] != "data"))
        for source in sources
    )
    return np.array([codes.setdefault(key, len(codes)) for key in keys], np.int64)


class LocalTimes:
    """The newest ``WINDOW_STEPS`` steps of the sections that do local work, for every rank.

    A table with other ranks, or of another attempt, begins a new window: who is who is not
    carried over.

    Attributes:
        ranks: (R,) rank numbers.
        roles: (R,) codes of :func:`role_codes`.
        seconds: (steps, R, local sections); NaN where a section did not run.
        newest: the same for the steps of the newest table alone.
    """

    def __init__(self) -> None:
        self._tables: deque[Floats] = deque()
        self._sources: tuple[Source, ...] = ()
        self.ranks: tuple[int, ...] = ()
        self.roles: Ints = np.zeros(0, np.int64)
        self.seconds: Floats = np.zeros((0, 0, 0))
        self.newest: Floats = self.seconds

    def take(self, table: StepTable) -> bool:
        """Take the next steps in; whether the window is full."""
        if table.sources is not self._sources and table.sources != self._sources:
            self._begin(table.sources)
        local = [at for at, section in enumerate(table.sections) if section.kind in LOCAL_KINDS]
        self.newest = np.ascontiguousarray(table.seconds[:, :, local])
        if self._tables and self._tables[0].shape[2] != len(local):
            self._tables.clear()
        self._tables.append(self.newest)
        while sum(map(len, self._tables)) - len(self._tables[0]) >= WINDOW_STEPS:
            self._tables.popleft()
        self.seconds = np.concatenate(self._tables)[-WINDOW_STEPS:]
        return len(self.seconds) >= WINDOW_STEPS

    def totals(self) -> Floats:
        """(steps, R) seconds of all local sections; NaN where none ran."""
        return total(self.seconds)

    def _begin(self, sources: tuple[Source, ...]) -> None:
        self._tables.clear()
        self._sources = sources
        self.ranks = tuple(source.rank for source in sources)
        self.roles = role_codes(sources)


def total(seconds: Floats) -> Floats:
    """(steps, R) from (steps, R, sections); NaN where no section ran."""
    summed: Floats = np.nansum(seconds, axis=2)
    summed[np.isnan(seconds).all(axis=2)] = np.nan
    return summed


def median_over_steps(values: Floats) -> Floats:
    """Median along the first axis, leaving NaN out; NaN where nothing is left.

    NumPy's ``nanmedian`` takes ten times as long.
    """
    ordered = np.sort(values, axis=0)
    n = len(values) - np.isnan(ordered).sum(axis=0)
    low, high = np.maximum(n - 1, 0) // 2, np.minimum(n // 2, len(values) - 1)
    pair = np.take_along_axis(ordered, low[None], 0), np.take_along_axis(ordered, high[None], 0)
    return np.asarray((pair[0] + pair[1])[0] / 2)


def by_role(roles: Ints) -> list[Ints]:
    """The positions of the ranks of every role."""
    order = np.argsort(roles, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(roles[order])) + 1) if len(roles) else []
