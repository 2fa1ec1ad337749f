"""What acts on hosts and jobs. An executor turns a decision into steps, and does one at a time.

Each states whether a step that was interrupted by a crash was done: yes, no (and it may be done
again), or nobody can say; then it is reported as unknown and not done again.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Protocol, TextIO

from otel_straggler.supervisor.fleet import Decision, decision_json
from otel_straggler.supervisor.policy import ACTIONS, Action
from otel_straggler.supervisor.store import Step


class StepError(Exception):
    """Raised when a step failed: it did not do what it should."""


class UncertainError(Exception):
    """Raised when nobody can say whether a step was done, as after a timeout."""


class Executor(Protocol):
    """One way to act. Methods but ``steps`` may take seconds.

    Attributes:
        actions: that it can do.
    """

    name: str
    actions: frozenset[Action]

    def steps(self, decision: Decision) -> tuple[Step, ...]:
        """The steps of an action; none if there is nothing to do. Pure.

        Raises:
            StepError: the decision lacks what a step needs.
        """

    def observe(self, step: Step) -> dict[str, Any]:
        """What :meth:`was_done` has to know about the state before a step; JSON's types.

        Raises:
            StepError: it cannot be known, or the step cannot be done.
        """

    def perform(self, step: Step, before: dict[str, Any]) -> str:
        """Do it; returns what to log.

        Raises:
            StepError: it failed.
            UncertainError: nobody knows.
        """

    def was_done(self, step: Step, before: dict[str, Any]) -> bool | None:
        """Whether a step that began was done. False: it was not, and may be done again. None:
        nobody can say."""


class PrintExecutor:
    """The default: prints what would be done to standard output, one JSON line each, and touches
    nothing. After a crash nobody can say whether a line was printed."""

    name = "print"
    actions = frozenset(ACTIONS)

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def steps(self, decision: Decision) -> tuple[Step, ...]:
        assert decision.action is not None
        target = decision.host or decision.run_id
        return (Step(verb=decision.action, target=target, arguments=decision_json(decision)),)

    def observe(self, step: Step) -> dict[str, Any]:  # noqa: ARG002 - there is nothing to observe
        return {}

    def perform(self, step: Step, before: dict[str, Any]) -> str:  # noqa: ARG002
        keys = ("host", "replacement", "run_id", "rule", "cause_id")
        shown = {key: step.arguments[key] for key in keys if step.arguments[key]}
        print(
            json.dumps({"action": step.verb, **shown}), file=self._stream or sys.stdout, flush=True
        )
        return "printed"

    def was_done(self, step: Step, before: dict[str, Any]) -> bool | None:  # noqa: ARG002
        return None
