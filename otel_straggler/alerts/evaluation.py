"""The catalogue without a Prometheus: what fires now, from what a collector knows. Pure.

Time is an argument, and only its progress counts: a clock that is set back holds nothing up for
longer than until the next look, and ends nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from otel_straggler.alerts.catalogue import CATALOGUE
from otel_straggler.alerts.links import links
from otel_straggler.alerts.losses import RecentLosses
from otel_straggler.alerts.rule import AlertRule, Instance
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.alerts.watched import Watched
from otel_straggler.model.alert import Alert

Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Active:
    """One alert that is due or will be. Times of the evaluation's own clock, but for ``since_s``.

    Attributes:
        rule: whose.
        from_at: when it began to hold.
        ended_at: when it ceased to, while it is told of all the same; None while it holds.
        since_s: since when it fires, wall clock; None while it is not due.
        annotations: newest.
    """

    rule: AlertRule
    from_at: float
    annotations: Mapping[str, str]
    ended_at: float | None = None
    since_s: float | None = None


class Evaluation:
    """Remembers how long each alert has held. One thread owns it.

    An alert is what its labels say: another value, another sentence is the same alert.
    """

    def __init__(self, settings: AlertSettings, rules: tuple[AlertRule, ...] = CATALOGUE) -> None:
        self._settings = settings
        self._rules = rules
        self._active: dict[Labels, _Active] = {}
        self._losses = RecentLosses()
        self._clock = 0.0
        self._seen_s: float | None = None

    def look(self, watched: Watched) -> tuple[Alert, ...]:
        """All alerts that fire, and once each that has ended since the last look.

        Cost: O(what holds).
        """
        self._advance(watched.now_s)
        watched = self._losses.of(watched, self._clock)
        holding = dict(self._holding(watched))
        for labels, (rule, instance) in holding.items():
            self._hold(labels, rule, instance, watched.now_s)
        ended = list(self._end(holding, watched.now_s))
        firing = [
            Alert(labels=dict(labels), annotations=each.annotations, starts_at_s=each.since_s)
            for labels, each in self._active.items()
            if each.since_s is not None
        ]
        return (*firing, *ended)

    def _advance(self, now_s: float) -> None:
        if self._seen_s is not None:
            self._clock += max(0.0, now_s - self._seen_s)
        self._seen_s = now_s

    def _holding(self, watched: Watched) -> Iterator[tuple[Labels, tuple[AlertRule, Instance]]]:
        for rule in self._rules:
            if rule.predicate is not None:
                for instance in rule.predicate(watched, self._settings):
                    yield _labels(rule, instance, watched), (rule, instance)

    def _hold(self, labels: Labels, rule: AlertRule, instance: Instance, now_s: float) -> None:
        annotations = self._annotations(labels, rule, instance)
        each = self._active.get(labels)
        if each is None:
            each = self._active[labels] = _Active(rule, self._clock, annotations)
        each.annotations, each.ended_at = annotations, None
        if each.since_s is None and self._clock - each.from_at >= rule.for_s(self._settings):
            each.since_s = now_s

    def _end(self, holding: Mapping[Labels, object], now_s: float) -> Iterator[Alert]:
        for labels in [labels for labels in self._active if labels not in holding]:
            each = self._active[labels]
            if each.since_s is not None and self._is_kept(each):
                continue
            del self._active[labels]
            if each.since_s is not None:
                yield Alert(
                    labels=dict(labels),
                    annotations=each.annotations,
                    starts_at_s=each.since_s,
                    ends_at_s=max(now_s, each.since_s),
                )

    def _is_kept(self, each: _Active) -> bool:
        if each.ended_at is None:
            each.ended_at = self._clock
        return self._clock - each.ended_at < each.rule.keep_firing_s(self._settings)

    def _annotations(self, labels: Labels, rule: AlertRule, instance: Instance) -> dict[str, str]:
        known = dict(labels)
        return {
            "summary": rule.summary.render(known, instance.value, instance.facts),
            "description": rule.description.render(known, instance.value, instance.facts),
            **links(rule, self._settings, known),
        }


def _labels(rule: AlertRule, instance: Instance, watched: Watched) -> Labels:
    """All labels of an alert, by name; those that are empty are none."""
    named = {
        **instance.labels,
        "alertname": rule.name,
        "severity": rule.severity,
        "domain": rule.domain or instance.domain,
        "mode": "page" if instance.pages else "observe",
        "cluster": watched.cluster,
        "collector": watched.collector,
        "team": instance.team,
    }
    return tuple(sorted((name, value) for name, value in named.items() if value))
