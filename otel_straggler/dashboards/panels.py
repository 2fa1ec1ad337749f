"""Kinds of panels and their colors. Ids are fixed, so that links stay."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from grafana_foundation_sdk.builders import bargauge, common, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders import dashboard as d
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as cm
from grafana_foundation_sdk.models import dashboard as dm
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from otel_straggler.semconv import RUNBOOK_PATH

PAGE_URL: Final = "page_url"
"""Variable, and label, with the address of the collector's live page."""
DATASOURCE: Final = cm.DataSourceRef(type_val="prometheus", uid="${datasource}")
Panel: TypeAlias = Builder[dm.Panel]
Steps = Sequence[tuple[float | None, str]]
"""Where a color begins. Those used by alerts are the alerts' defaults; a test checks it."""
Colours = Sequence[tuple[str, str]]
"""First words of a legend, as a pattern, and their color."""
Queries = Sequence[tuple[str, str]]
"""Pairs of legend and expression."""
PLAIN: Final = ((None, "blue"),)
"""For numbers that are neither good nor bad."""
SCORE_LOW: Final = 0.75
RUN_SLOW: Final = 1.15
SCORES: Final = ((None, "dark-red"), (SCORE_LOW, "orange"), (0.9, "green"))
RUN_SLOWDOWNS: Final = ((None, "green"), (1.05, "orange"), (RUN_SLOW, "dark-red"))
SLOWDOWNS: Final = ((None, "green"), (1.1, "orange"), (1 / SCORE_LOW, "dark-red"))
NONE_IS_GOOD: Final = ((None, "green"), (0.5, "dark-red"))
SHARES: Final = ((None, "dark-red"), (0.5, "orange"), (0.95, "green"))
GOODPUTS: Final = ((None, "dark-red"), (0.7, "orange"), (0.9, "green"))
HEAT: Final = ((None, "green"), (85.0, "orange"), (92.0, "dark-red"))
HEARTBEAT_AGES: Final = ((None, "green"), (20.0, "dark-red"))
"""Seconds since the last heartbeat: after so many a rank is lost by default."""
RATE_IS_ODD: Final = ((None, "green"), (0.001, "orange"))
URGENCIES: Final = ((None, "blue"), (2.0, "orange"), (3.0, "dark-red"))
PART_IS_ODD: Final = ((None, "green"), (0.05, "orange"))
STATES: Final = (
    ("ok", "green"),
    ("starting", "light-blue"),
    ("finished", "blue"),
    ("ended", "blue"),
    ("failed", "red"),
    ("late", "orange"),
    ("missing", "purple"),
    ("stuck", "dark-red"),
    ("lost", "dark-purple"),
)
"""Of ranks: Grafana's default colors would make healthy ones red."""
RUN_STATES: Final = (
    ("training", "green"),
    ("starting", "light-blue"),
    ("stuck|partly_lost|lost|failed", "dark-red"),
    ("forgotten", "orange"),
)
OF_ONE_RUN: Final = ("job_name", "run_id")
"""Columns that are the same in each row, on a dashboard about one run."""
_MAX_POINTS: Final = 200
"""Of a line, so that an answer about 10,000 ranks stays small on a screen of any width."""
_KEPT: Final = "${__url_time_range}&${datasource:queryparam}&${cluster:queryparam}"


# --- texts ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    """Texts of a panel; ``empty`` is shown where there is nothing to draw."""

    id: int
    title: str
    unit: str
    description: str
    empty: str


_PARAGRAPH: Final = re.compile(r"(\d+) (.*?)(?: \[(\w+)\])?\. (.*)")


def texts(catalogue: str) -> dict[int, Text]:
    r"""Texts of a page, by panel. A paragraph: id, title, [unit] and description; what to show
    where there is nothing to draw.

    >>> texts("1 Power [watt]. Of the GPU.\nEmpty: No GPU.")[1]
    Text(id=1, title='Power', unit='watt', description='Of the GPU.', empty='No GPU.')
    """
    result = {}
    for paragraph in catalogue.strip().split("\n\n"):
        text, _, empty = paragraph.partition("\nEmpty: ")
        match = _PARAGRAPH.fullmatch(text.replace("\n", " "))
        assert match is not None, text
        shown = (empty or "Nothing was reported in this range.").replace("\n", " ")
        result[int(match[1])] = Text(int(match[1]), match[2], match[3] or "short", match[4], shown)
    return result


# --- lines, numbers, bars ------------------------------------------------------------------------


def lines(
    text: Text,
    queries: Queries,
    *,
    steps: Steps = PLAIN,
    stacked: bool = False,
    links: Sequence[d.DashboardLink] = (),
    span: int = 12,
    lowest: float = 0,
    colours: Colours = (),
    has_exemplars: bool = False,
) -> Panel:
    """Lines over time, from ``lowest`` up; exemplars are points that lead to a trace."""
    panel = timeseries.Panel().min(lowest).max_data_points(_MAX_POINTS)
    legend_options = common.VizLegendOptions().display_mode(cm.LegendDisplayMode.LIST)
    panel.legend(legend_options.show_legend(True))
    panel.tooltip(common.VizTooltipOptions().mode(cm.TooltipDisplayMode.MULTI))
    if steps is not PLAIN:
        style = common.GraphThresholdsStyleConfig().mode(cm.GraphThresholdsStyleMode.DASHED)
        panel.thresholds_style(style)
    if stacked:
        panel.fill_opacity(30).stacking(common.StackingConfig().mode(cm.StackingMode.NORMAL))
    for ref, (legend, expression) in zip("ABCDEFGHIJ", queries, strict=False):
        query = _query(ref, expression).legend_format(legend).range()
        panel.with_target(query.exemplar(True) if has_exemplars else query)
    _describe(panel, text, steps, (span, 8))
    return _linked(panel, links, colours)


def number(
    text: Text,
    expression: str,
    steps: Steps = PLAIN,
    span: int = 4,
    links: Sequence[d.DashboardLink] = (),
    *,
    is_count: bool = False,
    shows: cm.BigValueTextMode = cm.BigValueTextMode.AUTO,
    texts: Sequence[str] = (),
    colours: Colours = (),
) -> Panel:
    """One figure now, or one for each series; ``texts`` stand for 0, 1, 2."""
    panel = stat.Panel().decimals(0 if is_count else 2).text_mode(shows)
    panel.graph_mode(cm.BigValueGraphMode.NONE).color_mode(cm.BigValueColorMode.VALUE)
    panel.with_target(_query("A", expression).legend_format("__auto").instant())
    _describe(panel, text, steps, (span, 4))
    return _linked(panel, links, colours, texts)


def bars(
    text: Text,
    legend: str,
    expression: str,
    *,
    steps: Steps = PLAIN,
    links: Sequence[d.DashboardLink] = (),
    span: int = 12,
) -> Panel:
    """One bar for each series now."""
    panel = bargauge.Panel().min(0).orientation(cm.VizOrientation.HORIZONTAL)
    panel.display_mode(cm.BarGaugeDisplayMode.BASIC)
    panel.with_target(_query("A", expression).legend_format(legend).instant())
    _describe(panel, text, steps, (span, 9))
    return _linked(panel, links)


def timeline(
    text: Text,
    legend: str,
    expression: str,
    *,
    steps: Steps = PLAIN,
    links: Sequence[d.DashboardLink] = (),
    texts: Sequence[str] = (),
    colours: Colours = (),
) -> Panel:
    """A row for each series, coloured by its value; ``texts`` stand for 0, 1, 2."""
    panel = statetimeline.Panel().per_page(20).max_data_points(_MAX_POINTS)
    panel.color_scheme(d.FieldColor().mode(dm.FieldColorModeId.THRESHOLDS))
    panel.show_value(cm.VisibilityMode.NEVER).merge_values(True)
    panel.with_target(_query("A", expression).legend_format(legend).range())
    _describe(panel, text, steps, (24, 10))
    return _linked(panel, links, colours, texts)


def _describe(panel: Any, text: Text, steps: Steps, size: tuple[int, int]) -> None:
    panel.id(text.id).title(text.title).description(text.description).no_value(text.empty)
    panel.unit(text.unit).datasource(DATASOURCE)
    panel.thresholds(_thresholds(steps)).span(size[0]).height(size[1])


def _linked(
    panel: Any, links: Sequence[d.DashboardLink], colours: Colours = (), texts: Sequence[str] = ()
) -> Panel:
    """Add links, and colors by the beginning of a name."""
    panel.data_links(list(links))
    for label, colour in colours:  # without slashes a pattern would have to match the whole name
        fixed = {"mode": "fixed", "fixedColor": colour}
        override = dm.DynamicConfigValue(id_val="color", value=fixed)
        panel.override_by_regexp(f"/^(?:{label})\\b/", [override])
    if texts:
        options = {str(n): dm.ValueMappingResult(text=text) for n, text in enumerate(texts)}
        panel.mappings([dm.ValueMap(options=options)])
    result: Panel = panel
    return result


def link(
    title: str, page: str, *labels: str, is_table: bool = False, of_run: bool = False
) -> d.DashboardLink:
    """From a series, or a row of a table, to a dashboard about it, with the range; ``of_run``:
    about the chosen run. Grafana leaves a ``+`` in a name, which a URL reads as a space: hence
    the format."""
    source = "__data.fields" if is_table else "__field.labels"
    chosen = "".join(f"&var-{name}=${{{source}.{name}:percentencode}}" for name in labels)
    kept = f"{_KEPT}&${{job_name:queryparam}}&${{run_id:queryparam}}" if of_run else _KEPT
    return d.DashboardLink(title).url(f"/d/otel-straggler-{page}?{kept}{chosen}")


def next_steps(
    alert: str = "", *, rank: bool = False, is_table: bool = False, of_run: bool = False
) -> list[d.DashboardLink]:
    """From a series, or a row of a table, to its run (and rank) on the live page, and to the
    chapter of an alert in the runbook of the same collector; arguments as of `link`."""
    source = "__data.fields" if is_table else "__field.labels"
    run = "run_id" if of_run else f"{source}.run_id"
    chosen = f"run=${{{run}:percentencode}}"
    if rank:
        chosen += f"&rank=${{{source}.rank:percentencode}}"
    return [_away("Live page", f"/#{chosen}"), runbook(alert)]


def runbook(alert: str = "") -> d.DashboardLink:
    """To the chapter of an alert; all of them without one."""
    return _away("Runbook", f"{RUNBOOK_PATH}?alert={alert}" if alert else RUNBOOK_PATH)


def _away(title: str, path: str) -> d.DashboardLink:
    """To the collector's page, in a tab of its own."""
    return d.DashboardLink(title).url(f"${{{PAGE_URL}:raw}}{path}").target_blank(True)


# --- tables --------------------------------------------------------------------------------------


def rows(
    text: Text,
    columns: Sequence[tuple[str, str, str, Steps]],
    *,
    links: Sequence[d.DashboardLink] = (),
    span: int = 24,
    dropped: Sequence[str] = (),
    is_lowest_first: bool = False,
    states: Colours = (),
) -> Panel:
    """A table of current values. ``columns`` are name, unit, expression and steps of each value.

    Rows with equal labels become one row; the first column sorts them. Labels have the unit
    ``string``: with any other, rank 1024 is written as 1.02 K.

    Args:
        states: colors of texts in the column ``state``.
    """
    panel = table.Panel().filterable(True).data_links(list(links))
    _describe(panel, replace(text, unit="string"), PLAIN, (span, 9))
    _leave_cells_empty(panel)
    if states:
        panel.override_by_name("state", _texts(states))
    if columns[0][0] not in dropped:
        order = common.TableSortByFieldState().display_name(columns[0][0])
        panel.sort_by([order.desc(not is_lowest_first)])
    is_one = len(columns) == 1
    names = {name for name, *_ in columns}
    renamed, left_out = {}, ["Time"]
    for ref, (name, unit, expression, steps) in zip("ABCDEFGHIJ", columns, strict=False):
        panel.with_target(_table_query(ref, expression))
        column = "Value" if is_one else f"Value #{ref}"
        if name in dropped:
            left_out.append(column)  # by its name before it gets another
        else:
            renamed[column] = name
            panel.override_by_name(name, _cells(unit, steps))
    left_out += [name for name in dropped if name not in names]
    if not is_one:
        panel.with_transformation(_transformation("merge"))
    excluded = dict.fromkeys(left_out, True)
    return panel.with_transformation(
        _transformation("organize", excludeByName=excluded, renameByName=renamed)
    )


def listing(text: Text, expression: str, **options: Any) -> Panel:
    """A table of the labels of one run's series, without their values; options as of `rows`."""
    columns = [("is reported", "short", expression, PLAIN)]
    return rows(text, columns, dropped=["is reported", *OF_ONE_RUN], **options)


def matrix(
    text: Text,
    cell: tuple[str, str],
    expression: str,
    steps: Steps,
    links: Sequence[d.DashboardLink] = (),
) -> Panel:
    """A colored cell for each pair of numeric labels, in their order.

    Args:
        cell: labels of rows and of columns. Grafana orders them by their first cell, and text by
            its
            letters: so cells are converted to numbers and sorted before.
    """
    panel = table.Panel().decimals(2).data_links(list(links))
    _describe(panel, replace(text, unit="string"), steps, (24, 14))
    panel.color_scheme(d.FieldColor().mode(dm.FieldColorModeId.THRESHOLDS))
    _leave_cells_empty(panel)
    panel.override_by_regexp("^(?!.*\\\\).*$", _cells("short", steps))
    row, column = cell
    numbers = [{"targetField": name, "destinationType": "number"} for name in cell]
    panel.with_transformation(_transformation("convertFieldType", conversions=numbers))
    for name in (column, row):
        panel.with_transformation(_transformation("sortBy", sort=[{"field": name}]))
    options = {"rowField": row, "columnField": column, "valueField": "Value"}
    panel.with_transformation(_transformation("groupingToMatrix", **options))
    return panel.with_target(_table_query("A", expression))


def _leave_cells_empty(panel: table.Panel) -> None:
    """Grafana would repeat the text of an empty table in empty cells."""
    panel.override_by_regexp(".*", [dm.DynamicConfigValue(id_val="noValue", value="")])


def _texts(colours: Colours) -> list[dm.DynamicConfigValue]:
    """Colors of a column, by its text."""
    options = {word: {"color": colour} for label, colour in colours for word in label.split("|")}
    return [
        dm.DynamicConfigValue(id_val="mappings", value=[{"type": "value", "options": options}]),
        dm.DynamicConfigValue(id_val="custom.cellOptions", value={"type": "color-text"}),
    ]


def _cells(unit: str, steps: Steps) -> list[dm.DynamicConfigValue]:
    kept: list[tuple[str, Any]] = [("unit", unit)]
    if steps is not PLAIN:
        kept.append(("thresholds", _thresholds(steps).build()))
        kept.append(("color", {"mode": "thresholds"}))
        kept.append(("custom.cellOptions", {"type": "color-background"}))
    return [dm.DynamicConfigValue(id_val=id_, value=value) for id_, value in kept]


def _transformation(id_: str, **options: Any) -> dm.DataTransformerConfig:
    return dm.DataTransformerConfig(id_val=id_, options=options)


def _thresholds(steps: Steps) -> d.ThresholdsConfig:
    config = d.ThresholdsConfig().mode(dm.ThresholdsMode.ABSOLUTE)
    return config.steps([dm.Threshold(value=value, color=color) for value, color in steps])


def _table_query(ref: str, expression: str) -> Dataquery:
    return _query(ref, expression).format(PromQueryFormat.TABLE).instant()


def _query(ref: str, expression: str) -> Dataquery:
    return Dataquery().ref_id(ref).expr(expression).datasource(DATASOURCE)
