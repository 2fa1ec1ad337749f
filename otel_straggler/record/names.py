"""Numbers for names, because a record has room for numbers only."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

SECTIONS = 1
PHASES = 2
"""Tables in the ring's file; see ``NameTable`` in block.hpp."""
MOST_NAMES = 65_536
_MOST_BYTES = 1024
_Key = TypeVar("_Key", bound="str | tuple[str, str]")


class Names(Generic[_Key]):
    """Gives every name a number, for as long as the process lives.

    Args:
        table: which table of the ring's file.
        other: stands for all names above 65,536: a name that varies must not fill the memory.
        publish: told every new name (table, number, bytes).
    """

    def __init__(self, table: int, other: _Key, publish: Callable[[int, int, bytes], None]) -> None:
        self._table = table
        self._other = other
        self._publish = publish
        self._numbers: dict[_Key, int] = {}
        self._all: list[_Key] = []
        self._lock = threading.Lock()

    def number_of(self, key: _Key) -> int:
        """Its number, a new one if it has none."""
        found = self._numbers.get(key)
        return self._new(key) if found is None else found

    def add(self, key: _Key) -> int:
        """A number that ``number_of`` never gives."""
        self._all.append(key)
        return len(self._all) - 1

    def all(self) -> list[_Key]:
        """The names by number. It only grows."""
        return self._all

    def publish_all(self) -> None:
        """Tell all names again."""
        for number, key in enumerate(self._all):
            self._publish(self._table, number, as_bytes(key))

    def reset_lock(self) -> None:
        """In a forked child: a thread of the parent may have held it."""
        self._lock = threading.Lock()

    def _new(self, key: _Key) -> int:
        with self._lock:
            if len(self._all) >= MOST_NAMES and key != self._other:
                key = self._other
            found = self._numbers.get(key)
            if found is None:
                self._all.append(key)
                found = len(self._all) - 1
                self._publish(self._table, found, as_bytes(key))
                self._numbers[key] = found  # last: who finds it may use it
        return found


def as_bytes(key: str | tuple[str, str]) -> bytes:
    """A name as the ring's file has it; of a section ``kind NUL name``."""
    text = key if isinstance(key, str) else f"{key[1]}\0{key[0]}"
    return text.encode("utf-8", "replace")[:_MOST_BYTES]
