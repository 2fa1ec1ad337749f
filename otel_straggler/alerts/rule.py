"""One entry of the catalogue: an alert, as Prometheus and the collector both compute it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from otel_straggler.alerts.sentences import Facts, Sentence
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.alerts.watched import Watched
from otel_straggler.model.alert import Domain, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """That an alert holds for one subject at one moment.

    Attributes:
        labels: of the subject; those that tell the alert are added to them. Empty ones are none.
        value: the number that its sentences may name.
        facts: what else they may name.
        pages: whether it may call somebody.
        team: whose it is.
        domain: for an alert whose domain depends on the cause.
    """

    labels: Mapping[str, str]
    value: float = 1.0
    facts: Facts = field(default_factory=dict)
    pages: bool = True
    team: str = ""
    domain: Domain = "model"


Expression = Callable[[AlertSettings], str]
Predicate = Callable[[Watched, AlertSettings], Iterable[Instance]]
Seconds = Callable[[AlertSettings], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """One alert; two may share a name and differ in severity.

    Attributes:
        name, severity: labels of the alert.
        domain: the same; None: it depends on the cause.
        labels: which labels of its subject it carries, beside cluster and collector.
        expression: PromQL that gives one element for each subject, with these labels and no other.
        predicate: the same from what a collector knows; None: only who looks from outside can say.
        for_s: how long it must hold before anybody is told.
        keep_firing_s: how long it is told of after it has ended.
        summary, description: sentences; the summary names no number.
    """

    name: str
    severity: Severity
    domain: Domain | None
    labels: tuple[str, ...]
    expression: Expression
    predicate: Predicate | None
    for_s: Seconds
    keep_firing_s: Seconds
    summary: Sentence
    description: Sentence


def at_once(_: AlertSettings) -> float:
    """For ``for_s`` and ``keep_firing_s``: no time."""
    return 0.0


def a_minute(_: AlertSettings) -> float:
    return 60.0
