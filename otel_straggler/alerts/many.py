"""More than five subjects with one cause are one alert, which counts them and names the worst five:
a list of the worst is another list in each window, and no member of it is there for long."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from otel_straggler import semconv
from otel_straggler.alerts.messages import Lookup, Message
from otel_straggler.alerts.promql import by as by_labels
from otel_straggler.alerts.promql import recorded_name, series
from otel_straggler.alerts.rule import (
    MAX_SINGLE,
    AlertRule,
    FleetStatus,
    Instance,
    Predicate,
    RunStatus,
)
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.semconv import OF_RUN

_OF_WORLD = ("cluster", "collector", "run_id", "group")


def counted(
    rule: AlertRule,
    by: tuple[str, ...],
    subjects: str = "ranks",
    *,
    summary: Message,
    past: Message,
    description: str,
) -> AlertRule:
    """The rule on more than five subjects of ``rule`` at once.

    Args:
        by: labels of the alert besides those of the run: ``cause``, if that varies.
        description: ``{value}`` is their number, ``{worst}`` the worst of them.
    """
    labels = (*OF_RUN, *by)
    worst = Lookup(
        metric=semconv.RUN_SLOW,
        of=(*_OF_WORLD, *by),
        label="worst",
        more=f'alert="{rule.name}", severity="{rule.severity}"',
    )
    known = recorded_name(rule.name, rule.severity, "subjects")
    maintained = f"({series(semconv.MAINTENANCE_UNTIL)} > time())"
    count = f"count {by_labels(labels)} ({known} unless on (cluster, node) {maintained})"
    return replace(
        rule,
        labels=labels,
        details=(),
        expression=lambda _: f"{count} > {MAX_SINGLE}",
        predicate=_counted(rule),
        scope=None,
        is_lasting=True,
        counts=rule,
        subjects=subjects,
        summary=summary,
        past=past,
        description=Message(description, {"worst": worst}),
    )


def _counted(rule: AlertRule) -> Predicate:
    """Of subjects about which the rule has held for its time."""

    def predicate(fleet: FleetStatus, settings: AlertSettings) -> Iterable[Instance]:
        for run in fleet.runs:
            subjects: dict[frozenset[tuple[str, str]], str] = {}
            for each in _lasting(rule, replace(fleet, runs=(run,)), settings):
                subjects.setdefault(frozenset(each.labels.items()), each.details.get("cause", ""))
            for cause, count in Counter(subjects.values()).items():
                if count > MAX_SINGLE:
                    yield _crowd(rule, run, cause, count)

    return predicate


def _lasting(rule: AlertRule, fleet: FleetStatus, settings: AlertSettings) -> Iterator[Instance]:
    for each in rule.predicate(fleet, settings) if rule.predicate else ():
        is_maintained = each.labels.get("node", "") in fleet.under_maintenance
        if each.held_s >= rule.for_s(settings) and not is_maintained:
            yield each


def _crowd(rule: AlertRule, run: RunStatus, cause: str, count: int) -> Instance:
    key = rule.name, rule.severity, cause
    worst = [each.worst for each in run.crowds if (each.alert, each.severity, each.cause) == key]
    return Instance(
        run,
        {"cause": cause} if cause else {},
        value=count,
        facts={"worst": worst[0]} if worst else {},
        held_s=math.inf,
    )
