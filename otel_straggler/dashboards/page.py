"""Common parts of dashboards: variables, annotations, links to each other, JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from grafana_foundation_sdk.builders import dashboard as d
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as dm

from otel_straggler import semconv
from otel_straggler.dashboards.panels import DATASOURCE, PAGE_URL, Panel
from otel_straggler.dashboards.queries import OF_RUN, RUN, is_chosen, series

TAG: Final = "otel-straggler"
Rows = Sequence[tuple[str, Sequence[Panel]]]
_LABELS: Final = {"job_name": "job", "run_id": "run", PAGE_URL: "live page"}


def page(
    name: str,
    title: str,
    variables: Sequence[d.QueryVariable | d.DatasourceVariable],
    rows: Rows,
    links: Sequence[d.DashboardLink] = (),
) -> str:
    """The dashboard as JSON for Grafana 10 to 13; ``links`` come after those to other
    dashboards."""
    made = d.Dashboard(f"Straggler / {title}").uid(f"{TAG}-{name}").tags([TAG]).readonly()
    made.refresh("30s").time("now-1h", "now").timezone("browser")
    made.tooltip(dm.DashboardCursorSync.CROSSHAIR)
    made.with_variable(d.DatasourceVariable("datasource").label("data source").type("prometheus"))
    for variable in variables:
        made.with_variable(variable)
    if name != "pipeline":
        for annotation in _annotations():
            made.annotation(annotation)
    made.link(
        d.DashboardLink("Straggler pages")
        .type(dm.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )
    for link in links:
        made.link(link)
    for heading, panels in rows:
        made.with_row(d.Row(heading))
        for panel in panels:
            made.with_panel(panel)
    return f"{JSONEncoder(sort_keys=True, indent=2).encode(_numbered(made.build()))}\n"


def many(name: str, source: str) -> d.QueryVariable:
    """A variable with several values, or all: then absent labels match too."""
    return one(name, source).multi(True).include_all(True).all_value(".*")


def one(name: str, source: str) -> d.QueryVariable:
    """A variable of one value; ``source`` is the series whose label it is."""
    variable = d.QueryVariable(name).label(_LABELS.get(name, name)).datasource(DATASOURCE)
    variable.query(f"label_values({source}, {name})").sort(dm.VariableSort.NATURAL_ASC)
    return variable.refresh(dm.VariableRefresh.ON_TIME_RANGE_CHANGED)


def hidden(name: str, expression: str, label: str) -> d.QueryVariable:
    """A hidden variable: all values of a label in the current result of a query."""
    variable = d.QueryVariable(name).datasource(DATASOURCE).hide(dm.VariableHide.HIDE_VARIABLE)
    variable.query(f"query_result({expression})").regex(f'/\\b{label}="([^"]*)"/')
    variable.multi(True).include_all(True)
    variable.current(dm.VariableOption(text="All", value="$__all"))
    return variable.refresh(dm.VariableRefresh.ON_TIME_RANGE_CHANGED)


def run_variables(*, is_one_run: bool = True) -> list[d.QueryVariable]:
    """Cluster, job and run, each narrowed down by those before it."""
    name = semconv.RUN_STATE.prometheus_name
    of_run = one if is_one_run else many
    return [
        many("cluster", name),
        many("job_name", f"{name}{{{is_chosen('cluster')}}}"),
        of_run("run_id", f"{name}{{{is_chosen('cluster', 'job_name')}}}"),
        page_url_variable(),
    ]


def page_url_variable() -> d.QueryVariable:
    """Where links to the live page lead: of several shards any, each shows the runs of all."""
    return one(PAGE_URL, series(semconv.COLLECTOR_PAGE_INFO, is_chosen("cluster")))


def section_variable() -> d.QueryVariable:
    return many("section", series(semconv.SECTION_INFO))


def _annotations() -> list[d.AnnotationQuery]:
    alerts = f'ALERTS{{alertname=~"Straggler.+", alertstate="firing", {OF_RUN}}}'
    return [
        _annotation("Alerts", "red", alerts)
        .title_format("{{alertname}} {{rank}} {{node}}")
        .tag_keys("severity,run_id"),
        _moments("Run started", "green", semconv.RUN_STARTED).title_format("{{run_id}} started"),
        _moments("Run finished", "blue", semconv.RUN_FINISHED).title_format("{{run_id}} finished"),
        _moments("Checkpoint", "purple", semconv.RUN_CHECKPOINT).title_format("checkpoint"),
    ]


def _moments(name: str, color: str, metric: semconv.Metric) -> d.AnnotationQuery:
    """Marks at the times in a metric; repeated times are one mark."""
    moments = f"max by ({RUN}) ({series(metric)}) * 1000"
    return _annotation(name, color, moments).use_value_for_time(True)


def _annotation(name: str, color: str, expression: str) -> d.AnnotationQuery:
    made = d.AnnotationQuery().name(name).datasource(DATASOURCE).enable(True).icon_color(color)
    return made.expr(expression).step("60s")


def _numbered(made: dm.Dashboard) -> dm.Dashboard:
    """Ids of rows are above those of the panels, so that these stay."""
    headings = (panel for panel in made.panels or () if isinstance(panel, dm.RowPanel))
    for at, heading in enumerate(headings):
        heading.id_val = 1_000 + at
    return made
