"""OTLP-JSON -> OTLP protobuf messages, so that there is one decoder of meaning.

OTLP-JSON is not protobuf's canonical JSON: keys are lowerCamelCase only, trace and span ids are
hex, enums are integers; 64-bit integers come as strings or numbers, and unknown fields are
ignored. The tables below are read from the message descriptors.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable
from typing import Any, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from otel_straggler.errors import InputError

MAX_VALUES = 2_000_000
"""Of a request: some hundred bytes and a microsecond each. 16 MiB of spans have half as many."""
_MAX_DEPTH = 64
_LARGE_BYTES = 1024 * 1024
_IDS = frozenset({"traceId", "spanId", "parentSpanId"})
_Where: TypeAlias = "tuple[_Where | str, str | int]"
"""A field or an item, and what it is in."""
_Read = Callable[[Any, _Where], Any]


class _Field:
    """A field, and the function that reads it."""

    __slots__ = ("is_repeated", "name", "read", "table")

    def __init__(self, field: Any) -> None:
        self.name: str = field.name
        self.is_repeated: bool = _is_repeated(field)
        self.table: Descriptor | None = field.message_type
        self.read: _Read | None = None if self.table is not None else _reader(field)


_tables: dict[str, dict[str, _Field]] = {}


def message_from_json(body: bytes, message_type: Callable[[], Any]) -> Any:
    """Decode a whole request.

    Raises:
        InputError: not JSON, too many values, or a field does not have the type that OTLP-JSON
            gives it.
    """
    message = message_type()
    if sum(map(body.count, (b"{", b"[", b","))) > MAX_VALUES:
        msg = f"body: holds more than {MAX_VALUES} values. Send smaller batches"
        raise InputError(msg)
    try:
        value = _loads(body) if body else {}
    except (ValueError, RecursionError) as error:
        msg = f"body: not JSON: {error}"
        raise InputError(msg) from error
    _fill(message, value, message.DESCRIPTOR, "body", 0)
    return message


def _loads(body: bytes) -> Any:
    """Raises ValueError or RecursionError. Without a function of ours the parser lets no other
    thread run until it is done: of 40 MB some seconds."""
    return json.loads(body, object_pairs_hook=_object if len(body) > _LARGE_BYTES else None)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(pairs)


def _fill(message: Any, value: Any, descriptor: Any, where: _Where | str, depth: int) -> None:
    if not isinstance(value, dict):
        raise _wrong(where, value, "an object")
    if depth > _MAX_DEPTH:
        msg = f"{_text_of(where)[:80]}...: nested deeper than {_MAX_DEPTH} levels"
        raise InputError(msg)
    table = _table(descriptor)
    for key, item in value.items():
        field = table.get(key)
        if field is None or item is None:
            continue
        path = where, key
        if field.is_repeated:
            _extend(message, field, item, path, depth)
        elif field.table is not None:
            child = getattr(message, field.name)
            child.SetInParent()
            _fill(child, item, field.table, path, depth + 1)
        else:
            assert field.read is not None
            setattr(message, field.name, field.read(item, path))


def _extend(message: Any, field: _Field, items: Any, where: _Where, depth: int) -> None:
    if not isinstance(items, list):
        raise _wrong(where, items, "an array")
    target = getattr(message, field.name)
    for number, item in enumerate(items):
        path = where, number
        if field.table is not None:
            _fill(target.add(), item, field.table, path, depth + 1)
        else:
            assert field.read is not None
            target.append(field.read(item, path))


def _table(descriptor: Any) -> dict[str, _Field]:
    table = _tables.get(descriptor.full_name)
    if table is None:
        table = {field.json_name: _Field(field) for field in descriptor.fields}
        _tables[descriptor.full_name] = table
    return table


def _is_repeated(field: Any) -> bool:
    """``label`` is deprecated in new protobuf, ``is_repeated`` unknown to old protobuf."""
    known = getattr(field, "is_repeated", None)
    return bool(field.label == FieldDescriptor.LABEL_REPEATED) if known is None else bool(known)


def _reader(field: Any) -> _Read:
    kind = field.cpp_type
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _read_hex if field.json_name in _IDS else _read_base64
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return _read_text
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return _read_bool
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return _read_double
    return _INTEGERS[kind]


def _integer(low: int, high: int) -> _Read:
    def read(value: Any, where: _Where) -> int:
        number = value
        if isinstance(value, str):
            try:
                number = int(value) if len(value) <= 20 else None
            except ValueError:
                number = None
        elif isinstance(value, float) and value.is_integer():
            number = int(value)
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise _wrong(where, value, f"an integer from {low} to {high}")
        return number

    return read


_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: _integer(-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_ENUM: _integer(-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: _integer(0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: _integer(-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: _integer(0, 2**64 - 1),
}


def _read_text(value: Any, where: _Where) -> str:
    if not isinstance(value, str):
        raise _wrong(where, value, "a string")
    return value.encode("utf-8", "replace").decode()


def _read_bool(value: Any, where: _Where) -> bool:
    if not isinstance(value, bool):
        raise _wrong(where, value, "true or false")
    return value


def _read_double(value: Any, where: _Where) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _wrong(where, value, "a number")
    try:
        return float(value)
    except (ValueError, OverflowError) as error:
        raise _wrong(where, value, "a number") from error


def _read_hex(value: Any, where: _Where) -> bytes:
    """An id that is not hex becomes an empty one: the span is bad, not the whole request."""
    text = _read_text(value, where)
    try:
        return binascii.unhexlify(text)
    except ValueError:
        return b""


def _read_base64(value: Any, where: _Where) -> bytes:
    try:
        return base64.b64decode(_read_text(value, where), validate=True)
    except ValueError as error:
        raise _wrong(where, value, "base64") from error


def _text_of(where: _Where | str) -> str:
    """The path that is written only where something is wrong.

    >>> _text_of((("body", "spans"), 3))
    'body.spans[3]'
    """
    steps: list[str] = []
    while not isinstance(where, str):
        where, step = where
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return where + "".join(reversed(steps))


def _wrong(where: _Where | str, value: Any, expected: str) -> InputError:
    shown = repr(value) if not isinstance(value, float) or math.isfinite(value) else str(value)
    return InputError(f"{_text_of(where)}: got {shown[:80]}; expected {expected}")
