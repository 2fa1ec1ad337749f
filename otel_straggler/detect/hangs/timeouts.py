"""Timeout of a section before a rank is called stuck: learned from the run itself.

    T = clip(max(3 p99.9, 1.2 longest, median + 10 MAD), 30 s, 480 s), but never under 1.5 p99.9

per section, where a section in a declared phase is one of its own ("eval/forward"). Until 1,000
runs the longest stands for the 99.9th percentile; until 30 the timeout is 480 s. A pause that the
run survived once, such as an undeclared checkpoint, is no hang later: hence the longest. A timeout
grows at once and shrinks by at most a fifth per hour. Source: after NVRx (five times the longest).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from otel_straggler.detect.scores.settings import HangSettings
from otel_straggler.model.observation import Floats
from otel_straggler.model.step_table import StepTable

BETWEEN = ""
"""A rank's time in no section."""

_MAX_SECTIONS = 1_000
_MAX_KEPT = 200
_MAX_RANKS = 512
"""Ranks whose times are counted, spread over all; of the others only the longest."""
_HOUR_S = 3_600.0


class Timeouts:
    """Timeouts of one world, by section. One thread owns it."""

    def __init__(self, settings: HangSettings) -> None:
        self._settings = settings
        self._durations: dict[str, Durations] = {}
        self._given: dict[str, tuple[float, float]] = {}
        self._wanted: dict[str, float] = {}

    def learn(self, table: StepTable) -> None:
        """Learn the times of all ranks in some steps. Cost: O(steps * ranks * sections). Leave out
        the first steps of an attempt: they compile. A section that runs several times in a step is
        learned by twice its mean run there: its longest is not reported."""
        runs = np.maximum(table.runs, 1)
        each_s = np.where(runs == 1, table.seconds, 2.0 * table.seconds / runs)
        for s, section in enumerate(table.sections):
            self._add(section.name, each_s[:, :, s])
        if not table.is_timed:
            whole_s = (table.end_ns - table.start_ns) * 1e-9
            inside_s = np.nansum(table.seconds, axis=2)
            self._add(BETWEEN, whole_s - inside_s)

    def timeout_s(self, section: str, now_s: float) -> float:
        """Timeout of ``section`` (with its phase), or ``BETWEEN``, at ``now_s`` of any clock that
        does not go back. Cost: tens of microseconds after learning, else one."""
        wanted_s = self._wanted.get(section)
        if wanted_s is None:
            wanted_s = self._wanted_s(section)
            if math.isnan(wanted_s):
                return max(self._settings.unknown_timeout_s, self._settings.min_timeout_s)
            self._wanted[section] = wanted_s
        given = self._given.get(section)
        if given is not None and wanted_s < given[0]:
            hours = max(now_s - given[1], 0.0) / _HOUR_S
            kept: float = (1.0 - self._settings.max_shrinking_per_h) ** hours
            wanted_s = max(wanted_s, given[0] * kept)
        self._given[section] = (wanted_s, now_s)
        return wanted_s

    def _add(self, name: str, seconds: Floats) -> None:
        self._wanted.pop(name, None)
        known = self._durations.get(name)
        if known is None:
            if len(self._durations) >= _MAX_SECTIONS:
                return
            known = self._durations[name] = Durations()
        known.add(seconds[:, :: 1 + seconds.shape[1] // _MAX_RANKS])
        known.record_longest(float(np.nanmax(seconds, initial=0.0)))

    def _wanted_s(self, section: str) -> float:
        its = self._settings
        known = self._durations.get(section)
        if known is None or len(known) < its.min_samples:
            return math.nan
        if self._is_surely_short(known.bound_s):
            return its.min_timeout_s
        is_enough = len(known) >= its.quantile_samples
        tail_s = known.quantile_s(0.999) if is_enough else known.longest_s
        spread_s = known.quantile_s(0.5) + its.mad_factor * known.median_deviation_s()
        longest_s = its.longest_factor * known.longest_s
        wanted_s = max(its.quantile_factor * tail_s, longest_s, spread_s)
        max_s = max(its.max_timeout_s, its.min_over_usual * tail_s)
        return min(max(wanted_s, its.min_timeout_s), max_s)

    def _is_surely_short(self, bound_s: float) -> bool:
        """Whether no quantile of lengths up to ``bound_s`` asks for more than the minimum. Nearly
        all sections are so, and quantiles take long to find."""
        its = self._settings
        factor = max(its.quantile_factor, its.longest_factor, 1.0 + its.mad_factor)
        return factor * bound_s <= its.min_timeout_s <= its.max_timeout_s

    # --- what survives a restart ------------------------------------------------------------------

    def given(self) -> dict[str, float]:
        """Requested timeouts by section, in seconds."""
        return {
            name: given_s for name, (given_s, _) in self._given.items() if math.isfinite(given_s)
        }

    def state(self) -> dict[str, Any]:
        """In JSON types; of the 200 sections known first."""
        names = list(self._durations)[:_MAX_KEPT]
        given = {name: list(self._given[name]) for name in names if name in self._given}
        return {
            "durations": {name: self._durations[name].state() for name in names},
            "given": {name: pair for name, pair in given.items() if all(map(math.isfinite, pair))},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state`. Raises: ValueError, KeyError, TypeError if it is none."""
        durations = {str(name): Durations.of(one) for name, one in state["durations"].items()}
        given = {str(name): (float(s), float(at_s)) for name, (s, at_s) in state["given"].items()}
        self._durations, self._given = durations, given
        self._wanted = {}


_PER_OCTAVE = 8
_BUCKET_RATIO: float = 2.0 ** (1.0 / _PER_OCTAVE)
_SHORTEST_S = 2.0**-20
_OCTAVES = 40
_BUCKETS = _PER_OCTAVE * _OCTAVES
_MAX_IN_A_GENERATION = 20_000
_MAX_COUNTED = 2**40


class Durations:
    """Lengths in seconds, in buckets of an eighth of an octave: quantiles are right to 4.4 %. There
    are two generations: once the newer one has 20,000 lengths the older one is dropped, so that
    what a run did hours ago does not count forever."""

    def __init__(self) -> None:
        self._counts = np.zeros((2, _BUCKETS), np.int64)
        self._longest_s = [0.0, 0.0]

    def __len__(self) -> int:
        return int(self._counts.sum())

    @property
    def longest_s(self) -> float:
        """Exact; 0 if there is none."""
        return max(self._longest_s)

    @property
    def bound_s(self) -> float:
        """No quantile, and no deviation from the median, is longer."""
        return max(self.longest_s, _SHORTEST_S) * _BUCKET_RATIO

    def add(self, seconds: Floats) -> None:
        """Count positive lengths of any shape, without NaN."""
        known = seconds[seconds > 0.0]
        if len(known) == 0:
            return
        if self._counts[0].sum() >= _MAX_IN_A_GENERATION:
            self._counts[1], self._longest_s[1] = self._counts[0], self._longest_s[0]
            self._counts[0], self._longest_s[0] = 0, 0.0
        index = np.log2(known / _SHORTEST_S) * _PER_OCTAVE
        bucket = np.clip(index, 0, _BUCKETS - 1).astype(np.int64)
        self._counts[0] += np.bincount(bucket, minlength=_BUCKETS)
        self._longest_s[0] = max(self._longest_s[0], float(known.max()))

    def record_longest(self, seconds: float) -> None:
        """A length that is not counted; or NaN."""
        if seconds > self._longest_s[0]:
            self._longest_s[0] = seconds

    def state(self) -> dict[str, Any]:
        """In JSON types: of each generation the longest, and the filled buckets."""
        return {
            "longest_s": list(self._longest_s),
            "counts": [
                [[int(b), int(row[b])] for b in np.flatnonzero(row)] for row in self._counts
            ],
        }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Durations:
        """From :meth:`state`. Raises: ValueError, KeyError, TypeError if it is none."""
        made = cls()
        newer_s, older_s = (float(longest_s) for longest_s in state["longest_s"])
        made._longest_s = [newer_s, older_s]
        for row, pairs in zip(made._counts, state["counts"], strict=True):
            for bucket, count in pairs:
                if not (0 <= bucket < _BUCKETS and 0 < count < _MAX_COUNTED):
                    msg = f"bucket {bucket!r} with {count!r}"
                    raise ValueError(msg)
                row[bucket] = count
        return made

    def quantile_s(self, q: float) -> float:
        """NaN if there is none."""
        return _quantile(self._counts.sum(axis=0), q)

    def median_deviation_s(self) -> float:
        """Median absolute deviation from the median; NaN if there is none."""
        counts = self._counts.sum(axis=0)
        middle_s = _quantile(counts, 0.5)
        apart_s = np.abs(_MIDDLES_S - middle_s)
        order = np.argsort(apart_s, kind="stable")
        below = np.cumsum(counts[order])
        if np.isnan(middle_s):
            return middle_s
        return float(apart_s[order][np.searchsorted(below, 0.5 * below[-1])])


_MIDDLES_S: Floats = _SHORTEST_S * 2.0 ** ((np.arange(_BUCKETS) + 0.5) / _PER_OCTAVE)


def _quantile(counts: np.typing.NDArray[np.int64], q: float) -> float:
    below = np.cumsum(counts)
    if below[-1] == 0:
        return float("nan")
    return float(_MIDDLES_S[np.searchsorted(below, q * below[-1])])
