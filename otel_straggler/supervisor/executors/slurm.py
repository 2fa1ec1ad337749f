"""Slurm: drains nodes and requeues jobs with ``scontrol``."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any, Final

from otel_straggler.setting import option, text
from otel_straggler.supervisor.executors import StepError
from otel_straggler.supervisor.executors.programs import Programs
from otel_straggler.supervisor.fleet import Decision
from otel_straggler.supervisor.policy import Action
from otel_straggler.supervisor.store import Step

DRAIN: Final = "drain"
REQUEUE: Final = "requeue"
_NODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
"""One node: Slurm would read brackets and commas as several."""


def _has_one_group(pattern: str) -> bool:
    try:
        return re.compile(pattern).groups == 1
    except re.error:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """The executor ``slurm``."""

    scontrol: str = option("scontrol", text("the path of a program", bool), "the program")
    job_pattern: str = option(
        r"slurm-(\d+)(?:-\d+)?",
        text("a regular expression with one group", _has_one_group),
        "name of a run; its group is the id of the job",
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
        self._scontrol = settings.scontrol
        self._job = re.compile(settings.job_pattern)
        self._programs = programs

    def steps(self, decision: Decision) -> tuple[Step, ...]:
        drain = decision.action in ("cordon", "replace_host")
        runs_there = decision.action == "replace_host" and decision.run_id
        requeue = runs_there or decision.action == "restart_workload"
        return (
            *([self._drain(decision)] if drain else []),
            *([self._requeue(decision)] if requeue else []),
        )

    def _drain(self, decision: Decision) -> Step:
        if not _NODE.fullmatch(decision.host):
            raise StepError(f"{decision.host!r:.80} is not the name of one Slurm node")
        reason = f"{_mark(decision.cause_id)} {decision.code}"
        return Step(verb=DRAIN, target=decision.host, arguments={"reason": reason})

    def _requeue(self, decision: Decision) -> Step:
        job = self._job.fullmatch(decision.run_id)
        if job is None or not job[1].isascii() or not job[1].isdecimal():
            text = f"the run {decision.run_id!r:.80} does not name a job of slurm.job_pattern"
            raise StepError(text)
        return Step(verb=REQUEUE, target=job[1], arguments={})

    def observe(self, step: Step) -> dict[str, Any]:
        return {"restarts": self._restarts(step.target)} if step.verb == REQUEUE else {}

    def perform(self, step: Step, before: dict[str, Any]) -> str:  # noqa: ARG002
        if step.verb == DRAIN:
            node, reason = f"NodeName={step.target}", f"Reason={step.arguments['reason']}"
            command = [self._scontrol, "update", node, "State=DRAIN", reason]
        else:
            command = [self._scontrol, "requeue", step.target]
        return self._programs.checked(command).strip()[-500:]

    def was_done(self, step: Step, before: dict[str, Any]) -> bool | None:
        try:
            if step.verb == DRAIN:
                shown = self._show("node", step.target)
                mark = step.arguments["reason"].partition(" ")[0]
                return "DRAIN" in _field(shown, "State") and mark in _field(shown, "Reason")
            return self._restarts(step.target) > before["restarts"] or None
        except StepError:
            return None

    def _restarts(self, job: str) -> int:
        restarts = _field(self._show("job", job), "Restarts")
        if not restarts.isdecimal():
            raise StepError(f"Slurm does not say how often job {job} was restarted")
        return int(restarts)

    def _show(self, what: str, name: str) -> str:
        return self._programs.checked([self._scontrol, "show", what, name, "--oneliner"])


def _mark(cause_id: str) -> str:
    """Names a cause in a reason; without blanks."""
    return f"otel-straggler:{hashlib.sha256(cause_id.encode()).hexdigest()[:12]}"


def _field(shown: str, name: str) -> str:
    """The value of ``Name=value`` in what scontrol shows.

    >>> _field("NodeName=a State=IDLE+DRAIN Reason=x y [me@2026]", "State")
    'IDLE+DRAIN'
    """
    result = re.search(rf"(?:^|\s){name}=(\S*)", shown)
    return result[1] if result else ""
