"""What acts on hosts and jobs. An executor turns a decision into steps, and does one at a time.

Names come from whoever may send reports, so they are resolved, never matched: an executor acts on
what its scheduler returns for exactly that name, and passes on the scheduler's name and id. It asks
at the moment of the step, as a host may be gone, or another one have its name, since the decision.

Each states whether a step that was interrupted by a crash was done: yes, no (and it may be done
again), or nobody can say; then it is reported as unknown and not done again.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any, Final, Protocol, TextIO

from otel_straggler.supervisor.fleet import Decision, SchedulerHost, decision_json
from otel_straggler.supervisor.policy import ACTIONS, TAKES_OUT, Action
from otel_straggler.supervisor.store import Step


class StepError(Exception):
    """Raised when a step failed: it did not do what it should."""


class UncertainError(Exception):
    """Raised when nobody can say whether a step was done, as after a timeout."""


_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_WORD: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._:-]{0,251}[A-Za-z0-9])?"
_WORDS: Final = re.compile(rf"(?:rank )?{_WORD}(?:/{_WORD}){{0,7}}")
_KEYWORDS: Final = frozenset({"all", "any", "default", "localhost", "none", "null", "self"})
"""Words that schedulers and their programs read as something else than the host of that name:
``ALL`` and ``DEFAULT`` of Slurm, the machine of the supervisor itself, and no host."""
_MAX_SHOWN: Final = 80


def shown(name: str) -> str:
    """A name as an error shows it: quoted, in ASCII, without control characters, cut.

    >>> shown("n1\\n"), len(shown("x" * 65_536))
    ("'n1\\\\n'", 82)
    """
    return ascii(name if len(name) <= _MAX_SHOWN else f"{name[: _MAX_SHOWN - 3]}...")


def host_name(name: str) -> str:
    """The name, which may be that of one host.

    >>> host_name("gpu-17.cluster.internal")
    'gpu-17.cluster.internal'

    Raises:
        StepError: it is a keyword, or has characters with which schedulers name several hosts.
    """
    if not _HOST.fullmatch(name):
        raise StepError(
            f"{shown(name)} is not the name of one host; expected 1 to 253 ASCII letters, digits, "
            "'.', '_' and '-', first and last a letter or digit. Nothing was done"
        )
    if name.lower() in _KEYWORDS:
        text = f"{shown(name)} is a keyword of schedulers, not the name of one host"
        raise StepError(f"{text}. Nothing was done")
    return name


def is_host_name(name: object) -> bool:
    """Whether it may be the name of one host, as :func:`host_name` wants it."""
    is_name = isinstance(name, str) and _HOST.fullmatch(name) is not None
    return is_name and str(name).lower() not in _KEYWORDS


def is_words(name: str) -> bool:
    """Whether a name of a run, device or cause can be an argument of any program: neither an option
    nor a path out of a folder, and nothing that a shell, a format or a pattern reads.

    >>> [is_words(each) for each in ("team-a/slurm-7", "rank 3", "../x", "-f", "a b", "$(id)")]
    [True, True, False, False, False, False]
    """
    return _WORDS.fullmatch(name) is not None


def check_same(host: SchedulerHost, decided_id: str) -> None:
    """Check that a host is the one that a decision was about; any is where nobody asked then.

    Raises:
        StepError: another host has its name by now.
    """
    if decided_id not in ("", host.id):
        raise StepError(
            f"{host.name} is another host than the decision was about: the scheduler's id was "
            f"{shown(decided_id)} and is {shown(host.id)} now. Nothing was done"
        )


class Executor(Protocol):
    """One way to act. Methods but ``steps`` and ``allocation`` may take seconds.

    Attributes:
        actions: that it can do.
    """

    name: str
    actions: frozenset[Action]

    def hosts(self) -> Mapping[str, SchedulerHost] | None:
        """Every host that the scheduler lists, by its exact name; None if there is no scheduler to
        ask.

        Raises:
            StepError: it refused, or its answer cannot be read.
            UncertainError: it did not answer.
        """

    def resolve(self, name: str) -> SchedulerHost:
        """The one host that the scheduler returns for exactly this name. Where there is no
        scheduler, a host of this name without an id.

        Raises:
            StepError: there is none, or the name is a keyword, a set, a range or a pattern.
            UncertainError: the scheduler did not answer.
        """

    def allocation(self, run_id: str) -> str:
        """How :attr:`SchedulerHost.allocated_to` names a run; empty if it cannot. Pure."""

    def steps(self, decision: Decision) -> tuple[Step, ...]:
        """The steps of an action; none if there is nothing to do. Pure.

        Raises:
            StepError: the decision lacks what a step needs, or has a name that no host has.
        """

    def observe(self, step: Step) -> dict[str, Any]:
        """What a step acts on, as the scheduler returns it now, and what :meth:`was_done` has to
        know about the state before it; JSON's types.

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

    def hosts(self) -> None:
        return None

    def resolve(self, name: str) -> SchedulerHost:
        return SchedulerHost(name=host_name(name))

    def allocation(self, run_id: str) -> str:  # noqa: ARG002 - there is no scheduler
        return ""

    def steps(self, decision: Decision) -> tuple[Step, ...]:
        assert decision.action is not None
        if decision.action in TAKES_OUT or decision.action == "restart_in_job":
            host_name(decision.host)
        if decision.replacement:
            host_name(decision.replacement)
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
