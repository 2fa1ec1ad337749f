"""``alerts check``: what is wrong with a file of rules, or of Alertmanager's configuration."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from otel_straggler.alerts.catalogue import NAMES
from otel_straggler.alerts.published import labels_by_name
from otel_straggler.errors import InputError, UnavailableError, describe

_QUERY: Final = re.compile(r"printf `([^`]*)`[^|]*\| query")
_LABEL: Final = re.compile(r"\$labels\.(\w+)")
_TOLD: Final = re.compile(r'label "(\w+)"')
TIMEOUT_S: Final = 120.0
_MOST_SHOWN: Final = 80


def read_file(path: Path) -> Mapping[str, Any]:
    """A YAML mapping.

    Raises:
        InputError: it cannot be read, or is none.
        UnavailableError: PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError as error:
        msg = "PyYAML is not installed. Run: pip install 'otel-straggler[collector]'"
        raise UnavailableError(msg) from error
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "problem", None) or error
        raise InputError(
            describe(
                where=str(path),
                value=str(reason),
                expected="a readable YAML file in UTF-8",
                remedy="Name a file of rules or a configuration of Alertmanager.",
            )
        ) from None
    if not isinstance(document, dict):
        raise InputError(
            describe(
                where=str(path),
                value=_in_short(document),
                expected="a mapping with groups of rules, or with a route",
                remedy="Name a file of rules or a configuration of Alertmanager.",
            )
        )
    return document


def findings_in_rules(document: Mapping[str, Any]) -> list[str]:
    """Names and labels that nothing publishes, by the rule that uses them."""
    from otel_straggler.alerts.query_labels import QueryLabels

    names = dict(labels_by_name())
    found: list[str] = []
    for rule in _rules(document):
        looking = QueryLabels(names)
        labels = looking.of(rule["expr"])
        if "record" in rule:
            names[rule["record"]] = labels
        else:
            for text in (*rule.get("labels", {}).values(), *rule.get("annotations", {}).values()):
                _look_at_template(text, labels, looking)
        name = rule.get("alert") or rule.get("record")
        found += [f"{name}: {finding}" for finding in looking.findings]
    return found


def findings_of_program(path: Path, document: Mapping[str, Any]) -> list[str] | None:
    """What promtool or amtool says; None if it is not installed."""
    program = "promtool" if "groups" in document else "amtool"
    found = shutil.which(program)
    if found is None:
        return None
    command = [found, *(("check", "rules") if program == "promtool" else ("check-config",))]
    ran = subprocess.run(  # noqa: S603 (a program that was found, and a path)
        [*command, str(path)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    said = (ran.stdout + ran.stderr).strip()
    return [] if ran.returncode == 0 else [f"{program}: {line}" for line in said.splitlines()]


def findings_in_config(document: Mapping[str, Any]) -> list[str]:
    """Names of alerts in matchers that the catalogue does not have."""
    matchers = [
        m for key in ("inhibit_rules",) for rule in document.get(key, ()) for m in _of(rule)
    ]
    matchers += list(_of_route(document.get("route", {})))
    return [
        f"{matcher}: no alert of otel-straggler is called {name}"
        for matcher in dict.fromkeys(matchers)
        for name in re.findall(r"Straggler\w+", matcher)
        if name not in NAMES
    ]


def _rules(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for group in document.get("groups", ()):
        yield from group.get("rules", ())


def _look_at_template(text: str, labels: frozenset[str], looking: Any) -> None:
    for name in dict.fromkeys(_LABEL.findall(text)):
        if name not in labels:
            looking.findings.append(f"template: $labels.{name} is no label of the alert")
    asked = _QUERY.findall(text)
    told: frozenset[str] = frozenset().union(
        *(looking.of(query.replace("%q", '"x"')) for query in asked)
    )
    for name in _TOLD.findall(text):
        if name not in told:
            looking.findings.append(f"template: no query there gives the label {name!r}")


def _of(rule: Mapping[str, Any]) -> Iterator[str]:
    yield from rule.get("source_matchers", ())
    yield from rule.get("target_matchers", ())


def _of_route(route: Mapping[str, Any]) -> Iterator[str]:
    yield from route.get("matchers", ())
    for below in route.get("routes", ()):
        yield from _of_route(below)


def _in_short(document: object) -> object:
    """Of a whole file that is something else, the beginning."""
    text = document if isinstance(document, str) else repr(document)
    return document if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
