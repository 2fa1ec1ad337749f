"""``alerts/RUNBOOK.md``: the texts of the runbook, with what the catalogue knows of each alert."""

from __future__ import annotations

from typing import Final

from otel_straggler.alerts.catalogue import CATALOGUE, NAMES
from otel_straggler.alerts.promql import duration
from otel_straggler.alerts.rule import AlertRule
from otel_straggler.alerts.runbooks import RUNBOOKS
from otel_straggler.alerts.settings import AlertSettings

RUNBOOK_FILE: Final = "RUNBOOK.md"
_HEAD: Final = """\
<!-- Made by `otel-straggler alerts render` from the catalogue. -->
# Runbook

One chapter for each alert: what it means, the first three things to do, how to be quiet. Times \
and thresholds are the defaults; `docs/operate/alerts.md` has them all. Commands ask a collector \
at `127.0.0.1:9464`; `--collector URL` names another.

To acknowledge for a while: the silence link of the alert, or \
`amtool silence add run_id="ID" --duration 4h --comment WHY`.

"""


def runbook_file(settings: AlertSettings) -> str:
    contents = "".join(f"- [{name}](#{name.lower()})\n" for name in NAMES)
    chapters = "\n".join(chapter(name, settings) for name in NAMES)
    return f"{_HEAD}{contents}\n{chapters}"


def chapter(name: str, settings: AlertSettings) -> str:
    """One alert: heading, a line of facts, the text."""
    rules = [rule for rule in CATALOGUE if rule.name == name]
    return f"## {name}\n{_facts(rules, settings)}\n\n{RUNBOOKS[name]}"


def _facts(rules: list[AlertRule], settings: AlertSettings) -> str:
    rule = rules[0]
    facts = [
        " or ".join(f"`{each.severity}`" for each in rules),
        f"domain {rule.domain or 'by the cause'}",
        f"after {duration(rule.for_s(settings))}" if rule.for_s(settings) else "at once",
    ]
    if rule.predicate is None:
        facts.append("from Prometheus only")
    return ", ".join(facts) + "."
