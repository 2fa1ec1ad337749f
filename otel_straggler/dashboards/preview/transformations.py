"""What is done to tables between the answer and the panel: Grafana's rules, by its names.

A transformation that is not here is not done and is told to the reader of the panel.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from otel_straggler.dashboards.preview.frames import Field, Frame
from otel_straggler.dashboards.preview.shown import as_number

Options = Mapping[str, Any]
_EMPTY: Final = {"null": None, "true": True, "false": False}


def transform(
    frames: list[Frame], steps: Sequence[Mapping[str, Any]]
) -> tuple[list[Frame], list[str]]:
    """The tables after all steps, and the names of those that are not known."""
    unknown = []
    for step in steps:
        if step.get("disabled"):
            continue
        known = KNOWN.get(step["id"])
        if known is None:
            unknown.append(str(step["id"]))
        else:
            frames = known(frames, step.get("options") or {})
    return frames, unknown


def merge(frames: list[Frame], _: Options) -> list[Frame]:
    """One table: rows that agree in all columns that all tables have become one.

    What two rows both have and differ in keeps them apart. Without a common column nothing is done.
    """
    frames = [frame for frame in frames if frame.fields]
    if len(frames) <= 1:
        return frames
    columns: dict[str, Field] = {}
    for frame in frames:
        for one in frame.fields:
            columns.setdefault(one.name, one.copy(values=[], labels={}, label=""))
    common = [
        name for name in columns if all(any(f.name == name for f in t.fields) for t in frames)
    ]
    if not common:
        return frames
    rows: list[dict[str, Any]] = []
    by_key: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for frame in frames:
        names = [one.name for one in frame.fields]
        for values in frame.rows():
            new = dict(zip(names, values, strict=True))
            _put(new, by_key.setdefault(tuple(str(new[name]) for name in common), []), rows)
    for name, one in columns.items():
        one.values = [row.get(name) for row in rows]
    return [Frame(frames[0].ref, list(columns.values()))]


def _put(new: dict[str, Any], same: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    """Into every row of the same key that does not disagree, else as a row of its own."""
    is_put = False
    for row in same:
        if all(row.get(name) is None or row[name] == value for name, value in new.items()):
            row.update(new)
            is_put = True
    if not is_put:
        same.append(new)
        rows.append(new)


def organize(frames: list[Frame], options: Options) -> list[Frame]:
    """Leaves columns out, orders them and gives them names."""
    left_out = {name for name, is_out in (options.get("excludeByName") or {}).items() if is_out}
    only = {name for name, is_in in (options.get("includeByName") or {}).items() if is_in}
    order = options.get("indexByName") or {}
    names = options.get("renameByName") or {}
    made = []
    for frame in frames:
        kept = [
            one
            for one in frame.fields
            if one.name not in left_out and (not only or one.name in only)
        ]
        kept.sort(key=lambda one: order.get(one.name, len(order)) if order else 0)
        renamed = [_renamed(one, names.get(one.name) or "") for one in kept]
        made.append(Frame(frame.ref, renamed, frame.step_s, frame.name))
    return made


def _renamed(one: Field, name: str) -> Field:
    return one.copy(name=name, label="", labels={}) if name else one


def grouping_to_matrix(frames: list[Frame], options: Options) -> list[Frame]:
    """A row for each value of one column, a column for each of another; order of appearance."""
    row_name, column_name = options.get("rowField") or "Time", options.get("columnField") or "Time"
    if len(frames) != 1:
        return frames
    (frame,) = frames
    held = {one.name: one for one in frame.fields}
    value_name = options.get("valueField") or "Value"
    if not {row_name, column_name, value_name} <= held.keys():
        return frames
    value = held[value_name]
    rows = list(dict.fromkeys(held[row_name].values))
    columns = list(dict.fromkeys(held[column_name].values))
    cells = dict(
        zip(
            zip(held[row_name].values, held[column_name].values, strict=True),
            value.values,
            strict=True,
        )
    )
    empty = _EMPTY.get(str(options.get("emptyValue")), "")
    made = [Field(f"{row_name}\\{column_name}", "string", rows)]
    for column in columns:
        values = [cells.get((row, column), empty) for row in rows]
        name = f"{column:g}" if isinstance(column, float) else str(column)
        made.append(Field(name, value.kind, values, config=dict(value.config)))
    return [Frame(frame.ref, made)]


def sort_by(frames: list[Frame], options: Options) -> list[Frame]:
    """Rows by the first column that is named; text by its letters, so 10 comes before 2."""
    orders = options.get("sort") or []
    if not orders:
        return frames
    name, is_down = orders[0].get("field"), bool(orders[0].get("desc"))
    return [sorted_by(frame, name, by_letters, is_down=is_down) for frame in frames]


def sorted_by(
    frame: Frame, name: str, key: Callable[[Any], tuple[Any, ...]], *, is_down: bool
) -> Frame:
    """Rows in the order of a column; equal ones stay as they are."""
    column = next((one for one in frame.fields if one.name == name), None)
    if column is None:
        return frame
    order = sorted(range(len(frame)), key=lambda at: key(column.values[at]), reverse=is_down)
    fields = [one.copy(values=[one.values[at] for at in order]) for one in frame.fields]
    return Frame(frame.ref, fields, frame.step_s, frame.name)


def convert(frames: list[Frame], options: Options) -> list[Frame]:
    """Columns of another kind; what is no number becomes None."""
    wanted = {
        told.get("targetField"): told.get("destinationType")
        for told in options.get("conversions") or ()
    }
    made = []
    for frame in frames:
        fields = [_converted(one, str(wanted.get(one.name))) for one in frame.fields]
        made.append(Frame(frame.ref, fields, frame.step_s, frame.name))
    return made


def _converted(one: Field, kind: str) -> Field:
    if kind == "number":
        numbers = [as_number(str(v).replace(",", "")) for v in one.values]
        return one.copy(kind=kind, values=[None if math.isnan(n) else n for n in numbers])
    if kind == "string":
        texts = [f"{v:g}" if isinstance(v, float) else str(v) for v in one.values]
        return one.copy(kind=kind, values=texts)
    return one


def limit(frames: list[Frame], options: Options) -> list[Frame]:
    most = int(options.get("limitField") or 10)
    return [
        Frame(f.ref, [one.copy(values=one.values[:most]) for one in f.fields], f.step_s, f.name)
        for f in frames
    ]


def filter_fields(frames: list[Frame], options: Options) -> list[Frame]:
    """Columns by a list of names or a pattern."""
    wanted, unwanted = options.get("include") or {}, options.get("exclude") or {}

    def is_kept(one: Field) -> bool:
        is_in = not wanted or _is_named(one.name, wanted)
        return is_in and not (unwanted and _is_named(one.name, unwanted))

    return [
        Frame(f.ref, [one for one in f.fields if is_kept(one)], f.step_s, f.name) for f in frames
    ]


def _is_named(name: str, chosen: Mapping[str, Any]) -> bool:
    pattern = chosen.get("pattern")
    return name in (chosen.get("names") or ()) or bool(pattern and re.search(pattern, name))


def natural(value: Any) -> tuple[Any, ...]:
    """A key that sorts ``rank2`` before ``rank10``; what is missing is lowest, as in a table.

    >>> sorted(["rank10", "rank2", 3.0, None], key=natural)
    [None, 3.0, 'rank2', 'rank10']
    """
    if value is None or value == "":
        return (0, 0, ())
    if isinstance(value, int | float):
        return (1, value, ())
    pieces = re.split(r"(\d+)", str(value).lower())
    return (2, 0, tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in pieces))


def by_letters(value: Any) -> tuple[Any, ...]:
    """A key that sorts numbers as numbers, and text by its letters; what is missing is last.

    >>> sorted(["10", "2", ""], key=by_letters), sorted([10.0, 2.0], key=by_letters)
    (['10', '2', ''], [2.0, 10.0])
    """
    if isinstance(value, int | float):
        return (0, value, "")
    return (1, not value, str(value or "").lower())


KNOWN: Final[dict[str, Callable[[list[Frame], Options], list[Frame]]]] = {
    "convertFieldType": convert,
    "filterFieldsByName": filter_fields,
    "groupingToMatrix": grouping_to_matrix,
    "limit": limit,
    "merge": merge,
    "organize": organize,
    "sortBy": sort_by,
}
