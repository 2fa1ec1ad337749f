"""Variables have the values that Grafana would begin with, or those asked for, safely written."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

import pytest

from benchmarks.grafana_sizes.asking import Grafana
from otel_straggler.dashboards.preview.chosen import Chosen, filled
from otel_straggler.dashboards.preview.prometheus import Prometheus
from otel_straggler.dashboards.preview.ranges import TimeRange
from otel_straggler.dashboards.preview.variables import Variables

from .fake_prometheus import FakePrometheus

SPAN = TimeRange(1_000.0, 4_600.0, ("now-1h", "now"))
RUN = {"name": "run_id", "type": "query", "query": "label_values(up, run_id)", "sort": 7}
JOB = {
    "name": "job_name",
    "type": "query",
    "query": 'label_values(up{cluster=~"$cluster"}, job_name)',
    "multi": True,
    "includeAll": True,
    "allValue": ".*",
}


def resolved(
    fake: FakePrometheus, *variables: dict[str, Any], **asked: list[str]
) -> tuple[dict[str, Chosen], list[str]]:
    found = Variables(Prometheus(fake.url), SPAN, asked)
    found.choose(variables)
    return found.chosen, found.problems


def test_what_may_be_all_begins_with_all_else_with_the_first() -> None:
    """In natural order: run2 is before run10."""
    with FakePrometheus(labels={"run_id": ["run10", "run2"], "job_name": ["b", "a"]}) as fake:
        chosen, problems = resolved(fake, {**JOB, "query": "label_values(up, job_name)"}, RUN)
    assert (chosen["job_name"].shown(), chosen["job_name"].in_query()) == ("All", ".*")
    assert chosen["run_id"].values == ("run2",)
    assert not problems


def test_a_variable_is_narrowed_by_those_before_it() -> None:
    """Its query is asked with their values, over the range of the page."""
    cluster = {"name": "cluster", "type": "query", "query": "label_values(up, cluster)"}
    with FakePrometheus(labels={"cluster": ["a.b"], "job_name": ["j"]}) as fake:
        resolved(fake, cluster, JOB)
        verb, asked = fake.asked[-1]
    assert verb == "label/job_name/values"
    assert asked == {"match[]": 'up{cluster=~"a.b"}', "start": "1000.0", "end": "4600.0"}


def test_what_is_asked_for_wins_and_strangers_are_told() -> None:
    """Several values where the variable may have several; `$__all` is all."""
    with FakePrometheus(labels={"run_id": ["x"], "job_name": ["a", "b", "c"]}) as fake:
        job = {**JOB, "query": "label_values(up, job_name)"}
        chosen, problems = resolved(fake, job, RUN, job_name=["a", "c"], run_id=["gone"])
        everyone, _ = resolved(fake, job, job_name=["$__all"])
    assert chosen["job_name"].in_query() == "(a|c)"
    assert chosen["run_id"].in_query() == "gone"
    assert problems == ["run_id: no series has gone"]
    assert everyone["job_name"].is_all


def test_a_variable_without_values_is_empty() -> None:
    """As in Grafana, where the page then shows what has no such label."""
    with FakePrometheus() as fake:
        chosen, _ = resolved(fake, RUN)
    assert (chosen["run_id"].in_query(), chosen["run_id"].shown()) == ("", "None")


def test_other_kinds_of_variables() -> None:
    """Custom, constant, text, data source, a saved choice; queries for names and results."""
    up = [({"__name__": "up", "rank": "5"}, [(4_600.0, 1.0)])]
    kinds: list[dict[str, Any]] = [
        {"name": "a", "type": "custom", "query": "x, y", "current": {"value": "y"}},
        {"name": "b", "type": "constant", "query": "z"},
        {"name": "c", "type": "textbox", "query": "free"},
        {"name": "d", "type": "datasource", "query": "prometheus"},
        {"name": "e", "type": "query", "query": "query_result(up)", "regex": '/rank="(.*)"/'},
        {"name": "f", "type": "query", "query": {"query": "metrics(^straggler_)"}},
        {"name": "g", "type": "adhoc"},
        {"name": "h", "type": "query", "query": "strange(up)"},
    ]
    names = {"__name__": ["up", "straggler_x"]}
    with FakePrometheus({"up": up}, labels=names) as fake:
        chosen, problems = resolved(fake, *kinds)
    held = {name: one.values for name, one in chosen.items()}
    assert held == {
        "a": ("y",),
        "b": ("z",),
        "c": ("free",),
        "d": ("prometheus",),
        "e": ("5",),
        "f": ("straggler_x",),
        "g": (),
        "h": (),
    }
    assert len(problems) == 2


@pytest.mark.parametrize(
    ("variable", "written"),
    [
        (Chosen("x", ("a.b",)), "a.b"),
        (Chosen("x", ("a\\b'",)), "a\\\\b\\\\'"),
        (Chosen("x", ("a.b",), is_many=True), "a\\\\.b"),
        (Chosen("x", ("a", "b|c"), is_many=True), "(a|b\\\\|c)"),
        (Chosen("x", ("a", "b"), is_many=True, is_all=True), "(a|b)"),
        (Chosen("x", ("a", "b"), is_many=True, is_all=True, all_value=".*"), ".*"),
        (Chosen("x", ()), ""),
    ],
)
def test_how_a_value_stands_in_a_query(variable: Chosen, written: str) -> None:
    """As a pattern where there may be several, else as it is but for quotes."""
    assert filled('up{x=~"$x"}', {"x": variable}, {}) == f'up{{x=~"{written}"}}'


STRANGE = r"""exp+1 (v2) 'a' "b" \c $d /e"""
OURS = "up{run_id=~`${run_id:regex}`}"


@pytest.mark.parametrize("is_many", [False, True])
def test_a_strange_name_is_a_pattern_that_matches_it_alone(is_many: bool) -> None:
    """In the form that our pages use, whether or not there may be several: as this tool does it,
    and as the checks with a real Prometheus do."""
    written = r"""up{run_id=~`exp\+1 \(v2\) 'a' "b" \\c \$d \/e`}"""
    assert filled(OURS, {"run_id": Chosen("run_id", (STRANGE,), is_many)}, {}) == written
    told = {"name": "run_id", "type": "query", "query": "", "multi": is_many}
    grafana = Grafana("", {"templating": {"list": [told]}}, end_s=0.0, range_s=1)
    assert grafana.filled(OURS, {"run_id": STRANGE}) == written


def test_all_and_several_in_the_form_of_our_pages() -> None:
    """What a page gives for all is a pattern already, so it stays."""
    every = Chosen("run_id", ("a", "b"), True, True, ".*")
    assert filled(OURS, {"run_id": every}, {}) == "up{run_id=~`.*`}"
    several = Chosen("run_id", ("a.1", "b"), True)
    assert filled(OURS, {"run_id": several}, {}) == r"up{run_id=~`(a\.1|b)`}"


def test_links_keep_a_strange_name() -> None:
    """A plus in a URL would be read as a space."""
    more = {"__field.labels.run_id": STRANGE}
    link = filled("var-run_id=${__field.labels.run_id:percentencode}", {}, more, is_query=False)
    assert parse_qs(link) == {"var-run_id": [STRANGE]}


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("$x ${x} [[x]]", "a b a b a b"),
        ("${x:csv}", "a b"),
        ("${x:queryparam}", "var-x=a%20b"),
        ("${x:percentencode}", "a%20b"),
        ("${x:doublequote}", '"a b"'),
        ("${x:regex}", "a b"),
        ("$xy ${unknown} $__interval", "$xy ${unknown} 15s"),
        ("${__field.labels.rank}", "5"),
        ("${__field.labels.node}", "${__field.labels.node}"),
    ],
)
def test_ways_to_write_a_variable(text: str, written: str) -> None:
    """Three ways to name it, formats, and what is no variable stays."""
    more = {"__interval": "15s", "__field.labels.rank": "5"}
    assert filled(text, {"x": Chosen("x", ("a b",))}, more) == written
