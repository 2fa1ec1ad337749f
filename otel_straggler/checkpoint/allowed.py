"""Which classes a checkpoint may make when it is restored: plain data, and what the user allows.

Objects that are no tensors are pickles of ``torch.save``, read with ``weights_only=True``: torch
makes nothing that is not on its list. NumPy's arrays are added to it in a form of our own, as its
functions believe any state: a pickle can have an array take bytes for the addresses of objects.
"""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import decimal
import importlib
import pathlib
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from otel_straggler.errors import ConfigError, InputError

Allow = Sequence["type | Callable[..., Any] | str"]
"""Classes, or functions that make objects; or their dotted names."""
_PLAIN: Final = frozenset({int, float, bool, str, bytes, type(None), complex})
_CONTAINERS: Final = frozenset({list, tuple, set})
_HARMLESS: Final = (
    bytes, frozenset, slice, range, pathlib.PosixPath, pathlib.PurePosixPath, decimal.Decimal,
    dt.date, dt.datetime, dt.time, dt.timedelta, dt.timezone,
)  # fmt: skip
_MAIN: Final = ("__main__.", "__mp_main__.")
"""The script, and how the process that writes names it."""
_NAME: Final = re.compile(r"[\w.]{1,200}", re.ASCII)
_MAX_CHECKED_BYTES: Final = 16 << 20
"""Of an object; tensors in a larger one would take their memory twice."""
_ARRAY: Final = "numpy._core.multiarray."
_OLD_ARRAY: Final = "numpy.core.multiarray."


@dataclass(frozen=True)
class Allowed:
    """What may be made besides plain data; picklable.

    Attributes:
        names: dotted, of classes and functions.
    """

    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, allow: Allow) -> Allowed:
        """Raises:
        ConfigError: one is no class or function, or has no such name.
        """
        if isinstance(allow, str):
            raise _refused(allow, "a list")
        return cls(tuple(dict.fromkeys(_name_of(each) for each in allow)))

    def missing(self, needed: dict[str, str]) -> dict[str, str]:
        """Of the classes that a manifest names, with the key of an object of each."""
        return {name: key for name, key in needed.items() if name not in self.names}

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Have torch make these in ``torch.load(weights_only=True)``, besides what the program has
        added by itself."""
        from torch import serialization as torch_serialization

        before = torch_serialization.get_safe_globals()
        own = [(_resolved(name), name) for name in _aliases(self.names)]
        kept = [each for each in before if not _global_name(each).startswith("numpy.")]
        if len(kept) < len(before):
            torch_serialization.clear_safe_globals()
            torch_serialization.add_safe_globals(kept)
        added = [each for each in (*own, *_HARMLESS, *_NUMPY) if each not in before]
        try:
            with torch_serialization.safe_globals(added):
                yield
        finally:
            torch_serialization.add_safe_globals(before)


def restorable_names(saved: Any, value: Any, key: str) -> list[str]:
    """Classes that must be allowed to restore ``value``.

    Args:
        saved: what ``torch.save`` has made of it, a file.
        key: of the state, for messages.

    Raises:
        InputError: it could not be restored with them either.
    """
    if _is_plain(value):
        return []
    position = saved.tell()
    names = sorted(set(_names_in(saved)) - _KNOWN)
    if position <= _MAX_CHECKED_BYTES:
        saved.seek(0)
        with Allowed(tuple(names)).applied():
            load_object(saved, key, "a save")
    saved.seek(position)
    return names


def load_object(saved: Any, key: str, where: str) -> Any:
    """An object that is no tensor, within :meth:`Allowed.applied`.

    Args:
        key: of the state; where: the checkpoint. For messages.

    Raises:
        InputError: it is of a class that is not allowed, or damaged.
    """
    import torch

    try:
        return _with_arrays(torch.load(saved, map_location="cpu", weights_only=True), {})
    except pickle.UnpicklingError as error:
        names = _names_in(saved)
        if not names:
            raise _damaged(where, key, error) from error
        raise not_allowed(where, dict.fromkeys(names, key)) from error
    except Exception as error:
        raise _damaged(where, key, error) from error


def not_allowed(where: str, names: dict[str, str]) -> InputError:
    """Args:
    names: of classes, with the key of an object of each.
    """
    shown = {name if _NAME.fullmatch(name) else ascii(name)[:100]: names[name] for name in names}
    listed = ", ".join(f"{name} (state {key!r:.100})" for name, key in sorted(shown.items())[:8])
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    allow = ", ".join(f'"{name}"' for name in sorted(shown))
    return InputError(
        f"{where}: it has objects of {listed}{more}; expected plain data, tensors and arrays, or "
        f"classes that are allowed. Nothing of them was run. If you trust these classes with "
        f"whatever the folder holds: Manager(..., allow=[{allow:.500}])"
    )


def _damaged(where: str, key: str, error: BaseException) -> InputError:
    reason = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    return InputError.of(
        f"{where}: state {key!r:.100}", reason, "an object that torch.save has written",
        "Restore another step, or delete the checkpoint.",
    )  # fmt: skip


def _names_in(saved: Any) -> list[str]:
    from torch.serialization import get_unsafe_globals_in_checkpoint

    with contextlib.suppress(Exception):  # it is damaged
        saved.seek(0)
        return sorted({_main_of(name) for name in get_unsafe_globals_in_checkpoint(saved)})
    return []


def _is_plain(value: Any) -> bool:
    """Whether it certainly is data that torch makes by itself."""
    kind = type(value)
    if kind in _CONTAINERS:
        return all(map(_is_plain, value))
    if kind is dict or kind is collections.OrderedDict:
        return all(_is_plain(key) and _is_plain(each) for key, each in value.items())
    return kind in _PLAIN


def _name_of(given: Any) -> str:
    if isinstance(given, str):
        _resolved(given)
        return _main_of(given)
    if not callable(given) or not hasattr(given, "__qualname__"):
        raise _refused(given, "classes, functions that make objects, or their dotted names")
    return _main_of(f"{given.__module__}.{given.__qualname__}")


def _resolved(name: str) -> Any:
    """Raises:
    ConfigError: there is no such class or function.
    """
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:end])
        try:
            found: Any = sys.modules.get(module) or importlib.import_module(module)
            for part in parts[end:]:
                found = getattr(found, part)
        except (ImportError, AttributeError):
            continue
        if callable(found):
            return found
    raise _refused(name, "the dotted name of a class or function that can be imported")


def _refused(given: object, expected: str) -> ConfigError:
    return ConfigError.of(
        "Manager(allow=...)", given, expected, 'Such as allow=[Config, "package.module.Config"].'
    )


def _main_of(name: str) -> str:
    """The process that writes has loaded the script under another name."""
    main, other = _MAIN
    return main + name.removeprefix(other) if name.startswith(other) else name


def _aliases(names: Sequence[str]) -> Iterator[str]:
    main, other = _MAIN
    for name in names:
        yield name
        if name.startswith(main):
            yield other + name.removeprefix(main)


def _global_name(given: Any) -> str:
    """Of an entry of torch's list."""
    return str(given[1]) if isinstance(given, tuple) else f"{given.__module__}.{given.__qualname__}"


class _DType:
    """``numpy.dtype`` in a pickle, from the letters of its kind and size."""

    def __init__(self, letters: Any, *_: Any) -> None:
        self._letters = letters.decode() if isinstance(letters, bytes) else str(letters)
        self._order: Any = "="
        self._parts: tuple[Any, ...] = ()

    def __setstate__(self, state: Any) -> None:
        self._order, self._parts = str(state[1]), tuple(state)

    def made(self) -> Any:
        """Raises:
        ValueError, TypeError: of no kind that holds data alone.
        """
        import numpy as np

        _, _, subarray, names, offsets, size = (*self._parts, *(None,) * 6)[:6]
        if subarray is not None:
            parts: Any = subarray[0].made(), subarray[1]
            return np.dtype(parts)
        if names is not None:
            formats = [offsets[name][0].made() for name in names]
            places = [int(offsets[name][1]) for name in names]
            layout: Any = {"names": list(names), "formats": formats, "offsets": places}
            layout["itemsize"] = int(size or 0)
            return np.dtype(layout)
        if self._letters[:2] in {"M8", "m8"} and len(self._parts) > 8:
            unit, count = self._parts[8][1][:2]
            text = unit.decode() if isinstance(unit, bytes) else str(unit)
            letters = f"{self._letters[:2]}[{int(count)}{text}]" if text != "generic" else "M8"
            return np.dtype(letters).newbyteorder(self._order)
        return np.dtype(self._letters).newbyteorder(self._order)


class _Array:
    """``numpy.ndarray`` in a pickle: its shape and bytes, which become an array afterwards."""

    def __init__(self, *_: Any) -> None:
        self._state: tuple[Any, ...] = ()

    def __setstate__(self, state: Any) -> None:
        self._state = tuple(state)

    def made(self, memo: dict[int, Any]) -> Any:
        """Raises:
        ValueError, TypeError: its bytes are not of its shape and type.
        """
        import numpy as np

        _, shape, kind, is_fortran, content = self._state
        dtype = kind.made()
        if dtype.hasobject:
            if type(content) is not list:
                raise TypeError("bytes for objects of Python")
            array: Any = np.empty(len(content), dtype=object)
            array[:] = [_with_arrays(each, memo) for each in content]
        else:
            encoded = content if isinstance(content, bytes) else content.encode("latin-1")
            array = np.frombuffer(bytearray(encoded), dtype)
        return array.reshape(shape, order="F" if is_fortran else "C")


def _scalar(kind: Any, content: Any = b"") -> Any:
    """``numpy.float64`` and others."""
    import numpy as np

    dtype = kind.made()
    if dtype.hasobject:
        raise pickle.UnpicklingError("an object of Python as a scalar of NumPy")
    encoded = content if isinstance(content, bytes) else content.encode("latin-1")
    return np.frombuffer(encoded, dtype, count=1)[0]


def _with_arrays(value: Any, memo: dict[int, Any]) -> Any:
    """The same with NumPy's arrays and types instead of what stands for them."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if id(value) in memo:
        return memo[id(value)][1]
    if kind is _Array:
        result = value.made(memo)
    elif kind is _DType:
        result = value.made()
    elif kind is tuple or kind is frozenset or kind is set:
        result = kind(_with_arrays(each, memo) for each in value)
    else:
        result = value
        memo[id(value)] = value, value  # may have itself in it
        _fill(value, kind, memo)
    memo[id(value)] = value, result
    return result


def _fill(value: Any, kind: type, memo: dict[int, Any]) -> None:
    if isinstance(value, list):
        value[:] = [_with_arrays(each, memo) for each in value]
    elif isinstance(value, dict):
        for key, each in list(value.items()):
            value[key] = _with_arrays(each, memo)
    elif kind.__module__.partition(".")[0] not in {"torch", "builtins"}:
        held = getattr(value, "__dict__", None)
        if isinstance(held, dict):
            held.update({name: _with_arrays(each, memo) for name, each in held.items()})


_NUMPY: Final[tuple[tuple[Any, str], ...]] = (
    *((_Array, f"{module}_reconstruct") for module in (_ARRAY, _OLD_ARRAY)),
    *((_scalar, f"{module}scalar") for module in (_ARRAY, _OLD_ARRAY)),
    (_Array, "numpy.ndarray"),
    (_DType, "numpy.dtype"),
)
_KNOWN: Final = frozenset(
    {
        *(name for _, name in _NUMPY),
        *(f"{kind.__module__}.{kind.__qualname__}" for kind in _HARMLESS),
    }
)
