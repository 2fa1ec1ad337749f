"""Dataclasses as JSON's types and arrays, and checked decoding by their annotations."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from types import GenericAlias, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import numpy as np


def plain(value: Any) -> Any:
    """Like ``dataclasses.asdict``, without copies of what holds no dataclass; sets become lists.
    Cost: O(fields), not O(ranks)."""
    if dataclasses.is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, list | tuple) and value and dataclasses.is_dataclass(value[0]):
        return [plain(each) for each in value]
    return sorted(value) if isinstance(value, frozenset) else value


def columns_of(rows: Sequence[Any], names: Iterable[str]) -> dict[str, list[Any]]:
    """Fields of dataclasses, each as a list in the order of the rows, like :func:`plain`; a list of
    one where all rows have the same. Cost: 50 ns a value."""
    return {name: _column(list(map(attrgetter(name), rows))) for name in names}


def _column(values: list[Any]) -> list[Any]:
    if values and values.count(values[0]) == len(values):
        values = values[:1]
    if any(map(dataclasses.is_dataclass, set(map(type, values)))):
        return list(map(plain, values))
    return values


def read_columns(kind: type, columns: Mapping[str, Any], n_rows: int) -> list[dict[str, Any]]:
    """Read the result of :func:`columns_of`: the fields of each row. Raises as :func:`read_as`.

    >>> from otel_straggler.model.rank import Source
    >>> rows = [Source(run_id="r", rank=0), Source(run_id="r", rank=1)]
    >>> columns = columns_of(rows, ["run_id", "rank"])
    >>> columns, read_columns(Source, columns, 2)
    ({'run_id': ['r'], 'rank': [0, 1]}, [{'run_id': 'r', 'rank': 0}, {'run_id': 'r', 'rank': 1}])
    """
    types = _types(kind)
    known = {
        name: read_as(GenericAlias(list, (types[name],)), each)
        for name, each in columns.items()
        if name in types
    }
    every = [each * n_rows if len(each) == 1 else each for each in known.values()]
    return [dict(zip(known, row, strict=True)) for row in zip(*every, strict=True)]


def read_as(kind: Any, value: Any) -> Any:
    """Read the result of :func:`plain`, in which tuples may be lists, NaN None, and numbers of
    arrays narrower.

    Fields that the class does not have are ignored, and missing ones have their defaults.

    Args:
        kind: a dataclass, or what annotates its fields: plain types, arrays, ``Literal``,
            ``| None``, and containers of them.

    Raises:
        ValueError, TypeError: it is another value.

    >>> read_as(tuple[float | None, ...], [1, 2.5, None])
    (1.0, 2.5, None)
    """
    if kind is float:
        return math.nan if value is None else float(_require(value, (float, int)))
    if kind is int or kind is str:
        return _require(value, kind)
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin is Any:
        return value
    if dataclasses.is_dataclass(origin):
        types = _types(cast("type", origin))
        known = {name: value[name] for name in types if name in _require(value, Mapping)}
        return kind(**{name: read_as(types[name], each) for name, each in known.items()})
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"{value!r:.100}; expected one of {arguments}")
        return value
    if origin in (Union, UnionType):
        return None if value is None else read_as(arguments[0], value)
    if origin is np.ndarray:
        return _read_array(np.dtype(get_args(arguments[1])[0]), value)
    if arguments:
        return _read_container(origin, arguments, value)
    return _require(value, kind)


def _read_container(origin: type, arguments: tuple[Any, ...], value: Any) -> Any:
    if issubclass(origin, Mapping):
        key, of_value = arguments
        pairs = _require(value, dict).items()
        return {read_as(key, name): read_as(of_value, each) for name, each in pairs}
    many = _require(value, list | tuple | frozenset)
    if origin is tuple and arguments[-1] is not ...:
        return tuple(read_as(kind, each) for kind, each in zip(arguments, many, strict=True))
    container = origin if origin in (tuple, frozenset) else list
    if arguments[0] is str and all(type(each) is str for each in many):
        return container(many)  # names of ten thousand ranks
    return container(read_as(arguments[0], each) for each in many)


@cache
def _types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _require(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{value!r:.100} where {kind} is expected")
    return value


def _read_array(dtype: np.dtype[Any], value: Any) -> Any:
    if _require(value, np.ndarray).dtype.kind != dtype.kind:
        raise TypeError(f"an array of {value.dtype}; expected {dtype}")
    return value.astype(dtype, copy=False)
