"""Evaluate the catalogue without a Prometheus: what fires now, from what a collector knows. Pure.

Only the progress of time counts: a clock that is set back delays nothing beyond the next
evaluation, and ends nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace

from otel_straggler.alerts.catalogue import CATALOGUE
from otel_straggler.alerts.messages import links
from otel_straggler.alerts.naming import low_scores
from otel_straggler.alerts.platform_rules import LOSSES_S
from otel_straggler.alerts.rule import BARRED, AlertRule, FleetStatus, Instance, RunStatus
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.model.alert import Alert
from otel_straggler.model.verdict import CALLED_SLOW, Verdict

Labels = tuple[tuple[str, str], ...]
_Crowd = tuple[str, str, str, str, str]
"""Name and severity of a rule, run, group, cause."""


@dataclass(slots=True)
class _Active:
    """An alert that fires or is pending. Times of the evaluator's own clock, but for ``since_s``.

    Attributes:
        instance: what it was when it held last.
        from_at: when it began to hold.
        ended_at: when it ceased to, while it keeps firing; None while it holds.
        since_s: since when it fires, wall clock; None while it is pending.
    """

    rule: AlertRule
    instance: Instance
    from_at: float
    annotations: Mapping[str, str]
    ended_at: float | None = None
    since_s: float | None = None


@dataclass(slots=True)
class _Losses:
    """Totals of a run, which only grow (a smaller one starts over), and their recent growth: (when,
    reason, by how much)."""

    totals: Mapping[str, int] = field(default_factory=dict)
    grown: deque[tuple[float, str, int]] = field(default_factory=deque)

    def recent(self, dropped: Mapping[str, int], clock: float) -> Counter[str]:
        """The losses of the last five minutes, from the totals now."""
        for reason, total in dropped.items():
            before = self.totals.get(reason, 0)
            grown = total - before if total >= before else total
            if grown > 0:
                self.grown.append((clock, reason, grown))
        self.totals = dict(dropped)
        while self.grown and self.grown[0][0] <= clock - LOSSES_S:
            self.grown.popleft()
        recent: Counter[str] = Counter()
        for _, reason, count in self.grown:
            recent[reason] += count
        return recent


@dataclass(slots=True)
class _Low:
    """A low score; times of the evaluator's own clock. ``ended_at``: since when it is none."""

    since: float
    has_lasted: bool = False
    ended_at: float | None = None


@dataclass(slots=True)
class _Lows:
    """Low scores of a run, by alert and rank. One that has lasted goes on if it is low again while
    its alert would keep firing."""

    known: dict[tuple[str, int], _Low] = field(default_factory=dict)

    def lasting(
        self, run: RunStatus, settings: AlertSettings, clock: float
    ) -> dict[tuple[str, int], float]:
        """For how many seconds each has lasted."""
        lasted_s = {}
        for alert, scores in low_scores(run, settings).items():
            for score in scores:
                low = self.known.setdefault((alert, score.rank), _Low(clock))
                lasted_s[alert, score.rank] = clock - low.since
                low.ended_at = None
                low.has_lasted |= clock - low.since >= settings.score_for_seconds
        for key, low in list(self.known.items()):
            if key in lasted_s:
                continue
            low.ended_at = clock if low.ended_at is None else low.ended_at
            if not low.has_lasted or clock - low.ended_at >= settings.keep_firing_seconds:
                del self.known[key]
        return lasted_s


class AlertEvaluator:
    """State of all alerts. One thread owns it.

    An alert is identified by its labels: with another value or text it is the same alert.
    """

    def __init__(self, settings: AlertSettings, rules: tuple[AlertRule, ...] = CATALOGUE) -> None:
        self._settings = settings
        self._rules = rules
        self._active: dict[Labels, _Active] = {}
        self._losses: dict[tuple[str, str], _Losses] = {}
        self._slow_since: dict[tuple[str, str, str], float] = {}
        self._lows: dict[tuple[str, str], _Lows] = {}
        self._runs: Mapping[tuple[str, str], RunStatus] = {}
        self._clock = 0.0
        self._last_s: float | None = None

    def evaluate(self, fleet: FleetStatus) -> tuple[Alert, ...]:
        """All alerts that fire, and once each that has ended since the last evaluation.

        Cost: O(what holds).
        """
        if self._last_s is not None:
            self._clock += max(0.0, fleet.now_s - self._last_s)
        self._last_s = fleet.now_s
        fleet = replace(fleet, runs=tuple(self._with_past(fleet.runs)))
        self._runs = {(run.run_id, run.group): run for run in fleet.runs}
        every = self._holding(fleet)
        crowds = self._crowds(every, fleet)
        holding = {
            labels: (rule, instance)
            for labels, (rule, instance) in every.items()
            if not crowds or _crowd_of(rule, instance) not in crowds
        }
        for labels, (rule, instance) in holding.items():
            self._hold(labels, rule, instance, fleet.now_s)
        ended = list(self._end(holding, every.keys() - holding.keys(), fleet))
        firing = [
            Alert(labels=dict(labels), annotations=each.annotations, starts_at_s=each.since_s)
            for labels, each in self._active.items()
            if each.since_s is not None
        ]
        return (*firing, *ended)

    def _with_past(self, runs: Iterable[RunStatus]) -> Iterator[RunStatus]:
        """With the losses of the last minutes, and since when each subject is called slow or has a
        low score."""
        before, self._losses = self._losses, {}
        since, self._slow_since = self._slow_since, {}
        lows, self._lows = self._lows, {}
        for run in runs:
            losses = before.get((run.run_id, run.group)) or _Losses()
            self._losses[run.run_id, run.group] = losses
            slow = [v.subject_id for v in run.verdicts if v.state in CALLED_SLOW]
            for subject in slow:
                key = run.run_id, run.group, subject
                self._slow_since[key] = since.get(key, self._clock)
            slow_for_s = {
                subject: self._clock - self._slow_since[run.run_id, run.group, subject]
                for subject in slow
            }
            of_run = lows.setdefault((run.run_id, run.group), _Lows())
            self._lows[run.run_id, run.group] = of_run
            yield replace(
                run,
                dropped=losses.recent(run.dropped, self._clock),
                slow_for_s=slow_for_s,
                low_for_s=of_run.lasting(run, self._settings, self._clock),
            )

    def _holding(self, fleet: FleetStatus) -> dict[Labels, tuple[AlertRule, Instance]]:
        """Every rule is shown only the runs about which it may fire. Of several reasons for one
        alert the first counts."""
        shown = {
            during: replace(fleet, runs=tuple(run for run in fleet.runs if run.allows(during)))
            for during in BARRED
        }
        holding: dict[Labels, tuple[AlertRule, Instance]] = {}
        for rule in self._rules:
            if rule.predicate is None:
                continue
            for instance in rule.predicate(shown[rule.during], self._settings):
                if instance.labels.get("node", "") not in fleet.under_maintenance:
                    holding.setdefault(_labels(rule, instance, fleet), (rule, instance))
        return holding

    def _crowds(
        self, every: Mapping[Labels, tuple[AlertRule, Instance]], fleet: FleetStatus
    ) -> frozenset[_Crowd]:
        """Of which there is an alert on many, now or for as long as it keeps firing."""
        many = [labels for labels, (rule, _) in every.items() if rule.counts is not None]
        many += [
            labels
            for labels, each in self._active.items()
            if each.rule.counts is not None and each.since_s is not None
            if labels not in every and self._keeps_firing(labels, each, fleet)
        ]
        named = ("alertname", "severity", "run_id", "group", "cause")
        return frozenset(
            tuple(dict(labels).get(name, "") for name in named)  # type: ignore[misc]
            for labels in many
        )

    def _hold(self, labels: Labels, rule: AlertRule, instance: Instance, now_s: float) -> None:
        named = {**dict(labels), **instance.details}
        annotations = {
            **{
                name: message.render(named, instance.value, instance.facts)
                for name, message in rule.messages.items()
            },
            **links(rule.name, rule.labels, self._settings, named),
        }
        each = self._active.get(labels)
        if each is None:
            each = self._active[labels] = _Active(rule, instance, self._clock, annotations)
        each.instance, each.annotations, each.ended_at = instance, annotations, None
        lasted_s = max(self._clock - each.from_at, instance.held_s)
        if each.since_s is None and lasted_s >= rule.for_s(self._settings):
            each.since_s = now_s

    def _end(
        self, holding: Mapping[Labels, object], counted: Set[Labels], fleet: FleetStatus
    ) -> Iterator[Alert]:
        """What is ``counted`` instead ends at once."""
        for labels in [labels for labels in self._active if labels not in holding]:
            each = self._active[labels]
            is_kept = each.since_s is not None and labels not in counted
            if is_kept and self._keeps_firing(labels, each, fleet):
                continue
            del self._active[labels]
            if each.since_s is not None:
                yield Alert(
                    labels=dict(labels),
                    annotations=each.annotations,
                    starts_at_s=each.since_s,
                    ends_at_s=max(fleet.now_s, each.since_s),
                )

    def _keeps_firing(self, labels: Labels, each: _Active, fleet: FleetStatus) -> bool:
        """Not over the end of its run, a mute, or maintenance, nor if it may notify somebody else
        than before."""
        if each.ended_at is None:
            each.ended_at = self._clock
        rule, named = each.rule, dict(labels)
        if named.get("node", "") in fleet.under_maintenance:
            return False
        if "run_id" in rule.labels:
            run = self._runs.get((named["run_id"], named.get("group", "")))
            if run is None or not run.allows(rule.during):
                return False
            if any(_is_about(rule, v, named) for v in run.silenced):
                return False
            if _labels(rule, replace(each.instance, run=run), fleet) != labels:
                return False
        return self._clock - each.ended_at < rule.keep_firing_s(self._settings)


def _crowd_of(rule: AlertRule, instance: Instance) -> _Crowd | None:
    """To which a single subject belongs, if there is one."""
    run = instance.run
    if run is None or rule.counts is not None:
        return None
    return rule.name, rule.severity, run.run_id, run.group, instance.details.get("cause", "")


def _is_about(rule: AlertRule, verdict: Verdict, named: Mapping[str, str]) -> bool:
    if verdict.node != named.get("node", "") or verdict.scope != rule.scope:
        return False
    return verdict.rank is None or str(verdict.rank) == named.get("rank")


def _labels(rule: AlertRule, instance: Instance, fleet: FleetStatus) -> Labels:
    """All labels of an alert, by name; empty ones are left out."""
    run, pages, named = instance.run, fleet.pages, dict(instance.labels)
    if run is not None:
        of_run = {"run_id": run.run_id, "job_name": run.job, "group": run.group}
        named |= {name: value for name, value in of_run.items() if name in rule.labels}
        named["team"], pages = run.team, pages and run.pages
    named |= {
        "alertname": rule.name,
        "severity": rule.severity,
        "domain": rule.domain,
        "subjects": rule.subjects,
        "mode": "page" if pages else "observe",
        "cluster": fleet.cluster,
        "collector": fleet.collector,
    }
    return tuple(sorted((name, value) for name, value in named.items() if value))
