"""What acts on hosts and jobs. An executor turns a decision into steps, and does one at a time.

Each states whether a step that was interrupted by a crash was done: yes, no (and it may be done
again), or nobody can say; then it is reported as unknown and not done again.
"""

from __future__ import annotations

from typing import Any, Protocol

from otel_straggler.supervisor.fleet import Decision
from otel_straggler.supervisor.policy import Action
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
