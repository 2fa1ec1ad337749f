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
from typing import Any, Final, get_args

import numpy as np
import numpy.typing as npt

from otel_straggler.collector.views.numbers import coded, peers_of
from otel_straggler.collector.views.world_view import RankTable
from otel_straggler.detect.scores.formulas import relative_scores, slowdowns
from otel_straggler.errors import InputError, UsageError, describe
from otel_straggler.model.causes import CAUSES
from otel_straggler.model.observation import Floats, Ints, Section
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import Evidence, Scope, State, Verdict
from otel_straggler.semconv import SECTION_KINDS

MAX_BLOB_BYTES: Final = 1 << 30
"""Size of an inflated blob."""
_LEVEL: Final = 4
"""A sixth of the time of zlib's default level, for 2 % more bytes of noisy times."""


# --- blobs --------------------------------------------------------------------------------------


def encode_blob(value: Any) -> bytes:
    """Pack a value; equal values give equal bytes. Tuples become lists, NumPy scalars Python
    numbers; NaN and infinities stay.

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
        raise UsageError(
            describe(
                where="a blob",
                value=str(error)[:200],
                expected="numbers, text and arrays of them in dicts (with text as keys) and lists",
                remedy="Convert it to these types.",
            )
        ) from None
    return zlib.compress(file.getvalue(), _LEVEL)


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
        raise unreadable(where, value, "a blob as it was written", remedy) from None


def unreadable(where: str, value: str, expected: str, remedy: str) -> InputError:
    return InputError(describe(where=where, value=value, expected=expected, remedy=remedy))


def _packed(value: Any, arrays: list[npt.NDArray[Any]]) -> Any:
    if isinstance(value, np.ndarray):
        _check_dtype(value.dtype)
        arrays.append(value)
        return {"$": len(arrays) - 1}
    if isinstance(value, dict):
        return {_key(key): _packed(each, arrays) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_packed(each, arrays) for each in value]
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
    nodes, node = coded(s.node for s in window.sources)
    roles, role = coded(s.role for s in window.sources)
    median_s = _rounded(window.section_median_s)
    value = {
        **{name: getattr(window, name) for name in _PLAIN},
        "ranks": np.array([s.rank for s in window.sources], np.int64),
        "nodes": nodes,
        "node": node.astype(np.int32),
        "roles": roles,
        "role": role.astype(np.int32),
        "devices": [s.device for s in window.sources],
        "sections": [[s.name, s.kind, *([s.parent] if s.parent else [])] for s in window.sections],
        "median_s": median_s,
        "individual": _rounded(window.section_individual),
        "count": window.section_count.astype(np.int32),
        "stragglers": [
            [s.source.rank, s.section, s.kind_of_score, s.score] for s in window.stragglers
        ],
    }
    step_s = _rounded(window.section_step_s)
    if not np.array_equal(step_s, median_s, equal_nan=True):  # equal for one execution a step
        value["step_s"] = step_s
    for name in _COLUMNS:
        if not np.isnan(column := getattr(window, name)).all():
            value[name] = _rounded(column)
    return value


_TABLES: Final = ("median_s", "step_s", "individual")
_COLUMNS: Final = ("gpu_relative", "gpu_individual")
_PLAIN: Final = (
    "run_id", "job", "group", "attempt", "first_step", "last_step", "start_ns", "end_ns",
    "world_size", "closed_by", "n_steps",
)  # fmt: skip


def read_window(value: Mapping[str, Any], *, where: str) -> WindowSummary:
    """Decode the result of :func:`window_value`.

    Raises:
        InputError: it is another value.
    """
    try:
        summary = _summary(value)
        _check(summary)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        value_text = f"{type(error).__name__}: {error}"
        remedy = "Another version of otel-straggler wrote it; skip it."
        raise unreadable(where, value_text, "the summary of a window", remedy) from None
    return summary


def _summary(value: Mapping[str, Any]) -> WindowSummary:
    ranks: Ints = value["ranks"]
    nothing = np.full(ranks.shape, np.nan, np.float32)
    tables = {name: value.get(name, value["median_s"]) for name in _TABLES}
    columns = {name: value.get(name, nothing) for name in _COLUMNS}
    sections = tuple(Section(*section) for section in value["sections"])
    shape = len(ranks), len(sections)
    _check_arrays(np.float32, shape, *tables.values())
    _check_arrays(np.float32, shape[:1], *columns.values())
    _check_arrays(np.int32, shape, value["count"])
    _check_arrays(np.int64, shape[:1], ranks)
    as_floats = {name: array.astype(np.float64) for name, array in {**tables, **columns}.items()}
    roles = [value["roles"][code] for code in value["role"].tolist()]
    return WindowSummary(
        **{name: value[name] for name in _PLAIN},
        **as_floats,
        ranks=ranks,
        nodes=[value["nodes"][code] for code in value["node"].tolist()],
        roles=roles,
        devices=value["devices"],
        parallels=[()] * len(ranks),
        sections=sections,
        relative=relative_scores(as_floats["median_s"], peers_of(roles)),
        count=value["count"].astype(np.int64),
        stragglers=tuple(
            (r, section, kind, score) for r, section, kind, score in value["stragglers"]
        ),
    )


def _check_arrays(dtype: npt.DTypeLike, shape: tuple[int, ...], *arrays: Any) -> None:
    for array in arrays:
        if array.dtype != dtype or array.shape != shape:
            raise ValueError(f"a table of {array.dtype} {array.shape}; expected {shape}")


def _check(window: WindowSummary) -> None:
    if type(window.n_steps) is not int:
        raise TypeError(f"{window.n_steps!r} steps")
    lengths = {len(window.nodes), len(window.roles), len(window.devices)}
    kinds = {section.kind for section in window.sections}
    texts = {type(text) for s in window.sections for text in (s.name, s.kind, s.parent)}
    if lengths != {len(window.ranks)} or not kinds <= set(SECTION_KINDS) or not texts <= {str}:
        raise ValueError(f"{lengths} names for {len(window.ranks)} ranks, kinds {kinds}")


def _rounded(values: Floats) -> npt.NDArray[np.float32]:
    """Round to 16 significant bits: noise below 0.001 % of a time does not compress."""
    with np.errstate(over="ignore"):
        narrow = np.ascontiguousarray(values, np.float32)
    bits = narrow.view(np.uint32)
    half = np.uint32(0x7F) + ((bits >> np.uint32(8)) & np.uint32(1))
    kept: npt.NDArray[np.float32] = ((bits + half) & np.uint32(0xFFFFFF00)).view(np.float32)
    return np.where(np.isfinite(narrow), kept, narrow)


# --- verdicts -----------------------------------------------------------------------------------

_DEFAULTS: Final = {f.name: f.default for f in dataclasses.fields(Verdict)}
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "scope": get_args(Scope),
    "state": get_args(State),
    "cause": tuple(CAUSES),
    "evidence": get_args(Evidence),
}
_INTEGERS_OR_NONE: Final = {"rank", "since_step", "confirmed_step", "at_step"}


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
        values = json.loads(text)
        known = {name: _typed(name, values[name]) for name in _DEFAULTS if name in values}
        return Verdict(**known)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        expected = f"a verdict as JSON ({error})"
        raise unreadable(where, text[:200], expected, "It is damaged and is not shown.") from None


def _typed(name: str, value: Any) -> Any:
    default = _DEFAULTS[name]
    if name in _CHOICES and value not in _CHOICES[name]:
        raise ValueError(f"{name} {value!r}")
    if name in _INTEGERS_OR_NONE:
        kinds: tuple[type, ...] = (int, type(None))
    elif isinstance(default, float):
        value = math.nan if value is None else float(value)
        kinds = (float,)
    else:
        kinds = (str,) if default is dataclasses.MISSING else (type(default),)
    if type(value) not in kinds:
        raise ValueError(f"{name} {value!r}")
    return value
