"""Numbers kept by key and name, in tables that grow, forget and survive a restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from otel_straggler.model.observation import Floats, Ints

Place: TypeAlias = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]


class KeyedTables:
    """Tables of one float per key (a device, a role) and name (a section).

    Bounded: when there are more keys or names than allowed, those not asked for longest go, a
    quarter at once.

    State: 8 bytes per table, key and name.
    """

    def __init__(self, tables: Sequence[str], max_keys: int, max_names: int) -> None:
        self._tables: dict[str, Floats] = {table: np.zeros((0, 0)) for table in tables}
        self._keys = _Labels(max_keys)
        self._names = _Labels(max_names)

    def place(self, keys: Sequence[str], names: Sequence[str]) -> Place:
        """Where the values of R ``keys`` and S ``names`` stand; new ones stand at 0.

        Valid until the next call. Cost: O(R + S), and a copy of all when something is new.
        """
        for axis, labels, wanted in ((0, self._keys, keys), (1, self._names, names)):
            kept = labels.make_room(wanted)
            if kept is not None:
                self._tables = {t: np.take(v, kept, axis) for t, v in self._tables.items()}
        rows, columns = self._keys.numbers(keys), self._names.numbers(names)
        shape = (len(self._keys), len(self._names))
        self._tables = {table: _grown(v, shape) for table, v in self._tables.items()}
        return rows[:, None], columns[None, :]

    def get(self, table: str, place: Place) -> Floats:
        """(R, S) values; a copy."""
        return self._tables[table][place]

    def put(self, table: str, place: Place, values: Floats) -> None:
        """Replace (R, S) values. A key that was given twice keeps the last."""
        self._tables[table][place] = values

    def state(self) -> dict[str, Any]:
        """Lists of keys and names, and the tables as arrays."""
        shape = (len(self._keys), len(self._names))
        values = {t: v[: shape[0], : shape[1]].copy() for t, v in self._tables.items()}
        return {"keys": self._keys.state(), "names": self._names.state(), **values}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a :meth:`state`; what was there is forgotten."""
        self._keys.restore(state["keys"])
        self._names.restore(state["names"])
        shape = (len(self._keys), len(self._names))
        self._tables = {
            table: np.array(state[table], np.float64).reshape(shape) for table in self._tables
        }


class _Labels:
    """Texts numbered in order of appearance, the oldest unused forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._number: dict[str, int] = {}
        self._used: list[int] = []  # when each was asked for last
        self._now = 0

    def __len__(self) -> int:
        return len(self._number)

    def make_room(self, wanted: Sequence[str]) -> Ints | None:
        """Forget some if ``wanted`` does not fit; returns the old numbers of those that stay."""
        new = {label for label in wanted if label not in self._number}
        if not new or len(self._number) + len(new) <= self._most:
            return None
        needed = set(wanted)
        by_age = sorted(self._number, key=lambda label: self._used[self._number[label]])
        free = [label for label in by_age if label not in needed]
        room = max(0, self._most * 3 // 4 - len(needed))
        gone = set(free[: max(0, len(free) - room)])
        stay = [label for label in self._number if label not in gone]
        kept = np.array([self._number[label] for label in stay], np.int64)
        self._used = [self._used[i] for i in kept]
        self._number = {label: i for i, label in enumerate(stay)}
        return kept

    def numbers(self, wanted: Sequence[str]) -> npt.NDArray[np.intp]:
        self._now += 1
        found = [self._number.setdefault(label, len(self._number)) for label in wanted]
        self._used += [0] * (len(self._number) - len(self._used))
        for number in found:
            self._used[number] = self._now
        return np.array(found, np.intp)

    def state(self) -> list[str]:
        """In order of their numbers."""
        return list(self._number)

    def restore(self, labels: Sequence[str]) -> None:
        self._number = {str(label): i for i, label in enumerate(labels)}
        self._used = [0] * len(self._number)
        self._now = 0


def _grown(values: Floats, shape: tuple[int, int]) -> Floats:
    rows, columns = values.shape
    if shape[0] <= rows and shape[1] <= columns:
        return values
    roomy = np.zeros((_room(rows, shape[0]), _room(columns, shape[1])))
    roomy[:rows, :columns] = values
    return roomy


def _room(have: int, needed: int) -> int:
    return have if needed <= have else max(needed, have + have // 2)
