"""The summary of a closed window as a value for a blob, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from otel_straggler.errors import InputError, describe
from otel_straggler.model.observation import Floats, Ints, Section
from otel_straggler.model.scores import WindowScores
from otel_straggler.score.section_scores import relative_scores, slowdowns
from otel_straggler.semconv import SECTION_KINDS

Floats32: TypeAlias = npt.NDArray[np.float32]
Codes: TypeAlias = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowSummary:
    """What a history keeps of a window: R ranks, S sections; NaN = no data or not comparable.

    Numbers have 5 significant digits (16 bits of a float32).

    Attributes:
        run_id, job, group, attempt, first_step, last_step, start_ns, end_ns, world_size, closed_by:
            as in :class:`WindowScores`.
        n_steps: likewise; of an older history from the first to the last one.
        ranks: (R,) ascending.
        nodes, roles: (R,) of each rank; devices may be empty text.
        sections: (S,)
        median_s, step_s, individual: (R, S)
        count: (R, S) section runs.
        gpu_relative, gpu_individual: (R,)
        stragglers: (rank, section, kind of score, score), lowest score first.
    """

    run_id: str
    job: str
    group: str
    attempt: int
    first_step: int | None
    last_step: int | None
    start_ns: int
    end_ns: int
    world_size: int
    closed_by: str
    n_steps: int
    ranks: Ints
    nodes: tuple[str, ...]
    roles: tuple[str, ...]
    devices: tuple[str, ...]
    sections: tuple[Section, ...]
    median_s: Floats32
    step_s: Floats32
    individual: Floats32
    count: Codes
    gpu_relative: Floats32
    gpu_individual: Floats32
    stragglers: tuple[tuple[int, str, str, float], ...]

    @property
    def relative(self) -> Floats:
        """(R, S) best rank's median / own median, within a role."""
        return relative_scores(self.median_s.astype(np.float64), self._peers)

    @property
    def slowdown(self) -> Floats:
        """(R, S) own median / median of the role."""
        return slowdowns(self.median_s.astype(np.float64), self._peers)

    @property
    def _peers(self) -> npt.NDArray[np.int64]:
        return _codes(self.roles)[1].astype(np.int64)


def window_value(window: WindowScores) -> dict[str, Any]:
    """For :func:`encode_blob`. Relative scores and slowdowns are made again from the medians.

    Cost: O(ranks * sections).
    """
    nodes, node = _codes([s.node for s in window.sources])
    roles, role = _codes([s.role for s in window.sources])
    median_s = _rounded(window.section_median_s)
    value = {
        **{name: getattr(window, name) for name in _PLAIN},
        "n_steps": window.n_steps,
        "ranks": np.array([s.rank for s in window.sources], np.int64),
        "nodes": nodes,
        "node": node,
        "roles": roles,
        "role": role,
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
    if not np.array_equal(step_s, median_s, equal_nan=True):  # as where it runs once in a step
        value["step_s"] = step_s
    for name in ("gpu_relative", "gpu_individual"):
        if not np.isnan(column := getattr(window, name)).all():
            value[name] = _rounded(column)
    return value


_PLAIN = (
    "run_id", "job", "group", "attempt", "first_step", "last_step", "start_ns", "end_ns",
    "world_size", "closed_by",
)  # fmt: skip


def read_window(value: Mapping[str, Any], *, where: str) -> WindowSummary:
    """The summary from what a blob held.

    Raises:
        InputError: it is not what :func:`window_value` gives.
    """
    try:
        summary = _summary(value)
        _check(summary)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InputError(
            describe(
                where=where,
                value=f"{type(error).__name__}: {error}",
                expected="the summary of a window",
                remedy="It was written by another otel-straggler; leave it out.",
            )
        ) from None
    return summary


def _summary(value: Mapping[str, Any]) -> WindowSummary:
    ranks: Ints = value["ranks"]
    nothing = np.full(ranks.shape, np.nan, np.float32)
    return WindowSummary(
        **{name: value[name] for name in _PLAIN},
        n_steps=value["n_steps"] if "n_steps" in value else _span_of(value),
        ranks=ranks,
        nodes=tuple(value["nodes"][code] for code in value["node"].tolist()),
        roles=tuple(value["roles"][code] for code in value["role"].tolist()),
        devices=tuple(value["devices"]),
        sections=tuple(Section(*section) for section in value["sections"]),
        median_s=value["median_s"],
        step_s=value.get("step_s", value["median_s"]),
        individual=value["individual"],
        count=value["count"],
        gpu_relative=value.get("gpu_relative", nothing),
        gpu_individual=value.get("gpu_individual", nothing),
        stragglers=tuple(
            (r, section, kind, score) for r, section, kind, score in value["stragglers"]
        ),
    )


def _span_of(value: Mapping[str, Any]) -> int:
    first, last = value["first_step"], value["last_step"]
    return 0 if first is None or last is None else int(last - first + 1)


def _check(window: WindowSummary) -> None:
    if type(window.n_steps) is not int:
        raise TypeError(f"{window.n_steps!r} steps")
    shape = len(window.ranks), len(window.sections)
    lengths = {len(window.nodes), len(window.roles), len(window.devices)}
    kinds = {section.kind for section in window.sections}
    texts = {type(text) for s in window.sections for text in (s.name, s.kind, s.parent)}
    if lengths != {shape[0]} or not kinds <= set(SECTION_KINDS) or not texts <= {str}:
        raise ValueError(f"{lengths} names for {shape[0]} ranks, kinds {kinds}")
    tables = (window.median_s, window.step_s, window.individual)
    columns = (window.gpu_relative, window.gpu_individual)
    for arrays, kind, expected in (
        (tables, np.float32, shape),
        ((window.count,), np.int32, shape),
        (columns, np.float32, shape[:1]),
        ((window.ranks,), np.int64, shape[:1]),
    ):
        for array in arrays:
            if array.dtype != kind or array.shape != expected:
                raise ValueError(f"a table of {array.dtype} {array.shape}; expected {expected}")


def _codes(names: Sequence[str]) -> tuple[list[str], Codes]:
    """A table of names, and for each name its place there."""
    table: dict[str, int] = {}
    codes = [table.setdefault(name, len(table)) for name in names]
    return list(table), np.array(codes, np.int32)


def _rounded(values: Floats) -> Floats32:
    """To 16 significant bits: 0.001 % of a measured time is noise that cannot be compressed."""
    with np.errstate(over="ignore"):
        narrow = np.ascontiguousarray(values, np.float32)
    bits = narrow.view(np.uint32)
    half = np.uint32(0x7F) + ((bits >> np.uint32(8)) & np.uint32(1))
    kept: Floats32 = ((bits + half) & np.uint32(0xFFFFFF00)).view(np.float32)
    return np.where(np.isfinite(narrow), kept, narrow)
