"""The decoder of one signal: columns from the extension module, else protobuf's messages."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Generic, TypeVar

from google.protobuf.message import DecodeError

from otel_straggler import native
from otel_straggler.errors import InputError
from otel_straggler.otlp.decode_json import message_from_json

MAX_FIELDS = 2_000_000
"""Of a request that protobuf's parser reads: some hundred bytes and a microsecond each."""

_Name = TypeVar("_Name")
_Decoded = TypeVar("_Decoded")
_FULL = 2
_MAX_TABLE_BYTES = 32 * 1024 * 1024
_MAX_PASSES = 8
"""A request is read again for each kind of case at most; the rest is for other threads."""


class SlowError(Exception):
    """A request takes longer to decode than its caller wants to wait."""


class CodeTable(Generic[_Name]):
    """Numbers for names, in the order of their first use. Safe to use from several threads."""

    def __init__(self) -> None:
        self.names: list[_Name] = []
        self._codes: dict[_Name, int] = {}
        self._size = 0
        self._lock = threading.Lock()

    @property
    def is_full(self) -> bool:
        """Whether the names take too much memory, and are to be learned again."""
        return self._size > _MAX_TABLE_BYTES

    def code(self, name: _Name) -> int:
        with self._lock:
            code = self._codes.setdefault(name, len(self.names))
            if code == len(self.names):
                self.names.append(name)
                self._size += _size_of(name)
            return code


def _check_cost(body: bytes, max_slow_bytes: int | None) -> None:
    """Raises as :meth:`Decoder.decode`. Without the extension module nothing is counted."""
    if max_slow_bytes is not None and len(body) > max_slow_bytes:
        raise SlowError
    if native.NATIVE is not None and len(body) > MAX_FIELDS:
        count = native.NATIVE.count_fields(body, MAX_FIELDS + 1)
        if count > MAX_FIELDS:
            msg = f"body: holds more than {MAX_FIELDS} messages and texts. Send smaller batches"
            raise InputError(msg)


def _size_of(name: object) -> int:
    """Bytes in memory of a text, or a tuple or dataclass of texts and numbers, about."""
    if isinstance(name, str):
        return 64 + len(name)
    if isinstance(name, tuple):
        return 64 + sum(map(_size_of, name))
    if is_dataclass(name):
        return 64 + sum(_size_of(getattr(name, each.name)) for each in fields(name))
    return 16


@dataclass(frozen=True, slots=True)
class Cases:
    """A scanner of the extension module, the cases taught to it, and the names of its codes."""

    scanner: Any
    _tables: tuple[CodeTable[Any], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        values = (getattr(self, each.name) for each in fields(self) if each.init)
        tables = tuple(value for value in values if isinstance(value, CodeTable))
        object.__setattr__(self, "_tables", tables)

    @property
    def is_full(self) -> bool:
        """Whether the names of its codes take too much memory. Asked for every request."""
        return any(table.is_full for table in self._tables)


_Cases = TypeVar("_Cases", bound=Cases)


class Decoder(ABC, Generic[_Decoded, _Cases]):
    """Decodes requests of one signal; safe to use from several threads.

    C++ walks the bytes and distinguishes cases; a case is decided here once, by the rules for
    protobuf's messages. Protobuf's own parser reads what C++ does not, and everything without the
    extension module, with the same result.
    """

    _message: ClassVar[Any]

    def __init__(self, *, is_native: bool) -> None:
        self._cases = self._new_cases() if is_native else None

    def decode(self, body: bytes, max_slow_bytes: int | None = None) -> _Decoded:
        """Decode binary protobuf.

        Args:
            max_slow_bytes: of a body that C++ does not read; None: any number.

        Raises:
            InputError: the body is no request of this signal, or holds too much.
            SlowError: it has more than ``max_slow_bytes``.
        """
        try:
            decoded = self._scan(body)
            if decoded is None:
                _check_cost(body, max_slow_bytes)
                decoded = self._read(self._message.FromString(body))
            return decoded
        except DecodeError as error:
            msg = f"body: not an {self._message.__name__} in protobuf: {error}"
            raise InputError(msg) from error

    def decode_json(self, body: bytes, max_slow_bytes: int | None = None) -> _Decoded:
        """Decode OTLP-JSON; arguments and errors as those of :meth:`decode`."""
        if max_slow_bytes is not None and len(body) > max_slow_bytes:
            raise SlowError
        return self._read(message_from_json(body, self._message))

    def _scan(self, body: bytes) -> _Decoded | None:
        """None if protobuf's parser has to read it. When there is no room for another case, all are
        learned again."""
        cases = self._cases
        if cases is None:
            return None
        if cases.is_full:
            cases = self._cases = self._new_cases()
        result = self._columns(cases, body)
        if result == _FULL:
            cases = self._new_cases()
            result = self._columns(cases, body)
            if isinstance(result, tuple):
                self._cases = cases
        return self._decoded(cases, body, *result) if isinstance(result, tuple) else None

    def _columns(self, cases: _Cases, body: bytes) -> tuple[Any, ...] | int:
        """A number if the body is unfamiliar, or there is no room for its cases."""
        for _ in range(_MAX_PASSES):
            result: tuple[Any, ...] | int | list[Any] = cases.scanner.scan(body)
            if not isinstance(result, list):
                return result
            for case, number, context, sample in result:
                self._teach(cases, case, number, context, sample)
        return 0

    @abstractmethod
    def _read(self, request: Any) -> _Decoded:
        """The meaning of a message."""

    @abstractmethod
    def _new_cases(self) -> _Cases: ...

    @abstractmethod
    def _teach(self, cases: _Cases, case: int, number: int, context: bytes, sample: bytes) -> None:
        """Decide over one case.

        Raises:
            DecodeError: context or sample is not what it should be.
        """

    @abstractmethod
    def _decoded(self, cases: _Cases, body: bytes, *columns: Any) -> _Decoded | None:
        """The meaning of the columns of a scan; None if they are not all of it."""
