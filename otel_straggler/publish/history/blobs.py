"""A blob: JSON's types and NumPy arrays, nested in dicts and lists, as compressed bytes.

No pickle: reading makes numbers, text and arrays, whatever the bytes are. Layout, little-endian::

    "OSB" version:u8 | payload_bytes:u64 | blake2b-128 of the payload | payload, deflated
    payload = json_bytes:u64 | JSON | bytes of the arrays, one after the other

The JSON is ``[value, [[dtype, shape], ...]]``. An array stands in the value as ``{"$": index}``; a
key of a dict that begins with ``$`` gets one more. Bytes of an array lie by significance (all
lowest bytes, then the next), which deflates better: exponents are alike.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from otel_straggler.errors import InputError, UsageError, describe

MAGIC: Final = b"OSB"
VERSION: Final = 1
MOST_PAYLOAD_BYTES: Final = 1 << 30
MOST_NESTED: Final = 64
_LEVEL: Final = 1
_DIGEST_BYTES: Final = 16
_HEAD: Final = struct.Struct(f"<3sBQ{_DIGEST_BYTES}s")
_LENGTH: Final = struct.Struct("<Q")
_MOST_DIMENSIONS: Final = 8
_DTYPES: Final = {
    name: np.dtype(name).newbyteorder("<")
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64",
    )
}  # fmt: skip
_PLAIN: Final = {type(None), bool, int, float, str}


def encode_blob(value: Any) -> bytes:
    """Tuples become lists, NumPy's single numbers Python's; NaN and infinities are kept.

    >>> decode_blob(encode_blob({"a": [1, None], "b": np.arange(3)}), where="example")
    {'a': [1, None], 'b': array([0, 1, 2])}

    Raises:
        UsageError: something in it is of another type, a key is no text, it holds itself, or it
            is larger than 1 GiB.

    Cost: O(size); about 100 MB of arrays a second.
    """
    arrays: list[npt.NDArray[Any]] = []
    packed = _pack(value, arrays, 0)
    heads = [[array.dtype.name, array.shape] for array in arrays]
    try:
        text = json.dumps([packed, heads], separators=(",", ":")).encode("ascii")
    except ValueError as error:  # a whole number of thousands of digits
        raise _cannot(str(error)) from None
    payload = b"".join((_LENGTH.pack(len(text)), text, *map(_bytes_of, arrays)))
    if len(payload) > MOST_PAYLOAD_BYTES:
        raise _cannot(f"{len(payload)} bytes")
    deflated = zlib.compress(payload, _LEVEL)
    return _HEAD.pack(MAGIC, VERSION, len(payload), _digest(payload)) + deflated


def decode_blob(data: bytes, *, where: str) -> Any:
    """The value again; arrays are new, writable and of the byte order of this machine.

    Args:
        data: what :func:`encode_blob` gave.
        where: file and key, for the error.

    Raises:
        InputError: not a byte may differ from what was written.
    """
    try:
        return _decoded(data)
    except (
        _DamagedError,
        ValueError,
        TypeError,
        OverflowError,
        RecursionError,
        zlib.error,
    ) as error:
        raise InputError(
            describe(
                where=where,
                value=f"{len(data)} bytes ({error})",
                expected=f"a blob of version {VERSION} as it was written",
                remedy="It is damaged or of a newer otel-straggler; what it held is not used.",
            )
        ) from None


def digest_of(data: bytes) -> bytes:
    """Equal for equal values, without decoding; of bytes that :func:`encode_blob` gave."""
    digest: bytes = _HEAD.unpack_from(data)[3]
    return digest


class _DamagedError(Exception):
    """Why bytes are no blob; becomes an InputError with its place."""


# --- values to JSON and arrays ------------------------------------------------------------------


def _pack(value: Any, arrays: list[npt.NDArray[Any]], depth: int) -> Any:
    if depth > MOST_NESTED:
        raise _cannot(f"more than {MOST_NESTED} levels")
    if type(value) in _PLAIN:
        return value
    if isinstance(value, np.ndarray):
        return {"$": _take_array(value, arrays)}
    if isinstance(value, np.generic):
        return _pack(value.item(), arrays, depth + 1)
    if isinstance(value, dict):
        return {_key(k): _pack(v, arrays, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        if set(map(type, value)) <= _PLAIN:  # names of thousands of devices
            return value
        return [_pack(item, arrays, depth + 1) for item in value]
    raise _cannot(f"{type(value).__name__} {value!r}"[:200])


def _key(key: Any) -> str:
    if type(key) is not str:
        raise _cannot(f"the key {key!r}"[:200])
    return "$" + key if key.startswith("$") else key


def _take_array(array: npt.NDArray[Any], arrays: list[npt.NDArray[Any]]) -> int:
    if array.dtype.name not in _DTYPES or array.ndim > _MOST_DIMENSIONS:
        raise _cannot(f"an array of {array.dtype} with {array.ndim} dimensions")
    arrays.append(array)
    return len(arrays) - 1


def _bytes_of(array: npt.NDArray[Any]) -> bytes:
    dtype = _DTYPES[array.dtype.name]
    flat = np.ascontiguousarray(array, dtype).reshape(-1)
    by_item = flat.view(np.uint8).reshape(-1, dtype.itemsize)
    turned: bytes = by_item.T.tobytes()
    return turned


def _cannot(value: str) -> UsageError:
    return UsageError(
        describe(
            where="a blob",
            value=value,
            expected="numbers, text and arrays of them in dicts (with text as keys) and lists",
            remedy="Give it in these types.",
        )
    )


# --- and back ----------------------------------------------------------------------------------


def _decoded(data: bytes) -> Any:
    payload = _inflated(data)
    (text_bytes,) = _LENGTH.unpack_from(payload) if len(payload) >= _LENGTH.size else (1 << 63,)
    end = _LENGTH.size + text_bytes
    if end > len(payload):
        raise _DamagedError("the JSON is cut off")
    packed, heads = json.loads(payload[_LENGTH.size : end])
    return _unpack(packed, _read_arrays(heads, payload, end))


def _inflated(data: bytes) -> bytes:
    if len(data) < _HEAD.size:
        raise _DamagedError("the head is cut off")
    magic, version, payload_bytes, digest = _HEAD.unpack_from(data)
    if (magic, version) != (MAGIC, VERSION):
        raise _DamagedError(f"the head says {magic!r}, version {version}")
    if payload_bytes > MOST_PAYLOAD_BYTES:
        raise _DamagedError(f"the head says {payload_bytes} bytes")
    inflater = zlib.decompressobj()
    # One byte more than there may be: a length of 0 would mean "without a limit".
    payload = inflater.decompress(data[_HEAD.size :], payload_bytes + 1)
    if len(payload) != payload_bytes or not inflater.eof or inflater.unused_data:
        raise _DamagedError(f"{len(payload)} bytes where the head says {payload_bytes}")
    if _digest(payload) != digest:
        raise _DamagedError("the check sum differs")
    return payload


def _read_arrays(heads: Any, payload: bytes, at: int) -> list[npt.NDArray[Any]]:
    arrays = []
    for name, shape in heads:
        if name not in _DTYPES or len(shape) > _MOST_DIMENSIONS:
            raise _DamagedError(f"an array of {name!r}")
        if not all(type(n) is int and n >= 0 for n in shape):
            raise _DamagedError(f"an array of the shape {shape!r}")
        dtype, count = _DTYPES[name], math.prod(shape)
        end = at + count * dtype.itemsize
        if end > len(payload):
            raise _DamagedError("an array is cut off")
        by_byte = np.frombuffer(payload, np.uint8, end - at, at).reshape(dtype.itemsize, count)
        flat = np.ascontiguousarray(by_byte.T).reshape(-1).view(dtype)
        arrays.append(flat.reshape(shape).astype(dtype.newbyteorder("=")))
        at = end
    if at != len(payload):
        raise _DamagedError(f"{len(payload) - at} bytes too many")
    return arrays


def _unpack(packed: Any, arrays: list[npt.NDArray[Any]]) -> Any:
    if isinstance(packed, list):
        if set(map(type, packed)) <= _PLAIN:
            return packed
        return [_unpack(item, arrays) for item in packed]
    if not isinstance(packed, dict):
        return packed
    if packed.keys() == {"$"}:
        index = packed["$"]
        if type(index) is not int or not 0 <= index < len(arrays):
            raise _DamagedError(f"the array {index!r}")
        return arrays[index]
    return {_plain_key(k): _unpack(v, arrays) for k, v in packed.items()}


def _plain_key(key: str) -> str:
    if key.startswith("$") and not key.startswith("$$"):
        raise _DamagedError(f"the key {key!r}")
    return key.removeprefix("$")


def _digest(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=_DIGEST_BYTES).digest()
