"""Blobs: what goes in comes out, and whatever else comes in is an error of our own."""

from __future__ import annotations

import contextlib
import json
import math
import struct
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from otel_straggler.collector.history import codec
from otel_straggler.collector.history.codec import decode_blob, encode_blob
from otel_straggler.errors import InputError, UsageError

DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64",
]  # fmt: skip
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda name: hnp.arrays(name, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
)
NUMBERS = st.integers() | st.floats()
LEAVES = st.none() | st.booleans() | NUMBERS | st.text() | ARRAYS
KEYS = st.text() | st.text("$ab", max_size=3)
VALUES = st.recursive(
    LEAVES, lambda v: st.lists(v, max_size=4) | st.dictionaries(KEYS, v, max_size=4), max_leaves=12
)


def there_and_back(value: Any) -> Any:
    return decode_blob(encode_blob(value), where="test")


def same(a: Any, b: Any) -> bool:
    """Equal in type and value; NaN equals NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and math.isnan(a):
        return math.isnan(b)
    return bool(a == b)


@given(VALUES)
def test_what_is_stored_is_read_again(value: Any) -> None:
    """Every type, dtype and shape that is allowed, NaN, infinities, keys that look like ours."""
    assert same(there_and_back(value), value)


@given(VALUES, VALUES)
def test_blobs_are_equal_for_equal_values_only(a: Any, b: Any) -> None:
    """A state that has not changed is not written again."""
    assert encode_blob(a) == encode_blob(a)
    assume(not same(a, b))
    assert encode_blob(a) != encode_blob(b)


def test_tuples_and_single_numbers_of_numpy_become_plain_python() -> None:
    """So a state may hold ``array.max()``."""
    assert same(
        there_and_back({"a": (1, np.float64(0.5), np.int64(3), np.bool_(True))}),
        {"a": [1, 0.5, 3, True]},
    )


def test_views_and_foreign_byte_orders_are_stored_as_plain_arrays() -> None:
    """Values count, not how they lay in memory; what is read can be written to."""
    value = np.arange(12, dtype=">i4").reshape(3, 4)[:, ::2]
    result = there_and_back(value)
    assert result.dtype == np.dtype("int32")
    assert result.tolist() == value.tolist()
    result[0, 0] = 7


@pytest.mark.parametrize(
    "value",
    [
        {1: "a"},
        {"a": {2.5}},
        b"bytes",
        1j,
        [object()],
        np.array(["text"]),
        np.array([object()]),
        np.array(["2020-01-01"], "M8[s]"),
        np.zeros(1, [("a", "f4")]),
        10**5000,
        [10**5000],
    ],
    ids=range(11),
)
def test_other_types_are_refused(value: Any) -> None:
    """When writing, not a week later when reading; a key 1 that came back as "1" would be worse."""
    with pytest.raises(UsageError, match="a blob"):
        encode_blob(value)


def test_what_holds_itself_is_refused() -> None:
    """And whatever else has no end."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(UsageError, match="a blob"):
        encode_blob(endless)


VALUE = {"a": [1, "x" * 50], "b": np.arange(100.0), "c": {"d": np.ones((2, 3), bool)}}
EXAMPLE = encode_blob(VALUE)


def test_a_changed_byte_never_changes_a_value() -> None:
    """Each byte, changed in three ways, is noticed; a few say the same when deflated otherwise."""
    unnoticed = 0
    for at in range(len(EXAMPLE)):
        for change in (0x01, 0x80, 0xFF):
            damaged = bytearray(EXAMPLE)
            damaged[at] ^= change
            try:
                assert same(decode_blob(bytes(damaged), where="x"), VALUE)
                unnoticed += 1
            except InputError:
                pass
    assert unnoticed < 5


def test_the_error_says_where_and_what_to_do() -> None:
    """File and key, the size, and that it is not used."""
    with pytest.raises(InputError) as refusal:
        decode_blob(EXAMPLE[:-1], where="history.db: state refs")
    assert str(refusal.value).startswith(f"history.db: state refs: got '{len(EXAMPLE) - 1} bytes")
    assert "it is ignored" in str(refusal.value)


def test_no_byte_may_be_missing_or_too_many() -> None:
    """A write that was cut off, a page of zeros behind it."""
    for length in range(len(EXAMPLE)):
        with pytest.raises(InputError):
            decode_blob(EXAMPLE[:length], where="x")
    with pytest.raises(InputError):
        decode_blob(EXAMPLE + b"\0", where="x")


@given(st.binary(max_size=300))
def test_any_bytes_are_a_value_or_an_error_of_our_own(data: bytes) -> None:
    """Never another exception."""
    with pytest.raises(InputError):
        decode_blob(data, where="x")


def forged(text: bytes, *files: bytes) -> bytes:
    """A blob with a right check sum, as somebody malicious would make it."""
    return zlib.compress(b"\n".join([text, b"".join(files)]))


def npy(descr: Any, shape: Any, data: bytes = b"", *, is_fortran: Any = False) -> bytes:
    """An array's file, with any head."""
    head = repr({"descr": descr, "fortran_order": is_fortran, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data


@given(st.binary(max_size=200))
def test_any_payload_is_a_value_or_an_error_of_our_own(payload: bytes) -> None:
    """Also behind a right check sum."""
    with contextlib.suppress(InputError):
        decode_blob(zlib.compress(payload), where="x")
    with contextlib.suppress(InputError):
        decode_blob(forged(b"0", b"\x93NUMPY\x01\x00", payload), where="x")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 70)
    | st.sampled_from(["int8", "float64", "$", "a"]),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(["$", "$$", "a"]), v),
    max_leaves=8,
)


@given(JSON, JSON, JSON, st.binary(max_size=64))
def test_any_json_and_any_head_is_a_value_or_an_error_of_our_own(
    value: Any, descr: Any, shape: Any, rest: bytes
) -> None:
    """Wrong indices, dtypes and shapes included."""
    with contextlib.suppress(InputError):
        decode_blob(forged(json.dumps(value).encode(), npy(descr, shape, rest)), where="x")


def test_a_forged_array_may_be_right() -> None:
    """Else what follows would prove nothing."""
    blob = forged(b'[{"$":0}]', npy("<i8", (2,), b"\1" + b"\0" * 15))
    assert same(decode_blob(blob, where="x"), [np.array([1, 0])])


@pytest.mark.parametrize(
    ("text", "file"),
    [
        (b'{"$":0}', npy("|O", (1,), b"\0" * 8)),
        (b'{"$":0}', npy("<i8", (-1,))),
        (b'{"$":0}', npy("<i8", (2**40, 2**40))),
        (b'{"$":0}', npy("<i8", (0, 2**70))),
        (b'{"$":0}', npy("<i8", (2,), b"\0" * 15)),
        (b'{"$":0}', npy("<i8", (1,), b"\0" * 9)),
        (b'{"$":0}', npy("|V0", (2**62,))),
        (b'{"$":0}', npy("|S0", (2**62,))),
        (b'{"$":0}', npy([("a", "<i8")], (1,), b"\0" * 8)),
        (b'{"$":1}', npy("|i1", (1,), b"\0")),
        (b'{"$":true}', npy("|i1", (1,), b"\0") * 2),
        (b'{"$":-1}', npy("|i1", (1,), b"\0")),
        (b'{"$":0,"a":1}', npy("|i1", (1,), b"\0")),
        (b"0", npy("|i1", (1,), b"\0").replace(b"NUMPY\x01", b"NUMPY\x02")),
        (b"0", npy("|i1", "1", b"\0")),
        (b"0", npy(["|i1"], (1,), b"\0")),
        (b"0", b"PK\3\4"),
        (b"0", b"\x80\x04K\x05."),
    ],
    ids=range(18),
)
def test_forged_arrays_are_refused(text: bytes, file: bytes) -> None:
    """Every length is checked before memory is taken; there is no way to a pickle or an archive."""
    with pytest.raises(InputError):
        decode_blob(forged(text, file), where="x")


def test_a_bomb_is_not_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small blob of nothing but zeros takes no more memory than the largest may."""
    monkeypatch.setattr(codec, "MAX_BLOB_BYTES", 2**20)
    bomb = zlib.compress(b"\0" * 2**26)
    assert len(bomb) < 2**17
    tracemalloc.start()
    with pytest.raises(InputError, match="too large"):
        decode_blob(bomb, where="x")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**22
    with pytest.raises(UsageError, match="bytes"):
        encode_blob(np.zeros(2**20))


def test_nesting_without_end_is_refused() -> None:
    """Deeper than the interpreter's stack."""
    with pytest.raises(InputError):
        decode_blob(forged(b"[" * 100_000 + b"]" * 100_000), where="x")
