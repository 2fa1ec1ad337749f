"""Tables, and a table that is a matrix, as the pages use them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from grafana_foundation_sdk.builders import common, table
from grafana_foundation_sdk.builders import dashboard as d
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.models import dashboard as dm
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from otel_straggler.dashboards.panels import (
    DATASOURCE,
    PLAIN,
    REFS,
    Colours,
    Panel,
    Steps,
    query,
    thresholds,
)

OF_ONE_RUN: Final = ("job_name", "run_id")
"""Columns that say the same in each row, on a page about one run."""


def rows(
    id_: int,
    title: str,
    description: str,
    columns: Sequence[tuple[str, str, str, Steps]],
    *,
    links: Sequence[d.DashboardLink] = (),
    span: int = 24,
    dropped: Sequence[str] = (),
    is_lowest_first: bool = False,
    states: Colours = (),
    empty: str,
) -> Panel:
    """A table of what is now. ``columns`` are name, unit, expression and steps of each value.

    Rows of the expressions with equal labels become one row; the first column sorts them. Labels
    have the unit ``string``: with any other, rank 1024 is written as 1.02 K.

    Args:
        states: colours of texts in the column ``state``.
        empty: what is said where there is no row.
    """
    panel = table.Panel().id(id_).title(title).description(description).unit("string")
    panel.span(span).height(9).datasource(DATASOURCE).filterable(True).data_links(list(links))
    panel.thresholds(thresholds(PLAIN))
    _say_if_empty(panel, empty)
    if states:
        panel.override_by_name("state", _texts(states))
    if columns[0][0] not in dropped:
        order = common.TableSortByFieldState().display_name(columns[0][0])
        panel.sort_by([order.desc(not is_lowest_first)])
    is_one = len(columns) == 1
    renamed, left_out = {}, ["Time"]
    for ref, (name, unit, expression, steps) in zip(REFS, columns, strict=False):
        panel.with_target(_table_query(ref, expression))
        column = "Value" if is_one else f"Value #{ref}"
        if name in dropped:
            left_out.append(column)  # by its name before it gets another
        else:
            renamed[column] = name
            panel.override_by_name(name, _cells(unit, steps))
    labels = [name for name in dropped if name not in {column[0] for column in columns}]
    left_out += labels
    if not is_one:
        panel.with_transformation(_transformation("merge"))
    excluded = dict.fromkeys(left_out, True)
    return panel.with_transformation(
        _transformation("organize", excludeByName=excluded, renameByName=renamed)
    )


def matrix(
    id_: int,
    title: str,
    description: str,
    cell: tuple[str, str],
    expression: str,
    steps: Steps,
    empty: str,
) -> Panel:
    """A coloured cell for each pair of labels that are numbers, in their order.

    Args:
        cell: labels of rows and of columns. Grafana puts rows and columns where their first cell
            comes, and sorts text by its letters: so cells are made numbers and sorted before.
    """
    panel = table.Panel().id(id_).title(title).description(description).unit("string").decimals(2)
    panel.span(24).height(14).datasource(DATASOURCE).thresholds(thresholds(steps))
    panel.color_scheme(d.FieldColor().mode(dm.FieldColorModeId.THRESHOLDS))
    _say_if_empty(panel, empty)
    panel.override_by_regexp("^(?!.*\\\\).*$", _cells("short", steps))
    row, column = cell
    numbers = [{"targetField": name, "destinationType": "number"} for name in cell]
    panel.with_transformation(_transformation("convertFieldType", conversions=numbers))
    for name in (column, row):
        panel.with_transformation(_transformation("sortBy", sort=[{"field": name}]))
    options = {"rowField": row, "columnField": column, "valueField": "Value"}
    panel.with_transformation(_transformation("groupingToMatrix", **options))
    return panel.with_target(_table_query("A", expression))


def _say_if_empty(panel: table.Panel, empty: str) -> None:
    """In place of the table; Grafana would say it in each cell that is empty as well."""
    panel.no_value(empty)
    panel.override_by_regexp(".*", [dm.DynamicConfigValue(id_val="noValue", value="")])


def _texts(colours: Colours) -> list[dm.DynamicConfigValue]:
    """Of a column, by what stands in it."""
    options = {word: {"color": colour} for words, colour in colours for word in words.split("|")}
    return [
        dm.DynamicConfigValue(id_val="mappings", value=[{"type": "value", "options": options}]),
        dm.DynamicConfigValue(id_val="custom.cellOptions", value={"type": "color-text"}),
    ]


def _transformation(id_: str, **options: Any) -> dm.DataTransformerConfig:
    return dm.DataTransformerConfig(id_val=id_, options=options)


def _table_query(ref: str, expression: str) -> Dataquery:
    return query(ref, expression).format(PromQueryFormat.TABLE).instant()


def _cells(unit: str, steps: Steps) -> list[dm.DynamicConfigValue]:
    kept: list[tuple[str, Any]] = [("unit", unit)]
    if steps is not PLAIN:
        kept.append(("thresholds", thresholds(steps).build()))
        kept.append(("color", {"mode": "thresholds"}))
        kept.append(("custom.cellOptions", {"type": "color-background"}))
    return [dm.DynamicConfigValue(id_val=id_, value=value) for id_, value in kept]
