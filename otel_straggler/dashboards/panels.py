"""Kinds of panels, as the pages use them. Ids are given, so that links to a panel stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from grafana_foundation_sdk.builders import bargauge, common, stat, statetimeline, timeseries
from grafana_foundation_sdk.builders import dashboard as d
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as cm
from grafana_foundation_sdk.models import dashboard as dm

DATASOURCE: Final = cm.DataSourceRef(type_val="prometheus", uid="${datasource}")
Panel: TypeAlias = Builder[dm.Panel]
Steps = Sequence[tuple[float | None, str]]
Colours = Sequence[tuple[str, str]]
"""First words of a legend, as a pattern, and their colour."""
NOTHING: Final = "Nothing was told of it in this range."
PLAIN: Final = ((None, "blue"),)
"""For numbers that are neither good nor bad."""
REFS: Final = "ABCDEFGHIJ"
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
    colours: Colours = (),
    empty: str = "",
) -> Panel:
    """Lines over time, from ``least`` up; ``queries`` are pairs of legend and expression, ``empty``
    is said where there is nothing to draw.
    """
    panel = timeseries.Panel().id(id_).title(title).description(description).unit(unit)
    panel.no_value(empty or NOTHING)
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
    for pattern, fixed in coloured(colours):
        panel.override_by_regexp(pattern, fixed)
    for ref, (legend, expression) in zip(REFS, queries, strict=False):
        panel.with_target(query(ref, expression).legend_format(legend).range())
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
    colours: Colours = (),
    empty: str = "",
) -> Panel:
    """One figure now, or one for each series; ``words`` stand for 0, 1, 2."""
    panel = stat.Panel().id(id_).title(title).description(description).unit(unit)
    panel.no_value(empty or NOTHING)
    for pattern, fixed in coloured(colours):
        panel.override_by_regexp(pattern, fixed)
    panel.decimals(0 if is_count else 2).text_mode(shows)
    panel.span(span).height(4).datasource(DATASOURCE).thresholds(thresholds(steps))
    panel.graph_mode(cm.BigValueGraphMode.NONE).color_mode(cm.BigValueColorMode.VALUE)
    panel.data_links(list(links))
    if words:
        panel.mappings([_words(words)])
    return panel.with_target(query("A", expression).legend_format("__auto").instant())


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
    empty: str = "",
) -> Panel:
    """One bar for each series now."""
    panel = bargauge.Panel().id(id_).title(title).description(description).unit(unit).min(0)
    panel.no_value(empty or NOTHING)
    panel.span(span).height(9).datasource(DATASOURCE).thresholds(thresholds(steps))
    panel.orientation(cm.VizOrientation.HORIZONTAL).data_links(list(links))
    panel.display_mode(cm.BarGaugeDisplayMode.BASIC)
    return panel.with_target(query("A", expression).legend_format(legend).instant())


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
    colours: Colours = (),
    empty: str = "",
) -> Panel:
    """A row for each series, coloured by its value; ``words`` stand for 0, 1, 2."""
    panel = statetimeline.Panel().id(id_).title(title).description(description).unit(unit)
    panel.no_value(empty or NOTHING)
    for pattern, fixed in coloured(colours):
        panel.override_by_regexp(pattern, fixed)
    panel.span(24).height(10).datasource(DATASOURCE).thresholds(thresholds(steps)).per_page(20)
    panel.color_scheme(d.FieldColor().mode(dm.FieldColorModeId.THRESHOLDS)).data_links(list(links))
    panel.max_data_points(_MOST_POINTS).show_value(cm.VisibilityMode.NEVER).merge_values(True)
    if words:
        panel.mappings([_words(words)])
    return panel.with_target(query("A", expression).legend_format(legend).range())


def _words(words: Sequence[str]) -> dm.ValueMap:
    options = {str(n): dm.ValueMappingResult(text=word) for n, word in enumerate(words)}
    return dm.ValueMap(options=options)


def thresholds(steps: Steps) -> d.ThresholdsConfig:
    config = d.ThresholdsConfig().mode(dm.ThresholdsMode.ABSOLUTE)
    return config.steps([dm.Threshold(value=value, color=color) for value, color in steps])


def coloured(colours: Colours) -> list[tuple[str, list[dm.DynamicConfigValue]]]:
    """Overrides, by the pattern of a name; without slashes it would have to match all of it."""
    made = []
    for words, colour in colours:
        fixed = {"mode": "fixed", "fixedColor": colour}
        made.append((f"/^(?:{words})\\b/", [dm.DynamicConfigValue(id_val="color", value=fixed)]))
    return made


def link(
    title: str, page: str, *labels: str, is_table: bool = False, of_run: bool = False
) -> d.DashboardLink:
    """From a series, or a row of a table, to the page about it, with the range; ``of_run``: about
    the run that is chosen.

    Grafana leaves a ``+`` of a name as it is, which a URL says for a space: hence the format.
    """
    held = "__data.fields" if is_table else "__field.labels"
    chosen = "".join(f"&var-{name}=${{{held}.{name}:percentencode}}" for name in labels)
    kept = f"{_KEPT}&${{job_name:queryparam}}&${{run_id:queryparam}}" if of_run else _KEPT
    return d.DashboardLink(title).url(f"/d/otel-straggler-{page}?{kept}{chosen}")


def query(ref: str, expression: str) -> Dataquery:
    return Dataquery().ref_id(ref).expr(expression).datasource(DATASOURCE)
