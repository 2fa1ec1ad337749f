"""The verbs; each is loaded when it is called."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import click

from otel_straggler._version import __version__
from otel_straggler.cli import BROKEN_PIPE

VERBS = {
    "alerts": "Render alert rules, check them, read the runbook.",
    "checkpoints": "List, verify, and prune a folder of checkpoints.",
    "collector": "Receive OTLP from every rank, score it, serve metrics and reports.",
    "dashboards": "Write dashboards for Grafana.",
    "demo": "Let a rank fail, and see the alert arrive.",
    "deploy": "Write configurations of OpenTelemetry Collectors in front of several collectors.",
    "doctor": "Find why telemetry or scores are missing.",
    "goodput": "Show how much of the time of a run was productive, and where the rest went.",
    "hang": "Find which ranks did not join which collective, and what they did.",
    "history": "List what a collector has stored: runs, windows, verdicts; copy it, put it back.",
    "inject": "Start a training whose ranks inject faults into themselves.",
    "maintenance": "Put hosts under maintenance, so that they notify nobody.",
    "profile": "Profile a training with Nsight Systems.",
    "replay": "Show what settings would have done on recorded telemetry.",
    "report": "Show a run, or save it as one HTML file that opens offline.",
    "run": "Start torchrun, and have the training watched without a change in its code.",
    "scalability": "Compare runs of different sizes: speedup, efficiency, energy, communication.",
    "score": "Score a recorded run: CSV, OTLP-JSON lines or OTLP protobuf.",
    "simulate": "Write or send the telemetry of a run whose slow rank is known.",
    "supervise": "Act on alerts and reports by a policy: drain hosts, restart runs.",
    "top": "Watch the scores of a running collector in the terminal.",
    "trace": "Compare the ranks of a profiled job: idle, compute, communication, late arrivals.",
    "verdict": "Explain a verdict; dismiss or mute it.",
}


@contextlib.contextmanager
def _exit_on_broken_pipe() -> Iterator[None]:
    """``| head`` is no error, whether click or rich notices it."""
    try:
        yield
    except BrokenPipeError as error:
        raise click.exceptions.Exit(BROKEN_PIPE) from error
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        raise click.exceptions.Exit(BROKEN_PIPE) from end


class LazyGroup(click.Group):
    """Each verb lives in ``otel_straggler/cli/<verb>.py`` as ``command``."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """Covers printing the help."""
        with _exit_on_broken_pipe():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with _exit_on_broken_pipe():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        return list(VERBS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 (click's signature)
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"otel_straggler.cli.{cmd_name}").command
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 (click's signature)
        formatter: click.HelpFormatter,
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="otel-straggler")
def otel_straggler() -> None:
    """Find the slow rank, and the silent one, in a distributed PyTorch job."""
