"""The labels that rules are checked against are those of the page of names."""

from __future__ import annotations

import re
from pathlib import Path

from otel_straggler import semconv
from otel_straggler.alerts.checking import CONSTANT, labels_by_name
from otel_straggler.alerts.promql import RECORDED

ROOT = Path(__file__).parents[2]


def told() -> dict[str, frozenset[str]]:
    """By name in Prometheus, of all that docs/reference/names-on-the-wire.md gives labels of a
    collector for."""
    page = (ROOT / "docs" / "reference" / "names-on-the-wire.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in re.findall(r"^\| `(?:straggler|hw)\..*\|$", page, re.MULTILINE)
    ]
    return {
        row[1].strip("`"): frozenset(re.findall(r"`(\w+)`", row[-1])) | {"cluster"}
        for row in rows
        if len(row) >= 6 and "`collector`" in row[-1]
    }


def test_labels_that_alerts_rest_on_are_those_of_the_page() -> None:
    """A test holds the page to a running collector, so that rules are held to it, too."""
    known = labels_by_name()
    recorded = {each.name for each in RECORDED}
    elsewhere = {
        "ALERTS",  # Prometheus' own
        semconv.RANK_INFO.prometheus_name,  # the rank description: held to the collector's code
        semconv.RECORDS_DROPPED.prometheus_name,  # told by ranks; published under the same name
    }
    page = told()
    looked_at = 0
    for name, labels in known.items():
        is_of_histogram = name.startswith(f"{semconv.SECTION_DURATION.prometheus_name}_")
        if name in recorded | elsewhere or is_of_histogram:
            continue
        assert labels | CONSTANT == page[name], name
        looked_at += 1
    assert looked_at >= 25
