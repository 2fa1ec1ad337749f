"""Who may act on what: each tenant, report and alert, for each state of a host, over HTTP."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_straggler.model.fleet_reports import RENEW_S
from otel_straggler.supervisor.fleet import LIVE_S, SchedulerHost

from .served import Served
from .supervised import Remembering

A, B = "token-of-team-a-0123456789", "token-of-team-b-0123456789"
HELD = "token-of-hosts-0123456789"
GRANTS = f"""
ingest team-a token:{A} runs=team-a/
ingest team-b token:{B} runs=team-b/
ingest held   token:{HELD} runs=team-a/ hosts=spare*,free-held*
"""
POLICY = """
policy:
  max_actions: 10000
  max_fleet_share: 1
  cooldown_seconds: 0
  rules:
    - {{name: hung, report: [rank_hung], action: cordon}}
    - {{name: gpu, xid: [host], action: cordon}}
"""
HOSTS = """
server: {{listen: "127.0.0.1:0"}}
auth: {{grant_files: [{folder}/grants]}}
state: {{path: {folder}/db}}
"""
STATES = (
    "unknown", "spare", "free", "own", "other", "all", "left", "silent", "failed", "cordoned",
)  # fmt: skip
WHAT = ("rank_hung", "agent_started", "alert")
TENANT = {
    # of a host in that state: rank_hung, agent_started, alert
    "unknown": ("unknown_host", "no_rule", "unknown_host"),
    "spare": ("forbidden", "forbidden", "forbidden"),
    "free": ("forbidden", "no_rule", "forbidden"),
    "own": ("cordon", "no_rule", "cordon"),
    "other": ("forbidden", "forbidden", "forbidden"),
    "all": ("forbidden", "forbidden", "forbidden"),
    "left": ("forbidden", "no_rule", "forbidden"),
    "silent": ("forbidden", "no_rule", "forbidden"),
    "failed": ("forbidden", "forbidden", "forbidden"),
    "cordoned": ("forbidden", "forbidden", "forbidden"),
}
EVERYBODY = dict.fromkeys(STATES, ("cordon", "no_rule", "cordon")) | {
    "unknown": ("cordon", "no_rule", "unknown_host"),
    "cordoned": ("host_is_out", "no_rule", "host_is_out"),
}
RUNS = {"new": "team-a/new", "known": "team-a/known", "foreign": "team-b/1", "none": ""}
CELLS = list(itertools.product(STATES, WHAT, RUNS, ("tenant", "ingest")))


def named(state: str, *others: str) -> str:
    return "-".join([state, *others])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """With a host of its own for each cell of the matrix."""
    file_states = {"spare": "spare", "failed": "failed", "cordoned": "cordoned"}
    hosts = "".join(
        f"    {named(*cell)}: {file_states.get(cell[0], 'running')}\n"
        for cell in CELLS
        if cell[0] != "unknown"
    )
    hosts += "    free-x: running\n    free-held: running\n    spare-x: spare\n    known: running\n"
    result = Served(tmp_path, f"{HOSTS}fleet:\n  hosts:\n{hosts}{POLICY}", GRANTS)
    yield result
    result.supervisor.stop()


def prepare(served: Served, now_s: float) -> None:
    """Bring the hosts of all cells into their states."""
    served.report(A, "agent_started", "known", RUNS["known"])
    for state, *others in CELLS:
        host = named(state, *others)
        if state in ("silent", "left", "other"):
            assert served.report(B, "agent_started", host, "team-b/2") == "no_rule"
    served.now_s = now_s + LIVE_S
    for state, *others in CELLS:
        host = named(state, *others)
        if state == "left":
            served.report(B, "agent_started", host, "team-b/2")
            served.report(B, "agent_ended", host, "team-b/2")
        elif state == "other":
            served.report(B, "agent_started", host, "team-b/2")
        elif state == "own":
            served.report(A, "agent_started", host, RUNS["known"])
        elif state == "all":
            served.report("ingest", "agent_started", host, "x/1")


def test_each_tenant_may_act_on_its_own_hosts_alone(served: Served) -> None:
    """Tenant x report or alert x state of the host x whose run is named, and whether it is known.
    Nobody's host is taken by an agent that starts; one that has ended, or is silent, holds none."""
    prepare(served, served.now_s)
    wrong = {}
    for state, what, run, who in CELLS:
        if what != "alert" and run == "none":
            continue  # a report names a run
        host, role = named(state, what, run, who), A if who == "tenant" else "ingest"
        expected = (TENANT if who == "tenant" else EVERYBODY)[state][WHAT.index(what)]
        if who == "tenant" and run in ("foreign", "none"):
            expected = "forbidden"
        labels = {"run_id": RUNS[run]} if RUNS[run] else {}
        if what == "alert":
            outcome = served.alert(role, node=host, xid="79", **labels)
        else:
            outcome = served.report(role, what, host, RUNS[run])
        if outcome != expected:
            wrong[state, what, run, who] = outcome, expected
    assert wrong == {}
    forbidden = {h for h, s in served.states().items() if s == "cordoned" and "other" in h}
    assert all(host.endswith("-ingest") for host in forbidden)


def test_a_host_is_free_for_the_next_team_at_once(served: Served) -> None:
    """Its job has left it; no attacker is needed for what was a refusal before."""
    assert served.report(A, "agent_started", "free-x", "team-a/1") == "no_rule"
    assert served.report(B, "rank_hung", "free-x", "team-b/1") == "forbidden"
    assert served.report(A, "agent_ended", "free-x", "team-a/1") == "no_rule"
    assert served.report(B, "agent_started", "free-x", "team-b/1") == "no_rule"
    assert served.report(A, "rank_hung", "free-x", "team-a/1") == "forbidden"
    assert served.alert(B, node="free-x", xid="79", run_id="team-b/1") == "cordon"


def test_who_holds_a_host_has_to_keep_reporting(served: Served) -> None:
    """The same report, sent again, is enough; after a restart of the supervisor, too, which waits
    for one such time before it takes a host for nobody's."""
    start = {"id": "one", "run_id": "team-a/1"}
    served.report(A, "agent_started", "free-x", **start)
    for _ in range(5):
        served.now_s += RENEW_S
        assert served.report(A, "agent_started", "free-x", **start) == "no_rule"
        assert served.report(B, "agent_started", "free-x", "team-b/1") == "forbidden"
    served.supervisor.stop()
    served.start()
    assert served.report(B, "agent_started", "free-x", "team-b/1") == "forbidden"
    served.now_s += LIVE_S
    assert served.report(B, "agent_started", "free-x", "team-b/1") == "no_rule"
    assert served.report(A, "agent_started", "free-x", **start) == "forbidden"


def test_hosts_of_a_grant_are_those_that_it_may_name(served: Served) -> None:
    """Also spare ones, which another tenant may not take."""
    assert served.report(HELD, "rank_hung", "free-x", "team-a/1") == "forbidden"
    assert served.report(HELD, "rank_hung", "free-held", "team-a/1") == "cordon"
    assert served.report(A, "agent_started", "spare-x", "team-a/1") == "forbidden"
    assert served.report(HELD, "agent_started", "spare-x", "team-a/1") == "no_rule"
    assert served.alert(HELD, node="elsewhere", xid="79", run_id="team-a/1") == "forbidden"
    assert served.alert(HELD, xid="79", run_id="team-a/1") == "unknown_host"


def test_what_is_forbidden_is_in_the_audit_trail(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """With the grant's name and the run; of a flood ten lines."""
    for _ in range(50):
        served.report(A, "rank_hung", "free-x", "team-b/1")
    lines = [r.getMessage() for r in caplog.records if r.name == "otel_straggler.audit"]
    assert 10 <= len(lines) <= 12
    assert all('who="team-a"' in line and 'run="team-b/1"' in line for line in lines)
    assert served.ignored()["forbidden"] == 50


class Scheduling(Remembering):
    """An executor whose scheduler runs job 1 of team a and job 2 of team b."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: dict[str, SchedulerHost] | None = {
            host.name: host
            for host in (
                SchedulerHost(name="mine", id="m1", is_cordoned=False, allocated_to=("1",)),
                SchedulerHost(name="theirs", is_cordoned=False, allocated_to=("2",)),
                SchedulerHost(name="shared", is_cordoned=False, allocated_to=("1", "2")),
                SchedulerHost(name="idle", is_cordoned=False, allocated_to=()),
                SchedulerHost(name="drained", is_cordoned=True, allocated_to=("1",)),
                SchedulerHost(name="unsaid", is_cordoned=False, allocated_to=None),
            )
        }

    def hosts(self) -> dict[str, SchedulerHost] | None:
        return self.listed

    def allocation(self, run_id: str) -> str:
        return run_id.partition("/slurm-")[2]


@pytest.fixture
def scheduled(tmp_path: Path) -> Iterator[Served]:
    result = Served(tmp_path, HOSTS + POLICY, GRANTS, Scheduling())
    yield result
    result.supervisor.stop()


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("mine", "cordon"),
        ("theirs", "forbidden"),
        ("shared", "cordon"),
        ("idle", "forbidden"),
        ("drained", "host_is_out"),
        ("unsaid", "forbidden"),
        ("gone", "unknown_host"),
        ("MINE", "unknown_host"),
    ],
)
def test_a_host_is_whose_run_the_scheduler_runs_there(
    scheduled: Served, host: str, expected: str
) -> None:
    """Whatever agents report; one that it does not list is no host, under no other spelling."""
    assert scheduled.report(A, "rank_hung", host, "team-a/slurm-1") == expected
    if host not in ("unsaid", "gone", "MINE"):
        assert scheduled.report(A, "rank_hung", host, "team-a/llama") == "forbidden"
        assert scheduled.report(A, "rank_hung", host, "team-a/slurm-7") == "forbidden"


def test_a_squatter_gives_way_to_whom_the_scheduler_gave_the_host(scheduled: Served) -> None:
    """Its agent may report as long as it likes."""
    scheduled.report("ingest", "agent_started", "mine", "team-b/slurm-9")
    assert scheduled.report(A, "rank_hung", "mine", "team-a/slurm-1") == "cordon"
    scheduled.report("ingest", "agent_started", "shared", "team-b/slurm-2")
    assert scheduled.report(A, "rank_hung", "shared", "team-a/slurm-1") == "forbidden"


def test_a_decision_has_the_id_of_the_scheduler(scheduled: Served) -> None:
    """So that a host which gets the same name later is not taken for it."""
    assert scheduled.alert("ingest", node="mine", xid="79") == "cordon"
    (decision,) = scheduled.supervisor.engine.fleet.decisions
    assert (decision.host_id, decision.by, decision.tenant) == ("m1", "ingest", "")


@pytest.mark.parametrize(("role", "status"), [("read", 403), ("operate", 200)])
@pytest.mark.parametrize("path", ["/v1/status", "/metrics"])
def test_a_reader_of_some_runs_does_not_see_all(
    tmp_path: Path, role: str, status: int, path: str
) -> None:
    """What is shown is of all tenants, so a grant that is for some runs reads nothing."""
    limit = "runs=team-a/" if role == "read" else ""
    served = Served(tmp_path, HOSTS + POLICY, f"{role} some token:{A} {limit}\n")
    assert served.ask("GET", path, role=A)[0] == status
    assert served.ask("GET", path, role="read")[0] == 200
    served.supervisor.stop()
