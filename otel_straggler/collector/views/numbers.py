"""Numbers for JSON: few digits where there are many, null for what is not known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from otel_straggler.detect.scores.formulas import slowdowns
from otel_straggler.model.observation import Floats, Ints, Section

DIGITS: Final = 4
_POWERS: Final = np.array([float(f"1e{n}") for n in range(23)])


def rounded(values: Floats) -> list[float | None]:
    """All values with 4 significant digits; None for NaN and infinity. Cost: O(n), vectorised.

    >>> rounded(np.array([1.23456, 123456.0, np.nan, 0.0, 0.000123456]))
    [1.235, 123500.0, None, 0.0, 0.0001235]
    """
    known = np.isfinite(values) & (values != 0.0)
    size = np.zeros(values.shape, np.int64)
    size[known] = np.floor(np.log10(np.abs(values[known]))).astype(np.int64)
    digits = np.clip(DIGITS - 1 - size, -22, 22)
    power = _POWERS[np.abs(digits)]
    with np.errstate(over="ignore", invalid="ignore"):  # of the branch that is not taken
        fine = np.round(values * power) / power
        coarse = np.round(values / power) * power
    result: list[float | None] = np.where(digits >= 0, fine, coarse).tolist()
    for at in np.flatnonzero(~np.isfinite(values)).tolist():
        result[at] = None
    return result


def number(value: float | None, digits: int = 6) -> float | None:
    """One value with so many significant digits; None for None, NaN and infinity."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


def seconds(value: float | None) -> float | None:
    """A time to the millisecond; None for None, NaN and infinity."""
    return None if value is None or not math.isfinite(value) else round(value, 3)


class Names:
    """A table of names, and the place of each in it."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._indexes = {name: index for index, name in enumerate(known)}

    def index(self, name: str) -> int:
        return self._indexes.setdefault(name, len(self._indexes))

    def table(self) -> list[str]:
        return list(self._indexes)


Bytes: TypeAlias = npt.NDArray[np.uint8]

OWN_WORK: Final = frozenset({"compute", "data"})
"""Kinds of sections in which a rank does not wait for others."""
ENCODING: Final = "uint8-log2"
NOTHING: Final = 0
_EVEN: Final = 128
_PER_DOUBLING: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class Slowdowns:
    """R ranks, S sections. 1.0 is ordinary, 2.0 twice as slow; NaN = no data.

    Attributes:
        overall: (R,) all own work of the rank together.
        by_section: (R, S)
    """

    overall: Floats
    by_section: Floats


def peers_of(roles: Sequence[str]) -> Ints:
    """(R,) a number for each role. Cost: O(R)."""
    codes: dict[str, int] = {}
    return np.array([codes.setdefault(role, len(codes)) for role in roles], np.int64)


def step_slowdowns(step_s: Floats, sections: Sequence[Section], peers: Ints) -> Slowdowns:
    """What one window shows. Sections within others are not added up twice.

    Args:
        step_s: (R, S) seconds per step; NaN where there are none.
        peers: (R,) who is compared with whom.

    Cost: O(R S log R).

    >>> result = step_slowdowns(
    ...     np.array([[1.0, 9.0], [1.0, 9.0], [2.0, np.nan]]),
    ...     [Section("forward"), Section("sync", "wait")], np.zeros(3, int))
    >>> result.overall.tolist(), result.by_section[:, 1].tolist()
    ([1.0, 1.0, 2.0], [1.0, 1.0, nan])
    """
    total = own_step_s(step_s, sections)
    table = np.concatenate([total[:, None], step_s], axis=1)
    table = np.where(table > 0.0, table, np.nan)
    result = slowdowns(table, peers)
    return Slowdowns(result[:, 0], result[:, 1:])


def own_step_s(step_s: Floats, sections: Sequence[Section]) -> Floats:
    """(R,) own work per step, seconds: without waiting, and without what is within other own work;
    NaN where there is none. Cost: O(R S)."""
    around = {s.name: s for s in sections}
    own = [at for at, s in enumerate(sections) if s.kind in OWN_WORK and not _is_within(s, around)]
    parts = step_s[:, own]
    return np.where(np.isfinite(parts).any(axis=1), np.nansum(parts, axis=1), np.nan)


def _is_within(section: Section, around: Mapping[str, Section]) -> bool:
    """Whether own work lies around it, so that its time is counted there."""
    view = {section.name}
    while section.parent in around and section.parent not in view:
        section = around[section.parent]
        if section.kind in OWN_WORK:
            return True
        view.add(section.name)
    return False


def as_bytes(values: Floats) -> Bytes:
    """One byte each: 0 = no data, else 128 + 64 log2(slowdown), within 1 and 255.

    >>> as_bytes(np.array([np.nan, 0.1, 1.0, 2.0, 9.0])).tolist()
    [0, 1, 128, 192, 255]
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        indexes = np.round(_EVEN + _PER_DOUBLING * np.log2(values))
    known = np.isfinite(values) & (values > 0.0)
    return np.where(known, np.clip(np.where(known, indexes, 1), 1, 255), NOTHING).astype(np.uint8)


def from_bytes(indexes: Bytes) -> Floats:
    """Back, within 0.55 %; NaN for no data."""
    return _VALUES[indexes]


_VALUES: Final[Floats] = 2.0 ** ((np.arange(256) - _EVEN) / _PER_DOUBLING)
_VALUES[NOTHING] = np.nan
