"""Kinds of panels, as the pages use them. Ids are given, so that links to a panel stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from grafana_foundation_sdk.builders import bargauge, common, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders import dashboard as d
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as cm
from grafana_foundation_sdk.models import dashboard as dm
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE: Final = cm.DataSourceRef(type_val="prometheus", uid="${datasource}")
Panel: TypeAlias = Builder[dm.Panel]
Steps = Sequence[tuple[float | None, str]]
PLAIN: Final = ((None, "blue"),)
"""For numbers that are neither good nor bad."""
_REFS: Final = "ABCDEFGHIJ"
_MOST_POINTS: Final = 200
"""Of a line, so that an answer about 10,000 ranks stays small on a screen of any width."""
_KEPT: Final = "${__url_time_range}&${datasource:queryparam}&${cluster:queryparam}"


def lines(
    id_: int,
    title: str,
    description: str,
    unit: str,
    queries: Sequence[tuple[str, str]],
    *,
    steps: Steps = PLAIN,
    stacked: bool = False,
    links: Sequence[d.DashboardLink] = (),
    span: int = 12,
    least: float = 0,
    colours: Sequence[tuple[str, str]] = (),
) -> Panel:
    """Lines over time, from ``least`` up; ``queries`` are pairs of legend and expression,
    ``colours`` of the first word of a legend and its colour.
    """
    panel = timeseries.Panel().id(id_).title(title).description(description).unit(unit)
    panel.span(span).height(8).datasource(DATASOURCE).min(least).thresholds(thresholds(steps))
    legend_options = common.VizLegendOptions().display_mode(cm.LegendDisplayMode.LIST)
    panel.legend(legend_options.show_legend(True))
    panel.tooltip(common.VizTooltipOptions().mode(cm.TooltipDisplayMode.MULTI))
    if steps is not PLAIN:
        style = common.GraphThresholdsStyleConfig().mode(cm.GraphThresholdsStyleMode.DASHED)
        panel.thresholds_style(style)
    if stacked:
        panel.fill_opacity(30).stacking(common.StackingConfig().mode(cm.StackingMode.NORMAL))
    panel.data_links(list(links)).max_data_points(_MOST_POINTS)
    for word, colour in colours:
        fixed = dm.DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": colour})
        panel.override_by_regexp(f"^{word}\\b", [fixed])
    for ref, (legend, expression) in zip(_REFS, queries, strict=False):
        panel.with_target(_query(ref, expression).legend_format(legend).range())
    return panel


def number(
    id_: int,
    title: str,
    description: str,
    unit: str,
    expression: str,
    steps: Steps,
    span: int = 4,
    links: Sequence[d.DashboardLink] = (),
    *,
    is_count: bool = False,
    shows: cm.BigValueTextMode = cm.BigValueTextMode.AUTO,
    words: Sequence[str] = (),
) -> Panel:
    """One figure now, or one for each series; ``words`` stand for 0, 1, 2."""
    panel = stat.Panel().id(id_).title(title).description(description).unit(unit)
    panel.decimals(0 if is_count else 2).text_mode(shows)
    panel.span(span).height(4).datasource(DATASOURCE).thresholds(thresholds(steps))
    panel.graph_mode(cm.BigValueGraphMode.NONE).color_mode(cm.BigValueColorMode.VALUE)
    panel.data_links(list(links))
    if words:
        panel.mappings([_words(words)])
    return panel.with_target(_query("A", expression).legend_format("__auto").instant())


def bars(
    id_: int,
    title: str,
    description: str,
    unit: str,
    legend: str,
    expression: str,
    *,
    steps: Steps = PLAIN,
    links: Sequence[d.DashboardLink] = (),
    span: int = 12,
) -> Panel:
    """One bar for each series now."""
    panel = bargauge.Panel().id(id_).title(title).description(description).unit(unit).min(0)
    panel.span(span).height(9).datasource(DATASOURCE).thresholds(thresholds(steps))
    panel.orientation(cm.VizOrientation.HORIZONTAL).data_links(list(links))
    panel.display_mode(cm.BarGaugeDisplayMode.BASIC)
    return panel.with_target(_query("A", expression).legend_format(legend).instant())


def timeline(
    id_: int,
    title: str,
    description: str,
    unit: str,
    legend: str,
    expression: str,
    *,
    steps: Steps,
    links: Sequence[d.DashboardLink] = (),
    words: Sequence[str] = (),
) -> Panel:
    """A row for each series, coloured by its value; ``words`` stand for 0, 1, 2."""
    panel = statetimeline.Panel().id(id_).title(title).description(description).unit(unit)
    panel.span(24).height(10).datasource(DATASOURCE).thresholds(thresholds(steps)).per_page(20)
    panel.color_scheme(d.FieldColor().mode(dm.FieldColorModeId.THRESHOLDS)).data_links(list(links))
    panel.max_data_points(_MOST_POINTS).show_value(cm.VisibilityMode.NEVER).merge_values(True)
    if words:
        panel.mappings([_words(words)])
    return panel.with_target(_query("A", expression).legend_format(legend).range())


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
) -> Panel:
    """A table of what is now. ``columns`` are name, unit, expression and steps of each value.

    Rows of the expressions with equal labels become one row; the first column sorts them. Labels
    have the unit ``string``: with any other, rank 1024 is written as 1.02 K.
    """
    panel = table.Panel().id(id_).title(title).description(description).unit("string")
    panel.span(span).height(9).datasource(DATASOURCE).filterable(True).data_links(list(links))
    panel.thresholds(thresholds(PLAIN))
    if columns[0][0] not in dropped:
        order = common.TableSortByFieldState().display_name(columns[0][0])
        panel.sort_by([order.desc(not is_lowest_first)])
    is_one = len(columns) == 1
    renamed, left_out = {}, ["Time"]
    for ref, (name, unit, expression, steps) in zip(_REFS, columns, strict=False):
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
    id_: int, title: str, description: str, cell: tuple[str, str], expression: str, steps: Steps
) -> Panel:
    """A coloured cell for each pair of labels that are numbers, in their order.

    Args:
        cell: labels of rows and of columns. Grafana puts rows and columns where their first cell
            comes, and sorts text by its letters: so cells are made numbers and sorted before.
    """
    panel = table.Panel().id(id_).title(title).description(description).unit("string").decimals(2)
    panel.span(24).height(14).datasource(DATASOURCE).thresholds(thresholds(steps))
    panel.color_scheme(d.FieldColor().mode(dm.FieldColorModeId.THRESHOLDS))
    panel.override_by_regexp("^(?!.*\\\\).*$", _cells("short", steps))
    row, column = cell
    numbers = [{"targetField": name, "destinationType": "number"} for name in cell]
    panel.with_transformation(_transformation("convertFieldType", conversions=numbers))
    for name in (column, row):
        panel.with_transformation(_transformation("sortBy", sort=[{"field": name}]))
    options = {"rowField": row, "columnField": column, "valueField": "Value"}
    panel.with_transformation(_transformation("groupingToMatrix", **options))
    return panel.with_target(_table_query("A", expression))


def _words(words: Sequence[str]) -> dm.ValueMap:
    options = {str(n): dm.ValueMappingResult(text=word) for n, word in enumerate(words)}
    return dm.ValueMap(options=options)


def thresholds(steps: Steps) -> d.ThresholdsConfig:
    config = d.ThresholdsConfig().mode(dm.ThresholdsMode.ABSOLUTE)
    return config.steps([dm.Threshold(value=value, color=color) for value, color in steps])


def link(title: str, page: str, *labels: str, is_table: bool = False) -> d.DashboardLink:
    """From a series, or a row of a table, to the page about it, with the range.

    Grafana leaves a ``+`` of a name as it is, which a URL says for a space: hence the format.
    """
    held = "__data.fields" if is_table else "__field.labels"
    chosen = "".join(f"&var-{name}=${{{held}.{name}:percentencode}}" for name in labels)
    return d.DashboardLink(title).url(f"/d/otel-straggler-{page}?{_KEPT}{chosen}")


def _transformation(id_: str, **options: Any) -> dm.DataTransformerConfig:
    return dm.DataTransformerConfig(id_val=id_, options=options)


def _query(ref: str, expression: str) -> Dataquery:
    return Dataquery().ref_id(ref).expr(expression).datasource(DATASOURCE)


def _table_query(ref: str, expression: str) -> Dataquery:
    return _query(ref, expression).format(PromQueryFormat.TABLE).instant()


def _cells(unit: str, steps: Steps) -> list[dm.DynamicConfigValue]:
    kept: list[tuple[str, Any]] = [("unit", unit)]
    if steps is not PLAIN:
        kept.append(("thresholds", thresholds(steps).build()))
        kept.append(("color", {"mode": "thresholds"}))
        kept.append(("custom.cellOptions", {"type": "color-background"}))
    return [dm.DynamicConfigValue(id_val=id_, value=value) for id_, value in kept]
