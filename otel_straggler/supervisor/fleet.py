"""The fleet as the supervisor knows it: hosts, their states, what was decided lately, and which
hosts the scheduler lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, get_args

from otel_straggler.collector.access.roles import ANYBODY, Principal
from otel_straggler.model.fleet_reports import RENEW_S, FleetReport
from otel_straggler.supervisor.policy import ACTIONS, TAKES_OUT, Action
from otel_straggler.supervisor.recent import Recent

HostState = Literal["spare", "running", "failed", "complete", "cordoned"]
HOST_STATES: Final[tuple[HostState, ...]] = get_args(HostState)
OUT: Final[frozenset[HostState]] = frozenset({"failed", "cordoned"})
"""States in which a host does not work."""
LIVE_S: Final = 3 * RENEW_S
"""A run is on a host for so long after its last report from there."""
MAX_ADDED: Final = 1_000
"""Hosts that the reports of one grant add to the fleet, where it has no ``max_hosts``."""
_WELL: Final = frozenset({"", "ok", "finished", "complete"})
"""Reasons with which an agent ends when its work is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host.

    Attributes:
        run_id: that reported from there last.
        added_by: the grant whose report added it; empty if an operator or the scheduler named it.
        seen_unix_s: when the run reported last, by the supervisor's clock; 0 once its agent has
            ended. Not in the journal.
    """

    name: str
    state: HostState = "spare"
    since_unix_s: float = 0.0
    run_id: str = ""
    added_by: str = ""
    seen_unix_s: float = field(default=0.0, compare=False)


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
        by: the grant whose alert or report it follows from.
        tenant: its ``runs=``; empty if it is for all runs.
        is_refused: the executor could not do it, so it counts for its sender alone.
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
    by: str = ""
    tenant: str = ""
    is_refused: bool = False

    @property
    def acts(self) -> bool:
        return self.action is not None

    @property
    def counts(self) -> bool:
        """Whether it counts against the limits of its sender."""
        return self.acts and self.action != "notify"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """All that a decision depends on, besides cause, policy and time.

    Attributes:
        decisions: that acted, oldest first, as far back as any window of the policy.
        is_stopped: a person has said that nothing may be done.
        listed: every host of the scheduler; None if there is no scheduler to ask.
    """

    hosts: Mapping[str, Host] = field(default_factory=dict)
    decisions: Recent = field(default_factory=Recent)
    is_stopped: bool = False
    listed: Mapping[str, SchedulerHost] | None = field(default=None, compare=False)
    _found: dict[str, tuple[str, ...]] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )
    """What is asked of all hosts again and again, while nothing changes."""

    def knows(self, name: str) -> bool:
        """Whether it is one of the fleet, and the scheduler lists it."""
        return name in self.hosts and (self.listed is None or name in self.listed)

    def state_of(self, name: str) -> HostState:
        """The state of a host that it knows: one that the scheduler gives nothing new is
        cordoned, whoever did that."""
        listed = None if self.listed is None else self.listed.get(name)
        return "cordoned" if listed and listed.is_cordoned else self.hosts[name].state

    @property
    def known(self) -> tuple[str, ...]:
        """Names of the hosts over which shares are taken."""
        return self._once("known", lambda: filter(self.knows, self.hosts))

    @property
    def out(self) -> tuple[str, ...]:
        """Those of them that do not work."""
        return self._once("out", lambda: (n for n in self.known if self.state_of(n) in OUT))

    @property
    def spares(self) -> tuple[str, ...]:
        """Spare hosts, on which the scheduler runs nothing."""
        return self._once("spares", lambda: sorted(filter(self._is_spare, self.known)))

    def _is_spare(self, name: str) -> bool:
        listed = (self.listed or {}).get(name)
        return self.state_of(name) == "spare" and not (listed and listed.allocated_to)

    def _once(self, what: str, find: Callable[[], Iterable[str]]) -> tuple[str, ...]:
        if what not in self._found:
            self._found[what] = tuple(find())
        return self._found[what]

    def by_state(self) -> dict[str, int]:
        """Hosts by state, all states named."""
        counts = Counter(map(self.state_of, self.known))
        return {state: counts[state] for state in HOST_STATES}

    def with_hosts(self, hosts: Iterable[Host]) -> Fleet:
        return replace(self, hosts={**self.hosts, **{host.name: host for host in hosts}})

    def with_decision(self, decision: Decision, keep_s: float) -> Fleet:
        """With one more decision; those that are older by ``keep_s`` are dropped."""
        decisions = self.decisions.plus(decision, decision.at_unix_s - keep_s)
        return replace(self, decisions=decisions)

    def without(self, decision: Decision) -> Fleet:
        """Without a decision, which counts no longer."""
        return replace(self, decisions=self.decisions.minus(decision))

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
            is_now = self.hosts[host.name]
            if (is_now.state, is_now.since_unix_s) != (host.state, host.since_unix_s):
                continue  # a person or a report has changed it since
            back: HostState = "failed" if has_begun else decision.state_before
            if host.name == decision.replacement:
                back = "spare"
            run_id = "" if back == "spare" else is_now.run_id
            result.append(replace(is_now, state=back, since_unix_s=at_unix_s, run_id=run_id))
        return tuple(result)

    # --- reports ---------------------------------------------------------------------------------

    def holder(self, name: str, now_unix_s: float) -> str:
        """The run that is on a host: it has reported from there within :data:`LIVE_S`, and its
        agent has not ended. Empty if there is none."""
        host = self.hosts.get(name)
        is_live = host is not None and abs(now_unix_s - host.seen_unix_s) < LIVE_S
        return host.run_id if host is not None and is_live else ""

    def reported(
        self, report: FleetReport, now_unix_s: float, who: Principal = ANYBODY
    ) -> Host | None:
        """The host after a report of its node by somebody who may send it; None if that changes
        nothing. Where an agent ends, the host is nobody's at once; the run stays known, as that of
        which alerts about the host are.

        A cordoned host stays so until a person returns it. The same holds for a failed one where
        the report is of one tenant: it may not move the limits of all."""
        host = self.hosts.get(report.node)
        if host is None:
            return self._added(report, now_unix_s, who)
        has_started = report.kind == "agent_started"
        if self.holder(host.name, now_unix_s) not in ("", report.run_id) and not has_started:
            return None
        if report.kind == "attempt_ended":
            return None
        state, seen_s = host.state, now_unix_s
        if report.kind == "agent_started":
            state = "running"
        elif report.kind == "agent_ended":
            state, seen_s = _state_at_end(report, who), 0.0
        since_s = min(report.at_unix_s, now_unix_s)
        if host.state == "cordoned" or (host.state == "failed" and who.runs) or state == host.state:
            state, since_s = host.state, host.since_unix_s
        return replace(
            host, state=state, since_unix_s=since_s, run_id=report.run_id, seen_unix_s=seen_s
        )

    def _added(self, report: FleetReport, now_unix_s: float, who: Principal) -> Host | None:
        """The host that a report adds: one that the scheduler lists, or where there is none, of a
        grant for all runs, within its bound."""
        if report.kind in ("agent_ended", "attempt_ended"):
            return None
        is_listed = self.listed is not None and report.node in self.listed
        if not is_listed and (who.runs or self.listed is not None or not self.has_room(who)):
            return None
        return Host(
            name=report.node,
            state="running",
            since_unix_s=min(report.at_unix_s, now_unix_s),
            run_id=report.run_id,
            added_by="" if is_listed else who.name,
            seen_unix_s=now_unix_s,
        )

    def has_room(self, who: Principal) -> bool:
        """Whether the reports of a grant may add one more host."""
        added = sum(host.added_by == who.name for host in self.hosts.values())
        return added < (who.max_hosts or MAX_ADDED)

    def _moved(self, name: str, state: HostState, decision: Decision) -> Host:
        host = self.hosts[name]
        run_id = decision.run_id if state == "running" else host.run_id
        return replace(host, state=state, since_unix_s=decision.at_unix_s, run_id=run_id)


def _state_at_end(report: FleetReport, who: Principal) -> HostState:
    """Of a host whose agent has ended. That it failed, which counts against the limits of all, no
    tenant can say."""
    return "complete" if who.runs or report.reason in _WELL else "failed"


def decision_json(decision: Decision) -> dict[str, Any]:
    """JSON's types only."""
    return asdict(decision)


def decision_of_json(values: Mapping[str, Any]) -> Decision:
    """The decision of :func:`decision_json`.

    Raises:
        ValueError, TypeError: it is none.
    """
    decision = Decision(**values)
    others = {"action": decision.action or "", "at_unix_s": "", "is_refused": ""}
    texts = {**values, **others}
    if not all(isinstance(each, str) for each in texts.values()) or (
        decision.action not in (None, *ACTIONS)
    ):
        raise TypeError(decision)
    return replace(decision, at_unix_s=float(decision.at_unix_s))
