"""Commands of the configuration, as lists of arguments: no shell reads them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from otel_straggler.setting import kind, option
from otel_straggler.supervisor.executors import StepError, check_same, host_name, shown
from otel_straggler.supervisor.executors.programs import FIELD, Programs, filled
from otel_straggler.supervisor.fleet import Decision, SchedulerHost
from otel_straggler.supervisor.policy import ACTIONS, Action
from otel_straggler.supervisor.store import Step

FIELDS: Final = (
    "host", "host_id", "replacement", "run_id", "device", "code", "rule", "cause_id",
)  # fmt: skip
"""What may stand in braces in an argument."""
_HOSTS: Final = ("host", "replacement")


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
_LIST: Final = kind(
    accepts=lambda value: bool(_split(value)) and not any(map(FIELD.search, _split(value))),
    expected="a command: a list of arguments, in which nothing is replaced",
    convert=_split,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSettings:
    """Commands of the executor ``shell``."""

    commands: Mapping[Action, tuple[str, ...]] | tuple[()] = option(
        (), _COMMANDS, "what does each action"
    )
    list_hosts: tuple[str, ...] = option(
        (),
        _LIST,
        "command that prints the scheduler's hosts, one a line: the name, and if it has one, after "
        "a blank, the scheduler's id of it. Nothing is done to a host that it does not print",
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
        self._list = settings.list_hosts
        self._programs = programs
        self.actions: frozenset[Action] = frozenset({*self._commands, "notify"})

    def hosts(self) -> Mapping[str, SchedulerHost] | None:
        if not self._list:
            return None
        lines = self._programs.listed(self._list).split("\n")
        columns = [line.split() for line in lines if line.strip()]
        hosts = {name: SchedulerHost(name=name, id="".join(rest[:1])) for name, *rest in columns}
        if len(hosts) != len(columns) or not hosts:
            text = f"{self._list[0]} prints {len(columns)} hosts, {len(hosts)} of them different"
            raise StepError(f"{text}; expected each host once")
        return hosts

    def resolve(self, name: str) -> SchedulerHost:
        name = host_name(name)
        hosts = self.hosts()
        host = SchedulerHost(name=name) if hosts is None else hosts.get(name)
        if host is None:
            text = f"{self._list[0]} does not print a host whose name is exactly {shown(name)}"
            raise StepError(f"{text}. Nothing was done")
        return host

    def allocation(self, run_id: str) -> str:  # noqa: ARG002 - no program says what runs where
        return ""

    def steps(self, decision: Decision) -> tuple[Step, ...]:
        assert decision.action is not None
        template = self._commands.get(decision.action)
        if template is None:
            return ()
        check = self._checks.get(decision.action, ())
        used = {name for each in (*template, *check) for name in FIELD.findall(each)}
        values = {name: str(getattr(decision, name)) for name in FIELDS}
        named = {name: host_name(values[name]) for name in _HOSTS if name in used and values[name]}
        arguments: dict[str, Any] = {"command": filled(template, values), "hosts": named}
        if check:
            arguments["check"] = filled(check, values)
        arguments["host_id"] = decision.host_id
        target = decision.host or decision.run_id
        return (Step(verb=decision.action, target=target, arguments=arguments),)

    def observe(self, step: Step) -> dict[str, Any]:
        hosts = {key: self.resolve(name) for key, name in step.arguments.get("hosts", {}).items()}
        if "host" in hosts:
            check_same(hosts["host"], step.arguments["host_id"])
        return {}

    def perform(self, step: Step, before: dict[str, Any]) -> str:  # noqa: ARG002
        return self._programs.checked(step.arguments["command"])

    def was_done(self, step: Step, before: dict[str, Any]) -> bool | None:  # noqa: ARG002
        if "check" not in step.arguments:
            return None
        try:
            exit_code = self._programs.run(step.arguments["check"]).exit_code
        except StepError:
            return None
        return {0: True, 1: False}.get(exit_code)
