"""The decision: a pure function of fleet, cause, policy and time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from otel_straggler.supervisor.causes import Cause
from otel_straggler.supervisor.fleet import OUT, Decision, Fleet
from otel_straggler.supervisor.policy import NEEDS_SPARE, OF_RUN, TAKES_OUT, Policy, Rule

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
    "unknown_host": "the fleet has no such host",
    "unknown_run": "it names no run",
    "host_is_out": "the host is cordoned already",
    "cooldown": "something was done about the same a moment ago",
    "limit": "policy.max_actions has been reached",
    "fleet_share": "more than policy.max_fleet_share of the hosts would be out",
}
"""Why nothing is done."""


def decide(fleet: Fleet, cause: Cause, policy: Policy, now_unix_s: float) -> Decision:
    """What follows from a cause: the action of the first rule that matches and may act. Rules whose
    `times` are used up, or that lack a spare host, are passed over.

    That at most one action follows from one cause is for the caller, who knows those of before.
    """
    host = fleet.hosts.get(cause.host)
    nothing = Decision(
        cause_id=cause.id,
        at_unix_s=now_unix_s,
        host=cause.host,
        device=cause.device,
        code=cause.code,
        run_id=cause.run_id or (host.run_id if host else ""),
        state_before=host.state if host else "running",
    )
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
        reason = _refusal(fleet, rule, matched, policy)
        nothing = matched
        if not reason:
            spare = _spares_but(fleet, cause.host)[0] if rule.action in NEEDS_SPARE else ""
            return replace(matched, action=rule.action, replacement=spare)
        if reason != "no_spare":
            break
    return replace(nothing, reason=reason)


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
    since_s = about.at_unix_s - rule.window_s
    same = (
        each
        for each in fleet.decisions
        if each.rule == rule.name
        and each.at_unix_s > since_s
        and _key(each, rule.per) == _key(about, rule.per)
    )
    return sum(1 for _ in same) >= rule.times


def _key(decision: Decision, per: str) -> tuple[str, ...]:
    return {
        "run": (decision.run_id,),
        "host": (decision.host,),
        "device": (decision.host, decision.device),
        "fleet": (),
    }[per]


def _refusal(fleet: Fleet, rule: Rule, about: Decision, policy: Policy) -> str:
    """Why a rule that matches may not act; empty if it may."""
    takes_out = rule.action in TAKES_OUT
    if takes_out and about.host not in fleet.hosts:
        return "unknown_host"
    if takes_out and fleet.hosts[about.host].state == "cordoned":
        return "host_is_out"
    if rule.action in OF_RUN and not about.run_id:
        return "unknown_run"
    if rule.action in NEEDS_SPARE and not _spares_but(fleet, about.host):
        return "no_spare"
    if _cools_down(fleet, rule, about, policy):
        return "cooldown"
    if rule.action == "notify":
        return ""
    since_s = about.at_unix_s - policy.window_s
    if sum(d.counts and d.at_unix_s > since_s for d in fleet.decisions) >= policy.max_actions:
        return "limit"
    return "fleet_share" if takes_out and _too_many_out(fleet, about.host, policy) else ""


def _too_many_out(fleet: Fleet, host: str, policy: Policy) -> bool:
    """Whether too many hosts would be out with this one."""
    others = sum(each.state in OUT for name, each in fleet.hosts.items() if name != host)
    return others + 1 > max(1, int(policy.max_fleet_share * len(fleet.hosts)))


def _spares_but(fleet: Fleet, host: str) -> tuple[str, ...]:
    return tuple(name for name in fleet.spares if name != host)


def _cools_down(fleet: Fleet, rule: Rule, about: Decision, policy: Policy) -> bool:
    """Whether something was just done about the same code of the same device, or, for a restart,
    with the same run: each of its ranks may raise an alert of its own."""
    since_s = about.at_unix_s - policy.cooldown_s
    recent = [each for each in fleet.decisions if each.at_unix_s > since_s]
    same = (about.host, about.device, about.code, about.run_id)
    if any((each.host, each.device, each.code, each.run_id) == same for each in recent):
        return True
    if rule.action not in OF_RUN:
        return False
    return any(each.counts and each.run_id == about.run_id for each in recent)


# --- a fleet in simulated time --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """The decisions of :func:`simulate_fleet`, in order, and the fleet after them."""

    decisions: tuple[Decision, ...]
    fleet: Fleet


def simulate_fleet(
    fleet: Fleet, causes: Iterable[tuple[float, Cause]], policy: Policy, repair_s: float = 0.0
) -> Simulated:
    """Decide about causes as they come, with every action succeeding at once.

    Args:
        causes: (seconds since 1970, cause), in order of time.
        repair_s: a host that was taken out is a spare again after so long; 0 = never.
    """
    known: set[str] = set()
    decisions: list[Decision] = []
    for now_unix_s, cause in causes:
        if cause.id in known:
            continue
        if repair_s:
            fleet = _repaired(fleet, now_unix_s - repair_s, now_unix_s)
        decision = decide(fleet, cause, policy, now_unix_s)
        decisions.append(decision)
        if decision.acts:
            known.add(cause.id)
            fleet = fleet.after(decision, longest_window_s(policy))
    return Simulated(decisions=tuple(decisions), fleet=fleet)


def longest_window_s(policy: Policy) -> float:
    """How far back decisions matter."""
    windows: Sequence[float] = [rule.window_s for rule in policy.rules if rule.times]
    return max([policy.window_s, policy.cooldown_s, *windows])


def _repaired(fleet: Fleet, out_since_s: float, now_unix_s: float) -> Fleet:
    return fleet.with_hosts(
        replace(host, state="spare", since_unix_s=now_unix_s)
        for host in fleet.hosts.values()
        if host.state == "cordoned" and host.since_unix_s <= out_since_s
    )
