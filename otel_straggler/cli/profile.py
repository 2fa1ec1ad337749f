"""``otel-straggler profile``: profile a training from outside."""

from __future__ import annotations

import os
import shutil
import sys

import click

from otel_straggler.errors import UnavailableError, UsageError
from otel_straggler.profiles.nsys import (
    DEFAULT_REPORT,
    NVTX_VARIABLE,
    nsys_command,
    shown_command,
)


@click.group(short_help="Profile a training with Nsight Systems.")
def command() -> None:
    """Profile a training from outside. In a program: otel_straggler.profile()."""


@command.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[OPTIONS] [NSYS OPTIONS]",
)
@click.option("--output", default=DEFAULT_REPORT, show_default=True, help="Name of the report.")
@click.option("--dry-run", is_flag=True, help="Print the command, and do not run it.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND [ARGUMENTS]")
def nsys(output: str, dry_run: bool, arguments: tuple[str, ...]) -> None:
    """Run COMMAND under Nsight Systems, with sections and steps as NVTX ranges.

    \b
        otel-straggler profile nsys -- torchrun --nproc-per-node 4 train.py
        otel-straggler profile nsys --dry-run --gpu-metrics-device=all -- torchrun train.py

    Options that are not ours are passed on to nsys, with their values behind an equal sign. Reports
    are named by host and process. This command becomes nsys, so signals and the exit code are, too.
    """
    options = [each for each in _leading(arguments) if each != "--"]
    target = arguments[len(_leading(arguments)) :]
    if not target:
        raise UsageError.of(
            "otel-straggler profile nsys",
            " ".join(arguments),
            "a command",
            "Give it behind --, for example: -- torchrun train.py",
        )
    line = nsys_command(target, output, options)
    if dry_run:
        click.echo(shown_command(line))
        return
    program = shutil.which(line[0])
    if program is None:
        raise UnavailableError.of(
            "otel-straggler profile nsys",
            "no nsys",
            "nsys on the PATH",
            "Install Nsight Systems, or add its bin folder to PATH; --dry-run prints the command.",
        )
    os.environ[NVTX_VARIABLE] = "on"
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(program, line)  # noqa: S606  no shell


def _leading(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Options of nsys before the command, with the -- behind them."""
    for at, each in enumerate(arguments):
        if each == "--":
            return arguments[: at + 1]
        if not each.startswith("-"):
            return arguments[:at]
    return arguments
