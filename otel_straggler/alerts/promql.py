"""Pieces of PromQL that several alerts share, for Prometheus 2.42 and later.

Labels are named wherever series are joined (``by``, ``on``), so that the labels of a scrape
(``instance``, ``job``) never get into an alert, and a collector that is scraped twice is one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from otel_straggler import semconv
from otel_straggler.alerts.rule import BARRED, AlertRule, During
from otel_straggler.model.alert import Severity
from otel_straggler.model.verdict import CALLED_SLOW
from otel_straggler.semconv import OF_RUN, Metric

OF_COLLECTOR: Final = ("cluster", "collector")
WORLD: Final = "cluster, collector, run_id, group"
"""The labels of a run at one collector; for ``on``."""
SUBJECT: Final = f"{WORLD}, subject_id"
ANYWHERE: Final = "cluster, run_id, group"
"""The labels of a run at all collectors."""


def by(labels: tuple[str, ...]) -> str:
    """
    >>> by(("run_id",))
    'by (cluster, collector, run_id)'
    """
    return f"by ({', '.join((*OF_COLLECTOR, *labels))})"


def series(metric: Metric, matchers: str = "") -> str:
    return metric.prometheus_name + (f"{{{matchers}}}" if matchers else "")


def newest(labels: tuple[str, ...], metric: Metric, matchers: str = "") -> str:
    """The series now, one for each set of ``labels``."""
    return f"max {by(labels)} ({series(metric, matchers)})"


def duration(seconds: float) -> str:
    """A duration in PromQL.

    >>> duration(259_200), duration(90), duration(0.5), duration(0), duration(345_600)
    ('3d', '90s', '500ms', '0s', '4d')
    """
    if seconds != int(seconds):
        return f"{round(seconds * 1_000)}ms"
    whole = int(seconds)
    for unit_s, letter in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if whole and whole % unit_s == 0:
            return f"{whole // unit_s}{letter}"
    return f"{whole}s"


def number(value: float) -> str:
    """
    >>> number(0.75), number(120.0)
    ('0.75', '120')
    """
    return f"{value:.12g}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A series that rules record for a collector that may be gone, one for each run.

    A scraped series ends with its scrape, and one of an earlier instance keeps its last value
    within the lookback. Recorded series have no scrape labels: a run at a collector has one,
    whatever its address, and another with the time it was last seen, so that an older collector
    never beats a newer one.

    Attributes:
        expression: PromQL that gives these labels.
        of: labels, besides those of the collector.
    """

    name: str
    expression: str
    of: tuple[str, ...] = OF_RUN


def _in_states(during: During) -> str:
    states = "|".join(BARRED[during])
    return newest(OF_RUN, semconv.RUN_STATE, f'state=~"{states}"')


HUNG: Final = Recorded("run:straggler_run_hung:max", newest(OF_RUN, semconv.RUN_HUNG))
LAST_SEEN: Final = Recorded(
    "run:straggler_run_heard:timestamp_seconds",
    f"max {by(OF_RUN)} (timestamp({series(semconv.RUN_HUNG)}))",
)
HUNG_AT: Final = Recorded(
    "run:straggler_run_hung:timestamp_seconds",
    f"max {by(OF_RUN)} (timestamp({series(semconv.RUN_HUNG)}) and {series(semconv.RUN_HUNG)} == 1)",
)
ENDED: Final = Recorded("run:straggler_run_ended:max", _in_states("alive"))
IDLE: Final = Recorded("run:straggler_run_idle:max", _in_states("working"))
UNTRAINED: Final = Recorded("run:straggler_run_not_training:max", _in_states("training"))
HEARTBEAT: Final = Recorded(
    "run:straggler_last_heartbeat:timestamp_seconds", newest(OF_RUN, semconv.LAST_HEARTBEAT)
)
SCORED: Final = Recorded(
    "run:straggler_last_scored:timestamp_seconds", newest(OF_RUN, semconv.RANK_LAST_SCORED)
)


def since(name: str, subject: str, condition: str) -> str:
    """What records as ``name`` since when a condition has held for a subject without a gap: its own
    last value while it holds; else now."""
    return (
        f"(min by ({subject}) ({name})\n  and on ({subject}) ({condition}))\n"
        f"or\n(0 * max by ({subject}) ({condition}) + time())"
    )


def _called_slow() -> str:
    states = "|".join(sorted(CALLED_SLOW))
    info = series(semconv.VERDICT_INFO, f'state=~"{states}"')
    return f"{info}\n  unless on ({SUBJECT}) ({semconv.VERDICT_SILENCED.prometheus_name} == 1)"


_SLOW: Final = "subject:straggler_verdict_slow:since_seconds"
SLOW_SINCE: Final = Recorded(
    _SLOW, since(_SLOW, SUBJECT, _called_slow()), of=("run_id", "group", "subject_id")
)
"""Since when a subject has been called slow without a gap, whatever section, cause and cost."""


def _typical() -> str:
    """As the collector has it, of all ranks; else of those whose series there are."""
    metric = semconv.SECTION_INDIVIDUAL
    of_section = (*OF_RUN, "section")
    over = newest(of_section, semconv.OVER_RANKS[metric.name], 'ranks_below="0.5"')
    scores = newest((*semconv.OF_RANK, "section"), metric, 'section!=""')
    return f"{over}\nor\nquantile {by(of_section)} (0.5, {scores})"


TYPICAL: Final = Recorded(
    "section:straggler_individual_score:median", _typical(), of=(*OF_RUN, "section")
)
"""How far most ranks are behind their own best."""
RECORDED: Final = (
    HUNG,
    LAST_SEEN,
    HUNG_AT,
    ENDED,
    IDLE,
    UNTRAINED,
    HEARTBEAT,
    SCORED,
    SLOW_SINCE,
    TYPICAL,
)
_BARRED_BY: Final[dict[During, Recorded]] = {
    "training": UNTRAINED,
    "working": IDLE,
    "alive": ENDED,
}


def only_during(during: During, labels: tuple[str, ...], expression: str) -> str:
    """Restrict ``expression`` to runs about which such an alert may fire; see ``BARRED``. An alert
    on a run as a whole may while one of its groups may."""
    recorded = _BARRED_BY.get(during)
    if recorded is None or "run_id" not in labels:
        return expression
    if "group" in labels:
        return f"({expression})\nunless on ({WORLD}) ({recorded.name} == 1)"
    run = "cluster, collector, run_id"
    return f"({expression})\nunless on ({run}) (min by ({run}) ({recorded.name}) == 1)"


def recorded_name(rule: AlertRule) -> str:
    """The series that records the condition of a rule, without its time: for example
    ``alert:straggler_host_slow:critical``, and ``..._many`` of the one that counts these."""
    many = "" if rule.counts is None else "_many"
    return f"{_recorded(rule.name, rule.severity)}{many}"


def subjects_name(alert: str, severity: Severity) -> str:
    """The series of all subjects of an alert, also of those that are counted instead of named."""
    return f"{_recorded(alert, severity)}_subjects"


def _recorded(alert: str, severity: Severity) -> str:
    words = re.findall("[A-Z][a-z]+", alert)
    return f"alert:{'_'.join(words).lower()}:{severity}"


def hung_when_last_seen(within_s: float) -> str:
    """Runs whose newest report, from any collector, is that they hang."""
    window = duration(within_s)
    labels = ", ".join(("cluster", "collector", *OF_RUN))
    return (
        f"(last_over_time({HUNG.name}[{window}]) == 1)\n"
        f"and on ({labels}) (\n"
        f"  max_over_time({LAST_SEEN.name}[{window}])\n"
        f"  >= on ({ANYWHERE}) group_left ()\n"
        f"  max by ({ANYWHERE}) (max_over_time({LAST_SEEN.name}[{window}]))\n"
        ")"
    )
