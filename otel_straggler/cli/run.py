"""``otel-straggler run``: torchrun, with the training watched."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from otel_straggler.errors import UnavailableError, UsageError

RUNNER = "otel_straggler.integrations.zero_code"
"""The module that every rank runs: it runs the script."""


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[TORCHRUN OPTIONS]",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGUMENTS]")
def command(arguments: tuple[str, ...]) -> None:
    """Start torchrun, and have the training watched without a change in its code.

    \b
        otel-straggler run --nproc-per-node 4 train.py --epochs 3
        otel-straggler run --nnodes 2 --rdzv-endpoint host:29400 -m package.train

    Options are torchrun's; this command becomes torchrun, so signals and the exit code are, too.
    Each rank runs the script as it is, and sends its steps and their sections: data_loading,
    forward, backward, optimizer. Where to, is set by OTEL_STRAGGLER_ENDPOINT
    (http://127.0.0.1:4318), as all else by OTEL_STRAGGLER_*.
    """
    line = torchrun_command(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(line[0], line)  # noqa: S606  no shell


def torchrun_command(arguments: Sequence[str]) -> list[str]:
    """The command that replaces this process: torchrun, with the runner before the script.

    Raises:
        SystemExit: torchrun does not know an option; it has said so.
        UnavailableError: there is no torch.
        UsageError: torchrun would not run the script with Python.
    """
    try:
        from torch.distributed.run import get_args_parser
    except ImportError as error:
        raise UnavailableError.of(
            "otel-straggler run",
            str(error),
            "torch, whose torchrun it starts",
            "Install torch in this environment.",
        ) from error
    given = get_args_parser().parse_args(arguments)
    if given.no_python or given.run_path:
        raise UsageError.of(
            "otel-straggler run",
            "--no-python" if given.no_python else "--run-path",
            "a Python script or module, which each rank runs in a process of its own",
            "Leave the option out.",
        )
    target = [given.training_script, *given.training_script_args]
    options = list(arguments[: len(arguments) - len(target)])
    if given.module:
        target.insert(0, "-m")
    else:
        options.append("-m")
    return [sys.executable, "-m", "torch.distributed.run", *options, RUNNER, *target]
