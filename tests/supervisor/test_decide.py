"""The decision: what follows from a cause, by tables and for any sequence of causes."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.supervisor.causes import Cause
from otel_straggler.supervisor.decide import REASONS, decide, simulate_fleet
from otel_straggler.supervisor.fleet import Fleet, Host
from otel_straggler.supervisor.policy import ACTIONS, TAKES_OUT
from otel_straggler.supervisor.xids import XIDS, severity_of, xid_in

from .supervised import NOW_S, alert, policy_of

POLICY = policy_of("""
max_actions: 3
max_fleet_share: 0.25
rules:
  - {name: gpu, xid: [gpu, host], action: replace_host}
  - {name: gpu without a spare, xid: [gpu, host], action: cordon}
  - {name: program, xid: [application], action: restart_workload}
  - {name: lost, alert: StragglerRankLost, labels: {mode: page}, action: restart_workload, times: 1}
  - {name: lost again, alert: StragglerRankLost, labels: {mode: page}, action: replace_host}
  - {name: hung, report: [rank_hung], action: restart_in_job, times: 2, per: host}
  - {name: slow, alert: StragglerHost.*, action: notify}
""")


def fleet_of(**states: str) -> Fleet:
    """Hosts in states; a running one reports run ``r``."""
    return Fleet().with_hosts(
        Host(name=name, state=state, run_id="r" if state == "running" else "")  # type: ignore[arg-type]
        for name, state in states.items()
    )


FOUR = fleet_of(a="running", b="running", c="running", s="spare")
GPU = alert("GpuXid", node="a", gpu="3", xid="79")


def what(fleet: Fleet, cause: Cause, now_s: float = NOW_S) -> str:
    decision = decide(fleet, cause, POLICY, now_s)
    assert (decision.action is None) == bool(decision.reason)
    return decision.action or decision.reason


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (GPU, "replace_host"),
        (alert("GpuXid", node="a", xid="48"), "replace_host"),
        (alert("GpuXid", node="a", error_type="xid_95"), "replace_host"),
        (alert("GpuXid", node="a", xid="31"), "restart_workload"),
        (alert("GpuXid", node="a", xid="43"), "no_rule"),
        (alert("GpuXid", node="a", xid="999"), "no_rule"),
        (alert("StragglerRankLost", node="a", run_id="r", mode="page"), "restart_workload"),
        (alert("StragglerRankLost", node="a", run_id="r", mode="observe"), "no_rule"),
        (alert("StragglerRankLostX", node="a", run_id="r", mode="page"), "no_rule"),
        (alert("StragglerHostSlow", node="a"), "notify"),
        (alert("GpuXid", node="elsewhere", xid="79"), "unknown_host"),
        (alert("GpuXid", xid="79"), "unknown_host"),
        (alert("GpuXid", node="elsewhere", xid="31"), "unknown_run"),
        (dataclasses.replace(GPU, is_resolved=True), "resolved"),
        (dataclasses.replace(GPU, at_unix_s=NOW_S - 3601), "stale"),
        (dataclasses.replace(GPU, at_unix_s=NOW_S + 301), "future"),
    ],
)
def test_what_follows_from_a_cause(cause: Cause, expected: str) -> None:
    """By the first rule that matches."""
    assert what(FOUR, cause) == expected
    assert expected in {*ACTIONS, *REASONS}


def test_a_run_that_a_cause_does_not_name_is_that_of_its_host() -> None:
    """An alert about a GPU knows no run."""
    decision = decide(FOUR, GPU, POLICY, NOW_S)
    assert (decision.run_id, decision.host, decision.replacement) == ("r", "a", "s")
    assert (decision.device, decision.code) == ("3", "xid_79")


def test_nothing_is_done_while_a_person_has_stopped_it() -> None:
    """Whatever comes."""
    assert what(dataclasses.replace(FOUR, is_stopped=True), GPU) == "stopped"


def test_without_a_spare_the_next_rule_that_matches_acts() -> None:
    """And a spare host is no replacement for itself."""
    assert what(fleet_of(a="running", b="running"), GPU) == "cordon"
    broken_spare = alert("GpuXid", node="s", xid="79")
    assert what(FOUR, broken_spare) == "cordon"


def test_a_rule_that_is_used_up_leaves_the_cause_to_the_next() -> None:
    """Once for the run by restarting it, then by replacing the host."""
    lost = alert("StragglerRankLost", node="a", run_id="r", mode="page")
    after = FOUR.after(decide(FOUR, lost, POLICY, NOW_S), 1e6)
    again = alert("StragglerRankLost", at_s=NOW_S + 400, node="a", run_id="r", mode="page")
    assert what(after, again, NOW_S + 400) == "replace_host"
    other_run = alert("StragglerRankLost", at_s=NOW_S, node="a", run_id="q", mode="page")
    assert what(after, other_run) == "restart_workload"


def test_a_host_that_is_out_is_not_taken_out_again() -> None:
    """One that failed still is: nobody has cordoned it."""
    after = FOUR.after(decide(FOUR, GPU, POLICY, NOW_S), 1e6)
    assert after.hosts["a"].state == "cordoned"
    assert after.hosts["s"].state == "running"
    assert what(after, alert("GpuXid", node="a", gpu="4", xid="79")) == "host_is_out"
    assert what(fleet_of(a="failed", s="spare"), GPU) == "replace_host"


def test_the_cooldown_is_for_one_code_of_one_device() -> None:
    """A second GPU of the same host, and another code of the first, are acted upon at once."""
    policy = policy_of("rules: [{alert: Gpu, action: notify}]")

    def after(**labels: str) -> str:
        first = decide(FOUR, alert("Gpu", node="a", gpu="1", xid="79"), policy, NOW_S)
        fleet = FOUR.after(first, 1e6)
        second = decide(fleet, alert("Gpu", at_s=NOW_S + 1, **labels), policy, NOW_S + 1)
        return second.action or second.reason

    assert after(node="a", gpu="1", xid="79") == "cooldown"
    assert after(node="a", gpu="2", xid="79") == "notify"
    assert after(node="a", gpu="1", xid="48") == "notify"
    assert after(node="b", gpu="1", xid="79") == "notify"


def test_a_run_is_not_restarted_for_each_of_its_ranks() -> None:
    """The alerts of one incident come within seconds; a host that breaks then is replaced."""
    lost = [alert(node=n, rank=str(i), run_id="r", mode="page") for i, n in enumerate("abc")]
    causes = [(NOW_S + i, cause) for i, cause in enumerate([*lost, GPU])]
    times = policy_of("rules: [{alert: StragglerRankLost, action: restart_workload}]").rules
    policy = dataclasses.replace(POLICY, rules=(*times, *POLICY.rules))
    decisions = simulate_fleet(FOUR, causes, policy).decisions
    assert [d.action or d.reason for d in decisions] == [
        "restart_workload", "cooldown", "cooldown", "replace_host",
    ]  # fmt: skip


def test_no_more_actions_than_the_limit_within_the_window() -> None:
    """Later there is room again; notifying needs none."""
    causes = [
        (NOW_S + i, alert("GpuXid", at_s=NOW_S + i, node="a", run_id=f"r{i}", xid="13"))
        for i in (0, 1, 2, 3, 3700)
    ]
    decisions = simulate_fleet(FOUR, causes, POLICY).decisions
    assert [d.reason for d in decisions] == ["", "", "", "limit", ""]


def test_no_more_than_a_share_of_the_fleet_is_taken_out() -> None:
    """A quarter of eight hosts are two; of three hosts one may always be."""
    eight = fleet_of(**{f"n{i}": "running" for i in range(8)})
    causes = [(NOW_S + i, alert("GpuXid", node=f"n{i}", xid="79")) for i in range(3)]
    assert [d.reason for d in simulate_fleet(eight, causes, POLICY).decisions] == [
        "", "", "fleet_share",
    ]  # fmt: skip
    three = fleet_of(n0="running", n1="running", n2="running")
    assert [d.reason for d in simulate_fleet(three, causes, POLICY).decisions] == [
        "", "fleet_share", "fleet_share",
    ]  # fmt: skip


def test_the_severity_of_an_xid_can_be_changed() -> None:
    """All others keep that of NVIDIA's catalog."""
    policy = policy_of("{xids: {31: host}, rules: [{xid: [host], action: cordon}]}")
    assert decide(FOUR, alert("X", node="a", xid="31"), policy, NOW_S).action == "cordon"
    assert decide(FOUR, alert("X", node="a", xid="13"), policy, NOW_S).reason == "no_rule"
    assert {severity_of(code, {}) for code in XIDS} == {"none", "application", "gpu", "host"}
    assert xid_in("NVRM: Xid") is None


CAUSES = st.builds(
    lambda name, node, gpu, xid, run_id, mode, at_s: alert(
        name, at_s=NOW_S + at_s, node=node, gpu=gpu, xid=xid, run_id=run_id, mode=mode
    ),
    st.sampled_from(["GpuXid", "StragglerRankLost", "StragglerHostSlow", "Other"]),
    st.sampled_from(["a", "b", "c", "d", "e", "s", "t", "nowhere", ""]),
    st.sampled_from(["", "0", "1"]),
    st.sampled_from(["", "31", "48", "79", "43", "12345"]),
    st.sampled_from(["", "r", "q"]),
    st.sampled_from(["page", "observe"]),
    st.integers(-5_000, 5_000),
)
TWELVE = fleet_of(
    **dict.fromkeys("abcefghi", "running"), d="failed", s="spare", t="spare", u="complete"
)


@given(st.lists(st.tuples(st.integers(0, 600), CAUSES), max_size=60))
def test_no_sequence_of_causes_exceeds_a_limit(steps: list[tuple[int, Cause]]) -> None:
    """At most one action for a cause, three within the window, a quarter of the hosts out, each
    host taken out once, each spare used once, and only hosts that a cause names are touched."""
    now_s, causes = NOW_S, []
    for wait_s, cause in steps:
        now_s += wait_s
        causes.append((now_s, cause))
    result = simulate_fleet(TWELVE, causes, POLICY)
    acted = [d for d in result.decisions if d.acts]
    assert max(Counter(d.cause_id for d in acted).values(), default=0) <= 1
    for decision in (counted := [d for d in acted if d.counts]):
        same_window = [
            d for d in counted if 0 <= decision.at_unix_s - d.at_unix_s < POLICY.window_s
        ]
        assert len(same_window) <= POLICY.max_actions
    taken = [d.host for d in acted if d.action in TAKES_OUT]
    assert len(taken) == len(set(taken))
    assert set(taken) <= {cause.host for _, cause in causes}
    out = [
        name for name, host in result.fleet.hosts.items() if host.state in ("cordoned", "failed")
    ]
    assert len(out) <= 3
    used = [d.replacement for d in acted if d.replacement]
    assert len(used) == len(set(used))
    touched = {*taken, *used}
    assert all(TWELVE.hosts[n] == result.fleet.hosts[n] for n in TWELVE.hosts if n not in touched)


@given(CAUSES, st.integers(-10_000, 10_000))
def test_the_same_question_has_the_same_answer(cause: Cause, seconds: int) -> None:
    """Nothing but the arguments counts."""
    first = decide(TWELVE, cause, POLICY, NOW_S + seconds)
    assert first == decide(TWELVE, cause, POLICY, NOW_S + seconds)
    assert first.acts or first.reason in REASONS
