"""Transformations do what Grafana's of the same name do, to the cell."""

from __future__ import annotations

import json
import math
from typing import Any

from otel_straggler.dashboards.preview.frames import Field, Frame, of_table
from otel_straggler.dashboards.preview.prometheus import Series
from otel_straggler.dashboards.preview.transformations import KNOWN, transform

from .conftest import PAGES, panels


def table(ref: str = "A", **columns: list[Any]) -> Frame:
    kinds = {"Time": "time"}
    return Frame(
        ref,
        [
            Field(name, kinds.get(name, "string" if _is_text(held) else "number"), held)
            for name, held in columns.items()
        ],
    )


def _is_text(held: list[Any]) -> bool:
    return any(isinstance(value, str) for value in held)


def told(frames: list[Frame]) -> list[dict[str, list[Any]]]:
    return [{one.name: one.values for one in frame.fields} for frame in frames]


def done(frames: list[Frame], id_: str, **options: Any) -> list[dict[str, list[Any]]]:
    made, unknown = transform(frames, [{"id": id_, "options": options}])
    assert not unknown
    return told(made)


def test_every_transformation_of_the_pages_is_known() -> None:
    """Otherwise a preview of them would lack something."""
    used = {
        step["id"]
        for path in PAGES
        for panel in panels(json.loads(path.read_text(encoding="utf-8")))
        for step in panel.get("transformations", ())
    }
    assert used <= KNOWN.keys()


def test_what_is_not_known_is_told_and_the_rest_is_done() -> None:
    """Its name is the answer; a step that is switched off is not done."""
    steps = [
        {"id": "joinByLabels", "options": {}},
        {"id": "limit", "options": {"limitField": 1}},
        {"id": "limit", "disabled": True, "options": {"limitField": 0}},
    ]
    frames, unknown = transform([table(a=[1.0, 2.0])], steps)
    assert (told(frames), unknown) == ([{"a": [1.0]}], ["joinByLabels"])


def test_merge_puts_rows_of_equal_common_columns_together() -> None:
    """By all columns that all tables have; what one lacks is None; order of appearance."""
    lost = table("A", Time=[9.0, 9.0], run=["x", "y"], **{"Value #A": [3.0, 1.0]})
    slow = table("B", Time=[9.0, 9.0], run=["y", "z"], **{"Value #B": [1.2, 1.1]})
    assert done([lost, slow], "merge") == [
        {
            "Time": [9.0, 9.0, 9.0],
            "run": ["x", "y", "z"],
            "Value #A": [3.0, 1.0, None],
            "Value #B": [None, 1.2, 1.1],
        }
    ]


def test_merge_keeps_rows_apart_that_disagree() -> None:
    """Two states of one run are two rows; what both share goes into both."""
    states = table("A", run=["x", "x"], state=["ok", "late"], **{"Value #A": [5.0, 3.0]})
    slow = table("B", run=["x"], **{"Value #B": [1.2]})
    assert done([states, slow], "merge") == [
        {
            "run": ["x", "x"],
            "state": ["ok", "late"],
            "Value #A": [5.0, 3.0],
            "Value #B": [1.2, 1.2],
        }
    ]


def test_merge_of_one_or_of_strangers_does_nothing() -> None:
    """One table stays; tables without a common column stay as they are."""
    one, other = table(a=[1.0]), table(b=[2.0])
    assert done([one], "merge") == [{"a": [1.0]}]
    assert done([one, other], "merge") == [{"a": [1.0]}, {"b": [2.0]}]


def test_organize_leaves_out_then_orders_then_renames() -> None:
    """Left out is by the old name: naming the new one leaves nothing out."""
    frame = table(Time=[1.0], node=["n"], Value=[2.0])
    assert done(
        [frame],
        "organize",
        excludeByName={"Time": True, "is told": True, "node": False},
        indexByName={"Value": 0, "node": 1},
        renameByName={"Value": "is told", "node": ""},
    ) == [{"is told": [2.0], "node": ["n"]}]
    assert list(done([frame], "organize", includeByName={"node": True})[0]) == ["node"]


def test_grouping_to_matrix() -> None:
    """Rows and columns in the order in which they appear; what is missing is empty."""
    frame = table(stage=["0", "0", "1"], data=["1", "0", "1"], Value=[1.1, 1.0, 1.3])
    assert done(
        [frame], "groupingToMatrix", rowField="stage", columnField="data", valueField="Value"
    ) == [{"stage\\data": ["0", "1"], "1": [1.1, 1.3], "0": [1.0, ""]}]


def test_grouping_to_matrix_of_numbers_and_of_what_is_missing() -> None:
    """Columns that were made numbers are named without a point; else the table stays."""
    frame = table(stage=[0.0, 0.0], data=[0.0, 10.0], Value=[1.1, 1.0])
    options = {"rowField": "stage", "columnField": "data", "emptyValue": "null"}
    assert done([frame], "groupingToMatrix", **options) == [
        {"stage\\data": [0.0], "0": [1.1], "10": [1.0]}
    ]
    assert list(done([table(Value=[1.0])], "groupingToMatrix", **options)[0]) == ["Value"]


def test_sort_by_goes_by_letters_and_is_stable() -> None:
    """Text 10 is before 2, number 2 before 10; equal rows keep their order."""
    assert done([table(a=["2", "10"], b=[1.0, 2.0])], "sortBy", sort=[{"field": "a"}]) == [
        {"a": ["10", "2"], "b": [2.0, 1.0]}
    ]
    frame = table(a=[2.0, 10.0, 2.0], b=["x", "y", "z"])
    assert done([frame], "sortBy", sort=[{"field": "a", "desc": True}]) == [
        {"a": [10.0, 2.0, 2.0], "b": ["y", "x", "z"]}
    ]
    assert done([frame], "sortBy", sort=[{"field": "nobody"}]) == told([frame])


def test_convert_field_type() -> None:
    """Text to numbers, None where it is none; and back."""
    frame = table(stage=["10", "x", "", "1,024"])
    number = {"targetField": "stage", "destinationType": "number"}
    assert done([frame], "convertFieldType", conversions=[number]) == [
        {"stage": [10.0, None, None, 1024.0]}
    ]
    text = {"targetField": "a", "destinationType": "string"}
    made, _ = transform(
        [table(a=[1.0, 2.5])], [{"id": "convertFieldType", "options": {"conversions": [text]}}]
    )
    assert (made[0].fields[0].kind, made[0].fields[0].values) == ("string", ["1", "2.5"])


def test_filter_and_limit() -> None:
    """Columns by names or a pattern, and the first rows."""
    frame = table(rank=[1.0, 2.0], rank_name=["a", "b"], node=["n", "n"])
    assert list(done([frame], "filterFieldsByName", include={"pattern": "^rank"})[0]) == [
        "rank",
        "rank_name",
    ]
    assert list(done([frame], "filterFieldsByName", exclude={"names": ["node"]})[0]) == [
        "rank",
        "rank_name",
    ]
    assert done([frame], "limit", limitField=1)[0]["rank"] == [1.0]


def test_series_become_a_table() -> None:
    """Time, labels by the alphabet, the value; its name tells the query if there are several."""
    series = [
        Series({"rank": "5", "node": "n"}, [7.0], [0.5]),
        Series({"rank": "6", "cause": "c"}, [7.0], [math.inf]),
    ]
    assert told([of_table("A", series, is_only=True)]) == [
        {
            "Time": [7.0, 7.0],
            "node": ["n", ""],
            "rank": ["5", "6"],
            "cause": ["", "c"],
            "Value": [0.5, math.inf],
        }
    ]
    assert list(told([of_table("B", series, is_only=False)])[0])[-1] == "Value #B"
