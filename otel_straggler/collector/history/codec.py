"""Encoding of a history: blobs, summaries of windows, verdicts.

A blob holds JSON's types and NumPy arrays, nested in dicts and lists: one zlib stream with a line
of JSON, in which an array is ``{"$": index}``, and the arrays as ``.npy`` files one after another.
No pickle: untrusted bytes yield only numbers, text, and arrays.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from otel_straggler.collector.views.numbers import peers_of
from otel_straggler.collector.views.world_view import RankTable
from otel_straggler.detect.scores.formulas import relative_scores, slowdowns
from otel_straggler.errors import InputError, UsageError
from otel_straggler.model.decoding import read_as
from otel_straggler.model.observation import Floats
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import Verdict

MAX_BLOB_BYTES: Final = 1 << 30
"""Size of an inflated blob."""
_LEVEL: Final = 4
"""A sixth of the time of zlib's default level, for 2 % more bytes of noisy times."""


# --- blobs --------------------------------------------------------------------------------------


def encode_blob(value: Any, *, is_large: bool = False) -> bytes:
    """Pack a value; equal values give equal bytes. Tuples become lists, NumPy scalars Python
    numbers; NaN and infinities stay. ``is_large``: in less time, and somewhat larger.

    >>> decode_blob(encode_blob({"a": [1, None], "b": np.arange(3)}), where="example")
    {'a': [1, None], 'b': array([0, 1, 2])}

    Raises:
        UsageError: another type in it, a key that is no text, a cycle, or more than 1 GiB.

    Cost: O(size); about 100 MB of arrays a second.
    """
    arrays: list[npt.NDArray[Any]] = []
    file = io.BytesIO()
    try:
        text = json.dumps(_packed(value, arrays), separators=(",", ":"), default=_number)
        file.write(text.encode("ascii") + b"\n")
        for array in arrays:
            np.save(file, array, allow_pickle=False)
        if file.tell() > MAX_BLOB_BYTES:
            raise ValueError(f"{file.tell()} bytes")
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError.of(
            "a blob",
            str(error)[:200],
            "numbers, text and arrays of them in dicts (with text as keys) and lists",
            "Convert it to these types.",
        ) from None
    return zlib.compress(file.getvalue(), 1 if is_large else _LEVEL)


def decode_blob(data: bytes, *, where: str) -> Any:
    """Unpack the result of :func:`encode_blob`; arrays are writable and of native byte order.

    Lengths are checked before memory is allocated: 1 GiB at most.

    Raises:
        InputError: damaged, or no blob; the message begins with ``where``.
    """
    try:
        return _unpacked(_inflated(data))
    except Exception as error:  # noqa: BLE001 - parsers of JSON and of .npy heads raise many kinds
        remedy = "It is damaged or from another version of otel-straggler; it is ignored."
        value = f"{len(data)} bytes ({error})"
        raise InputError.of(where, value, "a blob as it was written", remedy) from None


def _packed(value: Any, arrays: list[npt.NDArray[Any]]) -> Any:
    if isinstance(value, np.ndarray):
        _check_dtype(value.dtype)
        arrays.append(value)
        return {"$": len(arrays) - 1}
    if isinstance(value, dict):
        return {_key(key): _packed(each, arrays) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [each if type(each) is str else _packed(each, arrays) for each in value]
    return value


def _key(key: Any) -> str:
    """Escape a leading ``$``, which marks an array."""
    if type(key) is not str:
        raise TypeError(f"the key {key!r}")
    return "$" + key if key.startswith("$") else key


def _number(value: Any) -> Any:
    if isinstance(value, np.bool_ | np.integer | np.floating):
        return value.item()
    raise TypeError(f"{type(value).__name__} {value!r}")


def _check_dtype(dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise TypeError(f"an array of {dtype}")


def _inflated(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    payload = inflater.decompress(data, MAX_BLOB_BYTES)
    if not inflater.eof or inflater.unused_data:
        raise ValueError("it is cut off, too large, or followed by something")
    return payload


def _unpacked(payload: bytes) -> Any:
    file = io.BytesIO(payload)
    text = file.readline()
    arrays = []
    while file.tell() < len(payload):
        arrays.append(_read_array(file, len(payload)))

    def unpack(value: dict[str, Any]) -> Any:
        if "$" not in value:
            return {key.removeprefix("$"): each for key, each in value.items()}
        (index,) = value.values()
        if type(index) is not int or index < 0:
            raise ValueError(f"the array {index!r}")
        return arrays[index]

    return json.loads(text, object_hook=unpack)


def _read_array(file: io.BytesIO, end: int) -> npt.NDArray[Any]:
    begin = file.tell()
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f".npy of version {version}")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    _check_dtype(dtype)
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > end - file.tell():
        raise ValueError(f"an array of the shape {shape}")
    file.seek(begin)
    array: npt.NDArray[Any] = np.load(file, allow_pickle=False)
    return array.astype(dtype.newbyteorder("="), copy=False)


# --- windows ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class WindowSummary(RankTable):
    """A window as a history keeps it: without layout, and without GPU scores by section.

    Numbers have 5 significant digits (16 bits of a float32). The other attributes are those of
    :class:`WindowScores`.

    Attributes:
        stragglers: (rank, section, kind of score, score), lowest score first.
    """

    run_id: str
    job: str
    group: str
    attempt: int
    start_ns: int
    world_size: int
    closed_by: str
    stragglers: tuple[tuple[int, str, str, float], ...]

    @property
    def slowdown(self) -> Floats:
        """(R, S) own median / median of the role."""
        return slowdowns(self.median_s, peers_of(self.roles))


def window_value(window: WindowScores) -> dict[str, Any]:
    """Encode for a blob, without relative scores and slowdowns, which follow from the medians.

    Cost: O(ranks * sections).
    """
    table = RankTable.of_window(window)
    value = {
        **{f.name: getattr(table, f.name) for f in dataclasses.fields(table)},
        **{name: getattr(window, name) for name in _PLAIN},
        **{name: _rounded(getattr(table, name)) for name in (*_TABLES, *_COLUMNS)},
        "sections": [dataclasses.asdict(section) for section in window.sections],
        "count": table.count.astype(np.int32),
        "stragglers": [
            (s.source.rank, s.section, s.kind_of_score, s.score) for s in window.stragglers
        ],
    }
    may_be_nan = (*_COLUMNS, "gpu_age_s")
    left_out = [*_LEFT_OUT, *(name for name in may_be_nan if np.isnan(value[name]).all())]
    if np.array_equal(value["step_s"], value["median_s"], equal_nan=True):
        left_out.append("step_s")  # one execution a step
    if np.array_equal(value["own_s"], value["step_s"], equal_nan=True):
        left_out.append("own_s")  # nothing else is known
    return {name: each for name, each in value.items() if name not in left_out}


_TABLES: Final = ("median_s", "step_s", "own_s", "individual")
_COLUMNS: Final = ("gpu_relative", "gpu_individual")
_LEFT_OUT: Final = ("relative", "parallels", "gpu_section_relative", "gpu_section_individual")
_PLAIN: Final = ("run_id", "job", "group", "attempt", "start_ns", "world_size", "closed_by")


def read_window(value: Mapping[str, Any], *, where: str) -> WindowSummary:
    """Decode the result of :func:`window_value`.

    Raises:
        InputError: it is another value.
    """
    try:
        return _summary(value)
    except (KeyError, TypeError, ValueError) as error:
        value_text = f"{type(error).__name__}: {error}"
        remedy = "Another version of otel-straggler wrote it; skip it."
        raise InputError.of(where, value_text, "the summary of a window", remedy) from None


def _summary(value: Mapping[str, Any]) -> WindowSummary:
    median_s, n_ranks = value["median_s"], len(value["ranks"])
    unknown = np.full(n_ranks, np.nan)
    step_s = value.get("step_s", median_s)
    derived = {"step_s": step_s, "own_s": step_s, "relative": median_s}
    derived["parallels"] = [()] * n_ranks
    gpu = {"gpu_relative": unknown, "gpu_individual": unknown}
    window: WindowSummary = read_as(WindowSummary, {**derived, **gpu, **value})
    shapes: dict[str, tuple[int, ...]]
    shapes = {name: (n_ranks, len(window.sections)) for name in (*_TABLES, "count")}
    shapes |= dict.fromkeys(("ranks", "nodes", "roles", "devices", *_COLUMNS), (n_ranks,))
    for name, shape in shapes.items():
        if np.shape(getattr(window, name)) != shape:
            raise ValueError(f"{name} of {np.shape(getattr(window, name))}; expected {shape}")
    relative = relative_scores(window.median_s, peers_of(window.roles))
    return dataclasses.replace(window, relative=relative, sections=tuple(window.sections))


def _rounded(values: Floats) -> npt.NDArray[np.float32]:
    """Round to 16 significant bits: noise below 0.001 % of a time does not compress."""
    with np.errstate(over="ignore"):
        narrow = np.ascontiguousarray(values, np.float32)
    bits = narrow.view(np.uint32)
    half = np.uint32(0x7F) + ((bits >> np.uint32(8)) & np.uint32(1))
    kept: npt.NDArray[np.float32] = ((bits + half) & np.uint32(0xFFFFFF00)).view(np.float32)
    return np.where(np.isfinite(narrow), kept, narrow)


# --- verdicts -----------------------------------------------------------------------------------


def verdict_text(verdict: Verdict) -> str:
    values = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in dataclasses.asdict(verdict).items()
    }
    return json.dumps(values, separators=(",", ":"))


def read_verdict(text: str, *, where: str) -> Verdict:
    """Decode the result of :func:`verdict_text`; unknown fields of a newer version are dropped.

    Raises:
        InputError: it is no verdict.
    """
    try:
        verdict: Verdict = read_as(Verdict, json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        expected = f"a verdict as JSON ({error})"
        raise InputError.of(
            where, text[:200], expected, "It is damaged and is not shown."
        ) from None
    return verdict
