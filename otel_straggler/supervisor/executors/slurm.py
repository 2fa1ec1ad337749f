"""Slurm: drains nodes and requeues jobs with ``scontrol``."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from otel_straggler.setting import option, text
from otel_straggler.strict_json import whole_number
from otel_straggler.supervisor.executors import (
    StepError,
    UncertainError,
    check_same,
    host_name,
    is_words,
    shown,
)
from otel_straggler.supervisor.executors.programs import Programs
from otel_straggler.supervisor.fleet import Decision, SchedulerHost
from otel_straggler.supervisor.policy import Action
from otel_straggler.supervisor.store import Step

DRAIN: Final = "drain"
REQUEUE: Final = "requeue"
_JOB: Final = re.compile(r"[1-9][0-9]{0,9}")
_OWNERS: Final = ("user", "account")
_WIDTH: Final = 256
_JOB_COLUMNS: Final = (
    "JobID", "ArrayJobID", "ArrayTaskID", "RestartCnt", "State", "UserName", "Account",
)  # fmt: skip
"""Slurm's own words alone: what ``scontrol show job`` prints begins with the job's name, in which
its user may write ``Restarts=9``."""
_OVER: Final = ("COMPLETED", "CANCELLED", "COMPLETING")
"""States of jobs that Slurm would requeue, and nobody wants to run again. Of a job whose processes
still end (``COMPLETING``) Slurm does not say whether it was cancelled."""
_LISTED: Final = re.compile(r"([^,\[]*)(?:\[([^\]]*)\])?")


def _names_job(pattern: str) -> bool:
    try:
        compiled = re.compile(pattern)
    except re.error:
        return False
    names = set(compiled.groupindex)
    if compiled.groups == 1:
        return names <= {"job"}
    return compiled.groups == len(names) and {"job"} < names <= {"job", *_OWNERS}


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """The executor ``slurm``."""

    scontrol: str = option("scontrol", text("the path of a program", bool), "the program")
    squeue: str = option("squeue", text("the path of a program", bool), "the program")
    job_pattern: str = option(
        r"slurm-(\d+)(?:-\d+)?",
        text(
            "a regular expression with one group, or with groups named job and user or account",
            _names_job,
        ),
        "name of a run; its group is the id of the job. Groups `user` and `account` next to `job` "
        "say whose job it must be, so that a team names no other's",
    )


class SlurmExecutor:
    """Cordoning is ``State=DRAIN``: the node gets nothing new. Restarting is ``requeue``; where a
    node is drained Slurm starts the job on others.

    After a crash a drain is recognized by its reason; repeating it does no harm. A requeue is
    recognized by the job's count of restarts; if that is as before, nobody can say.
    """

    name = "slurm"
    actions: frozenset[Action] = frozenset({"restart_workload", "replace_host", "cordon", "notify"})

    def __init__(self, settings: SlurmSettings, programs: Programs) -> None:
        self._scontrol, self._squeue = settings.scontrol, settings.squeue
        self._job_pattern = re.compile(settings.job_pattern)
        self._owners = [each for each in _OWNERS if each in self._job_pattern.groupindex]
        self._programs = programs

    # --- what Slurm lists ------------------------------------------------------------------------

    def hosts(self) -> Mapping[str, SchedulerHost]:
        hosts = {host.name: host for host, _ in self._nodes()}
        if not hosts:
            raise StepError(f"{self._scontrol} lists no node")
        jobs = self._jobs_by_node()
        return {
            name: replace(host, allocated_to=None if jobs is None else tuple(jobs[name]))
            for name, host in hosts.items()
        }

    def resolve(self, name: str) -> SchedulerHost:
        host = self._node(name)[0]
        jobs = self._jobs_by_node(f"--nodelist={host.name}")
        return replace(host, allocated_to=None if jobs is None else tuple(jobs[host.name]))

    def allocation(self, run_id: str) -> str:
        run = self._job_pattern.fullmatch(run_id)
        job = "" if run is None else run.groupdict().get("job", run[1]) or ""
        return self._allocation(job, run.groupdict()) if run and _JOB.fullmatch(job) else ""

    def _allocation(self, job: str, owner: Mapping[str, str | None]) -> str:
        """The job, and whose it is if names of runs say that."""
        return " ".join([job, *(f"{each}={owner[each]}" for each in self._owners)])

    def _nodes(self) -> list[tuple[SchedulerHost, str]]:
        command = [self._scontrol, "show", "node", "--all", "--oneliner"]
        return _hosts(self._programs.listed(command))

    def _node(self, name: str) -> tuple[SchedulerHost, str]:
        """The node of exactly this name, and its line.

        Slurm finds nodes by names that they do not have, as by their host's: those are refused.
        """
        command = [self._scontrol, "show", "node", host_name(name), "--all", "--oneliner"]
        done = self._programs.read(command)
        nodes = _hosts(done.output)
        if done.exit_code or [host.name for host, _ in nodes] != [name]:
            names = ", ".join(shown(host.name) for host, _ in nodes[:3])
            listed = f"it lists {names} for it" if names else done.shown
            text = f"Slurm lists no node whose NodeName is exactly {shown(name)}: {listed}"
            raise StepError(f"{text}. Nothing was done")
        return nodes[0]

    def _jobs_by_node(self, *options: str) -> Mapping[str, list[str]] | None:
        """Ids of jobs by the nodes that they have; None if Slurm does not say."""
        command = [self._squeue, "--noheader", "--all", *options, "--format=%A|%u|%a|%N"]
        try:
            printed = self._programs.listed(command)
        except (StepError, UncertainError):
            return None
        jobs: dict[str, list[str]] = defaultdict(list)
        for line in printed.split("\n"):
            job, user, account, nodes = ["", "", "", "", *line.strip().split("|", 3)][-4:]
            allocation = self._allocation(job, {"user": user, "account": account})
            for node in expanded(nodes):
                jobs[node].append(allocation)
        return jobs

    def _job(self, number: str, allocation: str) -> tuple[str, int, str]:
        """The job of exactly this number, as ``scontrol`` names it alone, its restarts, and its
        state. The number of an array is also that of one of its tasks, and would be all of them."""
        columns = ",".join(f"{name}:{_WIDTH}" for name in _JOB_COLUMNS)
        options = ("--noheader", "--all", "--states=all", f"--jobs={number}")
        printed = self._programs.listed([self._squeue, *options, f"--Format={columns}"])
        rows = [_columns(line) for line in printed.split("\n") if line.split()[:1] == [number]]
        if len(rows) != 1 or whole_number(rows[0][3]) is None:
            text = (
                f"Slurm lists {len(rows)} jobs whose number is exactly {number}, or not how often"
            )
            raise StepError(f"{text} it was restarted. Nothing was done")
        _, array, task, restarts, state, user, account = rows[0]
        listed = self._allocation(number, {"user": user, "account": account})
        if listed != allocation:
            text = f"the run names the job {shown(allocation)}, and Slurm lists {shown(listed)}"
            raise StepError(f"{text}. Nothing was done")
        is_task = array.isdecimal() and task.isdecimal()
        return (f"{array}_{task}" if is_task else number), int(restarts), state

    # --- steps -----------------------------------------------------------------------------------

    def steps(self, decision: Decision) -> tuple[Step, ...]:
        drain = decision.action in ("cordon", "replace_host")
        runs_there = decision.action == "replace_host" and decision.run_id
        requeue = runs_there or decision.action == "restart_workload"
        return (
            *([_drain(decision)] if drain else []),
            *([self._requeue(decision)] if requeue else []),
        )

    def _requeue(self, decision: Decision) -> Step:
        allocation = self.allocation(decision.run_id)
        if not allocation:
            text = f"the run {shown(decision.run_id)} does not name a job of slurm.job_pattern"
            raise StepError(text)
        job = allocation.partition(" ")[0]
        return Step(verb=REQUEUE, target=job, arguments={"allocation": allocation})

    def observe(self, step: Step) -> dict[str, Any]:
        self._programs.wait()
        if step.verb == DRAIN:
            host, _ = self._node(step.target)
            check_same(host, step.arguments.get("host_id", ""))
            return {"node": host.name}
        job, restarts, state = self._requeued(step)
        if state.startswith(_OVER):
            raise StepError(f"job {job} is {state}, and is not run again. Nothing was done")
        return {"job": job, "restarts": restarts}

    def _requeued(self, step: Step) -> tuple[str, int, str]:
        return self._job(step.target, step.arguments.get("allocation", step.target))

    def perform(self, step: Step, before: dict[str, Any]) -> str:
        if step.verb == REQUEUE:
            return self._programs.checked([self._scontrol, "requeue", before["job"]])
        node, reason = f"NodeName={before['node']}", f"Reason={step.arguments['reason']}"
        text = self._programs.checked([self._scontrol, "update", node, "State=DRAIN", reason])
        self._check_alone(before["node"], _mark_in(step))
        return text

    def _check_alone(self, node: str, mark: str) -> None:
        """Check that no other node was drained with one. Slurm accepts a ``NodeSet`` that has the
        name of a node, drains the set for it, and lists sets nowhere.

        Raises:
            UncertainError: there is such a set.
        """
        marked = [host.name for host, line in self._nodes() if mark in _field(line, "Reason")]
        if others := [name for name in marked if name != node]:
            names = f"{', '.join(others[:10])}{' and more' if len(others) > 10 else ''}"
            text = f"Slurm drained more than {node}: {names}. slurm.conf has a NodeSet of that name"
            raise UncertainError(f"{text}. Rename it, and resume the nodes that are well")

    def was_done(self, step: Step, before: dict[str, Any]) -> bool | None:
        self._programs.wait()
        try:
            if step.verb == DRAIN:
                line = self._node(step.target)[1]
                return "DRAIN" in _field(line, "State") and _mark_in(step) in _field(line, "Reason")
            return self._requeued(step)[1] > before["restarts"] or None
        except StepError:
            return None


def _columns(line: str) -> list[str]:
    begins = range(0, _WIDTH * len(_JOB_COLUMNS), _WIDTH)
    return [line[begin : begin + _WIDTH].strip() for begin in begins]


def expanded(hostlist: str) -> Iterator[str]:
    """The names of a list of nodes as Slurm writes it.

    >>> list(expanded("login,gpu[08-10,12],r[1-2]n[3,5]"))
    ['login', 'gpu08', 'gpu09', 'gpu10', 'gpu12', 'r1n3', 'r1n5', 'r2n3', 'r2n5']
    """
    for each in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", hostlist):
        parts = [
            [text + number for number in (_numbers(numbers) if numbers else ("",))]
            for text, numbers in _LISTED.findall(each)
        ]
        yield from map("".join, itertools.product(*parts))


def _numbers(ranges: str) -> Iterator[str]:
    for each in ranges.split(","):
        first, _, last = each.partition("-")
        begin, end = whole_number(first), whole_number(last)
        if begin is not None and end is not None:
            yield from (f"{n:0{len(first)}d}" for n in range(begin, end + 1))
        else:
            yield each


def _drain(decision: Decision) -> Step:
    code = decision.code if is_words(decision.code) else "see the journal"
    arguments = {
        "reason": f"{_mark(decision.cause_id)} {code}", "host_id": decision.host_id
    }  # fmt: skip
    return Step(verb=DRAIN, target=host_name(decision.host), arguments=arguments)


def _mark(cause_id: str) -> str:
    """Names a cause in a reason; without blanks."""
    return f"otel-straggler:{hashlib.sha256(cause_id.encode()).hexdigest()[:12]}"


def _mark_in(step: Step) -> str:
    return str(step.arguments["reason"].partition(" ")[0])


def _hosts(printed: str) -> list[tuple[SchedulerHost, str]]:
    """Nodes and their lines; some Reason may have further lines."""
    return [(host, line) for line in printed.split("\n") if (host := _host(line))]


def _host(line: str) -> SchedulerHost | None:
    """The node of a line; None if it is none. Slurm's ids of nodes are their names, so the id is
    the machine behind the name."""
    name = re.match(r"NodeName=(\S+)", line)
    if name is None:
        return None
    machine = f"{_field(line, 'NodeHostName')}/{_field(line, 'NodeAddr')}"
    state = _field(line, "State")
    return SchedulerHost(name=name[1], id=machine, is_cordoned="DRAIN" in state)


def _field(line: str, name: str) -> str:
    """The value of ``Name=value`` in a line of scontrol.

    >>> _field("NodeName=a State=IDLE+DRAIN Reason=x y [me@2026]", "State")
    'IDLE+DRAIN'
    """
    result = re.search(rf"(?:^|\s){name}=(\S*)", line)
    return result[1] if result else ""
