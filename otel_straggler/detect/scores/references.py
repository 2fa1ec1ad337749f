"""A rank's own history: the best median so far, slowly forgotten."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from otel_straggler.errors import InputError
from otel_straggler.model.observation import Bools, Floats, Ints

MAX_SUBJECTS = 100_000
"""Devices in a state: those whose best was reached last."""


class References:
    """Best medians of subjects (devices) by name (section or kernel). A best that is not reached
    again doubles in ``half_life_s``, so that one lucky window is forgiven (in NVRx it lowers every
    later score). State: 16 bytes per (subject, name)."""

    def __init__(self, half_life_s: float) -> None:
        self._half_life_ns = half_life_s * 1e9
        self._rows: dict[Hashable, int] = {}
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
        rows = np.array([self._rows.setdefault(s, len(self._rows)) for s in subjects], np.intp)
        columns = np.array(
            [self._columns.setdefault(n, len(self._columns)) for n in names], np.intp
        )
        shape = len(self._rows), len(self._columns)
        self._best_s = grown(self._best_s, shape, np.nan)
        self._met_at_ns = grown(self._met_at_ns, shape, 0)
        block = np.ix_(rows, columns)
        faded = self._faded(self._best_s[block], self._met_at_ns[block], now_ns)
        met = eligible & ~np.isnan(median_s) & ~(faded < median_s)
        reference = np.where(met, median_s, faded)
        self._best_s[block] = np.where(met, median_s, self._best_s[block])
        self._met_at_ns[block] = np.where(met, now_ns, self._met_at_ns[block])
        return reference

    def state(self) -> dict[str, Any]:
        """State for a restart. Subjects must be tuples of text and integers, of one length."""
        shape = len(self._rows), len(self._columns)
        best_s, met_at_ns = (a[: shape[0], : shape[1]] for a in (self._best_s, self._met_at_ns))
        rows = np.flatnonzero(~np.isnan(best_s).all(axis=1))
        if len(rows) > MAX_SUBJECTS:
            newest = np.argsort(-met_at_ns[rows].max(axis=1), kind="stable")
            rows = np.sort(rows[newest[:MAX_SUBJECTS]])
        subjects: list[Any] = list(self._rows)
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
        self._rows, self._columns = dict(rows), dict(columns)
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
    """References of sections, of kernels, and of kernels within sections."""

    sections: References
    kernels: References
    kernels_by_section: References

    @classmethod
    def empty(cls, half_life_s: float) -> ReferenceSet:
        return cls(*(References(half_life_s) for _ in fields(cls)))

    def state(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name).state() for field in fields(self)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Parts that it lacks stay. Raises: InputError if one is no state of references."""
        for field in fields(self):
            if field.name in state:
                getattr(self, field.name).restore(state[field.name])


def _no_state(value: str) -> InputError:
    where, expected = "state of own-history references", "what References.state() gives"
    return InputError.of(where, value, expected, "Start without it.")
