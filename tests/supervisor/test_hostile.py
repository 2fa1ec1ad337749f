"""Who has the `ingest` token of one tenant, and means harm: thousands of forged reports and
alerts."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.collector.access.audit import Audit
from otel_straggler.collector.access.guard import Guard
from otel_straggler.collector.access.roles import Principal
from otel_straggler.collector.ingest.http_messages import Head, Request
from otel_straggler.model.fleet_reports import RENEW_S, REPORT_KINDS, FleetReport
from otel_straggler.supervisor.api import ALERTS_PATH, REPORTS_PATH, SupervisorApi
from otel_straggler.supervisor.fleet import Host
from otel_straggler.supervisor.telemetry import Telemetry

from .supervised import Scene, alert, alert_json, policy_of, webhook

POLICY = policy_of("""
max_actions: 6
max_fleet_share: 0.5
cooldown_seconds: 0
rules:
  - {name: gpu, xid: [gpu, host], action: replace_host, times: 2, per: fleet}
  - {name: gpu again, xid: [gpu, host], action: cordon}
  - {name: hung, report: [rank_hung], action: restart_in_job}
  - {name: ended, report: [attempt_ended, agent_ended], action: restart_workload}
  - {name: all, alert: '.*', action: notify}
""")
EVENTS = 25
"""Of one attack; the number of attacks is Hypothesis's."""
OWN, FREE = ("own-0", "own-1"), ("free-0", "free-1", "free-2")
OTHERS = ("other-0", "other-1", "all-0", "all-1", "spare-0", "spare-1", "out-0", "failed-0")
NODES = (
    *OWN, *FREE, *OTHERS, "ghost-0", "ghost-1", "ALL", "own-0,other-0", "other-[0-1]", "OTHER-0",
    "own-0\n", "other-0 ", "-f", "../own-0", "own-0;id", "", "x" * 300,
    "\N{CYRILLIC SMALL LETTER O}wn-0",
)  # fmt: skip
RUNS = ("a/1", "a/1", "a/2", "b/1", "all/1", "a", "A/1", "", "a/../b/1", "a/\n", "a/" + "x" * 300)
TIMES = (0.0, 0.0, 0.0, -60.0, -3500.0, -86_400.0, -6 * 86_400.0, 200.0, 1e6, 1e10, -1e12, 1e400)
JUNK: tuple[Any, ...] = (
    None, True, -1, 10**30, 1.5, float("nan"), "", "x", "\0", [], {}, [[]], "9" * 5000, "\ud800",
)  # fmt: skip


class Attacked:
    """A supervisor without its socket, whose clock is the test's, with an honest tenant b."""

    def __init__(self, folder: Path, seed: int, who: Principal) -> None:
        self.random = random.Random(seed)
        self.who = who
        self.scene = Scene(folder / "db", POLICY)
        states = {"spare": "spare", "out": "cordoned", "failed": "failed"}
        self.scene.hosts = tuple(
            Host(name=name, state=states.get(name.split("-")[0], "running"))  # type: ignore[arg-type]
            for name in (*OWN, *FREE, *OTHERS)
        )
        self.scene.restart()
        self.telemetry = Telemetry(Audit())
        self.api = SupervisorApi(self.scene.engine, self.telemetry, Guard())
        self.sent: list[dict[str, Any]] = []
        self.outcomes: Counter[str] = Counter()
        self.renew()

    def renew(self) -> None:
        """What honest agents say every five minutes."""
        for node in OTHERS[:4] + OWN:
            run_id = {"other": "b/1", "all": "all/1", "own": "a/1"}[node.split("-")[0]]
            report = FleetReport(
                kind="agent_started", id=f"honest {node}", run_id=run_id, attempt=0, node=node,
                at_unix_s=self.scene.now_s,
            )  # fmt: skip
            self.scene.engine.report(report)

    def post(self, path: str, body: Any) -> None:
        """As the tenant; what is answered is an answer."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode("utf-8", "replace")
        head = Head("POST", path, "1.1", {})
        head.principal = self.who
        response = self.api._answered(Request(head, content, content))
        assert response.status in (200, 400), response.body
        answer = json.loads(response.body)
        self.outcomes.update(answer.get("outcomes") or [answer.get("outcome", "malformed")])

    def attack(self) -> None:
        """One forged report or webhook."""
        pick = self.random.choice
        if self.random.random() < 0.3:
            passes_s = pick((1.0, RENEW_S, 7200.0))
            self.scene.now_s += passes_s
            self.renew()
        self.random.choice((self.report, self.report, self.alerts, self.replay))()
        if self.random.random() < 0.3:
            self.scene.act()

    def report(self) -> None:
        pick = self.random.choice
        body = {
            "kind": pick(REPORT_KINDS), "id": pick(("1", "2", str(self.random.random()))),
            "run_id": pick(RUNS), "attempt": 0, "node": pick(NODES), "rank": pick((None, 0, 7)),
            "at_unix_s": self.scene.now_s + pick(TIMES),
            "reason": pick(("ok", "SIGKILL", "xid 79", "xid_48", "heartbeat_timeout")),
        }  # fmt: skip
        if self.random.random() < 0.2:
            body[pick(list(body))] = pick(JUNK)
        self.post(REPORTS_PATH, body)

    def alerts(self) -> None:
        self.post(ALERTS_PATH, webhook(*(self.alert() for _ in range(self.random.randrange(4)))))

    def alert(self) -> dict[str, Any]:
        pick, label = self.random.choice, self.random.choice(("node", "host", "Hostname"))
        at_s = max(0.0, min(4e9, self.scene.now_s + pick(TIMES)))
        labels = {label: pick(NODES), "xid": pick(("79", "48", "13", "")), "run_id": pick(RUNS)}
        if self.random.random() < 0.3:
            labels |= {"hostname": pick(NODES), "x" * pick((1, 10_000)): "\x1b[2J"}
        result = alert_json(pick(("GpuXid", "Lost")), at_s, pick(("firing", "resolved")), **labels)
        if self.random.random() < 0.2:
            result[pick(list(result))] = pick(JUNK)
        self.sent.append(result)
        return result

    def replay(self) -> None:
        """What was sent before, again, or as ended."""
        if self.sent:
            before = self.random.choice(self.sent)
            status = self.random.choice(("firing", "resolved", before.get("status")))
            self.post(ALERTS_PATH, webhook({**before, "status": status}))


TENANTS = {
    "a tenant": Principal(name="a", role="ingest", runs="a/"),
    "one whose hosts are named": Principal(name="a", role="ingest", runs="a/", hosts=("own-*",)),
}


@pytest.mark.parametrize("who", TENANTS)
@given(seed=st.integers(0, 2**64))
def test_no_forged_report_or_alert_reaches_what_is_of_others(who: str, seed: int) -> None:
    """Only hosts of its own, or nobody's, are acted upon, and runs of its own restarted; the fleet,
    its shares, and half of the actions stay for the others, whose broken host is taken out."""
    shm = Path("/dev/shm")  # without it each write waits for a disk
    folder = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
    try:
        its = Attacked(folder, seed, TENANTS[who])
        for _ in range(EVENTS):
            its.attack()
        its.scene.act()
        check(its, {*OWN} if TENANTS[who].hosts else {*OWN, *FREE})
        its.api.close()
        its.scene.store.close()
    finally:
        shutil.rmtree(folder)


def check(its: Attacked, reach: set[str]) -> None:
    """What must hold after an attack."""
    scene, fleet = its.scene, its.scene.engine.fleet
    assert set(fleet.hosts) == {*OWN, *FREE, *OTHERS}
    acted = [each for each in fleet.decisions if each.counts]
    for decision in acted:
        assert decision.host in reach | {""} or decision.action == "restart_workload"
        assert decision.run_id.startswith("a/")
        lately = [d for d in acted if 0 <= decision.at_unix_s - d.at_unix_s < POLICY.window_s]
        assert len(lately) <= POLICY.max_actions // 2
    of_runs = ("notify", "restart_workload")
    assert {target for verb, target in scene.executor.performed if verb not in of_runs} <= reach
    states = {name: fleet.state_of(name) for name in OTHERS}
    used = {d.replacement for d in acted}
    assert states == {
        "other-0": "running", "other-1": "running", "all-0": "running", "all-1": "running",
        "out-0": "cordoned", "failed-0": "failed",
        **{name: "running" if name in used else "spare" for name in ("spare-0", "spare-1")},
    }  # fmt: skip
    assert fleet == scene.store.fleet(0.0)
    assert fleet.holder("other-0", scene.now_s) == "b/1"
    broken = alert("GpuXid", at_s=scene.now_s, node="other-0", xid="79")
    assert scene.submit(broken)[0] in ("replace_host", "cordon")
