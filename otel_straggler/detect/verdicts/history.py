"""Normal values of a device or run, from its own past."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from otel_straggler.detect.scores.references import grown
from otel_straggler.model.observation import Floats, Ints
from otel_straggler.model.verdict import Beginning

HALF_LIFE_S = 24 * 3600.0
MIN_WEIGHT = 3.0
"""Evaluations, faded, that a reference needs."""
MAX_SUBJECTS = 50_000
MAX_NAMES = 1_000


Destination: TypeAlias = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]


class KeyedTables:
    """Tables of one float per key (a device, a role) and name (a section). If there are more than
    allowed, a quarter goes, unused for longest first."""

    def __init__(self, tables: Sequence[str], max_keys: int, max_names: int) -> None:
        self._tables: dict[str, Floats] = {table: np.zeros((0, 0)) for table in tables}
        self._keys = _Labels(max_keys)
        self._names = _Labels(max_names)

    def index(self, keys: Sequence[str], names: Sequence[str]) -> Destination:
        """Location of R ``keys`` and S ``names``, valid until the next call; new values are 0."""
        for axis, labels, wanted in ((0, self._keys, keys), (1, self._names, names)):
            kept = labels.make_room(wanted)
            if kept is not None:
                self._tables = {t: np.take(v, kept, axis) for t, v in self._tables.items()}
        rows, columns = self._keys.numbers(keys), self._names.numbers(names)
        shape = (len(self._keys), len(self._names))
        self._tables = {table: grown(v, shape, 0.0) for table, v in self._tables.items()}
        return rows[:, None], columns[None, :]

    def get(self, table: str, index: Destination) -> Floats:
        """(R, S) values; a copy."""
        return self._tables[table][index]

    def put(self, table: str, index: Destination, values: Floats) -> None:
        self._tables[table][index] = values

    def state(self) -> dict[str, Any]:
        """Lists of keys and names, and the tables as arrays."""
        shape = (len(self._keys), len(self._names))
        values = {t: v[: shape[0], : shape[1]].copy() for t, v in self._tables.items()}
        return {"keys": self._keys.state(), "names": self._names.state(), **values}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._keys.restore(state["keys"])
        self._names.restore(state["names"])
        shape = (len(self._keys), len(self._names))
        self._tables = {
            table: np.array(state[table], np.float64).reshape(shape) for table in self._tables
        }


class OwnHistory(KeyedTables):
    """Faded means of log values by subject and name.

    Of a device the log time relative to its peers, of a run the log of its median step. mean <- (w
    mean + value) / (w + 1), w <- w + 1; w halves in a day of the sender's time. A slow subject
    should not be eligible, or slow becomes its normal.

    State: 24 bytes per subject and name; those unseen for longest go first.
    """

    def __init__(self, max_subjects: int = MAX_SUBJECTS) -> None:
        super().__init__(("mean", "weight", "seen_s"), max_subjects, MAX_NAMES)

    def update(
        self,
        keys: Sequence[str],
        names: Sequence[str],
        value: Floats,
        eligible: npt.NDArray[np.bool_] | None,
        now_ns: int,
    ) -> None:
        """Learn (R, S) logs of R subjects and S names, each once; not finite ones are left out.

        Args:
            eligible: (R, S) normal values; None for all.
            now_ns: the sender's clock. Nothing fades if it runs backwards.
        """
        index = self.index(keys, names)
        taken = np.isfinite(value) if eligible is None else np.isfinite(value) & eligible
        weight = self._weight(index, now_ns)
        mean, seen_s = self.get("mean", index), self.get("seen_s", index)
        moved = (weight * mean + np.where(taken, value, 0.0)) / (weight + 1.0)
        kept = self.get("weight", index)
        self.put("mean", index, np.where(taken, moved, mean))
        self.put("weight", index, np.where(taken, weight + 1.0, kept))
        self.put("seen_s", index, np.where(taken, np.fmax(seen_s, now_ns / 1e9), seen_s))

    def reference(self, keys: Sequence[str], names: Sequence[str], now_ns: int) -> Floats:
        """(R, S) normal log values; NaN below 3 evaluations. Ask before :meth:`update`."""
        index = self.index(keys, names)
        is_enough = self._weight(index, now_ns) >= MIN_WEIGHT
        return np.where(is_enough, self.get("mean", index), np.nan)

    def _weight(self, index: Any, now_ns: int) -> Floats:
        age_s = np.maximum(0.0, now_ns / 1e9 - self.get("seen_s", index))
        # Past 1,000 half-lives nothing is remembered; the cap keeps the power finite.
        faded = np.exp2(-np.minimum(age_s / HALF_LIFE_S, 1000.0))
        weight: Floats = self.get("weight", index) * faded
        return weight


def how_it_began(reference: float, floor: float) -> Beginning:
    """Whether a slow subject became so: its normal log time was below half of ``floor``, the log
    slowdown at which it is called slow.

    >>> how_it_began(0.01, 0.05), how_it_began(0.2, 0.05), how_it_began(float("nan"), 0.05)
    ('became', 'born', 'unknown')
    """
    if math.isnan(reference):
        return "unknown"
    return "became" if reference < 0.5 * floor else "born"


class _Labels:
    """Texts numbered in order of appearance."""

    def __init__(self, maximum: int) -> None:
        self._max = maximum
        self._number: dict[str, int] = {}
        self._used: list[int] = []  # when each was asked for last
        self._now = 0

    def __len__(self) -> int:
        return len(self._number)

    def make_room(self, wanted: Sequence[str]) -> Ints | None:
        """Old numbers of the labels that stay; None if ``wanted`` fits."""
        new = {label for label in wanted if label not in self._number}
        if not new or len(self._number) + len(new) <= self._max:
            return None
        needed = set(wanted)
        by_age = sorted(self._number, key=lambda label: self._used[self._number[label]])
        free = [label for label in by_age if label not in needed]
        room = max(0, self._max * 3 // 4 - len(needed))
        gone = set(free[: max(0, len(free) - room)])
        stay = [label for label in self._number if label not in gone]
        kept = np.array([self._number[label] for label in stay], np.int64)
        self._used = [self._used[i] for i in kept]
        self._number = {label: i for i, label in enumerate(stay)}
        return kept

    def numbers(self, wanted: Sequence[str]) -> npt.NDArray[np.intp]:
        self._now += 1
        result = [self._number.setdefault(label, len(self._number)) for label in wanted]
        self._used += [0] * (len(self._number) - len(self._used))
        for number in result:
            self._used[number] = self._now
        return np.array(result, np.intp)

    def state(self) -> list[str]:
        return list(self._number)

    def restore(self, labels: Sequence[str]) -> None:
        self._number = {str(label): i for i, label in enumerate(labels)}
        self._used = [0] * len(self._number)
        self._now = 0
