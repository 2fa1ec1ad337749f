"""A fleet in simulated time: 200 faults, of which each reaches the policy as its alerts do."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from otel_straggler.supervisor.causes import Cause
from otel_straggler.supervisor.decide import Simulated, simulate_fleet
from otel_straggler.supervisor.fleet import Fleet, Host
from otel_straggler.supervisor.policy import TAKES_OUT

from .supervised import NOW_S, alert, policy_of

POLICY = policy_of("""
max_actions: 20
max_fleet_share: 0.1
rules:
  - {name: broken, xid: [gpu, host], action: replace_host}
  - {name: program, xid: [application], action: restart_workload}
  - {name: lost, alert: StragglerRankLost, action: restart_workload, times: 2, per: host}
  - {name: lost again, alert: StragglerRankLost, action: replace_host}
  - {name: slow, alert: StragglerHostSlow, action: notify}
""")
HOSTS, SPARES, GPUS, RUNS = 240, 16, 8, 12
MTBF_S = 30 * 86_400.0
"""Of one host: some 8 faults a day in the fleet."""
REPAIR_S = 86_400.0
FAULTS = 200
KINDS = {"broken": ("48", "79", "95"), "program": ("13", "31", "94"), "lost": (), "slow": ()}


@dataclass(frozen=True)
class Fault:
    """What happened to a host, and what follows from it in the collector and in DCGM."""

    kind: str
    host: str
    causes: tuple[tuple[float, Cause], ...]


def planned(seed: int) -> list[Fault]:
    """The first faults of a Poisson process in each host: the same for the same seed, whatever
    another host does."""
    faults = []
    for number in range(HOSTS):
        host = f"n{number}"
        random_ = random.Random(f"{seed}/{host}")
        at_s = NOW_S
        while (at_s := at_s - MTBF_S * math.log(1.0 - random_.random())) < NOW_S + MTBF_S:
            faults.append(fault_of(host, number % RUNS, at_s, random_))
    return sorted(faults, key=lambda fault: fault.causes[0][0])[:FAULTS]


def fault_of(host: str, run: int, at_s: float, random_: random.Random) -> Fault:
    """With all that it makes known: alerts come twice, later ones of the same fault too."""
    kind = random_.choice(list(KINDS))
    gpu, run_id = str(random_.randrange(GPUS)), f"run-{run}"
    if codes := KINDS[kind]:
        first = alert("GpuXid", at_s=at_s, node=host, gpu=gpu, xid=random_.choice(codes))
    elif kind == "lost":
        first = alert(at_s=at_s, node=host, rank=gpu, run_id=run_id)
    else:
        first = alert("StragglerHostSlow", at_s=at_s, node=host, run_id=run_id)
    seconds = random_.uniform(5, 60)
    causes = [(at_s + seconds, first), (at_s + seconds + 30, first)]
    if kind == "broken":
        later = alert(at_s=at_s + 40, node=host, rank=gpu, run_id=run_id)
        causes.append((at_s + seconds + 50, later))
    return Fault(kind, host, tuple(causes))


def simulated(faults: list[Fault]) -> Simulated:
    names = [*(f"n{number}" for number in range(HOSTS)), *(f"s{n}" for n in range(SPARES))]
    hosts = (
        Host(name=name, state="spare" if name[0] == "s" else "running",
             run_id="" if name[0] == "s" else f"run-{int(name[1:]) % RUNS}")
        for name in names
    )  # fmt: skip
    causes = sorted((each for fault in faults for each in fault.causes), key=lambda each: each[0])
    return simulate_fleet(Fleet().with_hosts(hosts), causes, POLICY, REPAIR_S)


def test_200_faults_are_acted_upon_and_no_healthy_host_is_touched() -> None:
    """Recall of at least 0.95 by the right action, precision 1: no host without a fault of its own
    is taken out, and no run without one is restarted."""
    faults = planned(seed=7)
    assert len(faults) == FAULTS
    assert {fault.kind for fault in faults} == set(KINDS)
    decisions = simulated(faults).decisions
    acted = {decision.cause_id: decision for decision in decisions if decision.acts}
    assert len(acted) == sum(decision.acts for decision in decisions)
    right = {
        "broken": {"replace_host"},
        "program": {"restart_workload"},
        "lost": {"restart_workload", "replace_host"},
        "slow": {"notify"},
    }
    hits = [
        fault
        for fault in faults
        if any(
            cause.id in acted and acted[cause.id].action in right[fault.kind]
            for _, cause in fault.causes
        )
    ]
    assert len(hits) / FAULTS >= 0.95
    broken = {fault.host for fault in faults if fault.kind in ("broken", "lost")}
    assert {d.host for d in acted.values() if d.action in TAKES_OUT} <= broken
    restarted = {d.run_id for d in acted.values() if d.action == "restart_workload"}
    assert restarted <= {f"run-{int(f.host[1:]) % RUNS}" for f in faults if f.kind != "slow"}


def test_a_plan_is_the_same_on_every_node_and_another_seed_is_another() -> None:
    """Without shared randomness."""
    assert planned(seed=1) == planned(seed=1)
    assert planned(seed=1) != planned(seed=2)


def test_a_fleet_without_faults_is_left_alone() -> None:
    """Nothing comes, nothing follows."""
    result = simulated([])
    assert result.decisions == ()
    assert result.fleet.by_state()["cordoned"] == 0


def test_when_half_of_the_fleet_seems_broken_it_is_not_taken_out() -> None:
    """As after a wrong threshold, or a switch that broke: the share and the count hold."""
    faults = [
        Fault(
            "broken", f"n{n}", ((NOW_S + n, alert("GpuXid", at_s=NOW_S, node=f"n{n}", xid="79")),)
        )
        for n in range(HOSTS // 2)
    ]
    out = simulated(faults).fleet.by_state()["cordoned"]
    assert out == min(POLICY.max_actions, SPARES)
