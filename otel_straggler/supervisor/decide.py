"""The decision: a pure function of fleet, cause, policy and time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from otel_straggler.collector.access.roles import ANYBODY, Principal
from otel_straggler.supervisor.causes import Cause
from otel_straggler.supervisor.fleet import Decision, Fleet
from otel_straggler.supervisor.policy import NEEDS_SPARE, OF_RUN, ON_HOST, TAKES_OUT, Policy, Rule
from otel_straggler.supervisor.recent import of_rule, subject

_HOUR_S: Final = 3600.0
CLOCKS_DIFFER_S: Final = 300.0
"""A cause may be from so far in the future."""
REASONS: Final = {
    "resolved": "the alert no longer fires",
    "stale": "it is older than policy.max_age_seconds",
    "future": f"it begins more than {CLOCKS_DIFFER_S:.0f} s from now",
    "stopped": "a person has stopped the supervisor",
    "no_rule": "no rule matches",
    "exhausted": "every rule that matches has acted as often as its `times` allows",
    "no_spare": "the rule needs a spare host, and there is none",
    "unknown_host": "the fleet, or the scheduler, has no such host",
    "unknown_run": "it names no run",
    "host_is_out": "the host is cordoned already",
    "cooldown": "something was done about the same a moment ago",
    "limit": "policy.max_actions has been reached",
    "grant_limit": "the sender's grant has caused as many actions as it may",
    "fleet_share": "more than policy.max_fleet_share of the hosts would be out",
    "forbidden": "the sender may not speak of that run or host",
    "shed": "too much waits, and it would only notify",
}
"""Why nothing is done."""


def refusal(
    fleet: Fleet,
    cause: Cause,
    who: Principal,
    allocation: Callable[[str], str],
    now_unix_s: float,
) -> str:
    """Why somebody may not send a cause; empty if they may. A grant with ``runs=`` speaks of its
    runs alone, and of a host only where one of them is.

    Args:
        allocation: how the scheduler names a run; empty if it cannot.
    """
    if cause.host and not who.names(cause.host):
        return "forbidden"
    if not who.runs:
        return ""
    if not cause.run_id or not who.covers(cause.run_id):
        return "forbidden"
    is_unknown = cause.host not in (fleet.hosts if fleet.listed is None else fleet.listed)
    if is_unknown or _is_theirs(fleet, cause, who, allocation, now_unix_s):
        return ""
    return "forbidden"


def _is_theirs(
    fleet: Fleet,
    cause: Cause,
    who: Principal,
    allocation: Callable[[str], str],
    now_unix_s: float,
) -> bool:
    """Whether a tenant may speak of a host: the scheduler runs their run there, or where none says
    what it runs, their run has reported from there lately. A host that is nobody's, and neither a
    spare nor out, is taken by an agent that starts there; with ``hosts=`` any by any report."""
    holder = fleet.holder(cause.host, now_unix_s)
    listed = None if fleet.listed is None else fleet.listed.get(cause.host)
    if listed is not None and listed.allocated_to is not None:
        is_allocated = bool(own := allocation(cause.run_id)) and own in listed.allocated_to
        is_stale = bool(holder) and allocation(holder) not in listed.allocated_to
        return is_allocated and (not holder or is_stale or who.covers(holder))
    if holder:
        return who.covers(holder)
    is_free = cause.host in fleet.hosts and fleet.state_of(cause.host) in ("running", "complete")
    is_taken = cause.name == "agent_started" and is_free
    return cause.source == "report" and (is_taken or bool(who.hosts))


def decide(
    fleet: Fleet, cause: Cause, policy: Policy, now_unix_s: float, who: Principal = ANYBODY
) -> Decision:
    """What follows from a cause: the action of the first rule that matches and may act. Rules whose
    `times` are used up, or that lack a spare host, are passed over.

    That at most one action follows from one cause is for the caller, who knows those of before, as
    is that its sender may speak of it (:func:`refusal`).

    Args:
        who: sent it.
    """
    nothing = _nothing(fleet, cause, now_unix_s, who)
    if reason := _unfit(fleet, cause, policy, now_unix_s):
        return replace(nothing, reason=reason)
    reason = "no_rule"
    for rule in policy.rules:
        if not rule.matches(cause, policy.severities):
            continue
        matched = replace(nothing, rule=rule.name)
        if _is_exhausted(fleet, rule, matched):
            reason = "exhausted"
            nothing = matched
            continue
        reason = _refusal(fleet, rule, matched, policy, who)
        nothing = matched
        if not reason:
            spare = _spares_but(fleet, cause.host)[0] if rule.action in NEEDS_SPARE else ""
            return replace(matched, action=rule.action, replacement=spare)
        if reason != "no_spare":
            break
    return replace(nothing, reason=reason)


def _nothing(fleet: Fleet, cause: Cause, now_unix_s: float, who: Principal) -> Decision:
    """A decision about a cause before it is made."""
    host = fleet.hosts.get(cause.host)
    listed = (fleet.listed or {}).get(cause.host)
    return Decision(
        cause_id=cause.id,
        at_unix_s=now_unix_s,
        host=cause.host,
        host_id=listed.id if listed else "",
        device=cause.device,
        code=cause.code,
        run_id=cause.run_id or (host.run_id if host else ""),
        state_before=host.state if host else "running",
        by=who.name,
        tenant=who.runs,
    )


def _unfit(fleet: Fleet, cause: Cause, policy: Policy, now_unix_s: float) -> str:
    """Why nothing is done, whatever the rules say."""
    if cause.is_resolved:
        return "resolved"
    if now_unix_s - cause.at_unix_s > policy.max_age_s:
        return "stale"
    if cause.at_unix_s - now_unix_s > CLOCKS_DIFFER_S:
        return "future"
    return "stopped" if fleet.is_stopped else ""


def _is_exhausted(fleet: Fleet, rule: Rule, about: Decision) -> bool:
    if not rule.times:
        return False
    same = fleet.decisions.since(of_rule(about, rule.per), about.at_unix_s - rule.window_s)
    return _is_reached(same, rule.times)


def _is_reached(decisions: Iterable[Decision], limit: int) -> bool:
    return sum(1 for _ in islice(decisions, limit)) == limit


def _refusal(fleet: Fleet, rule: Rule, about: Decision, policy: Policy, who: Principal) -> str:
    """Why a rule that matches may not act; empty if it may."""
    takes_out = rule.action in TAKES_OUT
    if rule.action in ON_HOST and not fleet.knows(about.host):
        return "unknown_host"
    if takes_out and fleet.state_of(about.host) == "cordoned":
        return "host_is_out"
    if rule.action in OF_RUN and not about.run_id:
        return "unknown_run"
    if rule.action in NEEDS_SPARE and not _spares_but(fleet, about.host):
        return "no_spare"
    if _cools_down(fleet, rule, about, policy):
        return "cooldown"
    if rule.action == "notify":
        return ""
    now_s = about.at_unix_s
    if _is_reached(fleet.decisions.since("counts", now_s - policy.window_s), policy.max_actions):
        return "limit"
    if _has_caused_enough(fleet, policy, who, now_s):
        return "grant_limit"
    return "fleet_share" if takes_out and _too_many_out(fleet, about.host, policy) else ""


def _has_caused_enough(fleet: Fleet, policy: Policy, who: Principal, now_unix_s: float) -> bool:
    """Whether no further action may follow from what a grant sends: it has its own limit, and
    without one a tenant half of the policy's, so that it does not use up that of all."""
    of_grant = fleet.decisions.since(("by", who.name), now_unix_s - _HOUR_S)
    if who.actions_per_hour:
        return _is_reached(of_grant, who.actions_per_hour)
    of_tenant = fleet.decisions.since(("tenant", who.runs), now_unix_s - policy.window_s)
    return bool(who.runs) and _is_reached(of_tenant, max(1, policy.max_actions // 2))


def _too_many_out(fleet: Fleet, host: str, policy: Policy) -> bool:
    """Whether too many hosts would be out with this one."""
    others = len(fleet.out) - (host in fleet.out)
    return others + 1 > max(1, int(policy.max_fleet_share * len(fleet.known)))


def _spares_but(fleet: Fleet, host: str) -> tuple[str, ...]:
    return tuple(name for name in fleet.spares if name != host)


def _cools_down(fleet: Fleet, rule: Rule, about: Decision, policy: Policy) -> bool:
    """Whether something was just done about the same code of the same device, or, for a restart,
    with the same run: each of its ranks may raise an alert of its own."""
    since_s = about.at_unix_s - policy.cooldown_s
    if any(True for _ in fleet.decisions.since(subject(about), since_s)):
        return True
    of_run = fleet.decisions.since(("run", about.run_id), since_s)
    return rule.action in OF_RUN and any(True for _ in of_run)


# --- a fleet in simulated time --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """The decisions of :func:`simulate_fleet`, in order, and the fleet after them."""

    decisions: tuple[Decision, ...]
    fleet: Fleet


def simulate_fleet(
    fleet: Fleet,
    causes: Iterable[tuple[float, Cause]],
    policy: Policy,
    repair_s: float = 0.0,
    *,
    sender: Callable[[Cause], Principal] = lambda _: ANYBODY,
) -> Simulated:
    """Decide about causes as they come, with every action succeeding at once.

    Args:
        causes: (seconds since 1970, cause), in order of time.
        repair_s: a host that was taken out is a spare again after so long; 0 = never.
        sender: who has sent a cause.
    """
    known: set[str] = set()
    decisions: list[Decision] = []
    for now_unix_s, cause in causes:
        if cause.id in known:
            continue
        if repair_s:
            fleet = _repaired(fleet, now_unix_s - repair_s, now_unix_s)
        decision = decide(fleet, cause, policy, now_unix_s, sender(cause))
        decisions.append(decision)
        if decision.acts:
            known.add(cause.id)
            fleet = fleet.after(decision, longest_window_s(policy))
    return Simulated(decisions=tuple(decisions), fleet=fleet)


def longest_window_s(policy: Policy) -> float:
    """How far back decisions matter."""
    windows: Sequence[float] = [rule.window_s for rule in policy.rules if rule.times]
    return max([policy.window_s, policy.cooldown_s, _HOUR_S, *windows])


def _repaired(fleet: Fleet, out_since_s: float, now_unix_s: float) -> Fleet:
    return fleet.with_hosts(
        replace(host, state="spare", since_unix_s=now_unix_s)
        for host in fleet.hosts.values()
        if host.state == "cordoned" and host.since_unix_s <= out_since_s
    )
