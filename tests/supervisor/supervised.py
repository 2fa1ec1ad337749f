"""What tests of the supervisor share: causes, policies, an executor that remembers, an engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from otel_straggler.collector.alerting.alert_json import fingerprint, rfc3339
from otel_straggler.setting import read_section
from otel_straggler.supervisor.causes import Cause, read_webhook
from otel_straggler.supervisor.engine import Engine
from otel_straggler.supervisor.executors import Executor, StepError, UncertainError
from otel_straggler.supervisor.fleet import Decision, Host, SchedulerHost
from otel_straggler.supervisor.parts import Observer, Supervised
from otel_straggler.supervisor.policy import ACTIONS, Action, Policy, PolicySettings, read_rules
from otel_straggler.supervisor.store import Entry, Step, StepRow, Store

NOW_S = 1_790_000_000.0


def policy_of(text: str) -> Policy:
    """The policy of a section ``policy`` in YAML."""
    section = read_section(PolicySettings, yaml.safe_load(text), "policy")
    return read_rules(section, "policy.")


def alert_json(
    name: str = "StragglerRankLost", at_s: float = NOW_S, status: str = "firing", **labels: str
) -> dict[str, Any]:
    """An alert of a webhook."""
    all_labels = {"alertname": name, **labels}
    return {
        "status": status,
        "labels": all_labels,
        "annotations": {"summary": f"{name} of {labels.get('node', 'the run')}"},
        "startsAt": rfc3339(at_s),
        "endsAt": "0001-01-01T00:00:00Z" if status == "firing" else rfc3339(at_s + 60),
        "generatorURL": "",
        "fingerprint": fingerprint(all_labels),
    }


def webhook(*alerts: dict[str, Any]) -> dict[str, Any]:
    """A webhook of Alertmanager."""
    return {"version": "4", "groupKey": "{}:{}", "status": "firing", "alerts": list(alerts)}


def alert(
    name: str = "StragglerRankLost", at_s: float = NOW_S, status: str = "firing", **labels: str
) -> Cause:
    """The cause that an alert is."""
    return read_webhook(webhook(alert_json(name, at_s, status, **labels))).causes[0]


class Remembering:
    """An executor that remembers, and fails as a test says.

    Args:
        result: what ``was_done`` returns.
        actions: of which each has one step; ``replace_host`` has two.
    """

    name = "remembering"
    actions: frozenset[Action] = frozenset(ACTIONS)

    def __init__(self, result: bool | None = None) -> None:
        self.result = result
        self.performed: list[tuple[str, str]] = []
        self.error: StepError | UncertainError | Exception | None = None

    def hosts(self) -> dict[str, SchedulerHost] | None:
        return None

    def resolve(self, name: str) -> SchedulerHost:
        return SchedulerHost(name=name)

    def allocation(self, run_id: str) -> str:
        return ""

    def steps(self, decision: Decision) -> tuple[Step, ...]:
        assert decision.action is not None
        verbs = ["drain", "requeue"] if decision.action == "replace_host" else [decision.action]
        target = decision.host or decision.run_id
        return tuple(Step(verb=verb, target=target, arguments={}) for verb in verbs)

    def observe(self, step: Step) -> dict[str, Any]:
        return {}

    def perform(self, step: Step, before: dict[str, Any]) -> str:
        self.performed.append((step.verb, step.target))
        if self.error is not None:
            raise self.error
        return f"{step.verb} is done"

    def was_done(self, step: Step, before: dict[str, Any]) -> bool | None:
        return self.result


@dataclasses.dataclass
class Watching:
    """An observer that remembers."""

    acted: list[Decision] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)
    entries: list[tuple[Entry, Sequence[StepRow]]] = dataclasses.field(default_factory=list)

    def decided(self, cause: Cause, decision: Decision) -> None:
        self.acted.append(decision)

    def ignored(self, reason: str) -> None:
        self.reasons.append(reason)

    def ended(self, entry: Entry, steps: Sequence[StepRow]) -> None:
        self.entries.append((entry, steps))


class Scene:
    """An engine whose clock and executor are the test's. ``act`` does what its thread would."""

    def __init__(self, path: Path, policy: Policy, *names: str, spare: str = "") -> None:
        self.path, self.policy = path, policy
        self.now_s = NOW_S
        self.executor: Any = Remembering()
        self.hosts = (
            *(Host(name=name, state="running", run_id="run") for name in names),
            *([Host(name=spare)] if spare else []),
        )
        self.watching = Watching()
        self.restart()

    def restart(self, executor: Executor | None = None) -> None:
        """As after a kill: nothing but the journal remains."""
        if hasattr(self, "store"):
            self.store.close()
        self.executor = executor or self.executor
        self.store = Store(self.path)
        observer: Observer = self.watching
        self.engine = Engine(
            Supervised(
                store=self.store,
                policy=self.policy,
                executor=self.executor,
                observer=observer,
                wall_s=lambda: self.now_s,
                hosts=self.hosts,
            )
        )

    def submit(self, *causes: Cause) -> list[str]:
        """What follows from causes: actions, or reasons."""
        return [each.action or each.reason for each in self.engine.submit(causes)]

    def act(self) -> list[tuple[str, str]]:
        """Do all that is due; all steps so far."""
        while self.engine.act_once():
            pass
        performed: list[tuple[str, str]] = self.executor.performed
        return performed

    def status_of(self, cause: Cause) -> str:
        entry = self.store.entry(cause.id)
        return "" if entry is None else entry.status

    def state_of(self, host: str) -> str:
        return self.engine.fleet.hosts[host].state
