"""More than five subjects with one cause are one alert, which counts them and names the worst five:
a list of the worst is another list in each window, and no member of it is there for long."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from otel_straggler import semconv
from otel_straggler.alerts.messages import Lookup, Message
from otel_straggler.alerts.promql import by as by_labels
from otel_straggler.alerts.promql import subjects_name
from otel_straggler.alerts.rule import (
    MAX_SINGLE,
    AlertRule,
    FleetStatus,
    Instance,
    Predicate,
    RunStatus,
)
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.model.causes import CAUSES
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
    named = subjects_name(rule.name, rule.severity)
    worst = Lookup(
        metric=semconv.RUN_SLOW,
        of=(*_OF_WORLD, *by),
        label="worst",
        more=f'alert="{rule.name}", severity="{rule.severity}"',
    )
    return replace(
        rule,
        labels=labels,
        expression=lambda _: f"count {by_labels(labels)} ({named}) > {MAX_SINGLE}",
        predicate=_counted(rule),
        subject=(),
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
            by_cause: dict[str, set[frozenset[tuple[str, str]]]] = {}
            for each in rule.predicate(replace(fleet, runs=(run,)), settings):
                if each.held_s >= rule.for_s(settings):
                    labels = frozenset(each.labels.items())
                    by_cause.setdefault(each.cause, set()).add(labels)
            for cause, subjects in by_cause.items():
                if len(subjects) > MAX_SINGLE:
                    yield _crowd(rule, run, cause, len(subjects))

    return predicate


def _crowd(rule: AlertRule, run: RunStatus, cause: str, count: int) -> Instance:
    key = rule.name, rule.severity, cause
    worst = [each.worst for each in run.crowds if (each.alert, each.severity, each.cause) == key]
    return Instance(
        run,
        {"cause": cause} if cause else {},
        value=count,
        facts={"worst": worst[0]} if worst else {},
        domain=next((info.domain for name, info in CAUSES.items() if name == cause), "model"),
        held_s=math.inf,
    )
