"""Commands of the configuration, as lists of arguments: no shell reads them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from otel_straggler.setting import kind, option
from otel_straggler.supervisor.executors import StepError
from otel_straggler.supervisor.executors.programs import FIELD, Programs, filled
from otel_straggler.supervisor.fleet import Decision
from otel_straggler.supervisor.policy import ACTIONS, Action
from otel_straggler.supervisor.store import Step

FIELDS: Final = ("host", "replacement", "run_id", "device", "code", "rule", "cause_id")
"""What may stand in braces in an argument."""


def _split(command: object) -> tuple[str, ...]:
    """The arguments of a list, or of one text, in which quotes group as in a shell."""
    if isinstance(command, str):
        try:
            return tuple(shlex.split(command))
        except ValueError:  # a quote is not closed
            return ()
    is_list = isinstance(command, list) and all(isinstance(each, str) for each in command)
    return tuple(command) if is_list else ()  # type: ignore[arg-type]


def _is_right(command: object) -> bool:
    arguments = _split(command)
    fields = {name for each in arguments for name in FIELD.findall(each)}
    return bool(arguments) and not FIELD.search(arguments[0]) and fields <= set(FIELDS)


_COMMANDS: Final = kind(
    accepts=lambda value: (
        isinstance(value, Mapping)
        and set(ACTIONS).issuperset(value)
        and all(map(_is_right, value.values()))
    ),
    expected=f"a mapping of actions ({', '.join(ACTIONS)}) to commands: lists of arguments, in "
    f"which one of {', '.join('{' + name + '}' for name in FIELDS)} may stand",
    convert=lambda value: {action: _split(command) for action, command in value.items()},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSettings:
    """Commands of the executor ``shell``."""

    commands: Mapping[Action, tuple[str, ...]] | tuple[()] = option(
        (), _COMMANDS, "what does each action"
    )
    done_checks: Mapping[Action, tuple[str, ...]] | tuple[()] = option(
        (),
        _COMMANDS,
        "after a crash, what says whether an action was done: exit code 0 = yes, 1 = no, and it is "
        "done again; any other = nobody knows, and it is not",
    )


class ShellExecutor:
    """Runs a command for each action. Without a check nobody can say after a crash whether it was
    done."""

    name = "shell"

    def __init__(self, settings: ShellSettings, programs: Programs) -> None:
        self._commands = dict(settings.commands)
        self._checks = dict(settings.done_checks)
        self._programs = programs
        self.actions: frozenset[Action] = frozenset({*self._commands, "notify"})

    def steps(self, decision: Decision) -> tuple[Step, ...]:
        assert decision.action is not None
        template = self._commands.get(decision.action)
        if template is None:
            return ()
        values = {name: str(getattr(decision, name)) for name in FIELDS}
        arguments: dict[str, Any] = {"command": filled(template, values)}
        if check := self._checks.get(decision.action):
            arguments["check"] = filled(check, values)
        target = decision.host or decision.run_id
        return (Step(verb=decision.action, target=target, arguments=arguments),)

    def observe(self, step: Step) -> dict[str, Any]:  # noqa: ARG002 - the check does
        return {}

    def perform(self, step: Step, before: dict[str, Any]) -> str:  # noqa: ARG002
        return self._programs.checked(step.arguments["command"]).strip()[-500:]

    def was_done(self, step: Step, before: dict[str, Any]) -> bool | None:  # noqa: ARG002
        if "check" not in step.arguments:
            return None
        try:
            exit_code = self._programs.run(step.arguments["check"]).exit_code
        except StepError:
            return None
        return {0: True, 1: False}.get(exit_code)
