"""DCP's ``.metadata``, which is a pickle, read without running anything that it names.

A name in it stands for an entry of a table, and only the operations that DCP's own pickles consist
of are known. Then each value is compared with what it must be, so that a checkpoint which somebody
else has written is refused in a sentence, and read as DCP reads it otherwise.
"""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import PosixPath, PurePosixPath
from typing import Any, ClassVar, Final, NoReturn

import torch
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint.filesystem import _StorageInfo

from otel_straggler.checkpoint.manifest import Files
from otel_straggler.errors import InputError

_FIELDS: Final = {
    kind: frozenset(each.name for each in fields(kind))
    for kind in (
        dcp.Metadata,
        dcp.MetadataIndex,
        dcp.StorageMeta,
        dcp.TensorStorageMetadata,
        dcp.BytesStorageMetadata,
        dcp.ChunkStorageMetadata,
        dcp.TensorProperties,
        _StorageInfo,
    )
}
"""Made without arguments, and filled with these fields."""
_OPERATIONS: Final = (
    "PROTO FRAME STOP MARK POP POP_MARK MEMOIZE BINPUT LONG_BINPUT BINGET LONG_BINGET "
    "GLOBAL STACK_GLOBAL NEWOBJ REDUCE BUILD NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 "
    "SHORT_BINUNICODE BINUNICODE EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST APPEND APPENDS "
    "EMPTY_DICT SETITEM SETITEMS"
)
"""What DCP's pickles have, of protocols 2 to 5."""


def decode_metadata(encoded: bytes, files: Files, where: str) -> dcp.Metadata:
    """The metadata of a checkpoint.

    Args:
        files: that the checkpoint has; the metadata may name no other.
        where: the checkpoint, for messages.

    Raises:
        InputError: it is none of DCP's, or of other files.
    """
    try:
        metadata = _MetadataUnpickler(io.BytesIO(encoded)).load()
        _check(metadata, files)
    except Exception as error:
        reason = str(error) if isinstance(error, pickle.UnpicklingError) else repr(error)
        raise InputError.of(
            f"{where}: .metadata", reason[:500], "what DCP writes, of the checkpoint's own files",
            "It was not run. If nobody but this training can have written it, report this; else "
            "delete the checkpoint.",
        ) from error  # fmt: skip
    found: dcp.Metadata = metadata
    return found


@dataclass(frozen=True)
class _Name:
    """What a pickle may name, and cannot touch: it is no class and no function."""

    make: Callable[..., Any]


def _refuse(what: str) -> NoReturn:
    raise pickle.UnpicklingError(what)


def _size(numbers: Any = ()) -> torch.Size:
    if type(numbers) not in {tuple, list} or any(type(each) is not int for each in numbers):
        _refuse(f"a size of {numbers!r:.100}")
    return torch.Size(numbers)


def _path(*parts: Any) -> PurePosixPath:
    return PosixPath(*map(_text, parts))


def _text(value: Any) -> str:
    return value if type(value) is str else _refuse(f"{value!r:.100} for a text")


def _layout(name: Any) -> torch.layout:
    found = getattr(torch, _text(name).removeprefix("torch."), None)
    return found if isinstance(found, torch.layout) else _refuse(f"a layout {name!r:.100}")


def _attribute(value: Any, name: Any) -> Any:
    """``getattr``, as Python 3.11.0 to 3.11.3 wrote members of enumerations."""
    is_format = value == _NAMES[_qualified(dcp._MEM_FORMAT_ENCODING)]  # noqa: SLF001
    return dcp._MEM_FORMAT_ENCODING[_text(name)] if is_format else _refuse("getattr")  # noqa: SLF001


def _qualified(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


_NAMES: Final[dict[str, _Name]] = {
    **{_qualified(kind): _Name(functools.partial(object.__new__, kind)) for kind in _FIELDS},
    _qualified(dcp._MEM_FORMAT_ENCODING): _Name(dcp._MEM_FORMAT_ENCODING),  # noqa: SLF001
    "torch.Size": _Name(_size),
    "torch.serialization._get_layout": _Name(_layout),
    "pathlib.PosixPath": _Name(_path),
    "pathlib._local.PosixPath": _Name(_path),
    "builtins.getattr": _Name(_attribute),
}


class _MetadataUnpickler(pickle._Unpickler):  # noqa: SLF001  the one in C has no table of operations
    """In Python: half as fast as the one in C, which allocates what five damaged bytes name."""

    dispatch: ClassVar[dict[int, Any]] = {
        code: pickle._Unpickler.dispatch[code]  # noqa: SLF001
        for code in (getattr(pickle, name)[0] for name in _OPERATIONS.split())
    }

    def load(self) -> Any:
        """As the base class does, without its frames, which are a third of the time."""
        its: Any = self
        read = its.read = its._file_read  # noqa: SLF001
        its.readline = its._file_readline  # noqa: SLF001
        its.metastack, its.stack = [], []
        its.append = its.stack.append
        operations = self.dispatch
        try:
            while code := read(1):
                operations[code[0]](self)
        except KeyError as error:
            _refuse(f"an operation that DCP does not use, or a value that is not there ({error})")
        except pickle._Stop as stop:  # type: ignore[attr-defined]  # noqa: SLF001
            return stop.value
        _refuse("a pickle without an end")

    def load_frame_size(self) -> None:
        self.read(8)  # type: ignore[attr-defined]

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and isinstance(found := getattr(torch, name, None), torch.dtype):
            return found
        known = _NAMES.get(f"{module}.{name}")
        return known or _refuse(f"{module}.{name}, which is not of DCP's metadata")

    def persistent_load(self, pid: Any) -> NoReturn:
        _refuse(f"an object from outside, {pid!r:.100}")

    def load_call(self) -> None:
        arguments, called = self.stack.pop(), self.stack.pop()  # type: ignore[attr-defined]
        if type(called) is not _Name or type(arguments) is not tuple:
            _refuse(f"a call of {called!r:.100}")
        self.append(called.make(*arguments))  # type: ignore[attr-defined]

    def load_state(self) -> None:
        state, made = self.stack.pop(), self.stack[-1]  # type: ignore[attr-defined]
        names = _FIELDS.get(type(made))
        if names is None:
            _refuse(f"a state for a {type(made).__name__}")
        if type(made) is dcp.TensorProperties:
            _check_properties(state)
            made.__setstate__(state)
            return
        if type(state) is not dict or not names.issuperset(state):
            _refuse(f"{state!r:.100} for the fields of a {type(made).__name__}")
        made.__dict__.update(state)
        if type(made) is dcp.MetadataIndex:
            _check_index(made)

    def load_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()  # type: ignore[attr-defined]
        self._set_items([key, value])

    def load_items(self) -> None:
        self._set_items(self.pop_mark())  # type: ignore[attr-defined]

    def _set_items(self, items: list[Any]) -> None:
        """Of plain dicts; tuples in tuples as keys could take forever to hash."""
        found = self.stack[-1]  # type: ignore[attr-defined]
        keys, values = items[::2], items[1::2]
        if type(found) is not dict or any(type(key) not in _KEYS for key in keys):
            _refuse("a key that is no name")
        found.update(zip(keys, values, strict=True))

    def load_elements(self) -> None:
        self._extend(self.pop_mark())  # type: ignore[attr-defined]

    def load_element(self) -> None:
        self._extend([self.stack.pop()])  # type: ignore[attr-defined]

    def _extend(self, values: list[Any]) -> None:
        found = self.stack[-1]  # type: ignore[attr-defined]
        if type(found) is not list:
            _refuse(f"elements for a {type(found).__name__}")
        found.extend(values)

    for _operation, _method in {
        "REDUCE": load_call, "NEWOBJ": load_call, "BUILD": load_state, "SETITEM": load_item,
        "SETITEMS": load_items, "FRAME": load_frame_size,
        "APPEND": load_element, "APPENDS": load_elements,
    }.items():  # fmt: skip
        dispatch[getattr(pickle, _operation)[0]] = _method


_KEYS: Final = frozenset({str, int, dcp.MetadataIndex})


def _check_properties(state: Any) -> None:
    kinds = (torch.dtype, torch.layout, bool, dcp._MEM_FORMAT_ENCODING, bool)  # noqa: SLF001
    if type(state) is not tuple or len(state) != len(kinds):
        _refuse(f"properties of a tensor {state!r:.100}")
    if not all(map(isinstance, state, kinds)):
        _refuse(f"properties of a tensor {state!r:.100}")


def _check_index(index: Any) -> None:
    if (
        type(getattr(index, "fqn", None)) is not str
        or type(index.offset) not in {torch.Size, type(None)}
        or type(index.index) not in {int, type(None)}
    ):
        _refuse("an index that is none")


def _check(metadata: Any, files: Files) -> None:
    """Raises:
    UnpicklingError, AttributeError, TypeError: a part is not what DCP expects there.
    """
    if type(metadata) is not dcp.Metadata:
        _refuse(f"a {type(metadata).__name__} for the metadata")
    if type(getattr(metadata, "storage_meta", None)) not in {dcp.StorageMeta, type(None)}:
        _refuse("a storage_meta that is none")
    for name, value in _checked(metadata.state_dict_metadata, dict).items():
        _text(name)
        if type(value) is dcp.TensorStorageMetadata:
            _check_tensor(name, value)
        elif type(value) is not dcp.BytesStorageMetadata:
            _refuse(f"a {type(value).__name__} for {name!r:.100}")
    for index, stored in _checked(metadata.storage_data, dict).items():
        _checked(index, dcp.MetadataIndex)
        _check_stored(index.fqn, _checked(stored, _StorageInfo), files)


def _checked(value: Any, kind: type) -> Any:
    return (
        value if type(value) is kind else _refuse(f"a {type(value).__name__}, no {kind.__name__}")
    )


def _check_tensor(name: str, tensor: Any) -> None:
    _checked(tensor.properties, dcp.TensorProperties).dtype  # noqa: B018  it has been filled
    dimensions = len(_checked(tensor.size, torch.Size))
    for chunk in _checked(tensor.chunks, list):
        _checked(chunk, dcp.ChunkStorageMetadata)
        for size in (chunk.offsets, chunk.sizes):
            if len(_checked(size, torch.Size)) != dimensions or any(each < 0 for each in size):
                _refuse(
                    f"a part {size!r:.100} of {name!r:.100}, whose size is {tensor.size!r:.100}"
                )


def _check_stored(name: str, stored: Any, files: Files) -> None:
    path, begin, length = stored.relative_path, stored.offset, stored.length
    if getattr(stored, "transform_descriptors", None):
        _refuse(f"{name!r:.100} in an encoding that no manager writes")
    if type(path) is not str or path not in files:
        _refuse(f"{path!r:.100} for the file of {name!r:.100}, which the manifest does not have")
    if type(begin) is not int or type(length) is not int or min(begin, length) < 0:
        _refuse(f"bytes {begin!r:.100} and {length!r:.100} for the place of {name!r:.100}")
    if begin + length > files[path].size_bytes:
        _refuse(f"{name!r:.100} at the bytes {begin} to {begin + length} of {path!r:.100}")
