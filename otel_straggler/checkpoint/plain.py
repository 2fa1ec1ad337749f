"""Values of known types as JSON: what ranks leave for each other is data, and never code.

The reader names the type that it expects. A dataclass travels as the list of its fields, so nothing
in a message can name a class.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import json
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

Reader = Callable[[Any], Any]
_ATOMS: Final = (int, str, bool, type(None))
_FIELDS: dict[type, Mapping[str, Any]] = {}
_SHOWN: Final = 60


def declare(kind: type, **fields: Any) -> None:
    """Say what fields of a dataclass hold that its own annotations leave open (``Any``)."""
    _FIELDS[kind] = fields


def encode(value: object) -> bytes:
    """JSON of atoms, lists, tuples, dicts by text or number, bytes, paths, enumerations,
    dataclasses, and dtypes and sizes of torch.

    Raises:
        TypeError: something else is in it.
    """
    return json.dumps(value, default=_plain, separators=(",", ":")).encode()


def decode(encoded: bytes | str, kind: Any) -> Any:
    """The value of this type that :func:`encode` was given.

    Args:
        kind: a type, as in an annotation.

    Raises:
        ValueError: it is another one, or no JSON.

    >>> decode(encode({3: (1.5, b"key")}), dict[int, tuple[float, bytes]])
    {3: (1.5, b'key')}
    """
    try:
        return _reader(kind)(json.loads(encoded))
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _plain(value: Any) -> Any:
    kind: Any = type(value)
    if names := _names(kind):
        return [getattr(value, name) for name in names]
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Path) or kind.__module__ == "torch":
        return str(value)
    raise TypeError(f"a {kind.__qualname__} cannot be sent to another rank")


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    if not dataclasses.is_dataclass(kind):
        return ()
    return tuple(field.name for field in dataclasses.fields(kind) if field.init)


@functools.cache
def _reader(kind: Any) -> Reader:
    """What turns JSON into a value of ``kind``, or raises ValueError."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in _ATOMS:
        return lambda value: value if type(value) is kind else _refuse(value, kind.__name__)
    if origin in {Union, types.UnionType}:
        return _reader_of_any(args)
    if origin in {list, Sequence}:
        each = _reader(args[0])
        return lambda value: [each(one) for one in _checked(value, list)]
    if origin is dict:
        return _reader_of_dict(*args)
    if origin is tuple:
        return _reader_of_tuple(args)
    if dataclasses.is_dataclass(kind):
        return _reader_of_fields(kind)
    return _reader_of_atom(kind)


def _reader_of_atom(kind: Any) -> Reader:
    if kind is float:
        return lambda value: (
            float(value) if type(value) in {int, float} else _refuse(value, "a number")
        )
    if kind is bytes:
        return lambda value: base64.b64decode(_checked(value, str), validate=True)
    if kind is Path:
        return lambda value: Path(_checked(value, str))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind
    if getattr(kind, "__module__", "") == "torch":
        return _reader_of_torch(kind)
    raise NotImplementedError(f"messages of {kind!r}")


def _reader_of_torch(kind: Any) -> Reader:
    """A size; or a constant of torch, such as ``torch.float32``."""
    import torch

    if kind is torch.Size:
        numbers = _reader(list[int])
        return lambda value: torch.Size(numbers(value))

    def read(value: Any) -> Any:
        found = getattr(torch, _checked(value, str).removeprefix("torch."), None)
        return found if isinstance(found, kind) else _refuse(value, kind.__name__)

    return functools.cache(read)


def _reader_of_any(kinds: Sequence[Any]) -> Reader:
    readers = [_reader(kind) for kind in kinds if kind is not type(None)]
    takes_none = len(readers) < len(kinds)

    def read(value: Any) -> Any:
        if value is None and takes_none:
            return None
        for reader in readers[:-1]:
            try:
                return reader(value)
            except (ValueError, TypeError):
                continue
        return readers[-1](value)

    return read


def _reader_of_dict(key: Any, value: Any) -> Reader:
    """JSON has only text for keys."""
    of_key, of_value = (int if key is int else _reader(key)), _reader(value)
    return lambda found: {
        of_key(one): of_value(each) for one, each in _checked(found, dict).items()
    }


def _reader_of_tuple(kinds: Sequence[Any]) -> Reader:
    if kinds[-1] is Ellipsis:
        each = _reader(kinds[0])
        return lambda value: tuple(each(one) for one in _checked(value, list))
    readers = [_reader(kind) for kind in kinds]
    return lambda value: tuple(
        reader(one) for reader, one in zip(readers, _of_length(value, len(readers)), strict=True)
    )


def _reader_of_fields(kind: Any) -> Reader:
    names = _names(kind)
    hints = {**get_type_hints(kind), **_FIELDS.get(kind, {})}
    readers = [(name, _reader(hints[name])) for name in names]

    def read(value: Any) -> Any:
        found = _of_length(value, len(readers))
        return kind(
            **{name: reader(one) for (name, reader), one in zip(readers, found, strict=True)}
        )

    return read


def _checked(value: Any, kind: type) -> Any:
    return value if type(value) is kind else _refuse(value, f"a {kind.__name__}")


def _of_length(value: Any, length: int) -> list[Any]:
    found: list[Any] = _checked(value, list)
    return found if len(found) == length else _refuse(value, f"{length} values")


def _refuse(value: Any, expected: str) -> Any:
    shown = repr(value)
    cut = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    raise ValueError(f"got {cut}; expected {expected}")
