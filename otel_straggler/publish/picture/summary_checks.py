"""Checks of what a history gives back: a part that is not what was written is an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def array_of(value: Any, kind: Any, n_ranks: int | None) -> npt.NDArray[Any]:
    array = require(value, np.ndarray)
    if array.dtype != kind or array.ndim != 1 or n_ranks not in (None, len(array)):
        raise ValueError(f"an array of {array.dtype} {array.shape}; expected {n_ranks}")
    found: npt.NDArray[Any] = array
    return found


def require(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r:.100} where {kind.__name__} is expected")
    return value


def choice(value: Any, choices: Sequence[str] | Mapping[str, Any]) -> Any:
    if value not in choices:
        raise ValueError(f"{value!r:.100}; expected one of {', '.join(choices)}")
    return value
