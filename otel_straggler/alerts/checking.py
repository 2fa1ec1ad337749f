"""``alerts check``: errors in files of rules, or of Alertmanager's configuration."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from otel_straggler import semconv
from otel_straggler.alerts.catalogue import CATALOGUE, NAMES
from otel_straggler.alerts.low_score_rules import LOW_RECORDED
from otel_straggler.alerts.prometheus import LABELS, label_of
from otel_straggler.alerts.promql import JOINED, RECORDED
from otel_straggler.errors import ConfigError, InputError
from otel_straggler.regular_files import read_small_text
from otel_straggler.semconv import Metric
from otel_straggler.yaml_file import parse_yaml

with contextlib.suppress(ImportError):  # for development; nothing else reads PromQL
    import promql_parser as promql

_QUERY: Final = re.compile(r"printf `([^`]*)`[^|]*\| query")
_LABEL: Final = re.compile(r"\$labels\.(\w+)")
_QUERIED: Final = re.compile(r'label "(\w+)"')
_MAX_SHOWN: Final = 80
_MAX_BYTES: Final = 16 << 20


def read_file(path: Path) -> Mapping[str, Any]:
    """Read a YAML mapping.

    Raises:
        InputError: it cannot be read, or is none.
        UnavailableError: PyYAML is not installed.
    """
    remedy = "Name a file of rules or a configuration of Alertmanager."
    try:
        text = read_small_text(path, _MAX_BYTES, follow=True, expected="a YAML file")
        document = parse_yaml(text, str(path), remedy, "alerts check")
    except OSError as error:
        expected = "a readable YAML file in UTF-8"
        raise InputError.of(str(path), error.strerror, expected, remedy) from None
    except ConfigError as error:
        raise InputError(str(error)) from None
    if not isinstance(document, dict):
        expected = "a mapping with groups of rules, or with a route"
        raise InputError.of(str(path), _shortened(document), expected, remedy)
    return document


def findings_in_rules(document: Mapping[str, Any]) -> list[str]:
    """Names and labels that nothing publishes, by rule. Needs promql-parser."""
    names = dict(labels_by_name())
    findings: list[str] = []
    for rule in (rule for group in document.get("groups", ()) for rule in group.get("rules", ())):
        if "record" in rule:  # it may read its own last value
            names.setdefault(rule["record"], _OF_ALERT)
        query = QueryLabels(names)
        labels = query.of(rule["expr"])
        if "record" in rule:
            names[rule["record"]] = labels
        else:
            for text in (*rule.get("labels", {}).values(), *rule.get("annotations", {}).values()):
                _check_template(text, labels, query)
        name = rule.get("alert") or rule.get("record")
        findings += [f"{name}: {finding}" for finding in query.findings]
    return findings


def findings_of_program(path: Path, document: Mapping[str, Any]) -> list[str] | None:
    """Output of promtool or amtool; None if it is not installed."""
    is_rules = "groups" in document
    name, verb = ("promtool", ["check", "rules"]) if is_rules else ("amtool", ["check-config"])
    program = shutil.which(name)
    if program is None:
        return None
    done = subprocess.run(  # noqa: S603 (a program that was found, and a path)
        [program, *verb, str(path)], capture_output=True, text=True, timeout=120.0, check=False
    )
    output = (done.stdout + done.stderr).strip()
    return [] if done.returncode == 0 else [f"{name}: {line}" for line in output.splitlines()]


def findings_in_config(document: Mapping[str, Any]) -> list[str]:
    """Names of alerts in matchers that the catalogue does not have."""
    matchers = [
        *(
            matcher
            for rule in document.get("inhibit_rules", ())
            for side in ("source_matchers", "target_matchers")
            for matcher in rule.get(side, ())
        ),
        *_matchers_of_route(document.get("route", {})),
    ]
    return [
        f"{matcher}: no alert of otel-straggler is called {name}"
        for matcher in dict.fromkeys(matchers)
        for name in re.findall(r"Straggler\w+", matcher)
        if name not in NAMES
    ]


def _check_template(text: str, labels: frozenset[str], query: QueryLabels) -> None:
    for name in dict.fromkeys(_LABEL.findall(text)):
        if name not in labels:
            query.findings.append(f"template: $labels.{name} is no label of the alert")
    result = frozenset[str]().union(
        *(query.of(q.replace("%q", '"x"')) for q in _QUERY.findall(text))
    )
    for name in _QUERIED.findall(text):
        if name not in result:
            query.findings.append(f"template: no query there gives the label {name!r}")


def _matchers_of_route(route: Mapping[str, Any]) -> Iterator[str]:
    yield from route.get("matchers", ())
    for child in route.get("routes", ()):
        yield from _matchers_of_route(child)


def _shortened(document: object) -> object:
    """The beginning of a whole file that is something else."""
    text = document if isinstance(document, str) else repr(document)
    return document if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


# --- labels of series ----------------------------------------------------------------------------

CONSTANT: Final = frozenset({"collector", "cluster"})
"""On every series; ``cluster`` only if ``metrics.cluster`` is set."""
_OF_HISTOGRAM: Final = frozenset({*map(label_of, LABELS.values()), "cluster"})
_OF_ALERT: Final = frozenset(
    {"alertname", "alertstate", "severity", "domain", "subjects", *CONSTANT, *JOINED}.union(
        *(rule.labels for rule in CATALOGUE)
    )
)


_OF_SCRAPE: Final = frozenset({"job", "instance"})
"""Of a target, whatever it says itself; of what a rule reads only where it is about targets."""


def labels_by_name() -> Mapping[str, frozenset[str]]:
    """Labels that a series may have, by its name in Prometheus; recorded series included."""
    histogram = semconv.SECTION_DURATION.prometheus_name
    return {
        **{m.prometheus_name: CONSTANT.union(m.published_labels) for m in _published()},
        **{one.name: CONSTANT.union(one.of) for one in (*RECORDED, *LOW_RECORDED)},
        f"{histogram}_bucket": _OF_HISTOGRAM | {"le"},
        f"{histogram}_sum": _OF_HISTOGRAM,
        f"{histogram}_count": _OF_HISTOGRAM,
        "ALERTS": _OF_ALERT,
        "up": _OF_SCRAPE,
        semconv.COLLECTOR_START.prometheus_name: CONSTANT | _OF_SCRAPE,
    }


def _published() -> Iterator[Metric]:
    for value in (*vars(semconv).values(), *semconv.OVER_RANKS.values()):
        if isinstance(value, Metric) and value.labels is not None:
            yield value


# --- labels of expressions -----------------------------------------------------------------------

Names = Mapping[str, frozenset[str]]
_SETS: Final = frozenset({"and", "unless"})


class QueryLabels:
    """Labels of PromQL expressions, and names in them that nothing publishes.

    Attributes:
        findings: errors so far.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self.findings: list[str] = []

    def of(self, expression: str) -> frozenset[str]:
        """Labels that its elements may have."""
        try:
            return self._of(promql.parse(expression))
        except ValueError as error:
            self.findings.append(f"{expression}: no PromQL: {error}")
            return frozenset()

    def _of(self, node: promql.Expr) -> frozenset[str]:
        if isinstance(node, promql.VectorSelector):
            return self._of_selector(node)
        if isinstance(node, promql.MatrixSelector):
            return self._of_selector(node.vector_selector)
        if isinstance(node, promql.AggregateExpr):
            return self._of_aggregate(node)
        if isinstance(node, promql.BinaryExpr):
            return self._of_pair(node)
        if isinstance(node, promql.Call):
            return self._of_call(node)
        if isinstance(node, (promql.ParenExpr, promql.SubqueryExpr, promql.UnaryExpr)):
            return self._of(node.expr)
        return frozenset()

    def _of_selector(self, node: promql.VectorSelector) -> frozenset[str]:
        name = node.name or ""
        if name not in self._names:
            self.findings.append(f"{name or node}: no metric of otel-straggler")
            return frozenset()
        known = self._names[name]
        self._expect({matcher.name for matcher in node.matchers.matchers}, known, name)
        return known

    def _of_aggregate(self, node: promql.AggregateExpr) -> frozenset[str]:
        inner = self._of(node.expr)
        if node.modifier is None:
            return inner if str(node.op) in ("topk", "bottomk") else frozenset()
        if node.modifier.type != promql.AggModifierType.By:
            self.findings.append(f"{node}: 'without' lets labels of the scrape through")
        by = frozenset(node.modifier.labels)
        self._expect(by, inner, "by")
        return inner if str(node.op) in ("topk", "bottomk") else by

    def _of_pair(self, node: promql.BinaryExpr) -> frozenset[str]:
        left, right = self._of(node.lhs), self._of(node.rhs)
        operator = str(node.op)
        if operator == "or":
            return left | right
        if not left or not right:  # a number, or the sum of everything
            return left or right
        modifier = node.modifier
        if modifier is None or modifier.matching is None:
            if operator not in _SETS and left != right:
                self.findings.append(f"{operator}: sides have different labels, and no 'on'")
            return left
        on = frozenset(modifier.matching.labels)
        self._expect(on, left, f"{operator} on, left")
        self._expect(on, right, f"{operator} on, right")
        is_right = modifier.card == promql.VectorMatchCardinality.OneToMany
        many, one = (right, left) if is_right else (left, right)
        more = frozenset(modifier.group_labels or ())
        self._expect(more, one, "group")
        return many | more

    def _of_call(self, node: promql.Call) -> frozenset[str]:
        labels = frozenset[str]().union(*(self._of(argument) for argument in node.args))
        if node.func.name == "label_replace":
            return labels | {str(node.args[1]).strip('"')}
        return labels - {"le"} if node.func.name == "histogram_quantile" else labels

    def _expect(self, wanted: set[str] | frozenset[str], known: frozenset[str], where: str) -> None:
        for name in sorted(wanted - known):
            self.findings.append(f"{where}: no label {name!r} there")
