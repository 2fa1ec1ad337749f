"""Pieces of PromQL that several alerts share, for Prometheus 2.42 and later.

Labels are named wherever series are joined (``by``, ``on``), so that the labels of a scrape
(``instance``, ``job``) never get into an alert, and a collector that is scraped twice is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from otel_straggler import semconv
from otel_straggler.alerts.rule import BARRED, During
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.model.alert import Severity
from otel_straggler.model.verdict import CALLED_SLOW
from otel_straggler.semconv import OF_RUN, Metric

OF_COLLECTOR: Final = ("cluster", "collector")
WORLD: Final = "cluster, collector, run_id, group"
"""The labels of a run at one collector; for ``on``."""
SUBJECT: Final = f"{WORLD}, subject_id"
FORGOTTEN_S: Final = 30 * 86_400.0
"""A collector that was not scraped for so long was taken down for good."""
ANYWHERE: Final = "cluster, run_id, group"
"""The labels of a run at all collectors."""
JOINED: Final = ("mode", "team")
"""Labels of every alert that come from :data:`LABELS`."""


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
        expression: PromQL that gives these labels; what depends on no setting is a text.
        of: labels, besides those of the collector.
    """

    name: str
    expression: str | Callable[[AlertSettings], str]
    of: tuple[str, ...] = OF_RUN

    def written(self, settings: AlertSettings) -> str:
        """The expression with these settings."""
        return self.expression if isinstance(self.expression, str) else self.expression(settings)


# --- labels of alerts ----------------------------------------------------------------------------

_OF_LABELS: Final = ("run_id", "group")


def _modes() -> str:
    """Of every group of a run; of a run as a whole; of every collector; of a cluster."""
    run, collector = series(semconv.RUN_PAGES), series(semconv.COLLECTOR_PAGES)
    pages = (
        f"(max by ({WORLD}) ({run})\n"
        f"or on ({WORLD}) max by (cluster, collector, run_id) ({run})\n"
        f"or on ({WORLD}) max by (cluster, collector) ({collector})\n"
        f"or on ({WORLD}) max by (cluster) ({collector}))"
    )
    return (
        f'label_replace({pages} == 1, "mode", "page", "", "")\n'
        f'or\nlabel_replace({pages} != 1, "mode", "observe", "", "")'
    )


MODE: Final = Recorded("run:straggler_alert_mode:info", _modes(), of=(*_OF_LABELS, "mode"))
_LABELS: Final = "run:straggler_alert_labels:seen_seconds"


def _labels(settings: AlertSettings) -> str:
    """Now; else as they were last known, from evaluation to evaluation: no query looks back."""
    info = series(semconv.RUN_INFO, 'team!=""')
    run = "cluster, collector, run_id"
    team = (
        f"(topk by ({WORLD}) (1, max by ({WORLD}, team) ({info}))\n"
        f"or on ({WORLD}) topk by ({run}) (1, max by ({run}, team) ({info})))"
    )
    return (
        f"(0 * ({MODE.name}\n"
        f"  + on ({WORLD}) group_left (team) (0 * {team})\n"
        f"  or on ({WORLD}) {MODE.name}) + time())\n"
        f"or on ({WORLD}) ({_LABELS} > time() - {number(settings.remembered_s)})"
    )


LABELS: Final = Recorded(_LABELS, _labels, of=(*_OF_LABELS, *JOINED))
"""Mode and team of all runs and collectors, and when they were last reported."""


def labelled(labels: tuple[str, ...], expression: str) -> str:
    """``expression`` with the labels mode and team. Where these are unknown it has those that it
    had, else the mode observe.

    Args:
        labels: of ``expression``, besides those of the collector.
        expression: short: it is written, and evaluated, twice.
    """
    shared = ", ".join((*OF_COLLECTOR, *(name for name in _OF_LABELS if name in labels)))
    without = ", ".join(f'{name}=""' for name in _OF_LABELS if name not in labels)
    known = f"{LABELS.name}{{{without}}}" if without else LABELS.name
    return (
        f"{expression}\n"
        f"+ on ({shared}) group_left ({', '.join(JOINED)}) (0 * topk by ({shared}) (1, {known}))\n"
        f'or on ({shared}) label_replace({expression}, "mode", "observe", "mode", "")'
    )


# --- runs ----------------------------------------------------------------------------------------


def _in_states(during: During) -> str:
    states = "|".join(BARRED[during])
    return newest(OF_RUN, semconv.RUN_STATE, f'state=~"{states}"')


def _start_of_collector() -> str:
    """Of the collector of a run; where runs are relabelled to be of none, the newest of the
    cluster."""
    run, start = f"0 * max by ({WORLD}) ({series(semconv.RUN_STATE)})", semconv.COLLECTOR_START
    of_collector = f"max by (cluster, collector) ({series(start)})"
    return (
        f"{run} + on (cluster, collector) group_left () {of_collector}\n"
        f"or on ({WORLD}) ({run} + on (cluster) group_left () max by (cluster) ({series(start)}))"
    )


HUNG: Final = Recorded(
    "run:straggler_run_hung:max",
    labelled(OF_RUN, newest(OF_RUN, semconv.RUN_HUNG)),
    of=(*OF_RUN, *JOINED),
)
LAST_SEEN: Final = Recorded(
    "run:straggler_run_heard:timestamp_seconds",
    labelled(OF_RUN, f"max {by(OF_RUN)} (timestamp({series(semconv.RUN_HUNG)}))"),
    of=(*OF_RUN, *JOINED),
)


_HUNG_LAST: Final = "run:straggler_run_hung:last_seen_seconds"


def _hung_when_last_seen(settings: AlertSettings) -> str:
    """While it hangs, and after it was last seen to hang, until any collector reports it again;
    then 0, once, so that the only query that looks back for days finds that instead."""
    kept = f"last_over_time({_HUNG_LAST}[{duration(settings.remembered_s)}])"
    known = f"({kept} > 0 > time() - {number(settings.remembered_s)})"
    newest_seen = f"max by ({ANYWHERE}) ({LAST_SEEN.name})"
    labels = ", ".join((*OF_COLLECTOR, *OF_RUN, *JOINED))
    return (
        f"({LAST_SEEN.name} and on ({labels}) ({HUNG.name} == 1))\n"
        f"or on ({labels}) (0 * ({known} < on ({ANYWHERE}) group_left () {newest_seen}))\n"
        f"or on ({labels}) {known}"
    )


HUNG_WHEN_LAST_SEEN: Final = Recorded(_HUNG_LAST, _hung_when_last_seen, of=(*OF_RUN, *JOINED))
"""When runs were seen last of which it is the last that is known that they hang. It has samples
only of these, so that looking back for days is cheap however many runs there have been."""
HUNG_AT: Final = Recorded(
    "run:straggler_run_hung:timestamp_seconds",
    f"max {by(OF_RUN)} (timestamp({series(semconv.RUN_HUNG)}) and {series(semconv.RUN_HUNG)} == 1)",
)
STARTED: Final = Recorded(
    "run:straggler_collector_start:timestamp_seconds", _start_of_collector(), of=("run_id", "group")
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
_TARGET: Final = ("job", "instance")
_SEEN: Final = "collector:straggler_collector_seen:timestamp_seconds"
SEEN: Final = Recorded(
    _SEEN,
    f"max {by(_TARGET)} (timestamp({series(semconv.COLLECTOR_START)}))\n"
    f"or\n(last_over_time({_SEEN}[1h]) > time() - {number(FORGOTTEN_S)})",
    of=_TARGET,
)
"""When a collector was last scraped, by target; its own last value once it is gone. A Prometheus
that is down for an hour has forgotten it."""


def _evicted(settings: AlertSettings) -> str:
    """Runs that a collector has known, and knows no more although it has long been there."""
    start, kept_s = series(semconv.COLLECTOR_START), settings.keep_firing_seconds
    recently = number(kept_s + settings.evaluation_seconds)
    return (
        f'max by ({WORLD}) ({LABELS.name}{{run_id!=""}} > time() - {recently})\n'
        f"unless on ({WORLD}) {series(semconv.RUN_PAGES)}\n"
        f"and on (cluster, collector) (time() - max by (cluster, collector) ({start}) "
        f"> {number(kept_s)})"
    )


EVICTED: Final = Recorded("run:straggler_run_evicted:max", _evicted, of=("run_id", "group"))


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
    scores = series(metric, 'section!=""')
    return f"{over}\nor\nquantile {by(of_section)} (0.5, {scores})"


TYPICAL: Final = Recorded(
    "section:straggler_individual_score:median", _typical(), of=(*OF_RUN, "section")
)
"""How far most ranks are behind their own best."""
RECORDED: Final = (
    MODE,
    LABELS,
    HUNG,
    LAST_SEEN,
    HUNG_WHEN_LAST_SEEN,
    HUNG_AT,
    STARTED,
    ENDED,
    IDLE,
    UNTRAINED,
    HEARTBEAT,
    SCORED,
    SEEN,
    EVICTED,
    SLOW_SINCE,
    TYPICAL,
)
_BARRED_BY: Final[dict[During, Recorded]] = {
    "training": UNTRAINED,
    "working": IDLE,
    "alive": ENDED,
}


def recorded_name(alert: str, severity: Severity, level: str = "alert", many: str = "") -> str:
    """A series that is recorded of an alert, without its time.

    Args:
        level: "subjects": all of whom it is true, also those that are counted instead of named;
            "condition": those whose alert it makes; "alert": where that outlasts it.
        many: of the rule that counts them, as ``AlertRule.subjects``.

    >>> recorded_name("StragglerHostSlow", "critical")
    'alert:straggler_host_slow:critical'
    """
    words = re.findall("[A-Z][a-z]+", alert)
    name = f"{level}:{'_'.join(words).lower()}:{severity}"
    return f"{name}_{many}" if many else name


def allowed(during: During, labels: tuple[str, ...], expression: str) -> str:
    """Restrict ``expression`` to runs about which such an alert may fire, see ``BARRED``, and to
    hosts that are not under maintenance. An alert on a run as a whole may fire while one of its
    groups may."""
    barred = [f"({expression})"]
    recorded = _BARRED_BY.get(during)
    if recorded is not None and "group" in labels:
        barred.append(f"unless on ({WORLD}) ({recorded.name} == 1)")
    elif recorded is not None and "run_id" in labels:
        run = "cluster, collector, run_id"
        barred.append(f"unless on ({run}) (min by ({run}) ({recorded.name}) == 1)")
    if "node" in labels:
        maintained = series(semconv.MAINTENANCE_UNTIL)
        barred.append(f"unless on (cluster, node) ({maintained} > time())")
    return "\n".join(barred) if len(barred) > 1 else expression
