"""Answers as tables with named fields: what transformations and panels work on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from otel_straggler.dashboards.preview.prometheus import Labels, Series

TIME: Final = "Time"
VALUE: Final = "Value"
CUMULATIVE: Final = "cumulative buckets"
"""Name of a frame whose values count all below its bound, as Prometheus has buckets."""
_PLACE: Final = re.compile(r"\{\{\s*(.+?)\s*\}\}")


@dataclass(slots=True)
class Field:
    """A column. ``kind`` is ``time`` (seconds since the epoch), ``number`` or ``string``.

    ``label`` is the legend that its query gave it, ``config`` how it is to be shown.
    """

    name: str
    kind: str
    values: list[Any]
    labels: Labels = field(default_factory=dict)
    label: str = ""
    config: dict[str, Any] = field(default_factory=dict)

    def copy(self, **changes: Any) -> Field:
        return replace(self, **changes)


@dataclass(slots=True)
class Frame:
    """Columns of equal length, from the query ``ref``; ``step_s`` is between points, if regular."""

    ref: str
    fields: list[Field]
    step_s: float = 0.0
    name: str = ""

    def __len__(self) -> int:
        return len(self.fields[0].values) if self.fields else 0

    def rows(self) -> list[tuple[Any, ...]]:
        return list(zip(*(f.values for f in self.fields), strict=True))

    def numbers(self) -> list[Field]:
        return [f for f in self.fields if f.kind == "number"]

    def times(self) -> Field | None:
        return next((f for f in self.fields if f.kind == "time"), None)


def of_series(
    ref: str, series: Sequence[Series], legend: str, expr: str, step_s: float
) -> list[Frame]:
    """A frame for each series."""
    frames = []
    for one in series:
        label = legend_of(legend, one.labels, expr)
        value = Field(VALUE, "number", one.values, one.labels, label)
        frames.append(Frame(ref, [Field(TIME, "time", one.times_s), value], step_s, label))
    return frames


def of_table(ref: str, series: Sequence[Series], *, is_only: bool) -> Frame:
    """All series as rows: the time, the labels in the order of the alphabet, the value."""
    names: list[str] = []
    for one in series:
        names += [name for name in sorted(one.labels) if name not in names]
    flat = [
        (at, one.labels, value)
        for one in series
        for at, value in zip(one.times_s, one.values, strict=True)
    ]
    labels = [Field(name, "string", [held.get(name, "") for _, held, _ in flat]) for name in names]
    value_name = VALUE if is_only else f"{VALUE} #{ref}"
    return Frame(
        ref,
        [
            Field(TIME, "time", [at for at, _, _ in flat]),
            *labels,
            Field(value_name, "number", [value for _, _, value in flat]),
        ],
    )


def legend_of(legend: str, labels: Labels, expr: str) -> str:
    """The text of a legend; empty where it follows from labels, see `display_name`.

    >>> legend_of("rank {{rank}} {{node}}", {"rank": "5"}, "up")
    'rank 5 '
    """
    if legend == "__auto":
        return "" if labels else expr
    if legend:
        return _PLACE.sub(lambda found: labels.get(found[1], ""), legend)
    name = labels.get("__name__", "")
    rest = ", ".join(f'{key}="{labels[key]}"' for key in sorted(labels) if key != "__name__")
    return f"{name}{{{rest}}}" if rest else name or expr


def display_name(one: Field, frames: Sequence[Frame]) -> str:
    """What a field is called among these: its configured name, legend, only label, or all."""
    if configured := one.config.get("displayName"):
        return str(configured)
    if one.label:
        return one.label
    parts = [] if one.name == VALUE and one.labels else [one.name]
    if one.labels:
        keys = {key for frame in frames for other in frame.fields for key in other.labels}
        if len(keys) == 1:
            parts.append(next(iter(one.labels.values())))
        else:
            inner = ", ".join(f'{key}="{one.labels[key]}"' for key in sorted(one.labels))
            parts.append(f"{{{inner}}}")
    return " ".join(parts)
