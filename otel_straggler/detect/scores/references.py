"""A rank's own history: the best median so far, slowly forgotten."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from otel_straggler.detect.scores.lineages import Costs, Lineages
from otel_straggler.errors import InputError
from otel_straggler.model.observation import Bools, Floats, Ints
from otel_straggler.model.rank import Source

MAX_SUBJECTS = 100_000
"""Devices in a state: those whose best was reached last; and in memory, roughly."""


class References:
    """Best medians of subjects (devices) by name (section or kernel). A best that is not reached
    again doubles in ``half_life_s``, so that one lucky window is forgiven (in NVRx it lowers every
    later score). State: 16 bytes per (subject, name)."""

    def __init__(self, half_life_s: float) -> None:
        self._half_life_ns = half_life_s * 1e9
        self._rows: dict[Hashable, int] = {}
        self._unused: list[int] = []
        self._columns: dict[str, int] = {}
        self._best_s = np.empty((0, 0))
        self._met_at_ns = np.empty((0, 0), np.int64)

    def update(
        self,
        subjects: Sequence[Hashable],
        names: Sequence[str],
        median_s: Floats,
        eligible: Bools,
        now_ns: int,
    ) -> Floats:
        """Learn the medians of a window, then return the references that score it.

        Args:
            subjects: R subjects, each once; names: S names, each once.
            median_s: (R, S) seconds; NaN where there is none.
            eligible: (R, S) enough runs to become a reference.
            now_ns: end of the window, the sender's clock.

        Returns: (R, S) seconds, faded to ``now_ns``; NaN where there is none yet.
        """
        rows = np.array([self._row_of(subject) for subject in subjects], np.intp)
        columns = np.array(
            [self._columns.setdefault(n, len(self._columns)) for n in names], np.intp
        )
        shape = len(self._rows) + len(self._unused), len(self._columns)
        self._best_s = grown(self._best_s, shape, np.nan)
        self._met_at_ns = grown(self._met_at_ns, shape, 0)
        block = np.ix_(rows, columns)
        faded = self._faded(self._best_s[block], self._met_at_ns[block], now_ns)
        met = eligible & ~np.isnan(median_s) & ~(faded < median_s)
        reference = np.where(met, median_s, faded)
        self._best_s[block] = np.where(met, median_s, self._best_s[block])
        self._met_at_ns[block] = np.where(met, now_ns, self._met_at_ns[block])
        return reference

    def bests(self, subjects: Sequence[Hashable], names: Sequence[str]) -> tuple[Floats, Floats]:
        """(R, S) best medians, seconds, not faded, and when they were met, seconds since 1970 by
        the sender's clock; NaN where there is none. Subjects and names must have been updated."""
        block = np.ix_([self._rows[s] for s in subjects], [self._columns[n] for n in names])
        best_s: Floats = self._best_s[block]
        return best_s, np.where(np.isnan(best_s), np.nan, self._met_at_ns[block] * 1e-9)

    @property
    def n_subjects(self) -> int:
        return len(self._rows)

    def join(self, lineage: str, into: str) -> None:
        """Give the references of subjects whose key begins with ``lineage`` to those that begin
        with ``into`` and are the same otherwise; of two the better one stays."""
        for subject in self._of(lineage):
            target, row = (into, *subject[1:]), self._rows.pop(subject)
            at = self._rows.setdefault(target, row)
            if at != row:
                is_better = ~(self._best_s[at] <= self._best_s[row]) & ~np.isnan(self._best_s[row])
                for table in (self._best_s, self._met_at_ns):
                    table[at] = np.where(is_better, table[row], table[at])
                self._free(row)

    def drop(self, lineage: str) -> None:
        """Drop subjects whose key begins with it."""
        for subject in self._of(lineage):
            self._free(self._rows.pop(subject))

    def _of(self, lineage: str) -> list[tuple[Any, ...]]:
        return [s for s in self._rows if isinstance(s, tuple) and s[0] == lineage]

    def _free(self, row: int) -> None:
        self._best_s[row] = np.nan
        self._unused.append(row)

    def _row_of(self, subject: Hashable) -> int:
        row = self._rows.get(subject)
        if row is None:
            row = self._unused.pop() if self._unused else len(self._rows)
            self._rows[subject] = row
        return row

    def state(self) -> dict[str, Any]:
        """State for a restart. Subjects must be tuples of text and integers, of one length."""
        shape = len(self._rows) + len(self._unused), len(self._columns)
        best_s, met_at_ns = (a[: shape[0], : shape[1]] for a in (self._best_s, self._met_at_ns))
        rows = np.flatnonzero(~np.isnan(best_s).all(axis=1))
        if len(rows) > MAX_SUBJECTS:
            newest = np.argsort(-met_at_ns[rows].max(axis=1), kind="stable")
            rows = np.sort(rows[newest[:MAX_SUBJECTS]])
        subjects: dict[int, Any] = {row: subject for subject, row in self._rows.items()}
        return {
            # A list per part of the key, not per subject: text is stored in a tenth of the time.
            "subjects": [list(p) for p in zip(*(subjects[r] for r in rows.tolist()), strict=True)],
            "names": list(self._columns),
            "best_s": best_s[rows],
            "met_at_ns": met_at_ns[rows],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Replace all references. Raises: InputError without a change if it is no such state."""
        try:
            subjects = list(zip(*state["subjects"], strict=True))
            names, best_s, met_at_ns = state["names"], state["best_s"], state["met_at_ns"]
            rows, columns = ({key: i for i, key in enumerate(k)} for k in (subjects, names))
        except (KeyError, TypeError, ValueError) as error:
            raise _no_state(f"{type(error).__name__}: {error}") from None
        shape = len(rows), len(columns)
        if shape != (len(subjects), len(names)) or not all(isinstance(n, str) for n in names):
            raise _no_state("a subject or name that stands there twice, or a name that is no text")
        for table, kind in ((best_s, np.float64), (met_at_ns, np.int64)):
            if not isinstance(table, np.ndarray) or table.dtype != kind or table.shape != shape:
                raise _no_state(f"a table that is not {shape} of {kind.__name__}")
        if (best_s < 0).any() or np.isinf(best_s).any():
            raise _no_state("a time that is negative or infinite")
        self._rows, self._columns, self._unused = dict(rows), dict(columns), []
        self._best_s, self._met_at_ns = best_s.copy(), met_at_ns.copy()

    def _faded(self, best_s: Floats, met_at_ns: Ints, now_ns: int) -> Floats:
        age_ns = np.maximum(0, now_ns - met_at_ns)
        # Past 1,000 half-lives nothing is remembered; the cap keeps the power finite.
        faded: Floats = best_s * np.exp2(np.minimum(age_ns / self._half_life_ns, 1000.0))
        return faded


def grown(values: npt.NDArray[Any], shape: tuple[int, int], filler: float) -> npt.NDArray[Any]:
    """At least of this shape, with room to grow."""
    room = [
        have if needed <= have else max(needed, have + have // 2, 8)
        for have, needed in zip(values.shape, shape, strict=True)
    ]
    if tuple(room) == values.shape:
        return values
    result = np.full(room, filler, values.dtype)
    result[: values.shape[0], : values.shape[1]] = values
    return result


@dataclass(frozen=True, slots=True)
class ReferenceSet:
    """References of sections, of kernels, and of kernels within sections. Their subjects are
    devices within a lineage."""

    sections: References
    kernels: References
    kernels_by_section: References
    lineages: Lineages = field(default_factory=Lineages)

    @classmethod
    def empty(cls, half_life_s: float) -> ReferenceSet:
        sections, kernels, by_section = (References(half_life_s) for _ in _PARTS)
        return cls(sections, kernels, by_section)

    def lineage_of(self, source: Source, part: str, costs: Costs, now_ns: int) -> str:
        """The lineage of a window, which gets what its attempt has learned until now; see
        :meth:`.Lineages.follow`."""
        lineage, before = self.lineages.follow(source, part, costs, now_ns)
        for references in self._parts():
            if lineage != before:
                references.join(before, lineage)
        is_full = self.sections.n_subjects > MAX_SUBJECTS
        for dropped in self.lineages.drain_dropped(is_full=is_full):
            for references in self._parts():
                references.drop(dropped)
        return lineage

    def _parts(self) -> list[References]:
        return [getattr(self, name) for name in _PARTS]

    def state(self) -> dict[str, Any]:
        parts = {name: getattr(self, name).state() for name in _PARTS}
        return {**parts, "lineages": self.lineages.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """References without lineages, of an earlier version, are of any work and are left out.
        Raises: InputError if a part is no state of references."""
        if "lineages" not in state:
            return
        self.lineages.restore(state["lineages"])
        for name in _PARTS:
            if name in state:
                getattr(self, name).restore(state[name])


_PARTS: Final = ("sections", "kernels", "kernels_by_section")


def _no_state(value: str) -> InputError:
    where, expected = "state of own-history references", "what References.state() gives"
    return InputError.of(where, value, expected, "Start without it.")
