"""Numbers for JSON and sentences; slowdowns and their encoding as bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from otel_straggler.detect.scores.formulas import slowdowns
from otel_straggler.model.observation import Floats, Ints, Section

_DIGITS: Final = 4
_POWERS: Final = np.array([float(f"1e{n}") for n in range(23)])


def rounded(values: Floats) -> list[float | None]:
    """Round to 4 significant digits; None for NaN and infinity. Cost: O(n), vectorized.

    >>> rounded(np.array([1.23456, 123456.0, np.nan, 0.0, 0.000123456]))
    [1.235, 123500.0, None, 0.0, 0.0001235]
    """
    known = np.isfinite(values) & (values != 0.0)
    size = np.zeros(values.shape, np.int64)
    size[known] = np.floor(np.log10(np.abs(values[known]))).astype(np.int64)
    digits = np.clip(_DIGITS - 1 - size, -22, 22)
    power = _POWERS[np.abs(digits)]
    with np.errstate(over="ignore", invalid="ignore"):  # of the branch that is not taken
        fine = np.round(values * power) / power
        coarse = np.round(values / power) * power
    result: list[float | None] = np.where(digits >= 0, fine, coarse).tolist()
    for at in np.flatnonzero(~np.isfinite(values)).tolist():
        result[at] = None
    return result


def number(value: float | None, digits: int = 6) -> float | None:
    """Round to significant digits; None for None, NaN, and infinity."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


def seconds(value: float | None) -> float | None:
    """Round to milliseconds; None for None, NaN, and infinity."""
    return None if value is None or not math.isfinite(value) else round(value, 3)


def percent(part: float) -> str:
    """
    >>> percent(0.0173), percent(0.25)
    ('1.7 %', '25 %')
    """
    value = 100.0 * part
    return f"{value:.1f} %" if value < 9.95 else f"{value:.0f} %"


def duration(seconds: float) -> str:
    """Two units at most, as on the page.

    >>> duration(0.4), duration(42), duration(88), duration(7200), duration(100_000)
    ('less than 1 s', '42 s', '1 min 28 s', '2 h', '1 d 4 h')
    """
    if seconds < 1.0:
        return "less than 1 s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return _two_units(whole, 60, "min", "s")
    minutes = round(whole / 60)
    if minutes < 1440:
        return _two_units(minutes, 60, "h", "min")
    return _two_units(round(whole / 3600), 24, "d", "h")


def _two_units(value: int, size: int, large: str, small: str) -> str:
    whole, rest = divmod(value, size)
    return f"{whole:,} {large}" + (f" {rest} {small}" if rest else "")


def coded(names: Iterable[str]) -> tuple[list[str], Ints]:
    """Distinct names, and the index of each name among them."""
    table: dict[str, int] = {}
    codes = [table.setdefault(name, len(table)) for name in names]
    return list(table), np.array(codes, np.int64)


Bytes: TypeAlias = npt.NDArray[np.uint8]

_OWN_WORK: Final = frozenset({"compute", "data"})
"""Kinds of sections in which a rank does not wait for others."""
ENCODING: Final = "uint8-log2"
_NO_DATA: Final = 0
_EVEN: Final = 128
_PER_DOUBLING: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class Slowdowns:
    """R ranks, S sections. 1.0 is normal, 2.0 twice as slow; NaN = no data."""

    overall: Floats
    """(R,) all own work of a rank."""
    by_section: Floats
    """(R, S)"""


def peers_of(roles: Sequence[str]) -> Ints:
    """(R,) code of each role. Cost: O(R)."""
    return coded(roles)[1]


def own_slowdowns(own_s: Floats, sections: Sequence[Section], peers: Ints) -> Slowdowns:
    """Slowdowns of one window; nested sections count once. Cost: O(R S log R).

    Args:
        own_s: (R, S) seconds of own time per step; NaN where there are none.
        peers: (R,) code of each rank's group of peers.

    >>> result = own_slowdowns(
    ...     np.array([[1.0, 9.0], [1.0, 9.0], [2.0, np.nan]]),
    ...     [Section("forward"), Section("sync", "wait")], np.zeros(3, int))
    >>> result.overall.tolist(), result.by_section[:, 1].tolist()
    ([1.0, 1.0, 2.0], [1.0, 1.0, nan])
    """
    total = own_step_s(own_s, sections)
    table = np.concatenate([total[:, None], own_s], axis=1)
    table = np.where(table > 0.0, table, np.nan)
    result = slowdowns(table, peers)
    return Slowdowns(result[:, 0], result[:, 1:])


def own_step_s(own_s: Floats, sections: Sequence[Section]) -> Floats:
    """(R,) seconds of own work per step, from (R, S) of sections: without those that wait, and
    those nested in other own work; NaN where there is none. Cost: O(R S)."""
    around = {s.name: s for s in sections}
    own = [at for at, s in enumerate(sections) if s.kind in _OWN_WORK and not _is_within(s, around)]
    parts = own_s[:, own]
    return np.where(np.isfinite(parts).any(axis=1), np.nansum(parts, axis=1), np.nan)


def _is_within(section: Section, around: Mapping[str, Section]) -> bool:
    """True if it is nested in own work, which includes its time."""
    seen = {section.name}
    while section.parent in around and section.parent not in seen:
        section = around[section.parent]
        if section.kind in _OWN_WORK:
            return True
        seen.add(section.name)
    return False


def as_bytes(values: Floats) -> Bytes:
    """One byte each: 0 = no data, else 128 + 64 log2(slowdown), within 1 and 255.

    >>> as_bytes(np.array([np.nan, 0.1, 1.0, 2.0, 9.0])).tolist()
    [0, 1, 128, 192, 255]
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        indexes = np.round(_EVEN + _PER_DOUBLING * np.log2(values))
    known = np.isfinite(values) & (values > 0.0)
    return np.where(known, np.clip(np.where(known, indexes, 1), 1, 255), _NO_DATA).astype(np.uint8)


def from_bytes(indexes: Bytes) -> Floats:
    """Decode :func:`as_bytes`, within 0.55 %; NaN for no data."""
    return _VALUES[indexes]


_VALUES: Final[Floats] = 2.0 ** ((np.arange(256) - _EVEN) / _PER_DOUBLING)
_VALUES[_NO_DATA] = np.nan
