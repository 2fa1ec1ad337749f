"""How much memory an object holds on to, arrays and all."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from otel_straggler.model.rank import Source

NOT_STATE = (type, ModuleType, FunctionType, Source)
"""Code and identity of ranks: the tables hold that for all of them."""


def held_bytes(root: object) -> int:
    """Bytes of everything that can be reached from ``root``, each object once.

    Of a view of an array the whole array counts, for it is kept alive. Cost: O(objects).
    """
    seen: set[int] = set()
    waiting: list[Any] = [root]
    held = 0
    while waiting:
        one = waiting.pop()
        while isinstance(one, np.ndarray) and isinstance(one.base, np.ndarray):
            one = one.base
        if id(one) in seen or isinstance(one, NOT_STATE):
            continue
        seen.add(id(one))
        held += one.nbytes if isinstance(one, np.ndarray) else sys.getsizeof(one)
        waiting.extend(_parts(one))
    return held


def _parts(one: object) -> Iterable[Any]:
    if isinstance(one, Mapping):
        return [*one.keys(), *one.values()]
    if isinstance(one, str | bytes | np.ndarray | int | float | None):
        return ()
    parts: list[Any] = list(vars(one).values()) if hasattr(one, "__dict__") else []
    slots = (name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ()))
    parts += [getattr(one, name) for name in slots if hasattr(one, name)]
    if isinstance(one, Iterable) and hasattr(one, "__len__"):
        parts += list(one)
    return parts
