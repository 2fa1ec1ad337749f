"""Limits that who has the token of one tenant cannot move, use up for others, or get around."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.collector.access.roles import Principal
from otel_straggler.model.fleet_reports import FleetReport
from otel_straggler.supervisor import store
from otel_straggler.supervisor.decide import decide
from otel_straggler.supervisor.executors import StepError
from otel_straggler.supervisor.fleet import MAX_ADDED, Fleet, Host, SchedulerHost
from otel_straggler.supervisor.store import Step

from .served import Served
from .supervised import NOW_S, Remembering, Scene, alert, policy_of

TENANT = "token-of-a-tenant-0123456789"
BOUND = "token-of-bound-agents-0123456789"
GRANTS = f"""
ingest tenant token:{TENANT} runs=t/
ingest bound  token:{BOUND} max_hosts=3 actions_per_hour=2
"""
CONFIG = """
server: {{listen: "127.0.0.1:0"}}
auth: {{grant_files: [{folder}/grants]}}
state: {{path: {folder}/db}}
fleet: {{hosts: {{n0: running, n1: running, n2: running, n3: running, n4: running,
                n5: running, n6: running, n7: running, n8: running, n9: running}}}}
policy:
  max_actions: 6
  max_fleet_share: 0.1
  cooldown_seconds: 0
  rules:
    - {{name: gpu, xid: [host], action: cordon}}
    - {{name: hung, report: [rank_hung], action: restart_workload}}
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    result = Served(tmp_path, CONFIG, GRANTS)
    yield result
    result.supervisor.stop()


def test_hosts_that_a_tenant_reports_are_not_those_of_which_shares_are_taken(
    served: Served,
) -> None:
    """A hundred forged reports, and one real host of ten may be out as before; nor does the tenant
    reach hosts that nobody has named."""
    for number in range(100):
        served.report(TENANT, "agent_started", f"ghost-{number}", "t/1")
        served.report(TENANT, "rank_hung", f"ghost-{number}", "t/1")
    assert len(served.states()) == 10
    outcomes = [served.alert("ingest", node=f"n{number}", xid="79") for number in range(8)]
    assert outcomes == ["cordon"] + ["fleet_share"] * 7
    assert served.alert(TENANT, node="ghost-1", xid="79", run_id="t/1") == "unknown_host"


@pytest.mark.parametrize("kind", ["agent_ended", "agent_started", "rank_exited", "attempt_ended"])
def test_a_tenant_does_not_use_up_the_share_with_hosts_that_it_says_have_failed(
    served: Served, kind: str
) -> None:
    """Neither with some that there are not, nor with its own."""
    for node in ("ghost-1", "ghost-2", "n8", "n9"):
        served.report(TENANT, "agent_started", node, "t/1")
        served.report(TENANT, kind, node, "t/1", reason="SIGKILL")
    assert served.alert("ingest", node="n0", xid="79") == "cordon"


def test_a_tenant_does_not_make_room_by_hosts_that_it_says_work_again(served: Served) -> None:
    """A host that has failed, or was taken out, is a person's to return."""
    for node, state in (("n8", "failed"), ("n9", "cordoned")):
        served.ask("POST", "/v1/hosts", {"name": node, "state": state}, role="operate")
        served.report(TENANT, "agent_started", node, "t/1")
        served.report(TENANT, "agent_ended", node, "t/1")
    assert served.states()["n8"] == "failed"
    assert served.states()["n9"] == "cordoned"
    assert served.alert("ingest", node="n0", xid="79") == "fleet_share"


def test_a_tenant_uses_up_half_of_the_actions_at_most(served: Served) -> None:
    """By runs that it invents; the others have theirs."""
    mine = [served.alert(TENANT, xid="13", run_id=f"t/{n}", alertname="Hung") for n in range(4)]
    assert set(mine) == {"no_rule"}
    served.report(TENANT, "agent_started", "n1", "t/1")
    outcomes = [served.report(TENANT, "rank_hung", "n1", "t/1", rank=n) for n in range(5)]
    assert outcomes == ["restart_workload"] * 3 + ["grant_limit"] * 2
    assert served.alert("ingest", node="n0", xid="79") == "cordon"


def test_a_grant_adds_no_more_hosts_and_causes_no_more_actions_than_it_may(served: Served) -> None:
    """By `max_hosts` and `actions_per_hour`; after a restart, too."""
    for number in range(5):
        served.report(BOUND, "agent_started", f"x{number}", "r")
    served.supervisor.stop()
    served.start()
    served.report(BOUND, "agent_started", "x9", "r")
    assert sorted(set(served.states()) - {f"n{n}" for n in range(10)}) == ["x0", "x1", "x2"]
    outcomes = [served.report(BOUND, "rank_hung", "x0", "r", rank=n) for n in range(3)]
    assert outcomes == ["restart_workload"] * 2 + ["grant_limit"]
    assert served.report(BOUND, "rank_hung", "x4", "r") == "grant_limit"


def test_an_operator_takes_a_host_out_of_the_fleet(served: Served) -> None:
    """What was forged once does not count for ever."""
    served.report("ingest", "agent_started", "forged", "r")
    assert "forged" in served.states()
    gone = {"name": "forged", "state": "gone"}
    assert served.ask("POST", "/v1/hosts", gone, role="operate") == (200, gone)
    assert "forged" not in served.states()
    served.supervisor.stop()
    served.start()
    assert "forged" not in served.states()


@pytest.mark.parametrize("seconds", [-7200.0, 7200.0, 9e10 - NOW_S])
def test_a_report_of_another_time_changes_no_host(served: Served, seconds: float) -> None:
    """Of two hours ago, of the future, of the year 4821; not even of a credential for all runs."""
    at_unix_s = NOW_S + seconds
    ended = {"reason": "SIGKILL", "at_unix_s": at_unix_s}
    outcome = served.report("ingest", "agent_ended", "n0", "r", **ended)
    assert outcome == ("stale" if seconds < 0 else "future")
    assert served.states()["n0"] == "running"


def test_only_who_raised_an_alert_ends_it(tmp_path: Path) -> None:
    """Another tenant, or another grant of the same, does not cancel what waits; one for all runs
    does."""
    scene = Scene(tmp_path / "db", policy_of("rules: [{alert: Lost, action: restart_workload}]"))
    lost = alert("Lost", run_id="t/1")
    mine, other = (Principal(name=name, role="ingest", runs="t/") for name in ("one", "two"))
    scene.engine.stop("a test", "me")
    scene.engine.resume()
    assert [d.action for d in scene.engine.submit([lost], mine)] == ["restart_workload"]
    ended = dataclasses.replace(lost, is_resolved=True)
    scene.engine.submit([ended], other)
    assert scene.status_of(lost) == "decided"
    scene.engine.submit([ended], mine)
    assert scene.status_of(lost) == "expired"


def test_what_the_executor_refuses_counts_for_its_sender_alone(tmp_path: Path) -> None:
    """Three refusals for names that there are not used up the actions of everybody."""
    policy = policy_of("{max_actions: 4, rules: [{alert: Lost, action: restart_workload}]}")
    scene = Scene(tmp_path / "db", policy)

    class Refusing(Remembering):
        def steps(self, decision: object) -> tuple[()]:
            raise StepError("no such job")

    scene.restart(Refusing())
    tenant = Principal(name="t", role="ingest", runs="t/")
    causes = [alert("Lost", run_id=f"t/{n}") for n in range(4)]
    decisions = scene.engine.submit(causes, tenant)
    assert [d.action or d.reason for d in decisions] == [
        *["restart_workload"] * 2, *["grant_limit"] * 2,
    ]  # fmt: skip
    scene.restart(Remembering())
    others = scene.submit(*(alert("Lost", run_id=f"o/{n}") for n in range(5)))
    assert others == ["restart_workload"] * 4 + ["limit"]
    assert scene.store.fleet(0.0) == scene.engine.fleet


def test_times_of_the_fleet_are_not_used_up_by_a_tenant() -> None:
    """Otherwise the next rule, which takes hosts out, would be that of all."""
    policy = policy_of("""
    max_fleet_share: 1
    cooldown_seconds: 0
    rules:
      - {alert: Lost, action: restart_workload, times: 1, per: fleet}
      - {alert: Lost, action: cordon}
    """)
    fleet = Fleet().with_hosts([Host(name="a", state="running")])
    tenant = Principal(name="t", role="ingest", runs="t/")
    first = decide(fleet, alert("Lost", run_id="t/1"), policy, NOW_S, tenant)
    fleet = fleet.after(first, 1e6)
    assert decide(fleet, alert("Lost", node="a", run_id="x"), policy, NOW_S).action == (
        "restart_workload"
    )
    again = decide(fleet, alert("Lost", node="a", run_id="t/2"), policy, NOW_S, tenant)
    assert again.action == "cordon"


@pytest.mark.parametrize("action", ["cordon", "replace_host", "scale_down", "restart_in_job"])
def test_nothing_is_done_to_a_host_that_nobody_has_named(action: str) -> None:
    """Nor to one that the scheduler does not list, whoever has named it."""
    policy = policy_of(f"rules: [{{alert: Gpu, action: {action}}}]")
    cause = alert("Gpu", node="x", run_id="r")
    named = Fleet().with_hosts([Host(name="x", state="running"), Host(name="s")])
    assert decide(Fleet(), cause, policy, NOW_S).reason == "unknown_host"
    assert decide(named, cause, policy, NOW_S).action == action
    listed = {"s": SchedulerHost(name="s"), "X": SchedulerHost(name="X")}
    elsewhere = dataclasses.replace(named, listed=listed)
    assert decide(elsewhere, cause, policy, NOW_S).reason == "unknown_host"


def test_shares_are_of_hosts_that_the_scheduler_lists() -> None:
    """Nine hosts that are gone make no room; what a person has drained by hand counts as out."""
    policy = policy_of("{max_fleet_share: 0.5, rules: [{alert: Gpu, action: cordon}]}")
    fleet = Fleet().with_hosts(Host(name=f"n{n}", state="running") for n in range(12))
    listed = {f"n{n}": SchedulerHost(name=f"n{n}", is_cordoned=n == 2) for n in range(3)}
    fleet = dataclasses.replace(fleet, listed=listed)
    assert fleet.by_state()["running"] == 2
    assert decide(fleet, alert("Gpu", node="n0"), policy, NOW_S).reason == "fleet_share"
    assert decide(fleet, alert("Gpu", node="n2"), policy, NOW_S).reason == "host_is_out"


def test_a_spare_on_which_something_runs_is_none() -> None:
    """Nor one that the scheduler does not list, or gives nothing new."""
    fleet = Fleet().with_hosts(Host(name=name) for name in ("busy", "drained", "gone", "idle"))
    listed = {
        "busy": SchedulerHost(name="busy", allocated_to=("7",)),
        "drained": SchedulerHost(name="drained", is_cordoned=True, allocated_to=()),
        "idle": SchedulerHost(name="idle", is_cordoned=False, allocated_to=()),
    }
    assert dataclasses.replace(fleet, listed=listed).spares == ("idle",)


def test_a_credential_for_all_runs_adds_hosts_within_a_bound(tmp_path: Path) -> None:
    """Two thousand ghosts in a second end at it."""
    scene = Scene(tmp_path / "db", policy_of("rules: [{report: [rank_hung], action: notify}]"))
    agents = Principal(name="agents", role="ingest")
    hosts = [Host(name=f"n{n}", added_by="agents") for n in range(MAX_ADDED - 1)]
    full = scene.engine.fleet.with_hosts(hosts)
    assert full.has_room(agents)
    assert not full.with_hosts([Host(name="x", added_by="agents")]).has_room(agents)
    assert full.has_room(Principal(name="others", role="ingest"))


def test_a_flood_of_reports_does_not_fill_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest that nothing followed from give way; what was done stays known."""
    monkeypatch.setattr(store, "_MAX_IGNORED", 10)
    policy = policy_of("rules: [{alert: Lost, action: restart_workload}]")
    scene = Scene(tmp_path / "db", policy, "a")
    lost = alert("Lost", run_id="r")
    scene.submit(lost)
    scene.act()
    for number in range(50):
        scene.engine.report(
            FleetReport(
                kind="rank_hung", id=f"{number}", run_id="run", attempt=0, node="a",
                at_unix_s=NOW_S,
            )
        )  # fmt: skip
    scene.now_s += 700
    scene.act()
    kept = [entry.cause.id for entry in scene.store.newest(100)]
    assert kept == [*(f"report:{n}" for n in reversed(range(40, 50))), lost.id]
    assert scene.submit(lost) == ["known"]


class Failing(Remembering):
    """An executor whose steps begin, and fail."""

    def perform(self, step: Step, before: dict[str, Any]) -> str:
        super().perform(step, before)
        raise StepError("it failed")


@pytest.mark.parametrize("name", ["Nothing", "Told"])
def test_a_flood_has_no_failed_action_tried_again_and_does_not_fill_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whether the flood is ignored or notifies, which no limit of the policy bounds."""
    monkeypatch.setattr(store, "_MAX_IGNORED", 10)
    policy = policy_of("""
        rules:
          - {alert: Lost, action: restart_workload}
          - {alert: Nothing, action: cordon}
          - {alert: Told, action: notify}
    """)
    scene = Scene(tmp_path / "db", policy, "a")
    scene.restart(Failing())
    lost = alert("Lost", run_id="r")
    scene.submit(lost)
    scene.act()
    scene.submit(*(alert(name, node=f"n{number}") for number in range(50)))
    scene.act()
    scene.now_s += 700
    scene.act()
    assert len(scene.store.newest(100)) == 11
    assert scene.submit(lost) == ["known"]
    assert [verb for verb, _ in scene.act()].count("restart_workload") == 1
