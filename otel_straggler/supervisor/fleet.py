"""The fleet as the supervisor knows it: hosts, their states, and what was decided lately."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, get_args

from otel_straggler.model.fleet_reports import FleetReport
from otel_straggler.supervisor.policy import TAKES_OUT, Action

HostState = Literal["spare", "running", "failed", "complete", "cordoned"]
HOST_STATES: Final[tuple[HostState, ...]] = get_args(HostState)
OUT: Final[frozenset[HostState]] = frozenset({"failed", "cordoned"})
"""States in which a host does not work."""
_WELL: Final = frozenset({"", "ok", "finished", "complete"})
"""Reasons with which an agent ends when its work is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host; ``run_id`` is the run that it reported last."""

    name: str
    state: HostState = "spare"
    since_unix_s: float = 0.0
    run_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerHost:
    """A host as the scheduler of an executor lists it.

    Attributes:
        name: exactly as the scheduler writes it.
        id: the scheduler's own; another host that gets the same name has another one. Empty if it
            has none.
        is_cordoned: it gets nothing new; None if unknown.
        allocated_to: what the scheduler runs there, in its own ids, such as ``4711`` of a Slurm
            job; empty = idle, None = unknown.
    """

    name: str
    id: str = ""
    is_cordoned: bool | None = None
    allocated_to: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What follows from a cause.

    Attributes:
        action: None if nothing is done.
        reason: why nothing is done, one word; empty if something is.
        rule: that matched.
        host, device, run_id: what it acts on; ``device`` and ``code`` are for the cooldown.
        replacement: a spare host, if the action needs one.
        state_before: of the host that an action takes out.
        host_id: of :class:`SchedulerHost` when it was decided; a step does not act on a host that
            has another one by then. Empty if nobody asked.
    """

    cause_id: str
    at_unix_s: float
    action: Action | None = None
    reason: str = ""
    rule: str = ""
    host: str = ""
    device: str = ""
    code: str = ""
    run_id: str = ""
    replacement: str = ""
    state_before: HostState = "running"
    host_id: str = ""

    @property
    def acts(self) -> bool:
        return self.action is not None

    @property
    def counts(self) -> bool:
        """Whether it counts against the limits."""
        return self.acts and self.action != "notify"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """All that a decision depends on, besides cause, policy and time.

    Attributes:
        decisions: that acted, oldest first, as far back as any window of the policy.
        is_stopped: a person has said that nothing may be done.
    """

    hosts: Mapping[str, Host] = field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()
    is_stopped: bool = False

    @property
    def spares(self) -> tuple[str, ...]:
        return tuple(sorted(n for n, host in self.hosts.items() if host.state == "spare"))

    def by_state(self) -> dict[str, int]:
        """Hosts by state, all states named."""
        counts = Counter(host.state for host in self.hosts.values())
        return {state: counts[state] for state in HOST_STATES}

    def with_hosts(self, hosts: Iterable[Host]) -> Fleet:
        return replace(self, hosts={**self.hosts, **{host.name: host for host in hosts}})

    def with_decision(self, decision: Decision, keep_s: float) -> Fleet:
        """With one more decision; those that are older by ``keep_s`` are dropped."""
        since_s = decision.at_unix_s - keep_s
        kept = tuple(each for each in self.decisions if each.at_unix_s >= since_s)
        return replace(self, decisions=(*kept, decision))

    def without(self, decision: Decision) -> Fleet:
        """Without a decision, which counts no longer."""
        return replace(self, decisions=tuple(d for d in self.decisions if d != decision))

    def after(self, decision: Decision, keep_s: float) -> Fleet:
        """After a decision, whose hosts are in their new states from then on: what is under way
        counts against limits."""
        return self.with_decision(decision, keep_s).with_hosts(self.changed_by(decision))

    def changed_by(self, decision: Decision) -> tuple[Host, ...]:
        """The hosts in the states that a decision gives them."""
        result = []
        if decision.action in TAKES_OUT:
            result.append(self._moved(decision.host, "cordoned", decision))
        if decision.replacement:
            result.append(self._moved(decision.replacement, "running", decision))
        return tuple(result)

    def undone(self, decision: Decision, at_unix_s: float, *, has_begun: bool) -> tuple[Host, ...]:
        """The hosts after an action that failed or never began. Where it began, nobody knows
        whether the host still works, so it counts as failed; the spare is one again."""
        result = []
        for host in self.changed_by(decision):
            if self.hosts[host.name] != host:
                continue  # a person or a report has changed it since
            back: HostState = "failed" if has_begun else decision.state_before
            if host.name == decision.replacement:
                back = "spare"
            run_id = "" if back == "spare" else host.run_id
            result.append(Host(name=host.name, state=back, since_unix_s=at_unix_s, run_id=run_id))
        return tuple(result)

    def reported(self, report: FleetReport) -> Host | None:
        """The host after a report of its node; None if that changes nothing. A cordoned host stays
        so until a person returns it."""
        host = self.hosts.get(report.node)
        state: HostState | None = None
        if report.kind == "agent_started":
            state = "running"
        elif report.kind == "agent_ended":
            state = "complete" if report.reason in _WELL else "failed"
        elif host is None:
            state = "running"
        if state is None or (host is not None and host.state == "cordoned"):
            return None
        return Host(
            name=report.node, state=state, since_unix_s=report.at_unix_s, run_id=report.run_id
        )

    def _moved(self, name: str, state: HostState, decision: Decision) -> Host:
        run_id = decision.run_id if state == "running" else self.hosts[name].run_id
        return Host(name=name, state=state, since_unix_s=decision.at_unix_s, run_id=run_id)


def decision_json(decision: Decision) -> dict[str, Any]:
    """JSON's types only."""
    return asdict(decision)
