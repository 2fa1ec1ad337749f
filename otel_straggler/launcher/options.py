"""The arguments of ``otel-straggler run``: ours, the agent's, torchrun's, and the script's."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from otel_straggler.errors import ConfigError, UnavailableError, UsageError
from otel_straggler.strict_json import whole_number

WHERE: Final = "otel-straggler run"
DEFAULT_MAX_JOBS: Final = 10
_OF_AGENT: Final = ("--ft-", "--fault-tol-")
_UNTIL_FINISHED, _MAX_JOBS = "--until-finished", "--max-jobs"
_SHUTDOWN_TIMEOUT: Final = "--shutdown-timeout"
_OF_FT_LAUNCHER: Final = {
    "--term-timeout": "torchrun's is 30 s",
    "--workers-stop-timeout": "torchrun waits 30 s for ranks to end before it kills them",
    "--restart-policy": "torchelastic restarts all ranks when one has failed",
    "--ignore-missing-fault-tol-cfg": "a file that is not named is not read",
}
"""Options that only NVRx's launcher has, and why they have no effect here. The first one has, where
this torch knows its ``--shutdown-timeout``."""
_FLAGS: Final = frozenset({_UNTIL_FINISHED, "--ignore-missing-fault-tol-cfg"})
_LOG = logging.getLogger("otel_straggler")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What a command line asks for.

    Attributes:
        torchrun: options of torchrun, as they were given; ``target``: the script and its arguments.
        given: both as torchrun's own parser reads them.
        agent: options of the node's agent, ``--ft-*`` and ``--fault-tol-cfg-path``.
        until_finished: run again until the training has finished, at most ``max_jobs`` times.
    """

    torchrun: tuple[str, ...]
    target: tuple[str, ...]
    given: Any
    agent: tuple[str, ...] = ()
    until_finished: bool = False
    max_jobs: int = 1

    @property
    def is_supervised(self) -> bool:
        """Whether torchrun needs a parent; without, this process becomes torchrun."""
        return bool(self.agent) or self.until_finished


def parse_options(arguments: Sequence[str]) -> RunOptions:
    """Sort the arguments. Those behind the script are the script's, whatever their names.

    Raises:
        ConfigError: an option of ours has no value or a wrong one.
        SystemExit: torchrun does not know an option; it has said so.
        UnavailableError: there is no torch.
        UsageError: torchrun would not run the script with Python.
    """
    parser = _torchrun_parser()
    agent: list[str] = []
    torchrun: list[str] = []
    values: dict[str, str] = {}
    rest = list(arguments)
    for option in _leading(parser, arguments):
        rest = rest[len(option) :]
        name = option[0].partition("=")[0]
        if name.startswith(_OF_AGENT):
            agent += option
        elif name in {_UNTIL_FINISHED, _MAX_JOBS}:
            values[name] = _value(option)
        elif name.replace("_", "-") in _OF_FT_LAUNCHER:
            torchrun += _instead(parser, name, _value(option))
        else:
            torchrun += option
    given = parser.parse_args([*torchrun, *rest])
    _refuse_programs(given)
    return RunOptions(
        torchrun=tuple(torchrun),
        target=(given.training_script, *given.training_script_args),
        given=given,
        agent=tuple(agent),
        until_finished=_UNTIL_FINISHED in values,
        max_jobs=_max_jobs(values),
    )


def _leading(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> Iterator[list[str]]:
    """The options before the script, each with its value."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "--":
        width = 2 if _takes_next(parser, arguments[at]) else 1
        yield list(arguments[at : at + width])
        at += width


def _takes_next(parser: argparse.ArgumentParser, option: str) -> bool:
    """Whether its value is the next argument."""
    if "=" in option or option in _FLAGS:
        return False
    if option.startswith(_OF_AGENT) or option.replace("_", "-") in {_MAX_JOBS, *_OF_FT_LAUNCHER}:
        return True
    actions = parser._option_string_actions  # noqa: SLF001  argparse offers no other way
    known = actions.get(option)
    if known is None and option.startswith("--"):  # argparse accepts abbreviations
        known = next((a for name, a in actions.items() if name.startswith(option)), None)
    return known is not None and known.nargs != 0


def _value(option: list[str]) -> str:
    return option[0].partition("=")[2] or (option[1] if option[1:] else "")


def _instead(parser: argparse.ArgumentParser, name: str, value: str) -> list[str]:
    """What torchrun has in the place of an option of NVRx's launcher."""
    known = parser._option_string_actions  # noqa: SLF001  argparse offers no other way
    if name.replace("_", "-") == "--term-timeout" and _SHUTDOWN_TIMEOUT in known:
        return [f"{_SHUTDOWN_TIMEOUT}={value}"]
    _LOG.warning("%s has no effect here: %s", name, _OF_FT_LAUNCHER[name.replace("_", "-")])
    return []


def _torchrun_parser() -> argparse.ArgumentParser:
    try:
        from torch.distributed.run import get_args_parser
    except ImportError as error:
        raise UnavailableError.of(
            WHERE,
            str(error),
            "torch, whose torchrun it starts",
            "Install torch in this environment.",
        ) from error
    parser: argparse.ArgumentParser = get_args_parser()
    return parser


def _refuse_programs(given: Any) -> None:
    if given.no_python or given.run_path:
        raise UsageError.of(
            WHERE,
            "--no-python" if given.no_python else "--run-path",
            "a Python script or module, which each rank runs in a process of its own",
            "Leave the option out.",
        )


def _max_jobs(values: dict[str, str]) -> int:
    if _MAX_JOBS not in values:
        return DEFAULT_MAX_JOBS if _UNTIL_FINISHED in values else 1
    text = values[_MAX_JOBS]
    if not whole_number(text):
        raise ConfigError.of(
            f"{WHERE} {_MAX_JOBS}", text, "a whole number from 1", "For example: --max-jobs 5."
        )
    if _UNTIL_FINISHED not in values:
        raise ConfigError.of(
            f"{WHERE} {_MAX_JOBS}",
            text,
            f"{_UNTIL_FINISHED} with it: without, there is one job",
            f"Add {_UNTIL_FINISHED}, or use --max-restarts for restarts within the job.",
        )
    return int(text)
