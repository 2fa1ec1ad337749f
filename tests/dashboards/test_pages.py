"""What stands in dashboards/ can be read by Grafana, and asks for what a collector publishes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from otel_straggler import semconv
from otel_straggler.alerts.checking import QueryLabels, labels_by_name
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.collector.metrics.families import constant_labels
from otel_straggler.collector.metrics.status_series import status_families
from otel_straggler.collector.runs.liveness import WorldStatus
from otel_straggler.collector.runs.rank_status import RankStatus
from otel_straggler.collector.views.run_view import RunView
from otel_straggler.dashboards.panels import RUN_SLOW, SCORE_LOW
from otel_straggler.dashboards.queries import ALL_OR_SOME, WORST_RANKS
from otel_straggler.model.rank import Source
from otel_straggler.semconv import Metric

from .conftest import FOLDER, PAGES, Json, filled, panels, published, queries

UNITS = {"string", "short", "s", "percentunit", "bytes", "cps", "hertz", "watt", "celsius"}
SELECTOR = re.compile(r"(\w+)\{((?:`[^`]*`|[^`}])*)\}")


def test_the_pages_are_the_six() -> None:
    """Fleet, run, matrix, rank, liveness and the pipeline have a page each."""
    names = {"fleet", "run", "matrix", "rank", "liveness", "pipeline"}
    assert {path.stem for path in PAGES} == names


def test_making_the_pages_again_changes_no_byte() -> None:
    """What is committed is what the code says."""
    pytest.importorskip(
        "grafana_foundation_sdk",
        reason="grafana-foundation-sdk is not installed: it would show that pages are not stale",
    )
    from otel_straggler.dashboards.export import render_all

    assert render_all() == {path.name: path.read_text(encoding="utf-8") for path in PAGES}


def test_grafanas_own_types_know_every_key(page: Json) -> None:
    """A key that Grafana does not know would be dropped without a word."""
    pytest.importorskip(
        "grafana_foundation_sdk",
        reason="grafana-foundation-sdk is not installed: it would show that no key is unknown",
    )
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    assert json.loads(JSONEncoder().encode(Dashboard.from_json(dict(page)))) == page


def test_every_query_asks_for_what_is_published(page: Json) -> None:
    """No metric, label of a selector or label to group by that a collector does not serve."""
    pytest.importorskip(
        "promql_parser",
        reason="promql-parser is not installed: it would show that queries are right",
    )
    names = published()
    result = {}
    for where, expression in queries(page):
        looking = QueryLabels(names)
        looking.of(filled(expression))
        if looking.findings:
            result[where] = looking.findings
    assert not result


@pytest.mark.parametrize(
    "wrong",
    [
        'max by (rank) (straggler_rank_stragling{run_id=~"$run_id"})',
        'max by (rank) (straggler_run_hung{run_id=~"$run_id"})',
        'max by (run_id) (straggler_run_hung{rank=~"$rank"})',
        "sum(rate(straggler_run_gpu_time_lost_seconds_total[$__rate_interval])",
    ],
)
def test_a_wrong_query_is_found(wrong: str) -> None:
    """The check above can fail: a name, a label, a matcher, a bracket."""
    pytest.importorskip(
        "promql_parser",
        reason="promql-parser is not installed: it would show that wrong queries are found",
    )
    looking = QueryLabels(published())
    looking.of(filled(wrong))
    assert looking.findings


def test_every_query_is_narrowed_to_what_is_chosen(page: Json) -> None:
    """Each selector looks at the run, or on the page of the pipeline at the collector. What DCGM
    exporter tells knows no run: it is joined to the GPU of a chosen rank."""
    chosen_by = "collector" if page["uid"].endswith("pipeline") else "run_id"
    wanted = f"{chosen_by}=~`${{{chosen_by}:regex}}`"
    for where, expression in queries(page):
        joined = re.findall(r"and on \(hw_id\) max by \(hw_id\) \(straggler_rank_info", expression)
        assert len(joined) == len(re.findall(r"\bDCGM_\w+", expression)), where
        chosen = SELECTOR.findall(expression)
        assert chosen, where
        assert all(wanted in matchers for _, matchers in chosen), where


def test_values_are_compared_as_grafana_writes_them(page: Json) -> None:
    """As a pattern between backticks: between quotes, a quote or a backslash of a name is not made
    safe by every Grafana, and only there the format `regex` gives what PromQL reads. A label is
    compared with the variable of its name; ranks also with the worst."""
    reported = [expression for _, expression in queries(page)]
    reported += [v["query"] for v in page["templating"]["list"] if v["type"] == "query"]
    text = " ".join(reported)
    compared = re.findall(r"\b(\w+)=~`\$\{(\w+):regex\}`", text)
    assert compared
    assert all(label == name for label, name in compared if (label, name) != ("rank", WORST_RANKS))
    unlike_all = re.findall(r"\b(\w+)!~`\.\^\$\{\1:regex\}`", text)
    built_in = re.findall(r"\[\$__(?:range|rate_interval)\]", text)
    groups = text.count('"$1"')  # of label_replace, which Grafana leaves alone
    assert text.count("$") == len(compared) + len(unlike_all) + len(built_in) + groups
    kinds_of_all = {v["name"]: v.get("allValue") for v in page["templating"]["list"]}
    assert {kinds_of_all[name] for name in unlike_all} <= {ALL_OR_SOME}


def test_every_variable_in_a_query_is_on_the_page(page: Json) -> None:
    """A variable that the page has not is asked for as text, and nothing is found."""
    known = {variable["name"] for variable in page["templating"]["list"]}
    for where, expression in queries(page):
        # $1 is a group of label_replace; Grafana leaves it, as it has no such variable.
        names = re.findall(r"\$\{?([A-Za-z_]\w*)", expression)
        used = {name for name in names if not name.startswith("__")}
        assert used <= known, where


def test_variables_follow_the_range(page: Json) -> None:
    """A run that was there last week can be chosen; all of many also means absent labels."""
    first, *later = page["templating"]["list"]
    sources = {v["name"]: v["query"] for v in later if v["type"] == "datasource"}
    rank_only = page["uid"].endswith("-rank")
    assert sources == ({"traces": "tempo", "logs": "loki"} if rank_only else {})
    others = [variable for variable in later if variable["type"] != "datasource"]
    assert (first["name"], first["type"], first["query"]) == (
        "datasource",
        "datasource",
        "prometheus",
    )
    names = published()
    for variable in others:
        assert variable["refresh"] == 2
        if variable["name"] == WORST_RANKS:
            is_hidden_with_all = variable["hide"] == 2, variable["current"]["value"]
            assert is_hidden_with_all == (True, "$__all")
            assert variable is others[-1]  # it follows all others
            continue
        every = (".*", ALL_OR_SOME) if variable.get("includeAll") else (None,)
        assert variable.get("allValue") in every
        source = re.fullmatch(r"label_values\((\w+).*, (\w+)\)", variable["query"])
        assert source
        assert source[2] == variable["name"]
        assert source[2] in names[source[1]]


def test_every_panel_says_what_it_is_and_what_to_do(page: Json) -> None:
    """Title, a description of two sentences, a unit, colours, a query, what an empty panel means,
    ids that are unique."""
    ids = [panel["id"] for panel in page["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in panels(page):
        title = panel["title"]
        assert title
        assert len(re.findall(r"[.?](?: |$)", panel["description"])) >= 2, title
        assert panel["targets"], title
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"] in UNITS, title
        assert len(defaults["noValue"]) > 5, title
        if panel["type"] == "table":  # else each empty cell would say it
            every = {"matcher": {"id": "byRegexp", "options": ".*"}}
            nothing = {**every, "properties": [{"id": "noValue", "value": ""}]}
            assert panel["fieldConfig"]["overrides"][0] == nothing, title
        assert defaults["thresholds"]["steps"][0]["value"] is None, title
        assert panel["datasource"]["uid"] == "${datasource}", title
        assert all(t["datasource"]["uid"] == "${datasource}" for t in panel["targets"]), title


def test_columns_that_are_left_out_are_there(page: Json) -> None:
    """By the name before it is changed: a name that no query gives leaves nothing out."""
    for panel in panels(page):
        steps = {step["id"]: step["options"] for step in panel.get("transformations", ())}
        given = {"Time", "Value", *(f"Value #{target['refId']}" for target in panel["targets"])}
        given |= set(re.findall(r"\w+", " ".join(t["expr"] for t in panel["targets"])))
        for name in steps.get("organize", {}).get("excludeByName", ()):
            assert name in given, panel["title"]


def test_patterns_match_what_a_field_is_called(page: Json) -> None:
    """A pattern that is not between slashes has to match the whole name for Grafana: names of
    lines go on after the word that decides their colour."""
    for panel in panels(page):
        for override in panel["fieldConfig"]["overrides"]:
            pattern = override["matcher"]["options"]
            if override["matcher"]["id"] == "byRegexp" and "\\b" in pattern:
                [word, *_] = re.findall(r"\w+", pattern)
                assert re.search(re.fullmatch(r"/(.*)/", pattern)[1], f"{word} group")  # type: ignore[index]


def test_nothing_is_used_that_has_to_be_installed(page: Json) -> None:
    """Panels, transformations and data sources come with every Grafana from 10 on; of none is a
    version asked for."""
    assert page["schemaVersion"] == 42
    assert not {"__inputs", "__requires"} & page.keys()
    kinds = {panel["type"] for panel in page["panels"]}
    assert kinds <= {"row", "stat", "table", "timeseries", "bargauge", "state-timeline"}
    used = {step["id"] for panel in panels(page) for step in panel.get("transformations", ())}
    known = {"merge", "organize", "convertFieldType", "sortBy", "groupingToMatrix"}
    assert used <= known
    assert not any("pluginVersion" in panel for panel in page["panels"])


def test_labels_in_tables_are_text_and_lines_have_names(page: Json) -> None:
    """Grafana writes a rank of 1024 as 1.02 K under any unit but text, and hides legends."""
    for panel in panels(page):
        if panel["type"] == "table":
            assert panel["fieldConfig"]["defaults"]["unit"] == "string", panel["title"]
        if panel["type"] == "timeseries":
            assert panel["options"]["legend"]["showLegend"], panel["title"]


def test_counters_and_rates_are_used_as_prometheus_means_them(page: Json) -> None:
    """Rates over the interval that Grafana knows to hold two scrapes; no bare counter."""
    for where, expression in queries(page):
        assert all(
            window == "$__rate_interval"
            for window in re.findall(r"\brate\([^\[]*\[([^\]]*)\]", expression)
        ), where
        bare = re.sub(r"\b(?:rate|increase)\(\w+_total\b", "", expression)
        # An increase misses the first fault, with which its series begins.
        assert "_total" not in bare.replace("(hw_errors_total{", ""), where


def test_ranks_and_sections_are_never_all_drawn(page: Json) -> None:
    """Of 10,000 ranks a panel asks for a few: the worst, a quantile, or those of one rank. Culprits
    and open sections are 20 of a run at most."""
    pytest.importorskip(
        "promql_parser",
        reason="promql-parser is not installed: it would show that no panel draws all ranks",
    )
    for where, expression in queries(page):
        given = QueryLabels(published()).of(filled(expression))
        is_few = re.search(r"\b(?:topk|bottomk)\(|\brank=|^ALERTS|_culprit\{|_open_", expression)
        assert is_few or not given & {"rank", "section"}, where


def test_counters_have_rates_and_gauges_slopes(page: Json) -> None:
    """A gauge that falls is no counter that began again: its `rate` would be a loss that never
    was."""
    kinds = {metric.prometheus_name: metric.kind for metric in semconv_metrics()}
    for where, expression in queries(page):
        for function, name in re.findall(r"\b(\w+)\((\w+)\{[^[(]*\}\[", expression):
            wanted = {"rate": "counter", "increase": "counter", "deriv": "gauge"}.get(function)
            assert wanted in (None, kinds.get(name)), f"{where}: {function}({name})"


def semconv_metrics() -> list[Metric]:
    return [m for m in vars(semconv).values() if isinstance(m, Metric)]


UNIT_OF = {
    ("s", ""): {"s"},
    ("By", ""): {"bytes"},
    ("s", "rate"): {"percentunit", "short"},
    ("s", "deriv"): {"percentunit", "short"},
    ("s", "increase"): {"s"},
    ("{ratio}", ""): {"percentunit", "short"},
    ("1", ""): {"percentunit"},
    ("{score}", ""): {"percentunit"},
    ("Cel", ""): {"celsius"},
    ("W", ""): {"watt"},
    ("Hz", ""): {"hertz"},
}
"""Of a panel, by the unit of its metric and what is made of it; of what is counted: `short`, its
rate `cps`."""


def test_units_are_those_of_the_metrics(page: Json) -> None:
    """Of panels whose queries are of one metric each, without arithmetic between two."""
    units = {metric.prometheus_name: metric.unit for metric in semconv_metrics()}
    for panel in panels(page):
        unit = panel["fieldConfig"]["defaults"]["unit"]
        if unit == "string":
            continue  # a table: each column has its own
        for target in panel["targets"]:
            shown = re.split(r" (?:and|unless) on ", target["expr"])[0]
            names = [name for name in re.findall(r"\b(\w+)\{", shown) if name in units]
            if len(set(names)) != 1 or re.search(r"(?<!sum by )[*/] |count by|time\(\) -", shown):
                continue
            made = next(
                (f for f in ("rate", "increase", "deriv") if f"{f}({names[0]}" in shown), ""
            )
            other = {"cps"} if made == "rate" else {"short"}
            assert unit in UNIT_OF.get((units[names[0]], made), other), panel["title"]


def test_colours_begin_where_alerts_do() -> None:
    """What is red on a page is what an alert waits for."""
    settings = AlertSettings()
    assert settings.relative_threshold == settings.individual_threshold == SCORE_LOW
    assert settings.gpu_threshold == SCORE_LOW
    assert settings.run_slowdown_threshold == RUN_SLOW


def test_metrics_are_named_by_the_catalogue() -> None:
    """The names in docs/reference/names-on-the-wire.md that this looks at are those of semconv."""
    known = {m.prometheus_name for m in vars(semconv).values() if isinstance(m, Metric)}
    known |= {m.prometheus_name for m in semconv.OVER_RANKS.values()}
    used = {
        name
        for path in PAGES
        for _, expression in queries(json.loads(path.read_text(encoding="utf-8")))
        for name, _ in SELECTOR.findall(expression)
    }
    assert used - known == {"ALERTS"}


def test_the_ranks_description_is_labelled_as_a_collector_does() -> None:
    """The labels that joins with DCGM exporter rest on, of a rank of which all is known."""
    source = Source(run_id="r", rank=0, device="GPU-1", parallel=tuple(
        (name, 0) for name in semconv.PARALLEL_DIMENSIONS
    ))  # fmt: skip
    rank = RankStatus(source, 0.0, 0.0, gpu_tier="cupti", gpu_reason="asked")
    view = RunView(run_id="r", worlds={"": WorldStatus(0, ranks={0: rank})})
    page = status_families(view, constant_labels("c", "eu")).render().decode()
    name = semconv.RANK_INFO.prometheus_name
    [line] = [line for line in page.splitlines() if line.startswith(f"{name}{{")]
    assert set(re.findall(r'(\w+)="', line)) == labels_by_name()[name]


@pytest.mark.parametrize("file", sorted(FOLDER.rglob("*.y*ml")), ids=lambda path: path.name)
def test_files_beside_the_pages_are_yaml(file: Path) -> None:
    """Provisioning, scraping and compose can be read."""
    assert isinstance(yaml.safe_load(file.read_text(encoding="utf-8")), dict)
