"""All alerts, and which of them inhibit others; rendered as rules and evaluated by the
collector."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from otel_straggler.alerts.collector_rules import COLLECTOR_RULES
from otel_straggler.alerts.hang_rules import HANG_RULES
from otel_straggler.alerts.platform_rules import PLATFORM_RULES
from otel_straggler.alerts.rule import AlertRule
from otel_straggler.alerts.score_rules import SCORE_RULES
from otel_straggler.model.alert import Alert

CATALOGUE: Final[tuple[AlertRule, ...]] = (
    *HANG_RULES,
    *SCORE_RULES,
    *PLATFORM_RULES,
    *COLLECTOR_RULES,
)
NAMES: Final[tuple[str, ...]] = tuple(dict.fromkeys(rule.name for rule in CATALOGUE))

Covered = Literal["any", "not_graver", "milder"]
_RUN: Final = ("cluster", "run_id", "group", "mode")
_NODE: Final = ("cluster", "run_id", "node", "mode")
_NODE_OF_GROUP: Final = ("cluster", "run_id", "group", "node", "mode")
_RANK: Final = ("cluster", "run_id", "group", "rank", "mode")
_COLLECTOR: Final = ("cluster", "collector", "mode")
_SCORES: Final = ("StragglerScoreLow", "StragglerRankDegraded", "StragglerRunDegraded")


@dataclass(frozen=True, slots=True)
class Inhibition:
    """While ``source`` fires, ``targets`` about the same subject notify nobody.

    Attributes:
        source: name of an alert.
        targets: names of alerts.
        equal: labels with the same value on both, or on neither. ``mode`` is always among them: an
            alert that notifies nobody must not silence one that does.
        covered: "any"; "not_graver": none that is critical unless the source is; "milder": only
            what is not critical, by a source that is.
    """

    source: str
    targets: tuple[str, ...]
    equal: tuple[str, ...]
    covered: Covered = "any"

    def covers(self, source: Alert, target: Alert) -> bool:
        return (
            source.name == self.source
            and target.name in self.targets
            and self._is_covered(_is_critical(source), _is_critical(target))
            and all(source.labels.get(name) == target.labels.get(name) for name in self.equal)
        )

    def _is_covered(self, source: bool, target: bool) -> bool:
        if self.covered == "milder":
            return source and not target
        return self.covered == "any" or source or not target


def _is_critical(alert: Alert) -> bool:
    return alert.labels.get("severity") == "critical"


def _of_a_hung_run() -> tuple[str, ...]:
    """All about its ranks and hosts, and about what it does while it runs: it does nothing."""
    names = (
        rule.name
        for rule in CATALOGUE
        if "run_id" in rule.labels
        and (rule.during in ("training", "working") or {"rank", "node"} & set(rule.labels))
    )
    return (*dict.fromkeys(names), "StragglerRunSilent", "StragglerRanksMissing")


INHIBITIONS: Final = (
    Inhibition("StragglerRunHung", _of_a_hung_run(), _RUN),
    Inhibition(
        "StragglerHostSlow",
        (
            "StragglerRankStraggling",
            "StragglerGpuSlow",
        ),
        _NODE,
        "not_graver",
    ),
    # Low scores of other ranks are then of sections in which they wait for the slow one.
    Inhibition("StragglerRankStraggling", _SCORES, _RUN),
    Inhibition("StragglerHostSlow", _SCORES, _RUN),
    Inhibition("StragglerRankStraggling", ("StragglerRankStraggling",), _RANK, "milder"),
    Inhibition("StragglerHostSlow", ("StragglerHostSlow",), _NODE_OF_GROUP, "milder"),
    Inhibition("StragglerRunForgotten", ("StragglerRunHung",), _RUN),
    Inhibition(
        "StragglerScoringFailing",
        ("StragglerNoData", "StragglerRanksUnscored", "StragglerCoverageLow"),
        _RUN,
    ),
    # Each says less than the one before it.
    Inhibition("StragglerNoData", ("StragglerRanksUnscored", "StragglerCoverageLow"), _RUN),
    Inhibition("StragglerRanksMissing", ("StragglerCoverageLow",), _RUN),
    Inhibition("StragglerRanksUnscored", ("StragglerCoverageLow",), _RUN),
    # Never over a hung run: that its collector is gone too is no comfort.
    Inhibition("StragglerCollectorDown", ("StragglerRunSilent", "StragglerNoData"), _COLLECTOR),
)


def uninhibited(alerts: Iterable[Alert], firing: Iterable[Alert]) -> tuple[Alert, ...]:
    """Alerts that no firing alert inhibits, in order.

    Args:
        alerts: ended ones too: that the ranks of a hung run are no longer lost is no news.
        firing: all that fire. A source counts although it is inhibited itself, as in Alertmanager.

    Cost: O(alerts · sources that fire).
    """
    sources = [
        (rule, alert)
        for alert in firing
        if alert.ends_at_s is None
        for rule in INHIBITIONS
        if rule.source == alert.name
    ]
    return tuple(
        alert for alert in alerts if not any(rule.covers(source, alert) for rule, source in sources)
    )
