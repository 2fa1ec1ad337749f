"""``otel-straggler run``: torchrun, with the training watched."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from otel_straggler.launcher.options import RunOptions, parse_options

RUNNER = "otel_straggler.integrations.zero_code"
"""The module that every rank runs: it runs the script."""


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[OPTIONS] [TORCHRUN OPTIONS]",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGUMENTS]")
def command(arguments: tuple[str, ...]) -> None:
    """Start torchrun, and have the training watched without a change in its code.

    \b
        otel-straggler run --nproc-per-node 4 train.py --epochs 3
        otel-straggler run --nnodes 2 --rdzv-endpoint host:29400 -m package.train
        otel-straggler run --ft-param-rank_heartbeat_timeout=60 --max-restarts 3 train.py
        otel-straggler run --until-finished --max-jobs 5 --max-restarts 3 train.py

    Options are torchrun's; this command becomes torchrun, so signals and the exit code are, too.
    Each rank runs the script as it is, and sends its steps and their sections: data_loading,
    forward, backward, optimizer. Where to, is set by OTEL_STRAGGLER_ENDPOINT
    (http://127.0.0.1:4318), as all else by OTEL_STRAGGLER_*.

    With --ft-param-* or --fault-tol-cfg-path it also starts the node's agent, which finds ranks
    that hang. With --until-finished it runs torchrun again until the training has created the file
    that FAULT_TOL_FINISHED_FLAG_FILE names, at most --max-jobs times (10). With either it stays
    torchrun's parent: it passes signals on, returns the exit code, keeps the ranks' logs, and
    reports attempts, exits and restarts.
    """
    options = parse_options(arguments)
    if options.is_supervised:
        from otel_straggler.launcher.launch import launch

        raise click.exceptions.Exit(launch(options, target_arguments(options)))
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
    options = parse_options(arguments)
    return [sys.executable, "-m", "torch.distributed.run", *target_arguments(options)]


def target_arguments(options: RunOptions) -> list[str]:
    """Arguments of torchrun, with the runner before the script."""
    as_module = ["-m"] if options.given.module else []
    own = list(options.torchrun) + ([] if options.given.module else ["-m"])
    return [*own, RUNNER, *as_module, *options.target]
